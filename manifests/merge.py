"""Merging: the manifests of many units become one manifest, that of a snapshot.

The result depends on the content of the manifests, not on their order: videos are sorted by id, and patterns,
configurations and shards are numbered in the order of their first use. So an interrupted job ends with the same rows as
an undisturbed one. Timelines are merged in blocks and never held in memory whole: at eight bytes a frame they are by
far the largest table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from .ragged import Array, Ragged, concatenate, from_rows, offsets_of, ragged_indices
from .tables import Failures, Manifest, Patterns, Table, Timeline, empty

# Reads rows [start, stop) of one timeline.
ReadRows = Callable[[int, int], Array]


@dataclass(frozen=True, eq=False)
class FrameRuns:
    """Where the frames of each video of a merged manifest come from: the number of the input manifest, the first row in
    its timeline and the number of rows there. `len` is the total number of frames."""

    manifest: Array
    start: Array
    length: Array

    def __len__(self) -> int:
        return int(self.length.sum())


def timeline_blocks(runs: FrameRuns, timelines: Sequence[ReadRows], *, block_rows: int) -> Iterator[Array]:
    """The merged timeline in blocks of `block_rows` rows; the last one may be shorter.

    A block reads each timeline at most once, from the first row that it needs to the last. Videos of a merged manifest
    are sorted by id, so nearly all rows in between are needed too.
    """
    ends = offsets_of(runs.length)
    total = int(ends[-1])
    for start in range(0, total, block_rows):
        stop = min(start + block_rows, total)
        # The videos that have frames in this block.
        videos = slice(
            int(np.searchsorted(ends, start, side="right")) - 1, int(np.searchsorted(ends, stop, side="left"))
        )
        first_rows = ends[:-1][videos]
        targets = np.maximum(first_rows, start)
        pieces = FrameRuns(
            manifest=runs.manifest[videos],
            start=runs.start[videos] + (targets - first_rows),
            length=np.minimum(first_rows + runs.length[videos], stop) - targets,
        )
        yield _block(pieces, targets - start, timelines)


def _block(pieces: FrameRuns, targets: Array, timelines: Sequence[ReadRows]) -> Array:
    """One block of the timeline. The rows of piece i start at `targets[i]`."""
    block = np.zeros(len(pieces), dtype="<i8")
    order = np.argsort(pieces.manifest, kind="stable")
    numbers, first = np.unique(pieces.manifest[order], return_index=True)
    for number, members in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
        starts, lengths = pieces.start[members], pieces.length[members]
        origin = int(starts.min())
        rows = timelines[number](origin, int((starts + lengths).max()))
        for target, source, length in zip(
            targets[members].tolist(), (starts - origin).tolist(), lengths.tolist(), strict=True
        ):
            block[target : target + length] = rows[source : source + length]
    return block


_T = TypeVar("_T", bound=Table)


def merge(manifests: Sequence[Manifest]) -> Manifest:
    """One manifest with the videos of all `manifests`, which must have their timelines.

    Of several videos with one id it keeps the one that was made again most often, then the one in the shard whose name
    sorts first. Of several failures with one id it keeps the latest, and none if a video has that id.
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
    videos = _stack([m.videos for m in manifests], config=_bases([len(m.configs) for m in manifests]))
    segments = _stack([m.segments for m in manifests], shard=_bases([len(m.shards) for m in manifests]))
    gops = _stack([m.gops for m in manifests], pattern=_bases([len(m.patterns) for m in manifests]))
    stacked = Manifest(
        videos=videos,
        segments=segments,
        gops=gops,
        patterns=_stack([m.patterns for m in manifests]),
        configs=_stack([m.configs for m in manifests]),
        shards=_stack([m.shards for m in manifests]),
        failures=_stack([m.failures for m in manifests]),
        timeline=None,
    )
    origins = FrameRuns(
        manifest=np.repeat(np.arange(len(manifests)), [len(m.videos) for m in manifests]),
        start=np.concatenate([m.first_frames[:-1] for m in manifests]),
        length=videos.num_frames,
    )
    order = _by_id(stacked, origins, timelines)
    merged = _canonical(
        replace(
            stacked,
            videos=_take(videos, order),
            segments=_take(segments, _rows(stacked.first_segments, stacked.segment_counts, order)),
            gops=_take(gops, _rows(stacked.first_gops, stacked.gop_counts, order)),
            failures=_latest(stacked.failures, set(stacked.ids)),
        )
    )
    return merged, FrameRuns(origins.manifest[order], origins.start[order], origins.length[order])


def _bases(lengths: list[int]) -> list[int]:
    """What to add to each manifest's references so that they point into the stacked table."""
    return list(accumulate(lengths, initial=0))[:-1]


def _stack(tables: Sequence[_T], **bases: list[int]) -> _T:
    """All tables stacked into one. Columns named in `bases` are references, to which each table's base is added."""
    columns: dict[str, Any] = {}
    for field in fields(tables[0]):
        parts = [getattr(table, field.name) for table in tables]
        if field.name in bases:
            parts = [part + np.array(base, part.dtype) for part, base in zip(parts, bases[field.name], strict=True)]
        columns[field.name] = concatenate(parts) if isinstance(parts[0], Ragged) else np.concatenate(parts)
    return replace(tables[0], **columns)


def _take(table: _T, rows: Array) -> _T:
    columns: dict[str, Any] = {}
    for field in fields(table):
        column = getattr(table, field.name)
        columns[field.name] = column.take(rows) if isinstance(column, Ragged) else column[rows]
    return replace(table, **columns)


