"""Zarr arrays, written by zarr and read without it: the same values, and no damage goes unnoticed."""

import errno
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs.zstd import Zstd  # type: ignore[import-untyped]

from shortgop.errors import CorruptDataError, MissingDataError, UnreadableDataError
from shortgop.manifests.ragged import Array
from shortgop.manifests.schema import Column
from shortgop.manifests.zarr_files import zarr_sizes
from shortgop.manifests.zarr_files import zarr_write as writer
from shortgop.manifests.zarr_files.zarr_arrays import _content_size, read_rows
from shortgop.manifests.zarr_files.zarr_read import read_failures

CHUNK_ROWS, SHARD_CHUNKS = 8, 4
FILE_ROWS = CHUNK_ROWS * SHARD_CHUNKS
COLUMNS = [Column("u1"), Column("<u4"), Column("<i4", delta=True), Column("<i8", delta=True)]
SQUARES = np.arange(100, dtype="<i8") ** 2


def open_file(folder: Path, key: str) -> BinaryIO:
    return (folder / key).open("rb")


@pytest.fixture(scope="module", autouse=True)
def _small_chunks() -> Iterator[None]:
    """Real ones are of 65,536 rows and files of 256 chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zarr_sizes, "CHUNK_ROWS", CHUNK_ROWS)
        patch.setattr(zarr_sizes, "SHARD_CHUNKS", SHARD_CHUNKS)
        yield


def write(folder: Path, values: Array, column: Column) -> None:
    """Write the array x as a manifest's column is written, file by file."""
    blocks = [values[start : start + FILE_ROWS] for start in range(0, len(values), FILE_ROWS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        writer._write_array(zarr.create_group(folder, overwrite=True), "x", column, len(values), blocks)


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with an array of 100 rows in four files."""
    folder = tmp_path_factory.mktemp("squares")
    write(folder, SQUARES, COLUMNS[-1])
    return folder


@pytest.mark.parametrize("column", COLUMNS, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 8, 9, 31, 32, 33, 100])
def test_an_array_is_read_as_it_was_written(tmp_path: Path, column: Column, rows: int) -> None:
    limits = np.iinfo(column.dtype)
    # Differences of the largest and the smallest numbers wrap around.
    values = np.random.default_rng(0).integers(limits.min, limits.max, rows, dtype=limits.dtype, endpoint=True)
    write(tmp_path, values, column)
    found = read_rows(partial(open_file, tmp_path), "x", column.dtype)
    assert found.dtype == np.dtype(column.dtype)
    assert found.tolist() == values.tolist()


def test_zarr_reads_the_same(squares: Path) -> None:
    with warnings.catch_warnings():
        # zarr before 3.2 says so.
        warnings.filterwarnings("ignore", "Numcodecs codecs are not in the Zarr version 3 specification")
        assert np.asarray(zarr.open_array(squares / "x", mode="r")[:]).tolist() == SQUARES.tolist()


def test_nobody_can_write_to_what_was_read(squares: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        read_rows(partial(open_file, squares), "x", "<i8")[0] = 1


@given(st.integers(0, 110), st.integers(0, 110))
@settings(deadline=None)
def test_any_rows_can_be_read_alone(squares: Path, start: int, stop: int) -> None:
    found = read_rows(partial(open_file, squares), "x", "<i8", start, stop)
    assert found.tolist() == SQUARES[start:stop].tolist()


def test_only_the_files_that_hold_the_rows_are_opened(squares: Path) -> None:
    opened = []

    def noting(key: str) -> BinaryIO:
        opened.append(key)
        return open_file(squares, key)

    read_rows(noting, "x", "<i8", 40, 70)
    assert opened == ["x/zarr.json", "x/c/1", "x/c/2"]


@pytest.mark.parametrize("key", ["x/zarr.json", "x/c/0", "x/c/3"])
def test_a_lost_file_is_named(squares: Path, key: str) -> None:
    """Zarr would fill in zeros."""

    def without(asked: str) -> BinaryIO:
        return open_file(squares, "lost" if asked == key else asked)

    with pytest.raises(MissingDataError, match=f"{key} is missing") as caught:
        read_rows(without, "x", "<i8")
    assert caught.value.file == key


@given(st.sampled_from(["x/zarr.json", "x/c/0", "x/c/3"]), st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_file_is_named_or_makes_no_difference(squares: Path, key: str, data: st.DataObject) -> None:
    content = bytearray((squares / key).read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    def damaged(asked: str) -> BinaryIO:
        return io.BytesIO(content) if asked == key else open_file(squares, asked)

    found, blamed = None, None
    try:
        found = read_rows(damaged, "x", "<i8").tolist()
    except (CorruptDataError, MissingDataError) as error:
        blamed = error.file
    if key == "x/zarr.json":
        # It may now say that there are more files. Or that there are fewer rows; the tables notice when a column has
        # another length than its neighbours.
        assert blamed in {key, *(f"x/c/{number}" for number in range(10))} or (
            found is not None and (len(found) != 100 or found == SQUARES.tolist())
        )
    else:
        assert blamed == key or found == SQUARES.tolist()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"data_type": "int32"}, "int32 encoded with .* where <i8 was expected"),
        ({"shape": [10, 10]}, "too many values to unpack"),
        ({"shape": [-1]}, "an impossible shape"),
        ({"shape": [100.0]}, "an impossible shape"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [32.0]}}}, "an impossible shape"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}}, "an impossible shape"),
        ({"codecs": [{"name": "bytes"}, {"name": "gzip"}]}, r"\['bytes', 'gzip'\]"),
    ],
)
def test_an_array_of_another_kind_is_refused(
    squares: Path, tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    document = json.loads((squares / "x" / "zarr.json").read_text())
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "zarr.json").write_text(json.dumps({**document, **changes}))
    with pytest.raises(CorruptDataError, match=f"x/zarr.json cannot be decoded: .*{complaint}"):
        read_rows(partial(open_file, tmp_path), "x", "<i8")


# What is no damage, and what is


def _answering(folder: Path, key: str, answer: Any) -> Any:
    """An `open_file` that does something else for this key."""
    return lambda asked: answer() if asked == key else open_file(folder, asked)


@pytest.mark.parametrize("key", ["x/zarr.json", "x/c/0"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOMEM])
def test_what_the_system_refuses_is_not_called_damage(squares: Path, key: str, number: int) -> None:
    def refuse() -> BinaryIO:
        raise OSError(number, os.strerror(number))

    with pytest.raises(UnreadableDataError, match=f"{key} cannot be read: {os.strerror(number)}; ") as caught:
        read_rows(_answering(squares, key, refuse), "x", "<i8")
    assert caught.value.file == key


class _Failing(io.BytesIO):
    """A file on a disk that fails while it is read."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("key", ["x/zarr.json", "x/c/0"])
def test_a_disk_that_fails_midway_is_not_called_damage(squares: Path, key: str) -> None:
    with pytest.raises(UnreadableDataError, match=f"{key} cannot be read: Input/output error"):
        read_rows(_answering(squares, key, _Failing), "x", "<i8")


@pytest.mark.parametrize("content", [b"{}", b"[]", b'{"shape": [100]}', b"null", b"3", b'{"shape": {}}'])
def test_a_malformed_document_is_damaged_and_not_missing(squares: Path, content: bytes) -> None:
    with pytest.raises(CorruptDataError, match=r"x/zarr.json cannot be decoded"):
        read_rows(_answering(squares, "x/zarr.json", lambda: io.BytesIO(content)), "x", "<i8")


@pytest.mark.parametrize("version", [None, 99, "5"])
def test_failures_of_a_version_that_cannot_be_read_are_refused(version: object) -> None:
    attributes = {"shortgop": {} if version is None else {"format_version": version}}
    content = json.dumps({"attributes": attributes}).encode()
    with pytest.raises(CorruptDataError, match=rf"zarr.json says format version {version!r}"):
        read_failures(lambda _key: io.BytesIO(content))


def test_a_document_that_claims_more_rows_than_any_memory_holds_is_damaged(squares: Path) -> None:
    document = json.loads((squares / "x" / "zarr.json").read_text())
    content = json.dumps({**document, "shape": [1 << 60]}).encode()
    with pytest.raises(CorruptDataError, match="an impossible shape"):
        read_rows(_answering(squares, "x/zarr.json", lambda: io.BytesIO(content)), "x", "<i8")


def test_a_chunk_that_claims_to_hold_terabytes_is_damaged(tmp_path: Path) -> None:
    """It says how much it decodes to, and that much would be asked for."""
    write(tmp_path, SQUARES[:8], COLUMNS[-1])
    file = tmp_path / "x" / "c" / "0"
    frame = file.read_bytes()
    assert frame[4] >> 5 == 1  # a single segment with one byte for its size
    file.write_bytes(frame[:4] + bytes([frame[4] | 0xC0]) + (1 << 42).to_bytes(8, "little") + frame[6:])
    with pytest.raises(CorruptDataError, match=f"a chunk of {1 << 42} bytes, not of 8 rows"):
        read_rows(partial(open_file, tmp_path), "x", "<i8")


@pytest.mark.parametrize("rows", [1, 255, 256, 257, 65535, 65536, 65537, 70000])
def test_what_a_chunk_says_of_its_size_is_understood(rows: int) -> None:
    data = bytes(rows)
    for checksum in (False, True):
        assert _content_size(bytes(Zstd(level=5, checksum=checksum).encode(data))) == rows


def test_too_little_memory_is_not_called_damage(squares: Path) -> None:
    """In a process that may only have so much; the array is whole."""
    code = (
        "import io, json, resource, sys; from pathlib import Path\n"
        "from shortgop.manifests.zarr_files.zarr_arrays import read_rows\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), -1))\n"
        "folder = Path(sys.argv[1])\n"
        "document = json.loads((folder / 'x/zarr.json').read_text()); document['shape'] = [1 << 30]\n"
        "def open_file(key):\n"
        "    if key == 'x/zarr.json': return io.BytesIO(json.dumps(document).encode())\n"
        "    return (folder / key).open('rb')\n"
        "try: read_rows(open_file, 'x', '<i8')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(squares)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("UnreadableDataError x/zarr.json does not fit into memory"), done
