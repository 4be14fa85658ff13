"""Rows of the videos of several manifests put together in an order of their own: block by block, from columns that may
be anywhere to arrays that may be anywhere, so that no column need fit into memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from .frame_runs import ReadRows
from .new_arrays import NewArray
from .ragged import Array, Ragged
from .row_runs import Runs, blocks_of, of_lists, rows_between
from .schema import OFFSETS, SCHEMA
from .stacking import Numbering, stack
from .tables import Gops, Manifest, Origins, Segments, Videos

# Each has a block in memory.
_MAX_THREADS = 8
# Columns of references, and the tables that they refer to.
_REFERENCES = {"videos/config": "configs", "segments/shard": "shards", "gops/pattern": "patterns"}


def interleaved(manifests: Sequence[Manifest], videos: Runs, new_array: NewArray, **others: Any) -> Manifest:
    """These videos with their segments and GOPs, patterns, configurations and shards, and where they come from; without
    the timeline. Columns lie in arrays that `new_array` makes. `others` are the tables failures, edits and drops."""
    filling = _Filling(manifests, videos, new_array)
    numbered = {of: filling.numbered(path, of) for path, of in _REFERENCES.items()}
    return Manifest(
        videos=Videos(**filling.table("videos")),
        segments=Segments(**filling.table("segments")),
        gops=Gops(**filling.table("gops")),
        **numbered,
        timeline=None,
        origins=filling.origins(),
        **others,
    )


class _Filling:
    """Arrays that are filled with the rows of several manifests."""

    def __init__(self, manifests: Sequence[Manifest], videos: Runs, new_array: NewArray) -> None:
        self._manifests, self._new = manifests, new_array
        self._runs = {"videos": videos} | {
            table: of_lists(videos, [getattr(each, f"first_{table}") for each in manifests])
            for table in ("segments", "gops")
        }
        # Of each column of references, the new number of each row of each manifest's table.
        self._numbers: dict[str, list[Array]] = {}

    def numbered(self, path: str, of: str) -> Any:
        """The rows that a column of references refers to, each content once. From now on it refers to these."""
        tables = [getattr(each, of) for each in self._manifests]
        bases = np.cumsum([0, *map(len, tables)])
        table, name = path.split("/")
        runs, columns = self._runs[table], self._columns(table, name)
        numbering = Numbering(stack(tables))
        reads = [partial(_shifted, column, base) for column, base in zip(columns, bases.tolist(), strict=False)]
        for start, stop in blocks_of(runs):
            numbering.see(rows_between(runs, reads, start, stop), start)
            if numbering.has_seen_all:
                break
        kept, numbers = numbering.result()
        self._numbers[path] = np.split(numbers.astype(SCHEMA[table][name].dtype), bases[1:-1])
        return kept

    def table(self, table: str) -> dict[str, Any]:
        """The columns of a table with rows for each video."""
        columns: dict[str, Any] = {}
        for name, spec in SCHEMA[table].items():
            path, parts = f"{table}/{name}", self._columns(table, name)
            if spec.ragged:
                columns[name] = self._ragged(path, spec.dtype, parts)
                continue
            reads = [partial(_rows, part) for part in parts]
            if path in self._numbers:
                reads = [partial(_renumbered, *each) for each in zip(parts, self._numbers[path], strict=True)]
            columns[name] = self._fixed(path, spec.dtype, reads, self._runs[table])
        return columns

    def origins(self) -> Origins:
        """Where each video comes from."""
        videos = self._runs["videos"]
        numbers = [partial(_constant, number) for number in range(len(self._manifests))]
        frames = [partial(_rows, each.first_frames) for each in self._manifests]
        return Origins(
            layer=self._fixed("origins/layer", "u1", numbers, videos),
            video=self._fixed("origins/video", "<i8", [np.arange] * len(self._manifests), videos),
            first_frame=self._fixed("origins/first_frame", "<i8", frames, videos),
        )

    def _columns(self, table: str, name: str) -> list[Any]:
        return [getattr(getattr(each, table), name) for each in self._manifests]

    def _ragged(self, path: str, dtype: str, parts: Sequence[Ragged]) -> Ragged:
        videos = self._runs["videos"]
        lists = of_lists(videos, [part.offsets for part in parts])
        values = self._fixed(path, dtype, [partial(_rows, part.values) for part in parts], lists)
        reads = [partial(_rows, part.offsets) for part in parts]

        def offsets(start: int, stop: int) -> Array:
            here = slice(
                int(np.searchsorted(videos.target, start, side="right")) - 1, int(np.searchsorted(videos.target, stop))
            )
            # Lists keep their distances within a run.
            shifts = np.repeat(lists.target[:-1][here] - lists.start[here], videos.between(start, stop).lengths)
            return np.asarray(rows_between(videos, reads, start, stop) + shifts)

        kept = self._new(f"{path}_offsets", videos.num_rows + 1, OFFSETS.dtype)
        kept.put(videos.num_rows, np.array([lists.num_rows]))
        _in_threads(lambda start, stop: kept.put(start, offsets(start, stop)), blocks_of(videos))
        return Ragged(values, kept.made())

    def _fixed(self, path: str, dtype: str, reads: Sequence[ReadRows], runs: Runs) -> Array:
        filled = self._new(path, runs.num_rows, dtype)
        _in_threads(
            lambda start, stop: filled.put(start, rows_between(runs, reads, start, stop)),
            blocks_of(runs),
        )
        return filled.made()


def _in_threads(fill: Callable[[int, int], None], blocks: Sequence[tuple[int, int]]) -> None:
    """Copying, decoding and writing release the GIL."""
    if len(blocks) < 2:
        for block in blocks:
            fill(*block)
        return
    with ThreadPoolExecutor(min(len(blocks), os.cpu_count() or 1, _MAX_THREADS)) as threads:
        list(threads.map(lambda block: fill(*block), blocks))


def _rows(column: Array, start: int, stop: int) -> Array:
    return column[start:stop]


def _constant(value: int, start: int, stop: int) -> Array:
    return np.full(stop - start, value, "u1")


def _shifted(column: Array, base: int, start: int, stop: int) -> Array:
    return np.asarray(column[start:stop] + np.int64(base)) if base else column[start:stop]


def _renumbered(column: Array, numbers: Array, start: int, stop: int) -> Array:
    return np.asarray(numbers[column[start:stop]])