def _rows(first: Array, counts: Array, videos: Array) -> Array:
    """The rows of `videos` in a table that holds a run of rows for each video."""
    return ragged_indices(first[videos], counts[videos])


def _by_id(manifest: Manifest, origins: FrameRuns, timelines: Sequence[ReadRows]) -> Array:
    """The rows of the videos to keep: one for each id, sorted by id."""
    row_of: dict[str, int] = {}
    for row, video_id in enumerate(manifest.ids):
        known = row_of.setdefault(video_id, row)
        if known != row and _comes_first(manifest, row, known, origins, timelines):
            row_of[video_id] = row
    return np.array([row_of[video_id] for video_id in sorted(row_of)], dtype=np.int64)


def _comes_first(manifest: Manifest, row: int, other: int, origins: FrameRuns, timelines: Sequence[ReadRows]) -> bool:
    """Whether the video in `row` is kept rather than the one in `other`, which has the same id. The order is total: it
    compares all that the tables say."""
    for key in (_place, _all_columns):
        one, two = key(manifest, row), key(manifest, other)
        if one != two:
            return bool(one < two)
    if not timelines:
        return False
    pts = []
    for video in (row, other):
        start, length = int(origins.start[video]), int(origins.length[video])
        pts.append(timelines[int(origins.manifest[video])](start, start + length).tolist())
    return bool(pts[0] < pts[1])


def _place(manifest: Manifest, row: int) -> tuple[Any, ...]:
    """Sort key: greatest revision first, then the shard and the offset at which the video starts. Shards are never
    replaced, so no two videos share these; version 1 did replace shards."""
    segment = int(manifest.first_segments[row])
    return (
        -int(manifest.videos.revision[row]),
        manifest.shards.name.text(int(manifest.segments.shard[segment])),
        int(manifest.segments.offset[segment]),
    )


def _all_columns(manifest: Manifest, row: int) -> tuple[Any, ...]:
    """Sort key: all that the tables say of a video. Its configuration, patterns and shards count by content, not by
    number."""
    tables: list[tuple[Table, range]] = [
        (manifest.segments, range(*manifest.first_segments[row : row + 2].tolist())),
        (manifest.gops, range(*manifest.first_gops[row : row + 2].tolist())),
    ]
    references = {"config": manifest.configs, "shard": manifest.shards, "pattern": manifest.patterns}
    rows = [(manifest.videos, row), *((table, number) for table, numbers in tables for number in numbers)]
    return tuple(
        _content(references[name], number) if name in references else number
        for table, at in rows
        for name, number in zip((field.name for field in fields(table)), _content(table, at), strict=True)
    )


def _latest(failures: Failures, present: set[str]) -> Failures:
    """The latest failure of each source that is not in the dataset, sorted by id."""
    latest: dict[str, tuple[Any, ...]] = {}
    texts = (failures.id.texts(), failures.reason.texts(), failures.source.texts(), failures.path.texts())
    for row, (source_id, *said) in enumerate(zip(*texts, strict=True)):
        if source_id not in present:
            attempt = (int(failures.attempted_ns[row]), *said, row)
            latest[source_id] = max(latest.get(source_id, attempt), attempt)
    return _take(failures, np.array([latest[source_id][-1] for source_id in sorted(latest)], dtype=np.int64))


def _canonical(manifest: Manifest) -> Manifest:
    """Keeps one row of equal patterns, configurations and shards, numbers them by first use, and drops unused ones."""
    patterns, pattern_numbers = _unique_rows(manifest.patterns, manifest.gops.pattern)
    configs, config_numbers = _unique_rows(manifest.configs, manifest.videos.config)
    shards, shard_numbers = _unique_rows(manifest.shards, manifest.segments.shard)
    return replace(
        manifest,
        videos=replace(manifest.videos, config=config_numbers),
        segments=replace(manifest.segments, shard=shard_numbers),
        gops=replace(manifest.gops, pattern=pattern_numbers),
        patterns=patterns,
        configs=configs,
        shards=shards,
    )


def _unique_rows(table: _T, references: Array) -> tuple[_T, Array]:
    """The rows of `table` that `references` point to, each content once, in the order of the first reference; and the
    renumbered references."""
    unused = len(references)
    first_use = np.full(len(table), unused, dtype=np.int64)
    # Assigned in reverse, so that the value that stays is the first use.
    first_use[references[::-1]] = np.arange(len(references) - 1, -1, -1)
    number_of_content: dict[tuple[Any, ...], int] = {}
    renumbered = np.zeros(len(table), dtype=references.dtype)
    kept: list[int] = []
    for row in np.argsort(first_use)[: np.count_nonzero(first_use < unused)].tolist():
        content = _content(table, row)
        if content not in number_of_content:
            number_of_content[content] = len(kept)
            kept.append(row)
        renumbered[row] = number_of_content[content]
    return _take(table, np.array(kept, dtype=np.int64)), renumbered[references]


def _content(table: Table, row: int) -> tuple[Any, ...]:
    columns = (getattr(table, field.name) for field in fields(table))
    return tuple(c.bytes(row) if isinstance(c, Ragged) else c[row].item() for c in columns)


def patterns_table(patterns: Sequence[tuple[Sequence[int], Sequence[bool]]]) -> Patterns:
    """A patterns table of (frames, referenced) rows."""
    return Patterns(
        frames=from_rows((frames for frames, _ in patterns), "<i4"),
        referenced=from_rows((referenced for _, referenced in patterns), "u1"),
    )
