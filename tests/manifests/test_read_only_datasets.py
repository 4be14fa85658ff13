"""Commands that change a dataset where it is, on one that nobody may write to: "write somewhere else" is no remedy."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import shortgop
from dataset_places import copied, versions
from file_permissions import modes_count
from shortgop.cli import app
from shortgop.errors import OutputError
from shortgop.manifests.dataset_files.layout import snapshot_key
from shortgop.manifests.dataset_files.root_file import Root, change_root
from shortgop.manifests.operations.drop import drop
from shortgop.storage.bucket import Bucket
from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import storage_at
from store_helpers import put
from synthetic import SyntheticVideo

_COMMANDS = {
    "annotate": ["labels.csv"],
    "drop": ["b"],
    "gc": [],
    "compact": [],
    "rollback": ["--back", "1"],
}


@pytest.fixture
def read_only(published: Path) -> Iterator[Path]:
    """Make a dataset of two snapshots, into whose folder nothing can be written."""
    drop(DiskStorage(published), ["a"])
    published.chmod(0o500)
    yield published
    published.chmod(0o700)


def said_by(*arguments: str) -> str:
    """What a command that fails says, where the modes of files count for root, too."""
    with modes_count():
        done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 1, done.output
    return done.output


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_remedies_are_permission_and_a_copy(read_only: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (read_only.parent / "labels.csv").write_text("id,label\nb,1\n")
    monkeypatch.chdir(read_only.parent)
    before = versions(DiskStorage(read_only))
    said = said_by(command, str(read_only), *_COMMANDS[command])
    assert f"cannot write {read_only}" in said
    assert "Permission denied" in said
    assert f"give yourself permission to write to {read_only}, or `shortgop copy {read_only} TARGET`" in said
    assert "somewhere else" not in said
    assert versions(DiskStorage(read_only)) == before


@pytest.mark.parametrize("lost", ["zarr.json", snapshot_key("000001")])
def test_a_repair_names_a_copy_that_does_not_need_what_is_lost(three_videos: Path, tmp_path: Path, lost: str) -> None:
    dataset = copied(three_videos, DiskStorage(tmp_path / "dataset"))
    (tmp_path / "dataset" / lost).unlink()
    (tmp_path / "dataset").chmod(0o500)
    said = said_by("verify", dataset.url, "--repair")
    assert f"permission to write to {dataset}, or copy its files with another program, such as `cp -r`" in said
    assert "shortgop copy" not in said
    subprocess.run(["cp", "-r", tmp_path / "dataset", tmp_path / "copy"], check=True)
    (tmp_path / "copy").chmod(0o700)
    repaired = CliRunner().invoke(app, ["verify", str(tmp_path / "copy"), "--repair"])
    assert repaired.exit_code == 0, repaired.output
    assert list(shortgop.open(tmp_path / "copy").ids) == list(shortgop.open(three_videos).ids)


def test_a_job_that_adds_to_it_says_the_same(
    three_videos: Path, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    dataset = copied(three_videos, DiskStorage(tmp_path / "dataset"))
    (tmp_path / "dataset").chmod(0o500)
    said = said_by("prep", str(constant_video.path), "--out", dataset.url, "--runner", "inline")
    assert f"permission to write to {dataset}, or `shortgop copy" in said


def test_a_shard_that_is_needed_no_more_and_cannot_be_removed(three_videos: Path, tmp_path: Path) -> None:
    dataset = copied(three_videos, DiskStorage(tmp_path / "dataset"))
    stray = tmp_path / "dataset" / "shards" / f"{'0' * 16}-0-1a.shard"
    stray.write_bytes(b"of a worker that died long ago")
    os.utime(stray, (0, 0))
    stray.parent.chmod(0o500)
    said = said_by("gc", dataset.url)
    stray.parent.chmod(0o700)
    assert f"cannot write {stray}: Permission denied; this changes the dataset where it is: give" in said
    assert stray.exists()


def test_a_shard_of_a_new_part_that_must_not_be_looked_at(three_videos: Path, tmp_path: Path) -> None:
    """The part is published only if its shard is there."""
    dataset = copied(three_videos, DiskStorage(tmp_path / "dataset"))
    change_root(dataset, lambda root: Root(root.profile, None))
    dataset.remove(snapshot_key("000001"))
    (tmp_path / "dataset" / "shards").chmod(0)
    said = said_by("drop", dataset.url, "a")
    (tmp_path / "dataset" / "shards").chmod(0o700)
    assert re.search(r"shards/\w+-\d-\w+\.shard cannot be read: Permission denied; give yourself permission", said)


def test_a_new_dataset_can_be_written_somewhere_else(tmp_path: Path, constant_video: SyntheticVideo) -> None:
    (tmp_path / "mine").mkdir(mode=0o500)
    source = str(constant_video.path)
    said = said_by("prep", source, "--out", str(tmp_path / "mine/dataset"), "--runner", "inline")
    assert "give yourself permission to write there, or write somewhere else" in said


@pytest.mark.parametrize("number", [errno.EPERM, errno.EROFS])
def test_files_that_cannot_be_changed_and_file_systems_that_are_read_only(
    published: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """On a read-only file system no permission helps."""

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr("shortgop.storage.disk_lock._lock", refused)
    with pytest.raises(OutputError, match="cannot write .*: refused; .*`shortgop copy .* TARGET`") as caught:
        shortgop.annotate(published, {"a": {"label": 1}})
    assert ("permission" in caught.value.message) == (number == errno.EPERM)


def test_a_store_that_refuses_to_be_written_to(published: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in published.rglob("*"):
        if file.is_file():
            put(f"{s3_url}/{file.relative_to(published)}", file.read_bytes())

    def refused(self: Bucket, key: str, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "the server answered 403 AccessDenied", self.place(key))

    monkeypatch.setattr(Bucket, "put", refused)
    with pytest.raises(OutputError, match=f"403 AccessDenied; .*permission to write to {s3_url}, or `shortgop copy"):
        drop(storage_at(s3_url), ["a"])
