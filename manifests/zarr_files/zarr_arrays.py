"""Reading the Zarr arrays of a manifest: one dimension, the chunks and codecs of docs/format.md.

The zarr library wrote them and could read them. This module reads them itself: importing zarr takes longer than all
else that `shortgop info` does, zarr reads a lost file as zeros, and zarr's event loop runs in a thread, which does not
survive a fork.

This module does not know where the files are. `file` of an error raised here is a key of the Zarr store.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

import numpy as np
from numcodecs import zstd  # type: ignore[import-untyped]

from ...errors import CorruptDataError, DatasetError, MissingDataError, not_read
from ..ragged import Array, Ragged
from ..schema import OFFSETS
from ..shared_memory.new_arrays import NewArray, in_memory, in_threads

# Opens the file of a Zarr store that has this key. FileNotFoundError or KeyError if there is none.
OpenFile = Callable[[str], BinaryIO]

_CODECS = (["bytes", "zstd"], ["numcodecs.delta", "bytes", "zstd"])
_CHECKSUM_BYTES = 4
# Chunks that a thread decodes in a row: in sixteenths of a second.
_PIECE_CHUNKS = 64
# No table is larger than this. A document that claims more is damaged, and must not make numpy ask for that much
# memory.
_MAX_BYTES = 1 << 46
# Error numbers of a seek before a file's start, which means that the file is too short. Errors of Python's own file
# objects have no number.
_OUT_OF_THE_FILE = (errno.EINVAL, errno.EOVERFLOW, None)


@dataclass(frozen=True)
class _Layout:
    """How an array is stored. Without sharding `file_rows` equals `chunk_rows`; with sharding it is a multiple."""

    rows: int
    file_rows: int
    chunk_rows: int
    sharded: bool
    delta: bool


@contextmanager
def opening(open_file: OpenFile, key: str) -> Iterator[BinaryIO]:
    """The file with this key. Any exception inside the block becomes an error that names the file."""
    try:
        file = open_file(key)
    except KeyError as error:
        raise MissingDataError(f"{key} is missing", file=key) from error
    except OSError as error:
        raise not_read(key, error) from error
    except Exception as error:
        raise _damaged(key, error) from error
    try:
        with file:
            yield file
    except DatasetError:
        raise
    except (OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno in _OUT_OF_THE_FILE:
            raise _damaged(key, error) from error
        raise not_read(key, error) from error
    except Exception as error:
        # Each codec has its own exceptions for damaged input.
        raise _damaged(key, error) from error


def _damaged(key: str, error: Exception) -> CorruptDataError:
    return CorruptDataError(f"{key} cannot be decoded: {type(error).__name__}: {error}", file=key)


def read_rows(
    open_file: OpenFile,
    path: str,
    dtype: str,
    start: int = 0,
    stop: int | None = None,
    *,
    new_array: NewArray = in_memory,
) -> Array:
    """Rows [start, stop) of the array at `path`, whose type must be `dtype`, in the array that `new_array` makes."""
    stored = StoredRows(open_file, path, dtype)
    stop = len(stored) if stop is None else min(stop, len(stored))
    rows = max(0, stop - start)
    try:
        out = new_array(path, rows, dtype)
    except (OSError, MemoryError) as error:
        raise not_read(f"{path}/zarr.json", error) from error

    def read_piece(number: int, first: int, last: int) -> None:
        for at, chunk in stored.chunks((number, first, last)):
            out.put(max(at - start, 0), chunk[max(start - at, 0) : stop - at])

    in_threads(read_piece, list(_pieces(stored.layout, start, stop)))
    return out.made()


class StoredRows:
    """An array of a Zarr store, of which rows are decoded as they are asked for, also by several threads."""

    def __init__(self, open_file: OpenFile, path: str, dtype: str) -> None:
        self._open_file, self._path, self._dtype = open_file, path, dtype
        with opening(open_file, f"{path}/zarr.json") as file:
            self.layout = _layout(file.read(), dtype)
        self._indexes: dict[int, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return self.layout.rows

    def between(self, start: int, stop: int) -> Array:
        """Rows [start, stop), which must be there."""
        found = [
            chunk[max(start - at, 0) : stop - at]
            for piece in _pieces(self.layout, start, stop)
            for at, chunk in self.chunks(piece)
        ]
        return found[0] if len(found) == 1 else np.concatenate([np.zeros(0, self._dtype), *found])

    def chunks(self, piece: tuple[int, int, int]) -> Iterator[tuple[int, Array]]:
        """The chunks that have any rows of a piece, each with its first row."""
        number, first, last = piece
        with opening(self._open_file, f"{self._path}/c/{number}") as file:
            origin = number * self.layout.file_rows
            for row, encoded in self._encoded_chunks(file, number, first - origin, last - origin):
                yield origin + row, _decoded(encoded, self.layout, self._dtype)

    def _encoded_chunks(self, file: BinaryIO, number: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """The first row and the encoded bytes of each chunk that has any of the file's rows [start, stop)."""
        layout = self.layout
        if not layout.sharded:
            yield 0, file.read()
            return
        if number not in self._indexes:
            self._indexes[number] = _shard_index(file, layout.file_rows // layout.chunk_rows)
        for chunk in range(max(start, 0) // layout.chunk_rows, -(-min(stop, layout.file_rows) // layout.chunk_rows)):
            offset, length = self._indexes[number][chunk]
            file.seek(offset)
            yield chunk * layout.chunk_rows, file.read(length)


def _pieces(layout: _Layout, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The rows [start, stop) in pieces: the number of a file, and the first row and the last row + 1 in the array. A
    piece has whole chunks, but where the rows start and stop."""
    piece_rows = min(layout.file_rows, _PIECE_CHUNKS * layout.chunk_rows)
    for number in range(start // layout.file_rows, -(-stop // layout.file_rows)):
        origin, end = number * layout.file_rows, min(stop, (number + 1) * layout.file_rows)
        first = max(start, origin)
        while first < end:
            last = min(end, first - (first - origin) % layout.chunk_rows + piece_rows)
            yield number, first, last
            first = last


# Most arrays of a small manifest have the same few documents.
@lru_cache(1024)
def _layout(text: bytes, dtype: str) -> _Layout:
    document = json.loads(text)
    (rows,) = document["shape"]
    (file_rows,) = document["chunk_grid"]["configuration"]["chunk_shape"]
    codecs = document["codecs"]
    chunk_rows, sharded = file_rows, codecs[0]["name"] == "sharding_indexed"
    if sharded:
        configuration = codecs[0]["configuration"]
        (chunk_rows,), codecs = configuration["chunk_shape"], configuration["codecs"]
        if configuration.get("index_location", "end") != "end" or file_rows % chunk_rows:
            raise ValueError("a kind of sharding that the format does not know")
    are_whole = all(isinstance(each, int) for each in (rows, file_rows, chunk_rows))
    too_few = min(rows + 1, file_rows, chunk_rows) < 1
    if not are_whole or too_few or max(rows, chunk_rows) * np.dtype(dtype).itemsize > _MAX_BYTES:
        raise ValueError("an impossible shape")
    names = [codec["name"] for codec in codecs]
    if names not in _CODECS or np.dtype(document["data_type"]) != np.dtype(dtype):
        raise ValueError(f"{document['data_type']} encoded with {names}, where {dtype} was expected")
    return _Layout(rows, file_rows, chunk_rows, sharded, delta=names == _CODECS[1])


def _shard_index(file: BinaryIO, chunks: int) -> list[tuple[int, int]]:
    """Offset and length of each chunk. This index and its CRC-32C are the last bytes of the file."""
    import google_crc32c

    index_bytes = 16 * chunks
    file.seek(-(index_bytes + _CHECKSUM_BYTES), os.SEEK_END)
    data = file.read()
    if google_crc32c.value(data[:index_bytes]) != int.from_bytes(data[index_bytes:], "little"):
        raise ValueError("the CRC-32C of its index differs")
    return [tuple(entry) for entry in np.frombuffer(data, dtype="<u8", count=2 * chunks).reshape(-1, 2).tolist()]


def _decoded(encoded: bytes, layout: _Layout, dtype: str) -> Array:
    size, rows = _content_size(encoded), layout.chunk_rows
    if size not in (None, rows * np.dtype(dtype).itemsize):
        # Checked before the decoder asks for that much memory.
        raise ValueError(f"a chunk of {size} bytes, not of {rows} rows")
    if layout.delta and size is not None:
        # The sums are put in place of the differences: the pages of another new array may take longer than both.
        chunk = np.empty(rows, dtype)
        zstd.decompress(encoded, chunk.view("u1"))
        return np.cumsum(chunk, out=chunk)
    chunk = np.frombuffer(zstd.decompress(encoded), dtype=dtype)
    if len(chunk) != rows:
        raise ValueError(f"a chunk of {len(chunk)} rows, not {rows}")
    return np.cumsum(chunk, dtype=chunk.dtype) if layout.delta else chunk


def _content_size(frame: bytes) -> int | None:
    """The decoded size in bytes that the header of a Zstandard frame gives (RFC 8878, 3.1.1.1), or None if it gives
    none."""
    if len(frame) < 6:
        return None
    descriptor = frame[4]
    single_segment, size_flag, dictionary_flag = descriptor >> 5 & 1, descriptor >> 6, descriptor & 3
    size_bytes = (single_segment, 2, 4, 8)[size_flag]
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[dictionary_flag]
    if not size_bytes or len(frame) < start + size_bytes:
        return None
    return int.from_bytes(frame[start : start + size_bytes], "little") + (256 if size_bytes == 2 else 0)


def read_ragged(open_file: OpenFile, path: str, dtype: str, *, new_array: NewArray = in_memory) -> Ragged:
    """The ragged column at `path`, whose values must be of type `dtype`."""
    values = read_rows(open_file, path, dtype, new_array=new_array)
    offsets = read_rows(open_file, f"{path}_offsets", OFFSETS.dtype, new_array=new_array)
    try:
        return Ragged(values, offsets)
    except ValueError as error:
        raise CorruptDataError(f"{path}: {error}", file=f"{path}_offsets") from error
