"""Tables as arrays in a file that processes map: where each array lies, and the manifest that it becomes.

Two kinds of file hold a manifest: memory without a name (`shared_tables`), and the copy of a snapshot that all
processes of a host share (`host_copies`). The files of `scratch_arrays` are filled in the same way, and hold single
arrays.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import google_crc32c
import numpy as np

from ..ragged import Array, Ragged, ragged_as_is
from ..tables import DERIVED, TABLE_TYPES, Manifest, Origins, manifest_as_is
from .new_arrays import NewRows

# Where an array lies: its dtype, the position of its first byte, its number of entries.
Place = tuple[str, int, int]
# Some rows of an array: the first of them, their number, the CRC-32C of their bytes.
CheckedRows = tuple[int, int, int]

# Arrays start where a mapping can start.
_ALIGNMENT_BYTES = mmap.ALLOCATIONGRANULARITY
_OFFSETS = "_offsets"
# Arrays that are there already are copied in pieces that stay in a processor's cache.
_PIECE_ROWS = 1 << 16
# In most rows that are not all zeros, some of the first bytes are not.
_FIRST_BYTES = 64
_TABLES = {**TABLE_TYPES, "origins": Origins}


@dataclass(frozen=True)
class MappedFile:
    """An open file with tables: its descriptor, which is closed with this object, and where each array lies."""

    descriptor: int
    places: Mapping[str, Place]

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.descriptor)


# The files that manifests were mapped from: to pass a manifest to another process, its file is passed.
_FILES: weakref.WeakKeyDictionary[Manifest, MappedFile] = weakref.WeakKeyDictionary()


def file_of(manifest: Manifest) -> MappedFile | None:
    """The file whose arrays are the manifest's tables; None if they are in this process's own memory."""
    return _FILES.get(manifest)


def arrays_of(manifest: Manifest) -> dict[str, Array]:
    """All arrays by names of their own: "videos/num_frames", and "videos/id" and "videos/id_offsets"; also those that a
    manifest works out."""
    arrays = {name: getattr(manifest, name) for name in DERIVED}
    for table_name in _TABLES:
        table = getattr(manifest, table_name)
        for field in () if table is None else fields(table):
            column, name = getattr(table, field.name), f"{table_name}/{field.name}"
            if isinstance(column, Ragged):
                arrays |= {name: column.values, f"{name}{_OFFSETS}": column.offsets}
            else:
                arrays[name] = column
    return arrays


class NewTables:
    """A file that is being filled with arrays, which take no memory of the process.

    They are written with pwrite, and mapped to be read. A page that is first touched in a mapping costs five times as
    much: a fault, and with many file systems a record in their journal. Their checksums are taken meanwhile, since a
    processor has them in its cache then.
    """

    def __init__(self, descriptor: int, *, max_bytes: int | None = None) -> None:
        self._descriptor = descriptor
        self._max_bytes = max_bytes
        self.places: dict[str, Place] = {}
        self.checksums: dict[str, list[CheckedRows]] = {}
        self.num_bytes = 0

    def new(self, name: str, rows: int, dtype: str) -> NewRows:
        """A new array. OSError if the disk has no room for it, or if the file would have more than its `max_bytes`."""
        start = -(-self.num_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        num_bytes = rows * np.dtype(dtype).itemsize
        self.places[name] = (np.dtype(dtype).str, start, rows)
        if num_bytes:
            if self._max_bytes is not None and start + num_bytes > self._max_bytes:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._descriptor, start, num_bytes)
            else:
                os.ftruncate(self._descriptor, start + num_bytes)
            self.num_bytes = start + num_bytes
        self.checksums[name] = []
        return _InFile(self._descriptor, self.places[name], self.checksums[name])

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Copy those of these arrays that are not in the file yet."""
        for name, array in arrays.items():
            if name not in self.places:
                rows = self.new(name, len(array), array.dtype.str)
                for start in range(0, len(array), _PIECE_ROWS):
                    rows.put(start, array[start : start + _PIECE_ROWS])


class _InFile:
    """An array in a file that is being filled."""

    def __init__(self, descriptor: int, place: Place, checksums: list[CheckedRows]) -> None:
        self._descriptor, self._place, self._checksums = descriptor, place, checksums

    def put(self, start: int, rows: Array) -> None:
        dtype, first_byte, _ = self._place
        data: Any = np.ascontiguousarray(rows, dtype).view("u1")
        self._checksums.append((start, len(rows), google_crc32c.value(data)))
        if not data[:_FIRST_BYTES].any() and not data.any():
            # What was never written reads as zeros. Many columns have hardly anything else.
            return
        position = first_byte + start * np.dtype(dtype).itemsize
        while len(data):
            # A call writes at most 2 GiB.
            written = os.pwrite(self._descriptor, data, position)
            data, position = data[written:], position + written

    def made(self) -> Array:
        dtype, first_byte, rows = self._place
        if not rows:
            return np.zeros(0, dtype)
        num_bytes = rows * np.dtype(dtype).itemsize
        memory = mmap.mmap(self._descriptor, num_bytes, access=mmap.ACCESS_READ, offset=first_byte)
        return np.frombuffer(memory, dtype, rows)


def mapped(file: MappedFile) -> Manifest:
    """The manifest whose arrays lie in this file. They are not checked: the process that wrote the file has checked
    them."""
    size = os.fstat(file.descriptor).st_size
    memory = mmap.mmap(file.descriptor, size, access=mmap.ACCESS_READ) if size else b""
    arrays = {
        name: np.frombuffer(memory, dtype, rows, start) if rows else np.zeros(0, dtype)
        for name, (dtype, start, rows) in file.places.items()
    }
    tables: dict[str, Any] = {}
    for table, kind in _TABLES.items():
        columns = {field.name: f"{table}/{field.name}" for field in fields(kind)}
        is_there = next(iter(columns.values())) in arrays
        tables[table] = (
            _unchecked(kind, {name: _column(arrays, path) for name, path in columns.items()}) if is_there else None
        )
    manifest = manifest_as_is(arrays, **tables)
    _FILES[manifest] = file
    return manifest


def _column(arrays: Mapping[str, Array], path: str) -> Array | Ragged:
    offsets = arrays.get(f"{path}{_OFFSETS}")
    if offsets is None:
        return arrays[path]
    return ragged_as_is(arrays[path], offsets)


def _unchecked(kind: type, values: dict[str, Any]) -> Any:
    """A frozen object with these values. Its own constructor would read all of a column."""
    made: Any = object.__new__(kind)
    vars(made).update(values)
    return made
