"""Shards that are replaced under a running reader: it reads the file that is there now."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import shortgop
from shortgop.storage.open_files import OpenFiles, _Place
from synthetic import read_number

Replace = Callable[[Path, bytes], None]


def by_rename(file: Path, data: bytes) -> None:
    """As rsync does."""
    new = file.with_suffix(".new")
    new.write_bytes(data)
    new.replace(file)


def by_link(file: Path, data: bytes) -> None:
    """A link that is turned to another file."""
    new = file.with_name(f"{len(list(file.parent.iterdir()))}.copy")
    new.write_bytes(data)
    file.unlink()
    file.symlink_to(new.name)


def in_place(file: Path, data: bytes) -> None:
    """As cp does."""
    with file.open("r+b") as opened:
        opened.write(data)
        opened.truncate(len(data))


def damaged(data: bytes) -> bytes:
    """Every byte another one."""
    return bytes(byte ^ 0x55 for byte in data)


@pytest.fixture
def copy(three_videos: Path, tmp_path: Path) -> Path:
    return shutil.copytree(three_videos, tmp_path / "copy")


@pytest.fixture
def shard(copy: Path) -> Path:
    (shard,) = (copy / "shards").iterdir()
    return shard


@pytest.mark.parametrize("replace", [by_rename, by_link, in_place])
def test_a_damaged_shard_is_replaced_by_its_good_copy(copy: Path, shard: Path, replace: Replace) -> None:
    good = shard.read_bytes()
    video = shortgop.open(copy)["ntsc.mp4"]
    for _ in range(2):
        replace(shard, damaged(good))
        with pytest.raises(shortgop.CorruptDataError, match="their CRC-32 differs"):
            video[10]
        replace(shard, good)
        assert read_number(video[10]) == 10


@pytest.mark.parametrize("replace", [by_rename, by_link, in_place])
def test_a_cut_shard_is_replaced_by_its_good_copy(copy: Path, shard: Path, replace: Replace) -> None:
    good = shard.read_bytes()
    video = shortgop.open(copy)["ntsc.mp4"]
    replace(shard, good[:100])
    with pytest.raises(shortgop.MissingDataError, match="it was cut"):
        video[10]
    replace(shard, good)
    assert read_number(video[10]) == 10


def test_a_shard_that_went_away_is_missing_even_while_it_is_open(copy: Path, shard: Path) -> None:
    good = shard.read_bytes()
    video = shortgop.open(copy)["ntsc.mp4"]
    assert read_number(video[10]) == 10
    shard.unlink()
    with pytest.raises(shortgop.MissingDataError, match="is missing; run"):
        video[10]
    shard.write_bytes(good)
    assert read_number(video[10]) == 10


def test_what_is_read_is_right_while_shards_are_replaced(copy: Path, shard: Path) -> None:
    """By the good file or an error, never by pixels of the damaged one."""
    good, done = shard.read_bytes(), threading.Event()
    bad = damaged(good)

    def replace() -> None:
        for _ in range(60):
            by_rename(shard, bad)
            by_rename(shard, good)
        done.set()

    video = shortgop.open(copy, threads=2)["ntsc.mp4"]
    thread = threading.Thread(target=replace)
    thread.start()
    try:
        while not done.is_set():
            with contextlib.suppress(shortgop.CorruptDataError):
                assert [read_number(picture) for picture in video.get_frames_at([3, 40, 70]).data] == [3, 40, 70]
    finally:
        thread.join()
    assert read_number(video[10]) == 10


def open_at(file: Path) -> list[str]:
    """What this process has open at a path, also what was removed there."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(entry.readlink()))
    return [link for link in links if link.startswith(str(file))]


def test_a_replaced_file_counts_as_opened_again_and_the_old_one_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"old")
    source = OpenFiles(max_open_files=2)
    assert [source.read(str(file), 0, 3) for _ in range(3)] == [b"old"] * 3
    assert source.hits_and_misses == (2, 1)
    assert len(open_at(file)) == 1
    by_rename(file, b"new")
    assert [source.read(str(file), 0, 3) for _ in range(3)] == [b"new"] * 3
    assert source.hits_and_misses == (4, 2)
    assert open_at(file) == [str(file)]


def test_wrong_bytes_are_read_once_more_from_a_file_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may go on saying for a while that the path leads to the old file."""
    file = tmp_path / "a"
    file.write_bytes(b"old")
    source = OpenFiles(max_open_files=2)
    source.read(str(file), 0, 3)
    monkeypatch.setattr("shortgop.storage.open_files._identity", lambda status: (0, 0))
    known = _Place(str(file)).file(reopen=False)[0]
    by_rename(file, b"longer")
    assert known.read(0, 3) == b"old"
    source = OpenFiles(max_open_files=2)
    by_rename(file, b"old")
    assert source.read(str(file), 0, 3) == b"old"
    by_rename(file, b"longer")
    assert source.read(str(file), 0, 3) == b"old"
    assert source.read(str(file), 0, 3, reopen=True) == b"lon"
    by_rename(file, b"longest")
    # Bytes that are not there are looked for in the file that is there now.
    assert source.read(str(file), 0, 7) == b"longest"
    with pytest.raises(EOFError, match="ends before byte 8"):
        source.read(str(file), 0, 8)
