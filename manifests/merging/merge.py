"""Merging: the manifests of many units become one manifest, that of a snapshot.

The result depends on the content of the manifests, not on their order: videos are sorted by id, and patterns,
configurations and shards are numbered in the order of their first use. So an interrupted job ends with the same rows as
an undisturbed one. Edits and drops are kept, since an older part may still come. Timelines are merged in blocks and
never held in memory whole: at eight bytes a frame they are by far the largest table.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..ragged import Array, Ragged, concatenate, from_texts
from ..stacking import row_content, stacked, take, with_videos
from ..tables import Edits, Failures, Manifest, Table, Timeline, Videos, empty
from .edits import Drop, Edit, drops_of, drops_table, edited, edits_of, joined, merged_edits
from .frame_runs import FrameRuns, ReadRows, timeline_blocks


def merge(manifests: Sequence[Manifest]) -> Manifest:
    """One manifest with the videos of all `manifests`, which must have their timelines.

    Of several videos with one id it keeps the one that was stored after the most edits, then the one that was made
    again most often, then the one in the shard whose name sorts first. Videos get the edits that came after they were
    stored, and are left out if a drop did. Of several failures with one id it keeps the latest, and none if a video has
    that id or it was dropped.
    """
    readers = [_reader(manifest.timeline) for manifest in manifests]
    merged, runs = merge_tables(manifests, readers)
    blocks = timeline_blocks(runs, readers, block_rows=max(1, len(runs)))
    return replace(merged, timeline=Timeline(pts=next(blocks, np.zeros(0, dtype="<i8"))))


def _reader(timeline: Timeline | None) -> ReadRows:
    if timeline is None:
        raise ValueError("a manifest to be merged must be read with its timeline")
    return lambda start, stop: timeline.pts[start:stop]


def merge_tables(manifests: Sequence[Manifest], timelines: Sequence[ReadRows] = ()) -> tuple[Manifest, FrameRuns]:
    """Like `merge`, but without the timeline, which may not fit into memory; also returns where its rows come from.

    `timelines` has one entry for each manifest. They are read only if two videos are equal in everything else.
    """
    manifests = [*manifests, empty()]
    everything = stacked(manifests)
    frame_runs = FrameRuns(
        manifest=np.repeat(np.arange(len(manifests)), [len(m.videos) for m in manifests]),
        start=np.concatenate([m.first_frames[:-1] for m in manifests]),
        length=everything.videos.num_frames,
    )
    drops = drops_of(everything.drops)
    kept = _kept(everything, drops, frame_runs, timelines)
    manifest_of_edit = np.repeat(np.arange(len(manifests)), [len(m.edits) for m in manifests]).tolist()
    edits, owner = merged_edits(everything.edits, manifest_of_edit, drops)
    merged = with_videos(everything, kept.rows)
    attributes = _attributes(everything.videos, merged.videos.id, kept, frame_runs.manifest, edits=edits, owner=owner)
    return replace(
        merged,
        videos=replace(merged.videos, attributes=attributes),
        failures=_latest(everything.failures, merged.videos.id, drops),
        edits=edits,
        drops=drops_table(drops),
    ), FrameRuns(frame_runs.manifest[kept.rows], frame_runs.start[kept.rows], frame_runs.length[kept.rows])


@dataclass(frozen=True, eq=False)
class _Kept:
    """The videos that are kept: the row of one for each id, sorted by id. Where other rows of an id differ from it in
    their attributes alone, `equal` has all of these rows, by its place in `rows`."""

    rows: Array
    equal: Mapping[int, list[int]]


def _kept(manifest: Manifest, drops: Mapping[str, Drop], frame_runs: FrameRuns, timelines: Sequence[ReadRows]) -> _Kept:
    """Which of the videos are kept: of each id that was not dropped later the one that `merge` says. Only ids that come
    more than once are looked at one by one."""
    keys = manifest.videos.id.sort_keys()
    rows = np.argsort(keys, kind="stable")
    rows = rows[_not_dropped(keys[rows], manifest.videos.after_edit[rows], drops)]
    ordered = keys[rows]
    is_first = np.ones(len(rows), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    starts = np.append(np.flatnonzero(is_first), len(rows))
    order, equal = rows[starts[:-1]], {}
    for place in np.flatnonzero(np.diff(starts) > 1).tolist():
        known: list[int] = []
        for row in rows[starts[place] : starts[place + 1]].tolist():
            before = _compared(manifest, row, known[0], frame_runs, timelines) if known else -1
            if before < 0:
                known = [row]
            elif before == 0:
                known.append(row)
        order[place] = known[0]
        if len(known) > 1:
            equal[place] = known
    return _Kept(order, equal)


def _not_dropped(keys: Array, after_edit: Array, drops: Mapping[str, Drop]) -> Array:
    """Whether each video was stored after the drop of its id, if there is one. `keys` are sorted."""
    stays = np.ones(len(keys), dtype=bool)
    for video_id, drop in drops.items():
        key: Any = video_id
        if keys.dtype != object:
            key = video_id.encode()
            # Numpy would take zero bytes at the end for padding, and make all keys as wide as a longer one.
            if len(key) > keys.dtype.itemsize or b"\0" in key:
                continue
        each = slice(int(np.searchsorted(keys, key)), int(np.searchsorted(keys, key, side="right")))
        stays[each] = after_edit[each] >= drop.number
    return stays


def _compared(manifest: Manifest, row: int, other: int, frame_runs: FrameRuns, timelines: Sequence[ReadRows]) -> int:
    """-1 if the video in `row` is kept rather than the one in `other`, which has the same id, 1 if it is not, and 0 if
    they differ in nothing but their attributes. The order compares all else that the tables say."""
    for key in (_place, _all_columns):
        one, two = key(manifest, row), key(manifest, other)
        if one != two:
            return -1 if one < two else 1
    if not timelines:
        return 0
    pts = []
    for video in (row, other):
        start, length = int(frame_runs.start[video]), int(frame_runs.length[video])
        pts.append(timelines[int(frame_runs.manifest[video])](start, start + length).tolist())
    return 0 if pts[0] == pts[1] else -1 if pts[0] < pts[1] else 1


def _place(manifest: Manifest, row: int) -> tuple[Any, ...]:
    """Sort key: stored after most edits first, then the greatest revision, then the shard and the offset at which the
    video starts. Shards are never replaced, so no two videos share these; version 1 did replace shards.

    A drop removes the videos that were stored before it. They are the last ones in this order, so what is left does not
    depend on whether the drop or the videos come first.
    """
    segment = int(manifest.first_segments[row])
    return (
        -int(manifest.videos.after_edit[row]),
        -int(manifest.videos.revision[row]),
        manifest.shards.name.text(int(manifest.segments.shard[segment])),
        int(manifest.segments.offset[segment]),
    )


def _all_columns(manifest: Manifest, row: int) -> tuple[Any, ...]:
    """Sort key: all that the tables say of a video, apart from its attributes, which may have been edited. Its
    configuration, patterns and shards count by content, not by number."""
    tables: list[tuple[Table, range]] = [
        (manifest.segments, range(*manifest.first_segments[row : row + 2].tolist())),
        (manifest.gops, range(*manifest.first_gops[row : row + 2].tolist())),
    ]
    references = {"config": manifest.configs, "shard": manifest.shards, "pattern": manifest.patterns}
    rows = [(manifest.videos, row), *((table, number) for table, numbers in tables for number in numbers)]
    return tuple(
        row_content(references[name], number) if name in references else number
        for table, at in rows
        for name, number in zip((field.name for field in fields(table)), row_content(table, at), strict=True)
        if name != "attributes"
    )


def _attributes(
    videos: Videos, ids: Ragged, kept: _Kept, manifest_of: Array, *, edits: Edits, owner: Mapping[str, int]
) -> Ragged:
    """The attributes of the videos that are kept, whose ids are `ids`, with their edits. `manifest_of` has the number
    of the manifest that each of all videos comes from, and `owner` that of the one with all edits of an id, or -1."""
    texts = videos.attributes
    places = sorted(_edited_elsewhere(ids, manifest_of[kept.rows], owner) | kept.equal.keys())
    if not places:
        return texts.take(kept.rows)
    edits_of_id = _edits_by_id(edits, {ids.text(place) for place in places})
    changed = []
    for place in places:
        rows = kept.equal.get(place, [int(kept.rows[place])])
        own = joined([texts.text(row) for row in rows])
        after = int(videos.after_edit[rows[0]])
        changed.append(edited(own, edits_of_id.get(ids.text(place), []), after=after))
    # Only what changed is copied once more.
    rows_of_texts = kept.rows.copy()
    rows_of_texts[places] = len(texts) + np.arange(len(places))
    return concatenate([texts, from_texts(changed)]).take(rows_of_texts)


def _edited_elsewhere(ids: Ragged, manifest_of: Array, owner: Mapping[str, int]) -> set[int]:
    """The places of those ids, which ascend, that another manifest edits than the one that their video comes from: the
    videos of a manifest have its own edits already."""
    places, is_there = ids.search(from_texts(owner))
    numbers = np.array(list(owner.values()), np.int64)[is_there]
    places = places[is_there]
    return set(places[manifest_of[places] != numbers].tolist())


def _edits_by_id(edits: Edits, ids: Container[str]) -> dict[str, list[Edit]]:
    """The edits of these ids, each in the order of their numbers."""
    rows = [row for row, video_id in enumerate(edits.id.texts()) if video_id in ids]
    found: dict[str, list[Edit]] = {}
    for edit in edits_of(take(edits, np.array(rows, dtype=np.int64))):
        found.setdefault(edit.id, []).append(edit)
    return found


def _latest(failures: Failures, ids: Ragged, drops: Mapping[str, Drop]) -> Failures:
    """The latest failure of each source that is neither among the videos' ids, which ascend, nor dropped; by id."""
    latest: dict[str, tuple[Any, ...]] = {}
    texts = (failures.id.texts(), failures.reason.texts(), failures.source.texts(), failures.path.texts())
    is_video = ids.search(failures.id)[1].tolist()
    for row, (source_id, *said) in enumerate(zip(*texts, strict=True)):
        if not is_video[row] and source_id not in drops:
            attempt = (int(failures.attempted_ns[row]), *said, row)
            latest[source_id] = max(latest.get(source_id, attempt), attempt)
    return take(failures, np.array([latest[source_id][-1] for source_id in sorted(latest)], dtype=np.int64))
