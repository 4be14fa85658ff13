"""Two processes that write to one store at once, and processes that are killed while they write."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flaky_proxy import Faults, FlakyProxy
from s3_uploads import unfinished_uploads
from shortgop.errors import DatasetBusyError
from shortgop.storage.locate import storage_at

SCRIPT = Path(__file__).parents[1] / "shared" / "storage_writer.py"


@contextlib.contextmanager
def writer(url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is ready."""
    command = [sys.executable, str(SCRIPT), url, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert heard(process) == "ready"
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def race(url: str, what: str, count: int) -> list[list[Any]]:
    """What each of two processes did that began at the same time."""
    with writer(url, what, "left", str(count)) as left, writer(url, what, "right", str(count)) as right:
        for process in (left, right):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [heard(left), heard(right)]


FLAKY = Faults(seed=2, failed=0.1, cut=0.05, lost=0.1)


@pytest.mark.first_case_short
@pytest.mark.parametrize("faults", [Faults(), FLAKY], ids=["calm", "flaky"])
def test_a_key_goes_to_one_of_two_processes(proxied_url: str, s3_proxy: FlakyProxy, faults: Faults) -> None:
    s3_proxy.faults(faults)
    left, right = race(proxied_url, "put-new", 50)
    assert sorted(left + right, key=int) == [str(number) for number in range(50)]
    assert left, "there was no race"
    assert right, "there was no race"
    storage = storage_at(proxied_url)
    for name, taken in (("left", left), ("right", right)):
        assert [storage.read(key).decode() for key in taken] == [f"{name} {key}" for key in taken]


def test_nothing_is_lost_when_two_processes_replace_the_root(s3_url: str) -> None:
    storage_at(s3_url).put_new("zarr.json", b"0")
    left, right = race(s3_url, "count", 25)
    assert sorted(left + right) == list(range(1, 51))
    assert storage_at(s3_url).read("zarr.json").split()[0] == b"50"


def test_whoever_is_told_that_it_replaced_the_root_did(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    """One whose answer was lost is told that it did not, if the other one has replaced its root since. It then finds
    its own work in the root that it reads again."""
    s3_proxy.faults(FLAKY)
    storage_at(proxied_url).put_new("zarr.json", b"0")
    left, right = race(proxied_url, "count", 25)
    assert len(set(left + right)) == 50
    assert int(storage_at(proxied_url).read("zarr.json").split()[0]) >= 50


def test_a_killed_upload_leaves_nothing_visible_and_the_next_job_removes_the_rest(s3_url: str) -> None:
    storage = storage_at(s3_url)
    with writer(s3_url, "upload") as process:
        with pytest.raises(DatasetBusyError, match=f"process {process.pid} on "), storage.lock():
            pass
        process.kill()
        process.wait()
    assert list(storage.files("")) == []
    assert len(unfinished_uploads(s3_url)) == 1
    with storage.lock():
        assert unfinished_uploads(s3_url) == []
        assert list(storage.files("")) == []
    assert storage.find(".lock") is None


def test_uploads_of_other_datasets_are_left_alone(s3_url: str) -> None:
    with writer(s3_url, "upload"):
        assert len(unfinished_uploads(s3_url)) == 1
        with storage_at(f"{s3_url}-other").lock(), storage_at(f"{s3_url}/other").lock():
            assert len(unfinished_uploads(s3_url)) == 1
