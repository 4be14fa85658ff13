"""Many manifests into one: what each unit of work found, put together into a snapshot.

The result depends on what went in, not on the order: videos stand by id, and patterns, configurations and shards
are numbered as the rows first use them. That is why an interrupted job ends with the same rows as an undisturbed
one. Timelines are not held in memory while they are merged: at eight bytes a frame they are the largest table by far.
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
    """For each video of a merged manifest: which of the merged ones its frames come from, and where they lie
    there. `len` is the number of frames."""

    manifest: Array
    start: Array
    length: Array

    def __len__(self) -> int:
        return int(self.length.sum())


def timeline_blocks(runs: FrameRuns, timelines: Sequence[ReadRows], *, block_rows: int) -> Iterator[Array]:
    """The merged timeline in blocks of `block_rows` rows; the last one may be shorter.

    For each block every timeline that takes part is read once, from the first to the last row that is needed: for
    timelines of manifests that stand by id, as merged ones do, that is little more than what is used.
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
    """The pieces, each put where `targets` says."""
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
    """One manifest with the videos of all; every one of them must have its timeline.

    Of several videos with the same id the one that was made again most often is kept, then the one in the shard whose
    name sorts first. A failure is kept while no video has its id, the latest attempt standing for the earlier ones.
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
    """The same without the timeline, which may be too much for memory; and where its rows are to come from.

    `timelines`, one for each manifest, are only looked at where two videos are the same in everything else.
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
    """Tables one below the other; the columns named in `bases` get their table's base added."""
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
    """The rows of some videos in a table where each video has a run of them."""
    return ragged_indices(first[videos], counts[videos])


def _by_id(manifest: Manifest, origins: FrameRuns, timelines: Sequence[ReadRows]) -> Array:
    """The videos in the order of their ids, each id once."""
    row_of: dict[str, int] = {}
    for row, video_id in enumerate(manifest.ids):
        known = row_of.setdefault(video_id, row)
        if known != row and _comes_first(manifest, row, known, origins, timelines):
            row_of[video_id] = row
    return np.array([row_of[video_id] for video_id in sorted(row_of)], dtype=np.int64)


def _comes_first(manifest: Manifest, row: int, other: int, origins: FrameRuns, timelines: Sequence[ReadRows]) -> bool:
    """Whether the video in `row` is kept rather than another with its id: a total order over what they are."""
    for key in (_place, _everything):
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
    """How often a video was made again, most often first, and the shard and offset at which it starts. Shards are
    never replaced, so no two videos share that; those of version 1 were."""
    segment = int(manifest.first_segments[row])
    return (
        -int(manifest.videos.revision[row]),
        manifest.shards.name.text(int(manifest.segments.shard[segment])),
        int(manifest.segments.offset[segment]),
    )


def _everything(manifest: Manifest, row: int) -> tuple[Any, ...]:
    """All that the tables say of a video, whatever numbers its configuration, patterns and shards have there."""
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
    """The latest failure of each source that is not in the dataset, by id."""
    latest: dict[str, tuple[Any, ...]] = {}
    texts = (failures.id.texts(), failures.reason.texts(), failures.source.texts(), failures.path.texts())
    for row, (source_id, *said) in enumerate(zip(*texts, strict=True)):
        if source_id not in present:
            attempt = (int(failures.attempted_ns[row]), *said, row)
            latest[source_id] = max(latest.get(source_id, attempt), attempt)
    return _take(failures, np.array([latest[source_id][-1] for source_id in sorted(latest)], dtype=np.int64))


def _canonical(manifest: Manifest) -> Manifest:
    """Equal patterns, configurations and shards become one row, numbered by first use; unused ones go."""
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
    """The rows of `table` that `references` point to, each content once, in order of first reference; and the
    references renumbered."""
    unused = len(references)
    first_use = np.full(len(table), unused, dtype=np.int64)
    # Written from the back, so that the first use of a row is the last one written.
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
