"""How a snapshot is opened: its tables, rows of its timeline, its label columns, whether it is one file or has layers
below it.

Errors name the file that is wrong, and what to do about it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np

from ..errors import DatasetError, MissingDataError, NotADatasetError, UnreadableDataError, not_read
from ..storage.interface import Storage
from . import zarr_zip as zips
from .frame_runs import FrameRuns, ReadRows, timeline_rows
from .host_copies import HostCopies
from .label_columns import Kind, LabelColumn
from .layer_tables import DecodedTables, EncodedTables
from .layered_columns import column_of_layers, kinds_of_layers
from .layers import combined, combined_tables, failures_of
from .layout import Root, has_snapshot, read_root, snapshot_folder, snapshot_key
from .new_arrays import NewArray, in_memory
from .ragged import Array
from .tables import Failures, Manifest, Timeline, empty
from .zarr_columns import read_column, read_column_kinds
from .zarr_read import (
    LAYERS,
    OpenFile,
    read_attributes,
    read_failures,
    read_layers,
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
    with _reading(dataset, snapshot) as open_file:
        below = _layers(open_file)
        if not below:
            return _tables(open_file, timeline=timeline, copies=copies)
    names = (*below, snapshot)
    found = None if copies is None else _copy_of_layers(dataset, names, copies)
    if found is None:
        found = combined([open_layer(dataset, name) for name in names])
    if not timeline:
        return found
    pts = timeline_of(dataset, snapshot, found, range(len(found.videos)))
    return replace(found, timeline=Timeline(pts), origins=None)


def open_layer(
    dataset: Storage, snapshot: str, *, copies: HostCopies | None = None, new_array: NewArray = in_memory
) -> Manifest:
    """The tables in the file of one snapshot, without those of layers below it. Otherwise as `open_manifest`. Where
    there is no copy they lie in arrays that `new_array` makes."""
    with _reading(dataset, snapshot) as open_file:
        return _tables(open_file, timeline=False, copies=copies, new_array=new_array)


def _copy_of_layers(dataset: Storage, names: Sequence[str], copies: HostCopies) -> Manifest | None:
    """The copy of the rows of all layers. None if they are few, or if there can be no copy."""
    key = _key_of_layers(dataset, names, copies.min_bytes)
    if key is None:
        return None

    def put_together(new_array: NewArray) -> Manifest:
        with _reading(dataset, names[0]) as open_file:
            own = _copy_key(open_file, copies.min_bytes)
            there = None if own is None else copies.find(own)
            if there is None and isinstance(open_file, zips.Members):
                open_file.will_need(_of_tables)
            oldest = EncodedTables(open_file) if there is None else DecodedTables(there)
            return combined_tables([oldest, *map(DecodedTables, newer)], new_array)

    found = copies.find(key)
    if found is None:
        # They may have copies too, which are not made while another one is.
        newer = [open_layer(dataset, name, copies=copies) for name in names[1:]]
        found = copies.tables(key, put_together)
    return found


def layers_below(dataset: Storage, snapshot: str) -> tuple[str, ...]:
    """The snapshots that are layers below this one, oldest first; none for most."""
    with _reading(dataset, snapshot) as open_file:
        return _layers(open_file)


def _layers(open_file: OpenFile) -> tuple[str, ...]:
    # A look at the names in the file takes no request. Version 1 wrote folders.
    if not isinstance(open_file, zips.Members) or f"{LAYERS}/zarr.json" not in open_file.directory:
        return ()
    return read_layers(open_file)


def _tables(
    open_file: OpenFile, *, timeline: bool, copies: HostCopies | None, new_array: NewArray = in_memory
) -> Manifest:
    def read(new_array: NewArray) -> Manifest:
        if isinstance(open_file, zips.Members):
            open_file.will_need(lambda name: _of_tables(name) or (timeline and name.startswith("timeline/")))
        return read_manifest(open_file, timeline=timeline, new_array=new_array)

    if copies is not None and not timeline:
        key = _copy_key(open_file, copies.min_bytes)
        shared = None if key is None else copies.tables(key, read)
        if shared is not None:
            return shared
    return read(new_array)


def _key_of_layers(dataset: Storage, names: Sequence[str], min_bytes: int) -> str | None:
    """Like `_copy_key`, for the rows of all layers. The oldest is the largest, so it says whether they are enough."""
    keys: list[str | None] = []
    for name in names:
        with _reading(dataset, name) as open_file:
            keys.append(_copy_key(open_file, 1 if keys else min_bytes))
        if keys[0] is None:
            return None
    return _hash(keys)


def _copy_key(open_file: OpenFile, min_bytes: int) -> str | None:
    """What a copy of a file's tables is named after: a hash of all that is in them. None for shorter ones, and for the
    folders that version 1 wrote."""
    members = open_file.contents() if isinstance(open_file, zips.Members) else {}
    tables = {name: content for name, content in members.items() if _of_tables(name)}
    if sum(num_bytes for num_bytes, _ in tables.values()) < max(1, min_bytes):
        return None
    return _hash(sorted(tables.items()))


def _of_tables(name: str) -> bool:
    """Whether a member has rows of tables, but for the timeline."""
    return not name.startswith(("timeline/", "columns/"))


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps([_COPY_LAYOUT, content]).encode()).hexdigest()[:32]


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
    with _reading(dataset, snapshot, _of_failures) as open_file:
        below = _layers(open_file)
        if not below:
            return read_failures(open_file)
    with _reading(dataset, below[0], _of_failures) as open_file:
        oldest = read_failures(open_file)
    newer = [open_layer(dataset, name) for name in (*below[1:], snapshot)]
    return failures_of([replace(empty(), failures=oldest), *newer])


def _of_failures(name: str) -> bool:
    return name.startswith("failures/")


@contextlib.contextmanager
def open_timelines(dataset: Storage) -> Iterator[Callable[[str, Manifest], ReadRows]]:
    """Yields a function that gives the timeline of a snapshot, from its name and its tables or those of some of its
    videos: a function that reads rows [start, stop), int64.

    Files are opened once, and when they are needed: stores answer each request late.
    """
    with contextlib.ExitStack() as opened:
        files: dict[str, OpenFile] = {}

        def file_of(name: str) -> OpenFile:
            if name not in files:
                files[name] = opened.enter_context(_file(dataset, name))
            return files[name]

        def rows_of(name: str, start: int, stop: int) -> Array:
            with _explained(dataset, name):
                return read_timeline(file_of(name), start, stop)

        def timeline(snapshot: str, manifest: Manifest) -> ReadRows:
            if manifest.origins is None:
                return partial(rows_of, snapshot)
            runs = FrameRuns(manifest.origins.layer, manifest.origins.first_frame, manifest.videos.num_frames)
            with _explained(dataset, snapshot):
                names = (*_layers(file_of(snapshot)), snapshot)
            layers = [partial(rows_of, name) for name in names]
            return partial(timeline_rows, runs, manifest.first_frames, layers)

        yield timeline


@contextlib.contextmanager
def open_timeline(dataset: Storage, snapshot: str, manifest: Manifest) -> Iterator[ReadRows]:
    """Yields a function that reads rows [start, stop) of a snapshot's timeline: int64. `manifest` has its tables."""
    with open_timelines(dataset) as timeline:
        yield timeline(snapshot, manifest)


