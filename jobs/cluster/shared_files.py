"""Checks that a worker on another machine sees the same dataset folder and the same sources as the driver."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path

from ...errors import OutputError, SourceError, SourceNotFoundError
from ...storage.interface import Storage
from ...whole_files import writing
from ..finding.addresses import is_store_url
from ..finding.store_files import StoreFile, asked
from ..units_of_work.units import Unit

# A network file system may show a new file some seconds late.
_PATIENCE_SECONDS = 3.0
_LOOK_EVERY_SECONDS = 0.25
_REMEDY = (
    "all nodes of a cluster need the dataset and the sources at the same paths, on a file system that they share; "
    "without --address everything runs on this machine"
)


def leave_mark(dataset: Storage) -> str:
    """Put a mark, a file, into the dataset, by which workers recognise the folder. Returns its name; "" for a store,
    which is the same one everywhere. The mark is removed with .tmp when the job ends.

    Each machine may have a folder of the same path on its own disk, even another copy of the dataset. What workers
    wrote there would be lost without an error.
    """
    if dataset.folder is None:
        return ""
    mark = dataset.scratch("same-folder")
    with writing(mark):
        mark.touch()
    return mark.name


def check_mark(dataset: Storage, mark: str) -> None:
    """OutputError if this process does not see the driver's mark in `dataset`."""
    folder = dataset.folder
    if folder is None:
        return
    end = time.monotonic() + _PATIENCE_SECONDS
    while not _has_mark(folder, mark):
        if time.monotonic() > end:
            what = f"{dataset} is not the job's folder" if folder.is_dir() else f"there is no folder {dataset}"
            raise OutputError(f"{what}; {_REMEDY}", file=dataset.url)
        time.sleep(_LOOK_EVERY_SECONDS)


def _has_mark(dataset: Path, mark: str) -> bool:
    file = dataset / ".tmp" / mark
    for folder in reversed(file.parents[:3]):
        # Opening a folder makes a network file system ask its server again; a lookup of a name may not.
        with contextlib.suppress(OSError):
            os.scandir(folder).close()
    return file.exists()


def check_sources(unit: Unit) -> None:
    """SourceNotFoundError if this process cannot read a source that the driver has read. Of the sources in stores, one
    is tried: if it fails, credentials or the network are missing."""
    for item in unit.items:
        if item.size_bytes and not can_read(item.source.path):
            raise SourceNotFoundError(f"{item.source.path!r} cannot be read; {_REMEDY}", file=item.source.path)
    in_stores = (item.source.in_store for item in unit.items if item.size_bytes and item.source.in_store is not None)
    file = next(in_stores, None)
    if file is not None:
        try:
            asked(StoreFile(file.address))
        except SourceNotFoundError:
            # It was removed meanwhile, which is a failure of that source alone.
            pass
        except SourceError as error:
            raise SourceNotFoundError(
                f"{error.message}; all nodes of a cluster need the network and the credentials for the sources",
                file=file.address.url,
            ) from error


def without_check(unit: Unit, path: str) -> Unit:
    """The unit without the check of a source that the driver itself can no longer read."""
    items = tuple(replace(item, size_bytes=0) if item.source.path == path else item for item in unit.items)
    return replace(unit, items=items)


def can_read(path: str) -> bool:
    # A store is the same from every machine that has credentials for it.
    return is_store_url(path) or os.access(path, os.R_OK)
