"""How a snapshot is opened: its tables, rows of its timeline, its label columns.

Errors name the file that is wrong, and what to do about it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np

from ..errors import DatasetError, MissingDataError, NotADatasetError, UnreadableDataError, not_read
from ..storage.interface import Storage
from . import zarr_zip as zips
from .host_copies import HostCopies
from .label_columns import Kind, LabelColumn
from .layout import Root, has_snapshot, read_root, snapshot_folder, snapshot_key
from .ragged import Array
from .tables import Failures, Manifest
from .zarr_columns import read_column, read_column_kinds
from .zarr_read import (
    NewArray,
    OpenFile,
    in_memory,
    read_attributes,
    read_failures,
    read_manifest,
    read_timeline,
)

# Differs from that of earlier versions whose copies had other arrays.
_COPY_LAYOUT = 1
_COPY_AGAIN = "copy it to the dataset again, or run `shortgop prep` on the same sources and a new --out"


def open_manifest(
    dataset: Storage, snapshot: str, *, timeline: bool = False, copies: HostCopies | None = None
) -> Manifest:
    """The tables of one snapshot. MissingDataError or CorruptDataError names the file that is wrong.

    With `copies` the tables of a large snapshot, but for the timeline, come from the copy that processes of the host
    share.
    """
    large = ("columns/",) if timeline else ("columns/", "timeline/")
    with _reading(dataset, snapshot) as open_file:

        def read(new_array: NewArray = in_memory) -> Manifest:
            if isinstance(open_file, zips.Members):
                open_file.will_need(lambda name: not name.startswith(large))
            return read_manifest(open_file, timeline=timeline, new_array=new_array)

        # Version 1 wrote folders.
        if copies is not None and not timeline and isinstance(open_file, zips.Members):
            key = _copy_key(open_file.contents(), copies.min_bytes)
            shared = None if key is None else copies.tables(key, read)
            if shared is not None:
                return shared
        return read()


def _copy_key(members: Mapping[str, tuple[int, int]], min_bytes: int) -> str | None:
    """What a copy of a snapshot's tables is named after: a hash of all that is in them. None for shorter ones."""
    tables = {name: content for name, content in members.items() if not name.startswith(("timeline/", "columns/"))}
    if sum(num_bytes for num_bytes, _ in tables.values()) < min_bytes:
        return None
    return hashlib.sha256(json.dumps([_COPY_LAYOUT, sorted(tables.items())]).encode()).hexdigest()[:32]


def open_current(dataset: Storage, *, copies: HostCopies | None = None) -> tuple[Root, Manifest]:
    """The root, and the tables of its snapshot without the timeline; `copies` as in `open_manifest`. NotADatasetError
    if there is no snapshot yet."""
    root = read_root(dataset)
    while True:
        if root.snapshot is None:
            raise NotADatasetError(
                f"{dataset} has no snapshot yet: its job is still running, or ended before its first results; "
                "wait for it, or run `shortgop prep` on it again",
                file=dataset.url,
            )
        try:
            return root, open_manifest(dataset, root.snapshot, copies=copies)
        except MissingDataError:
            # A job may have just published a newer snapshot and removed this one.
            before, root = root, read_root(dataset)
            if root.snapshot == before.snapshot:
                raise


def open_failures(dataset: Storage, snapshot: str) -> Failures:
    """The failures table of one snapshot, without the others."""
    with _reading(dataset, snapshot, lambda name: name.startswith("failures/")) as open_file:
        return read_failures(open_file)


def open_timeline(dataset: Storage, snapshot: str, start: int, stop: int) -> Array:
    """Rows [start, stop) of a snapshot's timeline."""
    with _reading(dataset, snapshot) as open_file:
        return read_timeline(open_file, start, stop)


def timeline_of(dataset: Storage, snapshot: str, manifest: Manifest, videos: Sequence[int]) -> Array:
    """The rows of a snapshot's timeline of these rows of its videos, in their order: int64.

    The snapshot is opened once, and videos that follow each other are read together: stores answer each request late.
    """
    first_frames, rows = manifest.first_frames, np.array(videos, dtype=np.int64)
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else []
    with _reading(dataset, snapshot) as open_file:
        pts = [read_timeline(open_file, int(first_frames[run[0]]), int(first_frames[run[-1] + 1])) for run in runs]
    return np.concatenate([np.zeros(0, dtype="<i8"), *pts])


def open_column_kinds(dataset: Storage, snapshot: str) -> dict[str, Kind] | None:
    """The kinds of the label columns that a snapshot holds, by name; None if it holds none."""
    with _reading(dataset, snapshot) as open_file:
        return read_column_kinds(open_file)


def open_column(dataset: Storage, snapshot: str, number: int, kind: Kind, num_videos: int) -> LabelColumn:
    """The label column of this number, for so many videos."""
    with _reading(dataset, snapshot) as open_file:
        return read_column(open_file, number, kind, num_videos)


def snapshot_attributes(dataset: Storage, snapshot: str) -> dict[str, Any]:
    """The attributes of a snapshot: `format_version`, `parts`, and since version 2 `profile` and `written_by`."""
    with _reading(dataset, snapshot) as open_file:
        return read_attributes(open_file)


@contextlib.contextmanager
def _reading(dataset: Storage, snapshot: str, soon: Callable[[str], bool] = lambda _: False) -> Iterator[OpenFile]:
    """Yields the function that opens a file of a snapshot by its key. Errors get the file's path and the remedy. `soon`
    says of each file whether it is about to be read whole."""
    key = snapshot_key(snapshot)
    folder: str | None = None
    try:
        with contextlib.ExitStack() as opened:
            open_file: OpenFile
            try:
                open_file = opened.enter_context(zips.reading(dataset, key, soon))
            except FileNotFoundError:
                folder = snapshot_folder(dataset, snapshot)
                if folder is None:
                    raise
                open_file = partial(_open, dataset, folder)
            yield open_file
    except FileNotFoundError:
        raise _gone(dataset, snapshot) from None
    except OSError as error:
        raise not_read(dataset.place(folder or key), error) from error
    except DatasetError as error:
        place = dataset.place(folder or key)
        file = f"{place}/{error.file}" if error.file and folder else place
        if isinstance(error, UnreadableDataError):
            raise UnreadableDataError(f"{place}: {error.message}", file=file) from error
        if folder is None and not has_snapshot(dataset, snapshot):
            raise _gone(dataset, snapshot) from error
        raise type(error)(f"{place}: {error.message}; {_COPY_AGAIN}", file=file) from error


def _open(dataset: Storage, folder: str, key: str) -> BinaryIO:
    return BytesIO(dataset.read(f"{folder}/{key}"))


def _gone(dataset: Storage, snapshot: str) -> MissingDataError:
    path = dataset.place(snapshot_key(snapshot))
    with contextlib.suppress(DatasetError):
        current = read_root(dataset).snapshot
        if current not in (None, snapshot):
            return MissingDataError(
                f"snapshot {snapshot} of {dataset} is gone ({path} does not exist): jobs remove old snapshots "
                f"(see `shortgop prep --keep-snapshots`); open the dataset again to read the current snapshot, "
                f"{current}",
                file=path,
            )
    return MissingDataError(f"the manifest {path} is missing; {_COPY_AGAIN}", file=path)
