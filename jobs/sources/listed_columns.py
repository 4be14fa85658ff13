"""The columns that a job's lists name, for videos that the dataset has already."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from ...manifests.dataset_files.publish import publish
from ...manifests.operations.annotate import plan_edits, write_edits
from ...manifests.tables import Manifest
from ...storage.interface import Storage
from ..units_of_work.units import Item


def update_listed(
    dataset: Storage, manifest: Manifest, batches: Iterable[Iterable[tuple[str, str]]], *, dry_run: bool = False
) -> int:
    """Give videos that are in the dataset already the columns that the job's lists name. Each batch has ids, with
    columns as a JSON object. Returns how many videos changed; if any did, there is a new snapshot, but for a `dry_run`.
    The caller holds the writer lock. Memory holds one batch at a time, and what changes."""
    edits = []
    for batch in batches:
        columns = dict(batch)
        there = manifest.row_of_id.of(columns)
        edits += plan_edits(manifest, {video_id: json.loads(columns[video_id]) for video_id in there})
    if edits and not dry_run:
        write_edits(dataset, edits)
        publish(dataset)
    return len(edits)


def with_known_columns(manifest: Manifest, items: Iterable[Item]) -> list[Item]:
    """The items; sources of videos in the dataset have all columns that these have, so that a video that is made again
    keeps them, whether a list names them or not."""
    items, texts = list(items), manifest.videos.attributes
    rows = manifest.row_of_id.of(item.source.id for item in items)
    return [
        replace(item, source=item.source._replace(attributes=texts.text(rows[item.source.id]) or "{}"))
        if item.source.id in rows
        else item
        for item in items
    ]
