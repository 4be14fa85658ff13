"""Whether the rows of a snapshot in layers are those that merging its layers gives. Pure.

Readers take the rows of the newest layer that has an id (`layers`), and writers merge. Both are compared here for some
ids at a time, so memory does not grow with the number of videos.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..merging.merge import merge_tables
from ..ragged import Ragged
from ..stacking import Numbering, take, with_videos
from ..tables import TABLE_TYPES, TABLES_OF_IDS, Manifest, empty
from .layer_tables import REFERENCES

_TABLES = [table for table in TABLE_TYPES if table != "timeline"]


def tables_that_differ(manifest: Manifest, layers: Sequence[tuple[Manifest, Iterator[Manifest]]]) -> list[str]:
    """The tables of a manifest, but for its timeline, that differ from what merging its layers gives.

    Of each layer, oldest first, there is a manifest with its failures, edits and drops, and the blocks of its videos.
    Ids ascend in all of them.
    """
    differ = {of for path, of in REFERENCES.items() if not _in_order_of_first_use(manifest, path, of)}
    whole, parts = _Rows(manifest, iter([manifest])), [_Rows(*layer) for layer in layers]
    is_last = False
    while not is_last:
        # Where the first of the blocks in memory ends, no layer needs more than one.
        ends = [end for end in (part.last_id for part in parts) if end is not None]
        bound = min(ends, key=lambda end: end.bytes(0), default=None)
        is_last = bound is None
        merged, _ = merge_tables([part.up_to(bound) for part in parts])
        found = whole.up_to(bound)
        differ.update(table for table in _TABLES if not getattr(merged, table).same_rows(getattr(found, table)))
    return [table for table in _TABLES if table in differ]


def _in_order_of_first_use(manifest: Manifest, path: str, of: str) -> bool:
    """Whether the rows of a table that a column refers to are all used, different, and in the order of first use.
    References of some videos say nothing of that."""
    table, column = path.split("/")
    numbering = Numbering(getattr(manifest, of))
    numbering.see(getattr(getattr(manifest, table), column), 0)
    kept, numbers = numbering.result()
    return len(kept) == len(numbers) and bool((numbers == np.arange(len(numbers))).all())


class _Rows:
    """The rows of a layer, taken in the order of their ids."""

    def __init__(self, of_ids: Manifest, blocks: Iterator[Manifest]) -> None:
        self._of_ids, self._starts = of_ids, dict.fromkeys(TABLES_OF_IDS, 0)
        self._blocks, self._block, self._start = blocks, next(blocks, None), 0

    @property
    def last_id(self) -> Ragged | None:
        """The last id of the videos of the block in memory; None if all videos were taken."""
        return None if self._block is None else self._block.videos.id.take(np.array([len(self._block.videos) - 1]))

    def up_to(self, bound: Ragged | None) -> Manifest:
        """The rows of ids up to this one that were not taken yet: of videos those in memory. None: all."""
        tables: dict[str, Any] = {}
        for name in TABLES_OF_IDS:
            table = getattr(self._of_ids, name)
            start, self._starts[name] = self._starts[name], max(self._starts[name], _rows_up_to(table.id, bound))
            tables[name] = take(table, np.arange(start, self._starts[name]))
        videos = replace(empty(), timeline=None)
        if self._block is not None:
            stop = max(self._start, _rows_up_to(self._block.videos.id, bound))
            if stop > self._start:
                videos = with_videos(self._block, np.arange(self._start, stop))
            self._start = stop
            if stop == len(self._block.videos):
                self._block, self._start = next(self._blocks, None), 0
        return replace(videos, timeline=None, **tables)


def _rows_up_to(ids: Ragged, bound: Ragged | None) -> int:
    """How many of some ids, which ascend, are not above this one."""
    return len(ids) if bound is None else int(ids.search(bound, right=True)[0][0])
