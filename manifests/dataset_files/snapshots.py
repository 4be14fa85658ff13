"""How a snapshot is opened: its tables and rows of its timeline, whether it is one file or has layers below it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...errors import MissingDataError, NotADatasetError, OutputError
from ...storage.interface import Storage
from ..layering.layer_blocks import read_attribute_blocks, read_tables_of_ids, read_video_blocks
from ..layering.layer_tables import DecodedTables, EncodedTables, read_first, read_whole
from ..layering.layers import combined_tables, failures_of
from ..merging.frame_runs import FrameRuns, ReadRows, timeline_rows
from ..ragged import Array, Ragged
from ..shared_memory.host_copies import HostCopies
from ..shared_memory.new_arrays import NewArray, in_memory
from ..shared_memory.scratch_arrays import temporary_arrays
from ..tables import Failures, Manifest, Timeline, empty
from ..zarr_files import zarr_zip as zips
from ..zarr_files.fetched_columns import fetching_in_turn
from ..zarr_files.zarr_arrays import OpenFile
from ..zarr_files.zarr_read import (
    column_paths,
    read_failures,
    read_manifest,
    read_timeline,
)
from .root_file import Root, read_root
from .snapshot_files import explained, layers_in, open_snapshot, reading

# Differs from that of earlier versions whose copies had other arrays or files.
_COPY_LAYOUT = 3


def open_manifest(
    dataset: Storage,
    snapshot: str,
    *,
    timeline: bool = False,
    copies: HostCopies | None = None,
    new_array: NewArray = in_memory,
) -> Manifest:
    """The tables of one snapshot. MissingDataError or CorruptDataError names the file that is wrong.

    With `copies` the tables of a large snapshot, but for the timeline, come from the copy that processes of the host
    share. Otherwise they lie in arrays that `new_array` makes.
    """
    with reading(dataset, snapshot) as open_file:
        below = layers_in(open_file)
        if not below:
            return _tables(open_file, timeline=timeline, copies=copies, new_array=new_array)
    names = (*below, snapshot)
    found = None if copies is None else _copy_of_layers(dataset, names, copies)
    if found is None:
        newer = [open_layer(dataset, name, new_array=new_array) for name in names[1:]]
        found = _put_together(dataset, names[0], None, newer, new_array)
    if not timeline:
        return found
    pts = timeline_of(dataset, snapshot, found, range(len(found.videos)))
    return replace(found, timeline=Timeline(pts), origins=None)


def open_layer(
    dataset: Storage, snapshot: str, *, copies: HostCopies | None = None, new_array: NewArray = in_memory
) -> Manifest:
    """The tables in the file of one snapshot, without those of layers below it. Otherwise as `open_manifest`. Where
    there is no copy they lie in arrays that `new_array` makes."""
    with reading(dataset, snapshot) as open_file:
        return _tables(open_file, timeline=False, copies=copies, new_array=new_array)


def _copy_of_layers(dataset: Storage, names: Sequence[str], copies: HostCopies) -> Manifest | None:
    """The copy of the rows of all layers. None if they are few, or if there can be no copy."""
    key = _key_of_layers(dataset, names, copies.min_bytes)
    if key is None:
        return None

    found = copies.find(key)
    if found is None:
        # They may have copies too, which are not made while another one is.
        newer = [open_layer(dataset, name, copies=copies) for name in names[1:]]
        found = copies.tables(key, partial(_put_together, dataset, names[0], copies, newer))
    return found


def _put_together(
    dataset: Storage, oldest: str, copies: HostCopies | None, newer: Sequence[Manifest], new_array: NewArray
) -> Manifest:
    """The rows of all layers. The oldest is decoded block by block, unless there is a copy of it."""
    with reading(dataset, oldest) as open_file:
        own = None if copies is None else _copy_key(open_file, copies.min_bytes)
        there = None if copies is None or own is None else copies.find(own)
        tables = _encoded(open_file) if there is None else DecodedTables(there)
        return combined_tables([tables, *map(DecodedTables, newer)], new_array)


def _encoded(open_file: OpenFile) -> EncodedTables:
    if not isinstance(open_file, zips.Members):
        return EncodedTables(open_file)
    return EncodedTables(open_file, fetching_in_turn(open_file, read_whole(), first=read_first()))


def _tables(
    open_file: OpenFile, *, timeline: bool, copies: HostCopies | None, new_array: NewArray = in_memory
) -> Manifest:
    def read(new_array: NewArray) -> Manifest:
        if not isinstance(open_file, zips.Members):
            return read_manifest(open_file, timeline=timeline, new_array=new_array)
        before = fetching_in_turn(open_file, column_paths(timeline=timeline))
        return read_manifest(open_file, timeline=timeline, new_array=new_array, before=before)

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
        with reading(dataset, name) as open_file:
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


def open_current(
    dataset: Storage, *, copies: HostCopies | None = None, new_array: NewArray = in_memory
) -> tuple[Root, Manifest]:
    """The root, and the tables of its snapshot without the timeline; `copies` and `new_array` as in `open_manifest`.
    NotADatasetError if there is no snapshot yet."""
    root = read_root(dataset)
    while True:
        if root.snapshot is None:
            raise NotADatasetError(
                f"{dataset} has no snapshot yet: its job is still running, or ended before its first results; "
                "wait for it, or run the `shortgop prep` or `shortgop copy` that began it again",
                file=dataset.url,
            )
        try:
            return root, open_manifest(dataset, root.snapshot, copies=copies, new_array=new_array)
        except MissingDataError:
            # A job may have just published a newer snapshot and removed this one.
            before, root = root, read_root(dataset)
            if root.snapshot == before.snapshot:
                raise


def open_once(dataset: Storage, snapshot: str) -> Manifest:
    """The tables of a snapshot that is hardly opened again, so it gets no copy: long columns lie in a file without a
    name, which ends with the manifest. Where the folder for temporary files has no room, they are in memory."""
    try:
        with contextlib.closing(temporary_arrays()) as scratch:
            return open_manifest(dataset, snapshot, new_array=scratch.new)
    except OutputError:
        return open_manifest(dataset, snapshot)


def open_failures(dataset: Storage, snapshot: str) -> Failures:
    """The failures table of one snapshot, without the others."""
    with reading(dataset, snapshot, _of_failures) as open_file:
        below = layers_in(open_file)
        if not below:
            return read_failures(open_file)
    with reading(dataset, below[0], _of_failures) as open_file:
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
                files[name] = opened.enter_context(open_snapshot(dataset, name))
            return files[name]

        def rows_of(name: str, start: int, stop: int) -> Array:
            with explained(dataset, name):
                return read_timeline(file_of(name), start, stop)

        def timeline(snapshot: str, manifest: Manifest) -> ReadRows:
            if manifest.origins is None:
                return partial(rows_of, snapshot)
            runs = FrameRuns(manifest.origins.layer, manifest.origins.first_frame, manifest.videos.num_frames)
            with explained(dataset, snapshot):
                names = (*layers_in(file_of(snapshot)), snapshot)
            layers = [partial(rows_of, name) for name in names]
            return partial(timeline_rows, runs, manifest.first_frames, layers)

        yield timeline


@contextlib.contextmanager
def open_timeline(dataset: Storage, snapshot: str, manifest: Manifest) -> Iterator[ReadRows]:
    """Yields a function that reads rows [start, stop) of a snapshot's timeline: int64. `manifest` has its tables."""
    with open_timelines(dataset) as timeline:
        yield timeline(snapshot, manifest)


