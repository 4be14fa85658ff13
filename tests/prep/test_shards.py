"""Writing shards."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from shortgop.manifests.dataset_files.root_file import create
from shortgop.prep.shards import ShardWriter
from shortgop.storage.disk import DiskStorage


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    create(DiskStorage(tmp_path / "dataset"), {})
    return tmp_path / "dataset"


def write(shards: ShardWriter, *pieces: bytes) -> None:
    shards.start_segment()
    for piece in pieces:
        shards.append(piece)


def test_what_is_taken_back_leaves_no_bytes(dataset: Path) -> None:
    with closing(ShardWriter(DiskStorage(dataset), "unit", shard_bytes=10)) as shards:
        write(shards, b"init", b"gop")
        mark = shards.mark()
        write(shards, b"a failure of many bytes")
        write(shards, b"that went on into the next shard")
        shards.rollback(mark)
        write(shards, b"kept")
        (committed,) = shards.commit().values()
    assert committed.length == 11
    assert (dataset / "shards" / committed.name).read_bytes() == b"initgopkept"
    assert [file.name for file in (dataset / "shards").iterdir()] == [committed.name]
    # The name holds a hash of what is in it, and of nothing that was taken back.
    with closing(ShardWriter(DiskStorage(dataset), "other", shard_bytes=10)) as shards:
        write(shards, b"initgopkept")
        assert shards.commit()["other-0"].name == committed.name.replace("unit", "other")


def test_a_segment_stays_in_one_shard_and_the_next_begins_when_one_is_full(dataset: Path) -> None:
    with closing(ShardWriter(DiskStorage(dataset), "unit", shard_bytes=10)) as shards:
        assert shards.start_segment() == ("unit-0", 0)
        assert shards.append(b"0123456789abcdef") == 0
        assert shards.append(b"more") == 16
        assert shards.start_segment() == ("unit-1", 0)
        shards.append(b"next")
        assert {name: file.length for name, file in shards.commit().items()} == {"unit-0": 20, "unit-1": 4}


def test_what_is_not_committed_is_never_seen(dataset: Path) -> None:
    with closing(ShardWriter(DiskStorage(dataset), "unit", shard_bytes=10)) as shards:
        write(shards, b"init")
    assert not (dataset / "shards").exists()
    assert list((dataset / ".tmp").iterdir()) == []
