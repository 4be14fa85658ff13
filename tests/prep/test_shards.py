"""Writing shards."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dataset_places import Places
from shortgop.manifests.dataset_files.root_file import create
from shortgop.prep.shards import ShardWriter
from shortgop.storage.disk import DiskStorage
from shortgop.storage.network import PIECE_BYTES


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


class TestBytesThatAStoreHasReceived:
    """They cannot be taken back: they stay at the end of their shard, which gets no more segments."""

    where = "s3"

    def test_what_lies_before_them_is_unused_too_once_it_is_taken_back(self, places: Places) -> None:
        """A stretch of a file was encoded, and the next one was not: then all of the file is prepared anew."""
        with closing(ShardWriter(places.new(), "unit", shard_bytes=PIECE_BYTES)) as shards:
            write(shards, b"kept")
            mark = shards.mark()
            write(shards, b"a stretch")
            later = shards.mark()
            write(shards, bytes(PIECE_BYTES))
            shards.rollback(later)
            shards.rollback(mark)
            write(shards, b"anew")
            first, second = shards.commit().values()
        assert (first.length, first.unused) == (PIECE_BYTES, (4, PIECE_BYTES))
        assert (second.length, second.unused) == (4, None)

    def test_a_shard_in_place_of_one_that_was_taken_back_is_used(self, places: Places) -> None:
        with closing(ShardWriter(places.new(), "unit", shard_bytes=2)) as shards:
            write(shards, b"full")
            mark = shards.mark()
            write(shards, b"a")
            later = shards.mark()
            shards.append(bytes(PIECE_BYTES))
            shards.rollback(later)
            shards.rollback(mark)
            write(shards, b"b")
            write(shards, b"c")
            committed = shards.commit()
        assert [(file.length, file.unused) for file in committed.values()] == [(4, None), (2, None)]