def timeline_of(dataset: Storage, snapshot: str, manifest: Manifest, videos: Sequence[int]) -> Array:
    """The rows of a snapshot's timeline of these rows of its videos, in their order: int64. Videos that follow each
    other are read together."""
    first_frames, rows = manifest.first_frames, np.array(videos, dtype=np.int64)
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else []
    with open_timeline(dataset, snapshot, manifest) as read:
        pts = [read(int(first_frames[run[0]]), int(first_frames[run[-1] + 1])) for run in runs]
    return np.concatenate([np.zeros(0, dtype="<i8"), *pts])


def open_column_kinds(dataset: Storage, snapshot: str) -> dict[str, Kind] | None:
    """The kinds of the label columns that a snapshot holds, by name; None if it holds none, or if its layers hold such
    as do not go together."""
    with _reading(dataset, snapshot) as open_file:
        below, kinds = _layers(open_file), read_column_kinds(open_file)
    return kinds_of_layers([*(_kinds(dataset, name) for name in below), kinds])


def _kinds(dataset: Storage, snapshot: str) -> dict[str, Kind] | None:
    with _reading(dataset, snapshot) as open_file:
        return read_column_kinds(open_file)


def open_column(
    dataset: Storage, snapshot: str, name: str, kinds: Mapping[str, Kind], manifest: Manifest
) -> LabelColumn | None:
    """The label column of this name, for the videos of the snapshot's `manifest`. `kinds` are those of
    `open_column_kinds`. None if the column has values that are not all of its kind."""
    if manifest.origins is None:
        with _reading(dataset, snapshot) as open_file:
            return _column(open_file, name, kinds, len(manifest.videos))
    found = []
    for layer in (*layers_below(dataset, snapshot), snapshot):
        with _reading(dataset, layer) as open_file:
            own = read_column_kinds(open_file) or {}
            found.append(_column(open_file, name, own) if name in own else None)
    return column_of_layers(found, kinds[name], manifest.origins)


