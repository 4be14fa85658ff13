"""Long sources in stores, in sections, where something goes wrong: other files, failing requests, damage, kills."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from far_sections import (
    OPTIONS,
    RATE,
    SIX_SECTIONS,
    assert_same,
    long_unit,
    nothing,
    num_shards,
    numbers,
    other_dataset,
    prepared,
    remuxed,
)
from flaky_proxy import Faults, FlakyProxy
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.steps import OneSection
from shortgop.jobs.units_of_work.units import MAY_BE_LONG_BYTES, Item, Unit, long_apart
from shortgop.jobs.working.step_work import run_step
from shortgop.storage.disk import DiskStorage
from started_processes import kill_with_all_below, kill_workers
from store_helpers import put
from sweep import sample
from synthetic import SyntheticVideo, constant_rate_pts, make_video
from web_server import web_server

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def short_film(tmp_path_factory: pytest.TempPathFactory) -> SyntheticVideo:
    """Make an MP4 that is cut into many sections where these may be short."""
    path = tmp_path_factory.mktemp("short") / "v.mp4"
    return make_video(path, pts=constant_rate_pts(RATE, 300), timebase=1 / RATE, gop=8)


@pytest.fixture
def dataset(tmp_path: Path) -> DiskStorage:
    """Make a dataset with another video."""
    return other_dataset(tmp_path)


def test_an_object_that_is_replaced_between_two_sections_fails_and_is_not_mixed(
    short_film: SyntheticVideo, s3_url: str, dataset: DiskStorage, tmp_path: Path
) -> None:
    put(f"{s3_url}/v.mp4", short_film.path)
    other = make_video(
        tmp_path / "v.mp4", pts=constant_rate_pts(RATE, 300), timebase=1 / RATE, gop=8, first_number=1000
    )
    order = Order([long_unit(s3_url)])
    results = []
    while order:
        step = order.next()
        if isinstance(step, OneSection) and step.number == 2:
            put(f"{s3_url}/v.mp4", other.path)
        results.append(order.done(step, run_step(dataset, step, OPTIONS, nothing)))
    (result,) = filter(None, results)
    assert [failure.reason for failure in result.failures] == [
        f"{s3_url}/v.mp4 was replaced after the job had looked at it; run the same command again"
    ]
    report = prepared(f"{s3_url}/v.mp4", tmp_path / "again")
    assert report.failures == ()
    assert numbers(tmp_path / "again") == list(range(1000, 1300))


@pytest.mark.parametrize("etags", [True, False])
def test_sections_of_a_file_on_a_web_server(etags: bool, short_film: SyntheticVideo, tmp_path: Path) -> None:
    with web_server(short_film.path.parent, "sig=topsecret", etags=etags) as server:
        report = prepared(f"{server.root}/v.mp4?sig=topsecret", tmp_path / "dataset")
    assert report.failures == ()
    assert num_shards(tmp_path / "dataset") >= 3
    assert numbers(tmp_path / "dataset") == list(range(300))


def test_requests_that_fail_do_not_show(
    short_film: SyntheticVideo, proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path
) -> None:
    put(f"{proxied_url}/v.mp4", short_film.path)
    s3_proxy.faults(Faults(seed=1, cut=0.3, failed=0.1))
    for out, given in (("in_store", f"{proxied_url}/v.mp4"), ("on_disk", short_film.path)):
        assert prepared(given, tmp_path / out).failures == ()
    assert_same(tmp_path / "in_store", tmp_path / "on_disk")


def test_a_file_of_which_nothing_is_known_but_its_size_is_looked_at_by_a_worker(s3_url: str) -> None:
    put(f"{s3_url}/v.mp4", b"content")
    unit = long_unit(s3_url)

    def is_long(size_bytes: int, seconds: float) -> bool:
        item = Item(unit.items[0].source, 1, size_bytes)
        (found,) = long_apart([Unit("u", (item,))], "p", {"v.mp4": seconds} if seconds else {}, long_seconds=120)
        return found.is_long

    assert is_long(MAY_BE_LONG_BYTES, 0)
    assert not is_long(MAY_BE_LONG_BYTES - 1, 0)
    assert not is_long(MAY_BE_LONG_BYTES, 100)
    assert is_long(1, 130)


def with_noise(source: Path, out: Path) -> Path:
    """Copy a video, but for bytes in its middle."""
    data = bytearray(source.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 5_000] = Random(0).randbytes(5_000)
    out.write_bytes(data)
    return out


@pytest.mark.parametrize("kind", ["a packet is missing", "noise"])
def test_damage_within_a_section_is_found_as_in_a_local_file(
    kind: str, short_film: SyntheticVideo, s3_url: str, tmp_path: Path
) -> None:
    """The survey of a file in a store does not see it. Where a reference frame is missing, only the headers of the
    packets show it."""
    if kind == "noise":
        damaged = with_noise(short_film.path, tmp_path / "v.mp4")
    else:
        damaged = remuxed(short_film.path, tmp_path / "v.mp4", without=201)
    put(f"{s3_url}/v.mp4", damaged)
    reasons = {}
    for out, given in (("in_store", f"{s3_url}/v.mp4"), ("on_disk", damaged)):
        (failure,) = prepared(given, tmp_path / out).failures
        reasons[out] = failure.reason.replace(str(given), "it")
    assert "--salvage" in reasons["in_store"]
    assert reasons["in_store"] == reasons["on_disk"]


_JOB = """
import sys
from pathlib import Path
from far_sections import SIX_SECTIONS, prepared

