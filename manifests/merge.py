"""Many manifests into one: what each unit of work found, put together into a snapshot.

The result depends on what went in, not on the order: videos stand by id, and patterns, configurations and shards are
numbered as the rows first use them. That is why an interrupted job ends with the same rows as an undisturbed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from .ragged import Array, Ragged, concatenate, from_rows, ragged_indices
from .tables import Configs, Failures, Gops, Manifest, Patterns, Segments, Shards, Timeline, Videos, empty

_T = TypeVar("_T", Videos, Segments, Gops, Patterns, Configs, Shards, Failures, Timeline)


def merge(manifests: Sequence[Manifest]) -> Manifest:
    """One manifest with the videos of all. Of two videos with the same id the first is kept; a failure is kept only
    while its source is not in the dataset, the latest attempt standing for the earlier ones."""
    manifests = [empty(), *manifests]
    videos = _stack([m.videos for m in manifests], config=_bases(manifests, lambda m: len(m.configs)))
    segments = _stack([m.segments for m in manifests], shard=_bases(manifests, lambda m: len(m.shards)))
    gops = _stack([m.gops for m in manifests], pattern=_bases(manifests, lambda m: len(m.patterns)))
    timeline = _stack([_timeline(m) for m in manifests])

    ids = videos.id.texts()
    row_of: dict[str, int] = {}
    for row, video_id in enumerate(ids):
        row_of.setdefault(video_id, row)
    order = np.array([row_of[video_id] for video_id in sorted(row_of)], dtype=np.int64)

    whole = Manifest(
        videos=videos,
        segments=segments,
        gops=gops,
        patterns=_stack([m.patterns for m in manifests]),
        configs=_stack([m.configs for m in manifests]),
        shards=_stack([m.shards for m in manifests]),
        failures=_latest(_stack([m.failures for m in manifests]), set(row_of)),
        timeline=timeline,
    )
    return _canonical(
        replace(
            whole,
            videos=_take(videos, order),
            segments=_take(segments, ragged_indices(whole.first_segments[order], whole.segment_counts[order])),
            gops=_take(gops, ragged_indices(whole.first_gops[order], whole.gop_counts[order])),
            timeline=_take(timeline, ragged_indices(whole.first_frames[order], videos.num_frames[order])),
        )
    )


def _timeline(manifest: Manifest) -> Timeline:
    if manifest.timeline is None:
        raise ValueError("a manifest to be merged must be read with its timeline")
    return manifest.timeline


def _bases(manifests: Sequence[Manifest], count: Callable[[Manifest], int]) -> list[int]:
    """What to add to each manifest's references so that they point into the stacked table."""
    return np.cumsum([0, *(count(m) for m in manifests[:-1])]).tolist()


def _stack(tables: Sequence[_T], **bases: list[int]) -> _T:
    """Tables one below the other; the columns named in `bases` get their table's base added."""
    columns: dict[str, Any] = {}
    for field in fields(tables[0]):
        parts = [getattr(table, field.name) for table in tables]
        if field.name in bases:
            parts = [(p + base).astype(p.dtype) for p, base in zip(parts, bases[field.name], strict=True)]
        columns[field.name] = concatenate(parts) if isinstance(parts[0], Ragged) else np.concatenate(parts)
    return type(tables[0])(**columns)


def _take(table: _T, rows: Array) -> _T:
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    return type(table)(
        **{
            name: column.take(rows) if isinstance(column, Ragged) else column[rows] for name, column in columns.items()
        }
    )


def _latest(failures: Failures, present: set[str]) -> Failures:
    """The latest failure of each source that is not in the dataset, by id."""
    latest: dict[str, int] = {}
    for row, source_id in enumerate(failures.id.texts()):
        known = latest.get(source_id)
        if source_id not in present and (
            known is None or failures.attempted_ns[known] < failures.attempted_ns[row]
        ):
            latest[source_id] = row
    return _take(failures, np.array([latest[source_id] for source_id in sorted(latest)], dtype=np.int64))


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
    used, first_use = np.unique(references, return_index=True)
    number_of_content: dict[tuple[Any, ...], int] = {}
    renumbered = np.zeros(len(table), dtype=references.dtype)
    kept: list[int] = []
    for row in used[np.argsort(first_use)].tolist():
        content = _content(table, row)
        if content not in number_of_content:
            number_of_content[content] = len(kept)
            kept.append(row)
        renumbered[row] = number_of_content[content]
    return _take(table, np.array(kept, dtype=np.int64)), renumbered[references]


def _content(table: Videos | Segments | Gops | Patterns | Configs | Shards | Failures | Timeline, row: int) -> tuple[Any, ...]:
    columns = (getattr(table, field.name) for field in fields(table))
    return tuple(c.bytes(row) if isinstance(c, Ragged) else c[row].item() for c in columns)


def patterns_table(patterns: Sequence[tuple[Sequence[int], Sequence[bool]]]) -> Patterns:
    """A patterns table of (frames, referenced) rows."""
    return Patterns(
        frames=from_rows((frames for frames, _ in patterns), "<i4"),
        referenced=from_rows((referenced for _, referenced in patterns), "u1"),
    )
