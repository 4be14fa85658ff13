"""Snapshots in layers. The newest snapshots of a large dataset hold only the rows that came since, and name older
snapshots as the layers below them: this is which rows count, and which layers stay. All functions are pure.

Of each id, the newest layer that has it in any of its tables videos, failures, edits and drops counts. It has all rows
of the id, and those in older layers are hidden. So reading layers takes none of the rules of merging: the writer
followed them. docs/design/manifests.md says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ragged import Array, Ragged, concatenate, from_texts, ragged_indices
from ..shared_memory.new_arrays import NewArray, in_memory
from ..stacking import stack, take, with_videos
from ..tables import TABLES_OF_IDS, Failures, Manifest, Origins
from .interleaving import interleaved
from .layer_tables import DecodedTables, LayerTables
from .row_runs import Runs, inserted, visible_runs

# Smaller snapshots are written whole: that takes a second or two.
MIN_ROWS = 1 << 20
# Labels may be long, as embeddings are. So many bytes of them take about as long as a row.
_BYTES_AS_A_ROW = 64
# As long as a layer has at most so many times the rows of what comes on top of it, both are written as one. So a
# dataset has few layers, and a row is written again only after a quarter as many have come.
_MERGE_FACTOR = 4


def num_rows(manifest: Manifest) -> int:
    """What reading and writing a manifest takes grows with this: rows, and the texts of labels in the place of rows."""
    labels = len(manifest.videos.attributes.values) + len(manifest.edits.attributes.values)
    rows = sum(len(getattr(manifest, name)) for name in ("videos", "gops", *TABLES_OF_IDS))
    return rows + labels // _BYTES_AS_A_ROW


def layers_that_stay(rows: Sequence[int], new_rows: int, *, min_rows: int) -> int:
    """How many of the layers with so many `rows`, oldest first, stay as they are when `new_rows` come on top. The
    others are to be merged with what is new. None stays where the oldest has less than `min_rows`."""
    count = len(rows) if rows and rows[0] >= min_rows else 0
    on_top = new_rows + sum(rows[count:])
    while count and rows[count - 1] <= _MERGE_FACTOR * on_top:
        count -= 1
        on_top += rows[count]
    return count


def mentioned(manifests: Iterable[Manifest]) -> Ragged:
    """The ids that any of these manifests has rows of, each once, ascending."""
    return _mentioned([DecodedTables(manifest) for manifest in manifests])


def _mentioned(layers: Iterable[LayerTables]) -> Ragged:
    ids = [[layer.ids(), *(layer.table(name).id for name in TABLES_OF_IDS)] for layer in layers]
    return concatenate([from_texts(()), *(each for of_layer in ids for each in of_layer)]).unique()


def combined(layers: Sequence[Manifest], new_array: NewArray = in_memory) -> Manifest:
    """All rows that count of `layers`, oldest first, without their timelines: the same as merging the layers gives.

    Columns of long tables are put into arrays that `new_array` makes.
    """
    return combined_tables([DecodedTables(layer) for layer in layers], new_array)


def combined_tables(layers: Sequence[LayerTables], new_array: NewArray) -> Manifest:
    """`combined` of layers of which some may not be decoded."""
    newer = _mentioned_above(layers)
    hidden = [_videos_with(layer.ids(), ids) for layer, ids in zip(layers, newer, strict=True)]
    others = {name: _rows_that_count([layer.table(name) for layer in layers], newer) for name in TABLES_OF_IDS}
    return interleaved(layers, _videos_in_order(layers, hidden), new_array, **others)


def of_ids(layers: Sequence[Manifest], ids: Ragged) -> Manifest:
    """All rows of these ids, which ascend, that count of `layers`, oldest first; without a timeline."""
    found, places = [], []
    for number, layer in reversed(list(enumerate(layers))):
        rows, is_there = layer.videos.id.search(ids)
        videos = rows[is_there]
        tables: dict[str, Any] = {}
        for name in TABLES_OF_IDS:
            first, here = _ids(layer, name).search(ids)
            last, _ = _ids(layer, name).search(ids, right=True)
            tables[name] = take(getattr(layer, name), ragged_indices(first, last - first))
            is_there = is_there | here
        # Taken first: making a manifest checks all of its rows.
        found.append(replace(with_videos(layer, videos), **tables, timeline=None))
        places.append(Origins(np.full(len(videos), number, "u1"), videos, layer.first_frames[:-1][videos]))
        ids = ids.take(np.flatnonzero(~is_there))
    together = combined(found)
    return replace(together, origins=_of_parts(together.origins, places))


def _of_parts(origins: Origins | None, places: Sequence[Origins]) -> Origins:
    """Where videos come from, whose origins are rows of tables that were taken from these places."""
    if origins is None:
        raise ValueError("the manifest was not put together from others")
    start = np.cumsum([0, *(len(each) for each in places)])[:-1]
    return take(stack(places), start[origins.layer] + origins.video)


def failures_of(layers: Sequence[Manifest]) -> Failures:
    """The failures that count. Of the oldest layer only that table is needed."""
    newer = _mentioned_above([DecodedTables(layer) for layer in layers])
    found: Failures = _rows_that_count([layer.failures for layer in layers], newer)
    return found


def _rows_that_count(tables: Sequence[Any], newer: Sequence[Ragged]) -> Any:
    """The rows of a table of each layer whose ids newer layers do not mention, by id."""
    table = stack([take(each, _not_in(each.id, ids)) for each, ids in zip(tables, newer, strict=True)])
    # Rows of one id come from one layer, and stay in their order.
    return take(table, np.argsort(table.id.sort_keys(), kind="stable"))


def _ids(manifest: Manifest, table: str) -> Ragged:
    ids: Ragged = getattr(manifest, table).id
    return ids


def _mentioned_above(layers: Sequence[LayerTables]) -> list[Ragged]:
    """Of each layer the ids that newer ones mention."""
    above = [from_texts(())]
    for layer in reversed(layers[1:]):
        above.append(concatenate([above[-1], _mentioned([layer])]).unique())
    return above[::-1]


def _videos_with(ids: Ragged, others: Ragged) -> Array:
    """`_rows_with` of ids that differ, in half the time."""
    if len(others) <= len(ids):
        rows, found = ids.search(others)
        return rows[found]
    return np.flatnonzero(others.search(ids)[1])


def _rows_with(ids: Ragged, others: Ragged) -> Array:
    """The rows of ids that are among others; both ascend."""
    if len(others) <= len(ids):
        # Each of the others is looked up: an id may have several rows in a table.
        first, _ = ids.search(others)
        last, _ = ids.search(others, right=True)
        return ragged_indices(first, last - first)
    return np.flatnonzero(others.search(ids)[1])


def _not_in(ids: Ragged, others: Ragged) -> Array:
    """The rows of ids that are not among others; both ascend."""
    return np.delete(np.arange(len(ids)), _rows_with(ids, others))


def _videos_in_order(layers: Sequence[LayerTables], hidden: Sequence[Array]) -> Runs:
    """The videos that count, in the order of ids. Of each layer the `hidden` rows do not."""
    of_layers = [layer.ids() for layer in layers]
    runs = visible_runs(0, len(of_layers[0]), hidden[0])
    for newer in range(1, len(layers)):
        rows = np.delete(np.arange(len(of_layers[newer])), hidden[newer])
        ids = of_layers[newer].take(rows)
        # How many of the videos so far are below each of the newer ones.
        before = np.zeros(len(rows), np.int64)
        for older in range(newer):
            below = of_layers[older].search(ids)[0]
            before += below - np.searchsorted(hidden[older], below)
        runs = inserted(runs, visible_runs(newer, len(of_layers[newer]), hidden[newer]), before)
    return runs
