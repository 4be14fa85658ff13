"""Tables in memory that processes share: what a process that starts another by "spawn" or "forkserver" gives to it.

A forked process has its parent's tables. Any other would decode them once more: a million videos of 3 s took 470 MB of
each worker of a DataLoader. The memory is a file without a name, which workers map.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping
from dataclasses import fields
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np

from ..unnamed_files import unnamed_file
from .ragged import Array, Ragged, lazy
from .tables import TABLE_TYPES, Manifest

# Arrays start at multiples of it, so that numpy reads them as fast as its own.
_ALIGNMENT_BYTES = 64
# What a manifest works out of its tables when it is opened.
_DERIVED = ("gop_counts", "segment_counts", "first_gops", "first_segments", "first_frames")

# Where an array lies: its dtype, the position of its first byte, its number of entries.
_Place = tuple[str, int, int]


class TablesToShare:
    """The tables of an opened manifest. Pickled for a process that is being started, it becomes the same manifest
    there, in memory that all such processes share."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    @property
    def are_wanted(self) -> bool:
        """Whether pickle is at work for a process that is being started, and the system can share memory with it."""
        return get_spawning_popen() is not None and self._file is not None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file is None:
            raise TypeError("this system does not share memory: see are_wanted")
        number, places = self._file
        return _mapped, (reduction.DupFd(number), places)

    @lazy
    def _file(self) -> tuple[int, dict[str, _Place]] | None:
        """A file's descriptor, and where each array lies: written once, for all processes that this one starts.

        None where the system has no memory for them.
        """
        arrays = _arrays(self._manifest)
        places, num_bytes = _places(arrays)
        try:
            number = unnamed_file(num_bytes)
        except OSError:
            return None
        weakref.finalize(self, os.close, number)
        with mmap.mmap(number, num_bytes) as memory:
            for name, (_, start, _) in places.items():
                memory[start : start + arrays[name].nbytes] = arrays[name].tobytes()
        return number, places


def _places(arrays: Mapping[str, Array]) -> tuple[dict[str, _Place], int]:
    """Where each array lies, and how many bytes all of them take."""
    places, end = {}, 1
    for name, array in arrays.items():
        start = -(-end // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        places[name] = (array.dtype.str, start, len(array))
        end = start + array.nbytes
    return places, end


def _arrays(manifest: Manifest) -> dict[str, Array]:
    """All arrays by names of their own: "videos/num_frames", and "videos/id/values" and "videos/id/offsets"."""
    arrays = {name: getattr(manifest, name) for name in _DERIVED}
    for table_name in TABLE_TYPES:
        table = getattr(manifest, table_name)
        for field in () if table is None else fields(table):
            column, name = getattr(table, field.name), f"{table_name}/{field.name}"
            if isinstance(column, Ragged):
                arrays |= {f"{name}/values": column.values, f"{name}/offsets": column.offsets}
            else:
                arrays[name] = column
    return arrays


def _mapped(descriptor: Any, places: dict[str, _Place]) -> Manifest:
    """The manifest whose arrays lie at these places of a file."""
    number = descriptor.detach()
    try:
        memory = mmap.mmap(number, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(number)
    arrays = {
        name: np.frombuffer(memory, dtype, rows, start) if rows else np.zeros(0, dtype)
        for name, (dtype, start, rows) in places.items()
    }

    def column(name: str) -> Array | Ragged:
        return arrays[name] if name in arrays else Ragged(arrays[f"{name}/values"], arrays[f"{name}/offsets"])

    # It was checked when it was opened, and checking works out again what lies here.
    manifest = Manifest.__new__(Manifest)
    vars(manifest).update({name: arrays[name] for name in _DERIVED})
    for table, kind in TABLE_TYPES.items():
        is_there = any(name.startswith(f"{table}/") for name in arrays)
        columns = {field.name: column(f"{table}/{field.name}") for field in fields(kind)} if is_there else {}
        vars(manifest)[table] = kind(**columns) if is_there else None
    return manifest
