"""Which runs of rows a column is put together from, and that its blocks have its rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortgop.manifests.layering import row_runs
from shortgop.manifests.layering.row_runs import (
    Runs,
    blocks_of,
    inserted,
    of_lists,
    rows_between,
    runs_of,
    visible_runs,
)
from shortgop.manifests.ragged import Array, offsets_of


def read(column: list[int], start: int, stop: int) -> Array:
    assert 0 <= start <= stop <= len(column)
    return np.array(column[start:stop], dtype=np.int64)


def rows_of(runs: Runs, columns: list[list[int]]) -> list[int]:
    """All rows, block by block."""
    reads = [partial(read, column) for column in columns]
    return [row for block in blocks_of(runs) for row in rows_between(runs, reads, *block).tolist()]


def test_hidden_rows_are_left_out() -> None:
    runs = visible_runs(0, 6, np.array([0, 3]))
    assert (runs.start.tolist(), runs.lengths.tolist()) == ([1, 4], [2, 2])
    assert rows_of(runs, [[10, 11, 12, 13, 14, 15]]) == [11, 12, 14, 15]
    assert rows_of(visible_runs(0, 1, np.array([0])), [[10]]) == []


def test_rows_are_put_in_before_others() -> None:
    runs = inserted(visible_runs(0, 4, np.array([], int)), visible_runs(1, 3, np.array([], int)), np.array([0, 2, 2]))
    assert rows_of(runs, [[10, 11, 12, 13], [20, 21, 22]]) == [20, 10, 11, 21, 22, 12, 13]
    at_the_end = inserted(visible_runs(0, 1, np.array([], int)), visible_runs(1, 1, np.array([], int)), np.array([1]))
    assert rows_of(at_the_end, [[10], [20]]) == [10, 20]


def test_a_block_has_whole_chunks_of_the_longest_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_runs, "BLOCK_ROWS", 4)
    # Rows 0 to 9 of the longest one, with two others after its row 2.
    runs = runs_of(np.array([0, 1, 0]), np.array([0, 0, 3]), np.array([3, 2, 7]))
    assert blocks_of(runs) == [(0, 6), (6, 10), (10, 12)]


def test_lists_go_where_their_rows_go() -> None:
    runs = runs_of(np.array([0, 1, 0]), np.array([0, 0, 1]), np.array([1, 1, 2]))
    lists = of_lists(runs, [offsets_of(np.array([2, 0, 1])), offsets_of(np.array([3]))])
    assert rows_of(lists, [[10, 11, 12], [20, 21, 22]]) == [10, 11, 20, 21, 22, 12]


COLUMNS = st.lists(st.lists(st.booleans(), max_size=30), min_size=1, max_size=4)


@given(COLUMNS, st.data(), st.integers(1, 5), st.integers(1, 40))
@settings(max_examples=150)
def test_blocks_have_the_rows_that_count_in_their_order(
    visible: list[list[bool]], data: st.DataObject, block_rows: int, long_run: int
) -> None:
    """Each column's visible rows are put into those of the columns before, at any places."""
    columns = [[100 * number + row for row in range(len(each))] for number, each in enumerate(visible)]
    expected: list[int] = []
    runs = visible_runs(0, 0, np.array([], int))
    for number, each in enumerate(visible):
        shown = [columns[number][row] for row, is_there in enumerate(each) if is_there]
        place = st.integers(0, len(expected))
        before = sorted(data.draw(st.lists(place, min_size=len(shown), max_size=len(shown))))
        for place_of, row in reversed(list(zip(before, shown, strict=True))):
            expected.insert(place_of, row)
        hidden = np.flatnonzero(~np.array(each, dtype=bool))
        runs = inserted(runs, visible_runs(number, len(each), hidden), np.array(before, dtype=np.int64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_runs, "BLOCK_ROWS", block_rows)
        patch.setattr(row_runs, "_LONG_RUN", long_run)
        assert rows_of(runs, columns) == expected
        reads = [partial(read, column) for column in columns]
        for start in range(runs.num_rows):
            assert rows_between(runs, reads, start, runs.num_rows).tolist() == expected[start:]
