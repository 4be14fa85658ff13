"""Tables put one below the other, and rows taken out of them: what merging and moving videos are made of. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import accumulate
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np

from .ragged import Array, Ragged, concatenate, ragged_indices
from .tables import Manifest, Table

_T = TypeVar("_T", bound=Table)

# Of a column of references, so many are looked at together.
_BLOCK_ROWS = 1 << 22
_UNUSED = np.iinfo(np.int64).max


def stacked(manifests: Sequence[Manifest]) -> Manifest:
    """The rows of all manifests, one after the other, without their timelines."""
    return Manifest(
        videos=stack([m.videos for m in manifests], config=_bases([len(m.configs) for m in manifests])),
        segments=stack([m.segments for m in manifests], shard=_bases([len(m.shards) for m in manifests])),
        gops=stack([m.gops for m in manifests], pattern=_bases([len(m.patterns) for m in manifests])),
        patterns=stack([m.patterns for m in manifests]),
        configs=stack([m.configs for m in manifests]),
        shards=stack([m.shards for m in manifests]),
        failures=stack([m.failures for m in manifests]),
        edits=stack([m.edits for m in manifests]),
        drops=stack([m.drops for m in manifests]),
        timeline=None,
    )


def _bases(lengths: list[int]) -> list[int]:
    """What to add to each manifest's references so that they point into the stacked table."""
    return list(accumulate(lengths, initial=0))[:-1]


def stack(tables: Sequence[_T], **bases: list[int]) -> _T:
    """The rows of all tables, one after the other. Columns named in `bases` are references, to which each table's
    base is added."""
    columns: dict[str, Any] = {}
    for field in fields(tables[0]):
        parts = [getattr(table, field.name) for table in tables]
        if field.name in bases:
            parts = [part + np.array(base, part.dtype) for part, base in zip(parts, bases[field.name], strict=True)]
        columns[field.name] = concatenate(parts) if isinstance(parts[0], Ragged) else np.concatenate(parts)
    return replace(tables[0], **columns)


def take(table: _T, rows: Array) -> _T:
    """The given rows of a table, in the given order."""
    columns: dict[str, Any] = {}
    for field in fields(table):
        column = getattr(table, field.name)
        columns[field.name] = column.take(rows) if isinstance(column, Ragged) else column[rows]
    return replace(table, **columns)


def with_videos(manifest: Manifest, videos: Array) -> Manifest:
    """The manifest with these rows of its videos, in this order, with their segments, GOPs and, if it has a timeline,
    their rows of that. It has no origins.

    Patterns, configurations and shards are kept once for each content, in the order of their first use, and unused
    ones are left out.
    """
    timeline = manifest.timeline
    return _canonical(
        replace(
            manifest,
            videos=take(manifest.videos, videos),
            segments=take(manifest.segments, _rows(manifest.first_segments, videos)),
            gops=take(manifest.gops, _rows(manifest.first_gops, videos)),
            timeline=None if timeline is None else take(timeline, _rows(manifest.first_frames, videos)),
            origins=None,
        )
    )


def _rows(first: Array, videos: Array) -> Array:
    """The rows of `videos` in a table that holds a run of rows for each video, which starts at its `first`."""
    starts = first[videos]
    return ragged_indices(starts, first[videos + 1] - starts)


def _canonical(manifest: Manifest) -> Manifest:
    patterns, pattern_numbers = unique_rows(manifest.patterns, manifest.gops.pattern)
    configs, config_numbers = unique_rows(manifest.configs, manifest.videos.config)
    shards, shard_numbers = unique_rows(manifest.shards, manifest.segments.shard)
    return replace(
        manifest,
        videos=replace(manifest.videos, config=config_numbers),
        segments=replace(manifest.segments, shard=shard_numbers),
        gops=replace(manifest.gops, pattern=pattern_numbers),
        patterns=patterns,
        configs=configs,
        shards=shards,
    )


def unique_rows(table: _T, references: Array) -> tuple[_T, Array]:
    """The rows of `table` that `references` point to, each content once, in the order of the first reference; and the
    renumbered references."""
    numbering = Numbering(table)
    numbering.see(references, 0)
    kept, numbers = numbering.result()
    return kept, numbers[references].astype(references.dtype, copy=False)


class Numbering(Generic[_T]):
    """New numbers for the rows of a table that a column refers to. The column may come in blocks, in any order, and
    from several threads."""

    def __init__(self, table: _T) -> None:
        self._table = table
        self._first_use = np.full(len(table), _UNUSED, dtype=np.int64)
        self._lock = Lock()

    def see(self, references: Array, start: int) -> None:
        """Take the column's rows from `start`."""
        for first in range(0, len(references), _BLOCK_ROWS):
            block = references[first : first + _BLOCK_ROWS]
            use = np.full(len(self._table), _UNUSED, dtype=np.int64)
            # Assigned in reverse, so that the value that stays is the first use.
            use[block[::-1]] = np.arange(start + first + len(block) - 1, start + first - 1, -1)
            with self._lock:
                np.minimum(self._first_use, use, out=self._first_use)

    @property
    def has_seen_all(self) -> bool:
        """Whether every row was referred to."""
        return bool((self._first_use < _UNUSED).all())

    def result(self) -> tuple[_T, Array]:
        """The rows that were referred to, each content once, in the order of the first reference; and the new number of
        each row of the table."""
        number_of_content: dict[tuple[Any, ...], int] = {}
        numbers = np.zeros(len(self._table), dtype=np.int64)
        kept: list[int] = []
        for row in np.argsort(self._first_use)[: np.count_nonzero(self._first_use < _UNUSED)].tolist():
            content = row_content(self._table, row)
            if content not in number_of_content:
                number_of_content[content] = len(kept)
                kept.append(row)
            numbers[row] = number_of_content[content]
        return take(self._table, np.array(kept, dtype=np.int64)), numbers


def row_content(table: Table, row: int) -> tuple[Any, ...]:
    """All values of one row. Rows of ragged columns become bytes."""
    columns = (getattr(table, field.name) for field in fields(table))
    return tuple(c.bytes(row) if isinstance(c, Ragged) else c[row].item() for c in columns)
