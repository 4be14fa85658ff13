"""Where the datasets of a test lie: in folders, in S3, or in S3 over a bad network: see `flaky_proxy.FLAKY`."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from s3_server import BUCKET, OTHER_SETTINGS, environment
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at


@dataclass(frozen=True)
class Places:
    """New places for datasets, all of one kind. There is nothing in them."""

    new: Callable[[], Storage]


@contextlib.contextmanager
def s3_settings(endpoint: str) -> Iterator[None]:
    """Let plain s3:// URLs mean this server, in this process and its children."""
    with pytest.MonkeyPatch.context() as patch:
        for name in OTHER_SETTINGS:
            patch.delenv(name, raising=False)
        for name, value in environment(endpoint).items():
            patch.setenv(name, value)
        yield


def folders(parent: Path) -> Places:
    return Places(lambda: DiskStorage(parent / uuid.uuid4().hex / "dataset"))


def prefixes() -> Places:
    return Places(lambda: storage_at(f"s3://{BUCKET}/{uuid.uuid4().hex}/dataset"))


def place_of(dataset: Path | Storage) -> Storage:
    return DiskStorage(dataset) if isinstance(dataset, Path) else dataset


def copied(source: Path | Storage, target: Storage) -> Storage:
    """Copy all files of a dataset, as any tool for disks and stores does."""
    origin = place_of(source)
    target.make()
    for each in origin.files(""):
        assert target.put_new(each.key, origin.read(each.key))
    return target


def overwrite(place: Storage, key: str, data: bytes) -> None:
    """Put other bytes where a file is, as only damage does."""
    place.remove(key)
    assert place.put_new(key, data)


def names(place: Storage, folder: str) -> set[str]:
    """The names of the files in a folder of a dataset."""
    return {each.key.removeprefix(f"{folder}/") for each in place.files(folder)}


def shard_names(place: Storage) -> set[str]:
    """The names of a dataset's shards; on a store without what is random in them."""
    return {steady_name(place, name) for name in names(place, "shards")}


def steady_name(place: Storage, shard: str) -> str:
    """A shard's name, without what is random in it: on a disk that is nothing."""
    return shard if place.folder else shard.rpartition("-")[0]


def versions(place: Storage) -> dict[str, str]:
    """All files of a dataset; what changes, changes its version."""
    return {each.key: each.version for each in place.files("")}


def temporary_files(place: Storage) -> list[str]:
    """The names of files that are being written, or that a dead writer left."""
    if place.folder:
        return [each.name for each in (place.folder / ".tmp").glob("*")]
    return [each.key for each in place.files(".tmp")]


def left_over(place: Storage) -> list[str]:
    """What a job that has ended should not leave: temporary files and their folder, and on a store its lock."""
    if place.folder:
        return [".tmp"] if (place.folder / ".tmp").exists() else []
    # The next job but one removes the probe of a process that was killed: it might be that of a job about to start.
    others = [key for key in temporary_files(place) if not key.startswith(".tmp/probe-")]
    return others + ([".lock"] if place.find(".lock") else [])
