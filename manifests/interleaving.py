"""Rows of the videos of several manifests put together in an order of their own, in bounded memory: where the rows of
each column go, and copying them there. Pure, but for the arrays that are filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .ragged import Array, Ragged, offsets_of, ragged_indices
from .schema import OFFSETS, SCHEMA
from .stacking import renumber, stack
from .tables import Gops, Manifest, Origins, Segments, Videos
from .zarr_read import NewArray

# Runs of so many rows on average are copied one by one, shorter ones by the numbers of their rows.
_LONG_RUN = 64
_RUNS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Chosen:
    """Rows of a manifest's videos, ascending, and the place of each among all videos that were chosen."""

    rows: Array
    places: Array


@dataclass(frozen=True, eq=False)
class _Runs:
    """Runs of rows of a column, and where each goes."""

    starts: Array
    targets: Array
    lengths: Array

    def copy(self, source: Array, target: Array) -> None:
        if len(self.starts) * _LONG_RUN <= int(self.lengths.sum()):
            for start, to, length in zip(
                self.starts.tolist(), self.targets.tolist(), self.lengths.tolist(), strict=True
            ):
                target[to : to + length] = source[start : start + length]
            return
        for first in range(0, len(self.starts), _RUNS_AT_ONCE):
            some = slice(first, first + _RUNS_AT_ONCE)
            rows = ragged_indices(self.starts[some], self.lengths[some])
            target[ragged_indices(self.targets[some], self.lengths[some])] = source[rows]


def _runs(starts: Array, targets: Array, lengths: Array) -> _Runs:
    """These runs, those that follow each other on both sides as one."""
    if not len(starts):
        return _Runs(starts, targets, lengths)
    ends = starts + lengths
    apart = (starts[1:] != ends[:-1]) | (targets[1:] != targets[:-1] + lengths[:-1])
    first = np.flatnonzero(np.concatenate([[True], apart]))
    return _Runs(starts[first], targets[first], np.add.reduceat(lengths, first))


def interleaved(
    manifests: Sequence[Manifest], chosen: Sequence[Chosen], new_array: NewArray, **others: Any
) -> Manifest:
    """The chosen videos with their segments and GOPs, patterns, configurations and shards, and where they come from;
    without the timeline. Columns lie in arrays that `new_array` makes. `others` are the tables failures, edits and
    drops."""
    filling = _Filling(manifests, chosen, new_array)
    tables = {name: filling.table(name) for name in ("videos", "segments", "gops")}
    patterns = renumber(stack([each.patterns for each in manifests]), tables["gops"]["pattern"])
    configs = renumber(stack([each.configs for each in manifests]), tables["videos"]["config"])
    shards = renumber(stack([each.shards for each in manifests]), tables["segments"]["shard"])
    origins = filling.origins()
    for columns in (*tables.values(), vars(origins)):
        for column in columns.values():
            # All readers of an open dataset share its tables.
            (column.values if isinstance(column, Ragged) else column).flags.writeable = False
    return Manifest(
        videos=Videos(**tables["videos"]),
        segments=Segments(**tables["segments"]),
        gops=Gops(**tables["gops"]),
        patterns=patterns,
        configs=configs,
        shards=shards,
        timeline=None,
        origins=origins,
        **others,
    )


# Columns of references, and the tables that they refer to.
_REFERENCES = {"videos/config": "configs", "segments/shard": "shards", "gops/pattern": "patterns"}


class _Filling:
    """Arrays that are filled with the rows of several manifests."""

    def __init__(self, manifests: Sequence[Manifest], chosen: Sequence[Chosen], new_array: NewArray) -> None:
        self._manifests, self._new = manifests, new_array
        self._num_videos = sum(len(each.rows) for each in chosen)
        self._of_videos = [_runs(each.rows, each.places, np.ones(len(each.rows), dtype=np.int64)) for each in chosen]

    def table(self, table: str) -> dict[str, Any]:
        """The columns of a table with rows for each video, with references to the stacked tables."""
        total, runs = self._num_videos, self._of_videos
        if table != "videos":
            firsts = [getattr(each, f"first_{table}") for each in self._manifests]
            total, runs = self._lists(firsts)[1:]
        columns: dict[str, Any] = {}
        for name, spec in SCHEMA[table].items():
            path = f"{table}/{name}"
            parts = [getattr(getattr(each, table), name) for each in self._manifests]
            columns[name] = (
                self._ragged(path, spec.dtype, parts)
                if spec.ragged
                else self._fixed(path, spec.dtype, self._referring(path, parts), runs, total)
            )
        return columns

    def origins(self) -> Origins:
        """Where each video comes from."""
        numbers = [np.full(len(each.videos), number, "u1") for number, each in enumerate(self._manifests)]
        rows = [np.arange(len(each.videos)) for each in self._manifests]
        frames = [each.first_frames[:-1] for each in self._manifests]
        columns = {"layer": ("u1", numbers), "video": ("<i8", rows), "first_frame": ("<i8", frames)}
        return Origins(
            **{
                name: self._fixed(f"origins/{name}", dtype, parts, self._of_videos, self._num_videos)
                for name, (dtype, parts) in columns.items()
            }
        )

    def _referring(self, path: str, parts: list[Array]) -> list[Array]:
        if path not in _REFERENCES:
            return parts
        lengths = [len(getattr(each, _REFERENCES[path])) for each in self._manifests]
        bases = np.cumsum([0, *lengths])[:-1].tolist()
        return [part + np.array(base, part.dtype) if base else part for part, base in zip(parts, bases, strict=True)]

    def _fixed(self, path: str, dtype: str, parts: Sequence[Array], runs: Sequence[_Runs], total: int) -> Array:
        filled = self._new(path, total, dtype)
        for part, each in zip(parts, runs, strict=True):
            each.copy(part, filled)
        return filled

    def _ragged(self, path: str, dtype: str, parts: Sequence[Ragged]) -> Ragged:
        offsets, total, runs = self._lists([part.offsets for part in parts])
        values = self._fixed(path, dtype, [part.values for part in parts], runs, total)
        kept = self._new(f"{path}_offsets", len(offsets), OFFSETS.dtype)
        kept[:] = offsets
        kept.flags.writeable = False
        return Ragged(values, kept)

    def _lists(self, offsets: Sequence[Array]) -> tuple[Array, int, list[_Runs]]:
        """Of a list for each video, whose start and end each manifest's `offsets` have: the offsets of all chosen
        videos, their end, and what to copy."""
        lengths = np.zeros(self._num_videos, dtype=np.int64)
        for videos, of in zip(self._of_videos, offsets, strict=True):
            videos.copy(np.diff(of), lengths)
        starts = offsets_of(lengths)
        # The lists of videos that follow each other do so too.
        runs = [
            _Runs(of[videos.starts], starts[videos.targets], of[videos.starts + videos.lengths] - of[videos.starts])
            for videos, of in zip(self._of_videos, offsets, strict=True)
        ]
        return starts, int(starts[-1]), runs
