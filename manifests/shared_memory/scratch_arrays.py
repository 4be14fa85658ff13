"""Arrays that may not fit into memory: in a file that has no name, so that it ends with its last user."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ...errors import OutputError
from ...whole_files import writing
from ..ragged import Array
from .mapped_tables import NewTables
from .new_arrays import NewRows, in_memory

# Shorter arrays stay in memory: most datasets have no longer ones.
_MIN_BYTES = 1 << 20


class ScratchArrays:
    """Makes arrays, in a file at the path that `scratch` gives. It is made for the first long array. OutputError if the
    disk has no room for them."""

    def __init__(self, scratch: Callable[[], Path]) -> None:
        self._scratch = scratch
        self._path = Path()
        self._tables: NewTables | None = None
        self._descriptor: int | None = None

    def new(self, name: str, rows: int, dtype: str) -> NewRows:
        """A new array, as `new_arrays.NewArray`."""
        if rows * np.dtype(dtype).itemsize < _MIN_BYTES:
            return in_memory(name, rows, dtype)
        if self._tables is None:
            self._path = self._scratch()
            with writing(self._path):
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                self._path.unlink()
            self._tables = NewTables(self._descriptor)
        with writing(self._path):
            return _Rows(self._tables.new(name, rows, dtype), self._path)

    def close(self) -> None:
        """Arrays that were made can still be read."""
        if self._descriptor is not None:
            os.close(self._descriptor)


def temporary_arrays() -> ScratchArrays:
    """Makes arrays in the folder for temporary files. They raise OutputError where there is none."""

    def place() -> Path:
        try:
            folder = tempfile.gettempdir()
        except FileNotFoundError as error:
            raise OutputError(f"{error.strerror}; free some space, or set TMPDIR to a folder with some") from error
        return Path(folder) / f"shortgop-{uuid.uuid4().hex}"

    return ScratchArrays(place)


class _Rows:
    def __init__(self, rows: NewRows, path: Path) -> None:
        self._rows, self._path = rows, path

    def put(self, start: int, rows: Array) -> None:
        with writing(self._path):
            self._rows.put(start, rows)

    def made(self) -> Array:
        with writing(self._path):
            return self._rows.made()
