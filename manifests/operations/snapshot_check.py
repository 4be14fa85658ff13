"""Verification of what a snapshot's files hold besides the tables of GOPs: the timeline, the order of ids, the label
columns, and how layers were merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ...errors import DatasetError
from ...storage.interface import Storage
from ..dataset_files.layout import snapshot_key
from ..dataset_files.snapshot_columns import open_own_columns
from ..dataset_files.snapshot_files import layers_below
from ..dataset_files.snapshots import open_attribute_blocks, open_tables_of_ids, open_timeline, open_video_blocks
from ..label_columns import PARSED_ROWS
from ..layering.layer_check import tables_that_differ
from ..ragged import Ragged
from ..tables import TABLES_OF_IDS, Manifest
from .column_check import columns_that_differ
from .problem import Problem, is_unread

_TIMELINE_ROWS = 1 << 20


def verify_snapshot(dataset: Storage, manifest: Manifest, snapshot: str) -> Iterator[Problem]:
    """Check what the files of a manifest's snapshot hold besides it, and its order."""
    yield from _check_timeline(dataset, snapshot, manifest)
    yield from _check_order(dataset, snapshot, manifest)
    if manifest.origins is None:
        yield from _check_columns(dataset, snapshot, manifest.videos.attributes.blocks(PARSED_ROWS))
    else:
        yield from _check_layers(dataset, snapshot, manifest)


def _check_timeline(dataset: Storage, snapshot: str, manifest: Manifest) -> Iterator[Problem]:
    """Source frames are shown in their order: within a video, the pts of the timeline never fall."""
    file = dataset.place(snapshot_key(snapshot))
    starts = manifest.first_frames
    last_pts = None
    with open_timeline(dataset, snapshot, manifest) as read:
        for start in range(0, int(starts[-1]), _TIMELINE_ROWS):
            try:
                pts = read(start, min(start + _TIMELINE_ROWS, int(starts[-1])))
            except DatasetError as error:
                yield Problem(error.message, error.file or file, is_unread=is_unread(error))
                last_pts = None
                continue
            # A pts may fall below the one before it only where a video starts.
            before = np.concatenate([pts[:1] if last_pts is None else last_pts, pts[:-1]])
            for row in (np.flatnonzero(pts < before) + start).tolist():
                video = int(np.searchsorted(starts, row, side="right")) - 1
                frame = row - int(starts[video])
                if frame > 0:
                    what = "the source pts is below that of the frame before"
                    yield Problem(what, file, None, None, manifest.videos.id.text(video), (frame, frame + 1))
            last_pts = pts[-1:]


def _check_order(dataset: Storage, snapshot: str, manifest: Manifest) -> Iterator[Problem]:
    """Ids ascend: they are found by binary search. A video may have several edits."""
    for table in ("videos", *TABLES_OF_IDS):
        ids: Ragged = getattr(manifest, table).id
        if not ids.ascends(may_repeat=table == "edits"):
            yield Problem(f"the ids of its table {table} do not ascend", dataset.place(snapshot_key(snapshot)))


def _check_layers(dataset: Storage, snapshot: str, manifest: Manifest) -> Iterator[Problem]:
    """The label columns of each layer are those of its videos, and the rows that count are those that merging gives."""
    file = dataset.place(snapshot_key(snapshot))
    try:
        names = (*layers_below(dataset, snapshot), snapshot)
        for name in names:
            yield from _check_columns(dataset, name, open_attribute_blocks(dataset, name))
        layers = [(open_tables_of_ids(dataset, name), open_video_blocks(dataset, name)) for name in names]
        for table in tables_that_differ(manifest, layers):
            yield Problem(f"its table {table} differs from what merging its layers gives", file)
    except DatasetError as error:
        yield Problem(error.message, error.file or file, is_unread=is_unread(error))


def _check_columns(dataset: Storage, snapshot: str, attributes: Iterable[Ragged]) -> Iterator[Problem]:
    """The label columns in a snapshot's own file are those that the attributes of its videos make, which come in
    blocks."""
    file = dataset.place(snapshot_key(snapshot))
    try:
        with open_own_columns(dataset, snapshot) as columns:
            for what in () if columns is None else columns_that_differ(attributes, columns):
                yield Problem(what, file)
    except DatasetError as error:
        yield Problem(error.message, file, is_unread=is_unread(error))