if __name__ == "__main__":
    prepared(sys.argv[1], Path(sys.argv[2]), runner=sys.argv[3], seconds=SIX_SECTIONS)
"""
_PATIENCE_SECONDS = 300


def start(url: str, dataset: Path, runner: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _JOB, url, str(dataset), runner],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        cwd=Path(__file__).parents[1] / "shared",
    )  # fmt: skip


def wait_for_sections(job: subprocess.Popen[bytes], dataset: Path, number: int) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not (dataset / "sections").is_dir() or len(list((dataset / "sections").iterdir())) < number:
        assert time.monotonic() < end, "waited in vain for sections"
        assert job.poll() is None, "the job ended too early"
        time.sleep(0.005)


@pytest.fixture
def short_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let temporary files lie in a folder of their own, whose name is short enough for the sockets of Ray."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr("tempfile.tempdir", None)
        yield Path(folder)


@pytest.mark.parametrize("runner", sample(["inline"], more=["ray"]))
def test_a_job_whose_workers_and_driver_are_killed_goes_on_with_the_sections_that_are_there(
    runner: str, short_film: SyntheticVideo, s3_url: str, tmp_path: Path, short_folder: Path
) -> None:
    put(f"{s3_url}/v.mp4", short_film.path)
    prepared(short_film.path, tmp_path / "on_disk", seconds=SIX_SECTIONS)
    assert num_shards(tmp_path / "on_disk") == 6
    dataset = tmp_path / "dataset"
    job = start(f"{s3_url}/v.mp4", dataset, runner)
    wait_for_sections(job, dataset, 1)
    assert kill_workers(job.pid) or runner == "inline"
    wait_for_sections(job, dataset, 2)
    kill_with_all_below(job, patience_seconds=_PATIENCE_SECONDS)
    kept = {file.name: file.stat().st_ino for file in (dataset / "shards").iterdir()}
    # In a process of its own: each process removes once what others left.
    assert start(f"{s3_url}/v.mp4", dataset, "inline").wait(_PATIENCE_SECONDS) == 0
    assert_same(dataset, tmp_path / "on_disk")
    # The shards of finished sections were not written again.
    assert {name: (dataset / "shards" / name).stat().st_ino for name in kept} == kept
    assert [path for path in short_folder.rglob("shortgop-*/*") if "source" in path.name] == []
