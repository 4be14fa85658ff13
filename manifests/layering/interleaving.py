"""Rows of the videos of several manifests put together in an order of their own: block by block, from columns that may
be anywhere to arrays that may be anywhere, so that no column need fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..merging.frame_runs import ReadRows
from ..ragged import Array, Ragged, ragged_as_is
from ..schema import OFFSETS, SCHEMA
from ..shared_memory.new_arrays import NewArray, in_threads
from ..stacking import Numbering, stack, unique_rows
from ..tables import Gops, Manifest, Origins, Segments, Videos, manifest_as_is
from .layer_tables import REFERENCES, LayerTables, constant, reads_of
from .row_runs import Runs, blocks_of, of_lists, rows_between

# Of a column of references, so many blocks are looked at before the others, which may not be needed.
_SEEN_TOGETHER = 16


def interleaved(layers: Sequence[LayerTables], videos: Runs, new_array: NewArray, **others: Any) -> Manifest:
    """These videos with their segments and GOPs, patterns, configurations and shards, and where they come from; without
    the timeline. Columns lie in arrays that `new_array` makes. `others` are the tables failures, edits and drops."""
    filling = _Filling(layers, videos, new_array)
    numbered = {target: filling.numbered(path, target) for path, target in REFERENCES.items()}
    # Each row was checked in its layer.
    return manifest_as_is(
        filling.derived(),
        videos=Videos(**filling.table("videos")),
        segments=Segments(**filling.table("segments")),
        gops=Gops(**filling.table("gops")),
        **numbered,
        origins=filling.origins(),
        **others,
    )


class _Filling:
    """Arrays that are filled with the rows of several layers."""

    def __init__(self, layers: Sequence[LayerTables], videos: Runs, new_array: NewArray) -> None:
        self._layers, self._new = layers, new_array
        self._runs = {"videos": videos} | {
            table: of_lists(videos, [each.firsts(table) for each in layers]) for table in ("segments", "gops")
        }
        # Of each column of references, the new number of each row of each layer's table.
        self._numbers: dict[str, list[Array]] = {}

    def numbered(self, path: str, target: str) -> Any:
        """The rows of the table `target` that a column of references refers to, each content once. From now on the
        column refers to these."""
        tables = [each.table(target) for each in self._layers]
        bases = np.cumsum([0, *map(len, tables)])
        table, name = path.split("/")
        stacked = stack(tables)
        # Layers share most contents. So all are soon seen, although the rows of a layer may come last.
        contents, numbers = unique_rows(stacked, np.arange(len(stacked)))
        of_layers = np.split(numbers, bases[1:-1])
        reads = [_renumbered(layer.reads(path), its) for layer, its in zip(self._layers, of_layers, strict=True)]
        numbering, runs = Numbering(contents), self._runs[table]
        blocks = blocks_of(runs)

        def see(start: int, stop: int) -> None:
            numbering.see(rows_between(runs, reads, start, stop), start)

        for first in range(0, len(blocks), _SEEN_TOGETHER):
            in_threads(see, blocks[first : first + _SEEN_TOGETHER])
            if numbering.has_seen_all:
                break
        kept, new_numbers = numbering.result()
        self._numbers[path] = [new_numbers[its].astype(SCHEMA[table][name].dtype) for its in of_layers]
        return kept

    def table(self, table: str) -> dict[str, Any]:
        """The columns of a table with rows for each video."""
        columns: dict[str, Any] = {}
        for name, spec in SCHEMA[table].items():
            path = f"{table}/{name}"
            for layer in self._layers:
                layer.will_read(path)
            reads = [each.reads(path) for each in self._layers]
            if path in self._numbers:
                reads = [_renumbered(*each) for each in zip(reads, self._numbers[path], strict=True)]
            fill = self._ragged if spec.ragged else self._fixed
            columns[name] = fill(path, spec.dtype, reads, self._runs[table])
        return columns

    def origins(self) -> Origins:
        """Where each video comes from."""
        videos = self._runs["videos"]
        numbers = [constant(number, "u1") for number in range(len(self._layers))]
        frames = [reads_of(each.firsts("frames")) for each in self._layers]
        return Origins(
            layer=self._fixed("origins/layer", "u1", numbers, videos),
            video=self._fixed("origins/video", "<i8", [np.arange] * len(self._layers), videos),
            first_frame=self._fixed("origins/first_frame", "<i8", frames, videos),
        )

    def derived(self) -> dict[str, Array]:
        """What a manifest works out of these tables."""
        videos = self._runs["videos"]
        firsts = {table: [each.firsts(table) for each in self._layers] for table in ("frames", "gops", "segments")}
        return {
            f"first_{table}": self._starts(f"first_{table}", each, videos, of_lists(videos, each))
            for table, each in firsts.items()
        }

    def _ragged(self, path: str, dtype: str, reads: Sequence[ReadRows], rows: Runs) -> Ragged:
        offsets = [each.offsets(path) for each in self._layers]
        lists = of_lists(rows, offsets)
        values = self._fixed(path, dtype, reads, lists)
        # Those of the layers were checked.
        return ragged_as_is(values, self._starts(f"{path}_offsets", offsets, rows, lists))

    def _starts(self, path: str, starts: Sequence[Array], rows: Runs, lists: Runs) -> Array:
        """Where the list of each row starts, and the end of the last; `starts` has that of the layers."""
        reads = [reads_of(each) for each in starts]
        kept = self._new(path, rows.num_rows + 1, OFFSETS.dtype)

        def fill(start: int, stop: int) -> None:
            here = rows.which(start, stop)
            # Lists keep their distances within a run.
            shifts = lists.target[:-1][here] - lists.start[here]
            if len(shifts) > 1:
                shifts = np.repeat(shifts, rows.between(start, stop).lengths)
            found = rows_between(rows, reads, start, stop)
            kept.put(start, found + shifts if shifts.any() else found)

        in_threads(fill, blocks_of(rows))
        kept.put(rows.num_rows, np.array([lists.num_rows]))
        return kept.made()

    def _fixed(self, path: str, dtype: str, reads: Sequence[ReadRows], rows: Runs) -> Array:
        filled = self._new(path, rows.num_rows, dtype)
        blocks = blocks_of(rows, np.dtype(dtype).itemsize)
        in_threads(lambda start, stop: filled.put(start, rows_between(rows, reads, start, stop)), blocks)
        return filled.made()


def _renumbered(read: ReadRows, numbers: Array) -> ReadRows:
    """Reads references whose numbers are new. Those of the oldest layer mostly keep theirs."""
    if np.array_equal(numbers, np.arange(len(numbers))):
        return read
    return lambda start, stop: np.asarray(numbers[read(start, stop)])
