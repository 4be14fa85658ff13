"""Tables in memory that processes share: what a process that starts another by "spawn" or "forkserver" gives to it.

A forked process has its parent's tables. Any other would decode them once more: a million videos of 3 s took 470 MB of
each worker of a DataLoader. The memory is a file without a name, which workers map; or the copy of the tables that all
processes of the host share, where the parent has these from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

from ...lazy import lazy
from ...unnamed_files import unnamed_file
from ..tables import Manifest
from .mapped_tables import MappedFile, NewTables, Place, arrays_of, file_of, mapped


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
        return _received, (reduction.DupFd(self._file.descriptor), dict(self._file.places))

    @lazy
    def _file(self) -> MappedFile | None:
        """The file with the tables: written once, for all processes that this one starts.

        None where the system has no memory for them.
        """
        return file_of(self._manifest) or _written(self._manifest)


def _written(manifest: Manifest) -> MappedFile | None:
    try:
        descriptor = unnamed_file(0)
    except OSError:
        return None
    tables = NewTables(descriptor)
    file = MappedFile(descriptor, tables.places)
    try:
        tables.add(arrays_of(manifest))
    except OSError:
        return None
    return file


def _received(descriptor: Any, places: Mapping[str, Place]) -> Manifest:
    """The manifest in a file that another process passes on."""
    return mapped(MappedFile(descriptor.detach(), places))
