"""Whether a worker on another machine has the same dataset folder, and the same sources, as the driver."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path

from ..errors import OutputError, SourceNotFoundError
from ..whole_files import temporary_path, writing
from .units import Unit

# A file system that is shared by network may show a new file some seconds late.
_PATIENCE_SECONDS = 3.0
_LOOK_EVERY_SECONDS = 0.25
_REMEDY = (
    "a cluster's nodes all need the dataset and the sources at the same paths, on a file system that they share; "
    "without --address everything runs on this machine"
)


def leave_mark(dataset: Path) -> str:
    """Put a file into the dataset by which workers know the folder; returns its name. It goes when the job ends.

    A folder of the same path, or even another copy of the dataset, may lie on each machine's own disk: what workers
    wrote there would be lost without a word.
    """
    mark = temporary_path(dataset, "same-folder")
    with writing(mark):
        mark.touch()
    return mark.name


def check_mark(dataset: Path, mark: str) -> None:
    """OutputError when `dataset` is not the folder, as this process sees it, in which the driver left the mark."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not _has_mark(dataset, mark):
        if time.monotonic() > end:
            what = (
                f"{dataset} is another folder than the job's" if dataset.is_dir() else f"there is no folder {dataset}"
            )
            raise OutputError(f"{what}; {_REMEDY}", file=str(dataset))
        time.sleep(_LOOK_EVERY_SECONDS)


def _has_mark(dataset: Path, mark: str) -> bool:
    file = dataset / ".tmp" / mark
    for folder in reversed(file.parents[:3]):
        # Opening a folder makes a network file system ask anew; looking up a name need not.
        with contextlib.suppress(OSError):
            os.scandir(folder).close()
    return file.exists()


def check_sources(unit: Unit) -> None:
    """SourceNotFoundError when this process cannot read a source that the driver has read."""
    for item in unit.items:
        if item.size_bytes and not can_read(item.source.path):
            raise SourceNotFoundError(f"{item.source.path!r} cannot be read; {_REMEDY}", file=item.source.path)


def without_check(unit: Unit, path: str) -> Unit:
    """The unit with a source that even the driver can no longer read: nobody needs to look for it beforehand."""
    items = tuple(replace(item, size_bytes=0) if item.source.path == path else item for item in unit.items)
    return replace(unit, items=items)


def can_read(path: str) -> bool:
    return os.access(path, os.R_OK)