def open_own_columns(dataset: Storage, snapshot: str) -> dict[str, LabelColumn] | None:
    """The label columns in the file of one snapshot, for the videos in it; None if it holds none."""
    with _reading(dataset, snapshot) as open_file:
        kinds = read_column_kinds(open_file)
        return None if kinds is None else {name: _column(open_file, name, kinds) for name in kinds}


def _column(open_file: OpenFile, name: str, kinds: Mapping[str, Kind], num_videos: int | None = None) -> LabelColumn:
    return read_column(open_file, list(kinds).index(name), kinds[name], num_videos)


def snapshot_attributes(dataset: Storage, snapshot: str) -> dict[str, Any]:
    """The attributes of a snapshot: `format_version`, `parts`, and since version 2 `profile` and `written_by`. `parts`
    are those of its own rows, see `parts_in`."""
    with _reading(dataset, snapshot) as open_file:
        return read_attributes(open_file)


def parts_of_layers(dataset: Storage, snapshot: str) -> dict[str, list[str]]:
    """The layers of a snapshot, oldest first and itself the last, each with the parts that its rows were made of."""
    with _reading(dataset, snapshot) as open_file:
        below, own = _layers(open_file), read_attributes(open_file)["parts"]
    return {name: snapshot_attributes(dataset, name)["parts"] for name in below} | {snapshot: own}


def parts_in(dataset: Storage, snapshot: str) -> set[str]:
    """The parts that a snapshot was made of, with those of its layers."""
    return set().union(*parts_of_layers(dataset, snapshot).values())


@contextlib.contextmanager
def _reading(dataset: Storage, snapshot: str, soon: Callable[[str], bool] = lambda _: False) -> Iterator[OpenFile]:
    """Yields the function that opens a file of a snapshot by its key. Errors get the file's path and the remedy. `soon`
    says of each file whether it is about to be read whole."""
    with _explained(dataset, snapshot), _file(dataset, snapshot, soon) as open_file:
        yield open_file


@contextlib.contextmanager
def _file(dataset: Storage, snapshot: str, soon: Callable[[str], bool] = lambda _: False) -> Iterator[OpenFile]:
    with contextlib.ExitStack() as opened:
        open_file: OpenFile
        try:
            open_file = opened.enter_context(zips.reading(dataset, snapshot_key(snapshot), soon))
        except FileNotFoundError:
            folder = snapshot_folder(dataset, snapshot)
            if folder is None:
                raise
            open_file = partial(_open, dataset, folder)
        yield open_file


@contextlib.contextmanager
def _explained(dataset: Storage, snapshot: str) -> Iterator[None]:
    """Errors of a snapshot's file name it, and say what to do."""
    try:
        yield
    except FileNotFoundError:
        raise _gone(dataset, snapshot) from None
    except OSError as error:
        raise not_read(_place(dataset, snapshot), error) from error
    except DatasetError as error:
        place = _place(dataset, snapshot)
        is_folder = place != dataset.place(snapshot_key(snapshot))
        file = f"{place}/{error.file}" if error.file and is_folder else place
        if isinstance(error, UnreadableDataError):
            raise UnreadableDataError(f"{place}: {error.message}", file=file) from error
        if not is_folder and not has_snapshot(dataset, snapshot):
            raise _gone(dataset, snapshot) from error
        raise type(error)(f"{place}: {error.message}; {_COPY_AGAIN}", file=file) from error


def _place(dataset: Storage, snapshot: str) -> str:
    """Where a snapshot lies."""
    folder = None
    with contextlib.suppress(OSError, DatasetError):
        folder = snapshot_folder(dataset, snapshot)
    return dataset.place(folder or snapshot_key(snapshot))


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
