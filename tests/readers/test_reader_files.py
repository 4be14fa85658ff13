"""The edges of the reader: bytes from files, and the contact sheet."""

import ctypes
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from shortgop.errors import MissingDataError, OutputError, UnreadableDataError, UsageError
from shortgop.manifests.operations.shard_bytes import ShardBytes
from shortgop.readers.sheet import write_sheet
from shortgop.storage.disk import DiskStorage
from shortgop.storage.open_files import OpenFiles


def test_a_file_that_is_open_until_the_process_ends_says_nothing(tmp_path: Path) -> None:
    """Python clears modules in an order of its own: a dataset may be alive when those that it needs are gone. With
    decord or OpenCV imported first, every script ended like this."""
    (tmp_path / "a").write_bytes(bytes(10))
    code = (
        "import os, sys; from shortgop.storage.open_files import OpenFiles; "
        "os.kept = OpenFiles(4); print(len(os.kept.read(sys.argv[1], 0, 10)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("10\n", "")


def test_ranges_of_files(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(bytes(range(100)))
    source = ShardBytes(DiskStorage(tmp_path))
    assert source.read("a", 10, 20) == bytes(range(10, 20))
    assert source.read("a", 0, 100) == bytes(range(100))
    assert source.read("a", 99, 100) == b"c"


@pytest.mark.parametrize(("start", "stop"), [(90, 101), (100, 101), (150, 160)])
def test_a_file_that_ends_too_early(tmp_path: Path, start: int, stop: int) -> None:
    file = tmp_path / "a"
    file.write_bytes(bytes(100))
    with pytest.raises(MissingDataError, match=f"ends before byte {stop}, it was cut; copy it") as caught:
        ShardBytes(DiskStorage(tmp_path), lost_remedy="copy it").read("a", start, stop)
    assert caught.value.file == str(file)
    assert caught.value.byte_range == (start, stop)


def test_a_file_that_is_missing_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "zarr.json").touch()
    source = ShardBytes(DiskStorage(tmp_path), lost_remedy="copy it")
    with pytest.raises(MissingDataError, match="is missing; copy it") as caught:
        source.read("a", 0, 1)
    assert caught.value.byte_range == (0, 1)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UnreadableDataError, match="Is a directory"):
        source.read("folder", 0, 1)
    # A failure is not remembered.
    (tmp_path / "a").write_bytes(b"x")
    assert source.read("a", 0, 1) == b"x"


def test_less_than_was_asked_for_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a"
    file.write_bytes(bytes(range(100)))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, start: pread(file, min(count, 7), start))
    assert ShardBytes(DiskStorage(tmp_path)).read("a", 3, 98) == bytes(range(3, 98))


def pages_in_memory(path: Path) -> list[bool]:
    """Whether the system has each page of a file in its cache, as mincore(2) says."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        pages = (ctypes.c_ubyte * -(-len(memory) // mmap.PAGESIZE))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(memory)), pages) == 0
    return [bool(page & 1) for page in pages]


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no advice about files")
def test_bytes_that_are_needed_soon_are_read_ahead_and_what_is_missing_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(bytes(64 * mmap.PAGESIZE))
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    if any(pages_in_memory(file)):
        pytest.skip("the file system keeps all of its files in memory")
    source = DiskStorage(tmp_path)
    source.will_need("a", 32 * mmap.PAGESIZE, 40 * mmap.PAGESIZE)
    deadline = time.monotonic() + 60
    while not all(pages_in_memory(file)[32:40]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not pages_in_memory(file)[0]
    source.will_need("missing", 0, 1)
    source.will_need("a", 1 << 40, 1 << 41)


def test_no_file_is_closed_while_it_is_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if meanwhile it is put out of the cache."""
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode())
    source = OpenFiles(max_open_files=1)
    pread = os.pread

    def slow_pread(file: int, count: int, start: int) -> bytes:
        monkeypatch.setattr(os, "pread", pread)
        assert source.read(str(tmp_path / "b"), 0, 1) == b"b"
        return pread(file, count, start)

    monkeypatch.setattr(os, "pread", slow_pread)
    assert source.read(str(tmp_path / "a"), 0, 1) == b"a"


def picture_of(file: Path) -> np.ndarray:
    with av.open(file) as container:
        return next(container.decode(video=0)).to_ndarray(format="rgb24")


@pytest.mark.parametrize(
    ("count", "columns", "expected"),
    [(1, None, (1, 1)), (2, None, (1, 2)), (5, None, (2, 3)), (9, None, (3, 3)), (10, None, (3, 4)), (6, 6, (1, 6))],
)
def test_a_sheet_shows_each_frame(count: int, columns: int | None, expected: tuple[int, int], tmp_path: Path) -> None:
    frames = torch.randint(0, 255, (count, 30, 41, 3), dtype=torch.uint8)
    write_sheet(frames, tmp_path / "sheet.png", columns=columns)
    sheet = picture_of(tmp_path / "sheet.png")
    rows, across = expected
    assert sheet.shape == (rows * 32 - 2, across * 43 - 2, 3)
    for index, frame in enumerate(frames):
        top, left = index // across * 32, index % across * 43
        assert np.array_equal(sheet[top : top + 30, left : left + 41], frame.numpy())
    assert (sheet[30:32] == 255).all()
    assert [file.name for file in tmp_path.iterdir()] == ["sheet.png"]


def test_a_sheet_of_frames_that_lie_otherwise_in_memory(tmp_path: Path) -> None:
    frames = torch.randint(0, 255, (4, 3, 20, 30), dtype=torch.uint8).permute(0, 2, 3, 1)
    write_sheet(frames, tmp_path / "sheet.png")
    assert np.array_equal(picture_of(tmp_path / "sheet.png")[:20, :30], frames[0].numpy())


@pytest.mark.parametrize(
    "frames",
    [
        torch.zeros((0, 4, 4, 3), dtype=torch.uint8),
        torch.zeros((1, 3, 4, 4), dtype=torch.uint8),
        torch.zeros((1, 4, 4, 3)),
    ],
    ids=["none", "NCHW", "float"],
)
def test_what_no_sheet_can_be_made_of(frames: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a sheet is made of uint8"):
        write_sheet(frames, tmp_path / "sheet.png")


def test_a_sheet_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    frames = torch.zeros((1, 4, 4, 3), dtype=torch.uint8)
    with pytest.raises(OutputError, match="cannot write"):
        write_sheet(frames, tmp_path / "missing" / "sheet.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(OutputError, match=r"folder\.png"):
        write_sheet(frames, tmp_path / "folder.png")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.png"]