def timeline_of(dataset: Storage, snapshot: str, manifest: Manifest, videos: Sequence[int] | Array) -> Array:
    """The rows of a snapshot's timeline of these rows of its videos, in their order: int64. Videos that follow each
    other are read together."""
    first_frames, rows = manifest.first_frames, np.array(videos, dtype=np.int64)
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else []
    with open_timeline(dataset, snapshot, manifest) as read:
        pts = [read(int(first_frames[run[0]]), int(first_frames[run[-1] + 1])) for run in runs]
    return np.concatenate([np.zeros(0, dtype="<i8"), *pts])


def open_tables_of_ids(dataset: Storage, snapshot: str) -> Manifest:
    """The failures, edits and drops in the file of one snapshot, without videos."""
    with reading(dataset, snapshot) as open_file:
        return read_tables_of_ids(open_file)


def open_video_blocks(dataset: Storage, snapshot: str) -> Iterator[Manifest]:
    """The videos in the file of one snapshot, in blocks: `layer_blocks.read_video_blocks`."""
    with reading(dataset, snapshot) as open_file:
        yield from read_video_blocks(open_file)


def open_attribute_blocks(dataset: Storage, snapshot: str) -> Iterator[Ragged]:
    """The attributes of these videos, in blocks: `layer_blocks.read_attribute_blocks`."""
    with reading(dataset, snapshot) as open_file:
        yield from read_attribute_blocks(open_file)
