"""Columns of videos that are set or removed after the videos were stored: which edits that takes, and making them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...storage.interface import Storage
from ..dataset_files.in_place import changing
from ..dataset_files.parts import unit_of_content, write_part
from ..dataset_files.publish import publish
from ..dataset_files.root_file import read_root
from ..dataset_files.snapshots import open_current
from ..dataset_files.tidy import KEEP_SECONDS, remove_old_snapshots
from ..dataset_files.video_columns import LabelColumns
from ..merging.edits import Edit, changes_between, edits_table, last_number
from ..near_ids import near_ids
from ..row_of_id import RowOfId
from ..shared_memory.host_copies import copies_in
from ..tables import Manifest, empty
from .column_changes import AbsentColumn, HidingColumn, MixedColumn, NewColumn, TextColumn, column_changes, new_columns


@dataclass(frozen=True)
class Annotation:
    """What `annotate` did: the ids of the videos whose columns changed, the ids that are not in the dataset, the number
    of videos that have the columns already, the name of the current snapshot, the columns that were to be removed and
    that no video had, those that were set and that no video had, those whose values are of several types since, those
    that were numbers or truth values and are text since, those that hide a column of the dataset since, ids that
    look like the first one that is not in the dataset, the ids that were dropped, which `unknown` does not have, and
    the files beside videos that were too large for labels."""

    changed: tuple[str, ...]
    unknown: tuple[str, ...]
    unchanged: int
    snapshot: str
    absent: tuple[AbsentColumn, ...] = ()
    added: tuple[NewColumn, ...] = ()
    mixed: tuple[MixedColumn, ...] = ()
    became_text: tuple[TextColumn, ...] = ()
    hiding: tuple[HidingColumn, ...] = ()
    near: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    too_large: tuple[str, ...] = ()


def annotate(
    dataset: Storage,
    columns: Mapping[str, Mapping[str, Any]],
    *,
    remove: Iterable[str] = (),
    keep_snapshots_seconds: float = KEEP_SECONDS,
) -> Annotation:
    """Set columns of videos, by id, to values in the types of JSON; take the columns `remove` from all videos that have
    them. Columns that are not named stay. There is one new snapshot if anything changes, and none otherwise.

    Snapshots that have not been current for `keep_snapshots_seconds` are removed. NotADatasetError if there is no
    dataset, DatasetBusyError if a job writes to it.
    """
    read_root(dataset)
    remove = tuple(remove)
    with changing(dataset):
        publish(dataset)
        root, manifest = open_current(dataset, copies=copies_in(None))
        edits = plan_edits(manifest, columns, remove=remove)
        snapshot = root.snapshot
        added: tuple[NewColumn, ...] = ()
        mixed: tuple[MixedColumn, ...] = ()
        became_text: tuple[TextColumn, ...] = ()
        hiding: tuple[HidingColumn, ...] = ()
        if edits:
            set_now = dict.fromkeys(name for edit in edits for name in edit.attributes)
            added = new_columns(LabelColumns(dataset, root.snapshot or "", manifest), set_now)
            write_edits(dataset, edits)
            snapshot = publish(dataset)
            mixed, became_text, hiding = column_changes(dataset, (root.snapshot, manifest), snapshot, set_now)
        remove_old_snapshots(dataset, keep_snapshots_seconds)
    there = manifest.row_of_id.of(columns)
    changed = tuple(edit.id for edit in edits)
    removed = {name for edit in edits for name in edit.removed}
    named = {name for values in columns.values() for name in values}
    # It is no error: the same command again, as after an interruption, has nothing left to remove.
    absent = [name for name in remove if name not in removed | named]
    known = LabelColumns(dataset, root.snapshot or "", manifest).names if absent else ()
    dropped = RowOfId(manifest.drops.id).of(video_id for video_id in columns if video_id not in there)
    unknown = tuple(video_id for video_id in columns if video_id not in there and video_id not in dropped)
    return Annotation(
        changed=changed,
        unknown=unknown,
        unchanged=len(there.keys() - set(changed)),
        snapshot=snapshot or "",
        absent=tuple(AbsentColumn(name, tuple(each for each in known if each not in removed)) for name in absent),
        added=added,
        mixed=mixed,
        became_text=became_text,
        hiding=hiding,
        near=tuple(near_ids(manifest.videos.id, unknown[0])) if unknown else (),
        dropped=tuple(dropped),
    )


def plan_edits(
    manifest: Manifest, columns: Mapping[str, Mapping[str, Any]], *, remove: Sequence[str] = ()
) -> list[Edit]:
    """The edits after which the manifest's videos have these columns and none of `remove`; sorted by id.

    A column that is named in both is set. Ids that are not in the manifest are passed over, and so are columns that
    have their value already.
    """
    number = last_number(manifest) + 1
    ids, attributes = manifest.videos.id, manifest.videos.attributes
    named = {row: columns[video_id] for video_id, row in manifest.row_of_id.of(columns).items()}
    edits = []
    # A column is taken from all videos, and set for those that are named. Rows ascend by id.
    for row in range(len(ids)) if remove else sorted(named):
        known = json.loads(attributes.text(row) or "{}")
        kept = {name: value for name, value in known.items() if name not in remove}
        to_set, to_remove = changes_between(known, kept | dict(named.get(row, {})))
        # An id is read only where it is needed: of most videos it is not.
        if to_set or to_remove:
            edits.append(Edit(ids.text(row), number, to_set, to_remove))
    return edits


def write_edits(dataset: Storage, edits: Sequence[Edit]) -> None:
    """Write a part of these edits. The caller holds the writer lock and publishes."""
    write_part(dataset, unit_of_content(edits), replace(empty(), edits=edits_table(edits)))
