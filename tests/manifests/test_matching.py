"""Two manifests side by side: what is compared block by block is what a dict of all ids would give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_manifests import video
from shortgop.manifests import chosen_ids, matching
from shortgop.manifests.chosen_ids import ChosenIds
from shortgop.manifests.matching import equal_gops, equal_lists, matching_rows
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.ragged import Ragged, from_rows, from_texts

IDS = st.text(st.sampled_from(["a", "b", "\0", "\x7f", "é", "\ud7ff", "\ue000", "\U0001f3ac"]), max_size=4)
LONG = st.sampled_from(["b" * 127, "b" * 128, "b" * 129, "é" * 65, "b" * 128 + "\0"])


def column_of(ids: set[str]) -> Ragged:
    return from_texts(sorted(ids))


@given(
    ids=st.sets(IDS | LONG, max_size=30),
    others=st.sets(IDS | LONG, max_size=30),
    block=st.integers(1, 7),
    sparse=st.sampled_from([0, 1, 16]),
)
def test_rows_of_the_same_id(ids: set[str], others: set[str], block: int, sparse: int) -> None:
    row_of = {each: row for row, each in enumerate(sorted(others))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_BLOCK_ROWS", block)
        patch.setattr(matching, "_SPARSE", sparse)
        found = [(rows.tolist(), there.tolist()) for rows, there in matching_rows(column_of(ids), column_of(others))]
    assert [row for rows, _ in found for row in rows] == list(range(len(ids)))
    assert [row for _, there in found for row in there] == [row_of.get(each, -1) for each in sorted(ids)]
    assert all(len(rows) <= block for rows, _ in found)


LISTS = st.lists(st.lists(st.integers(0, 2), max_size=4), min_size=1, max_size=8)


@given(one=LISTS, other=LISTS, compared=st.integers(1, 6), pairs=st.lists(st.tuples(st.integers(0), st.integers(0))))
def test_lists_with_the_same_values(
    one: list[list[int]], other: list[list[int]], compared: int, pairs: list[tuple[int, int]]
) -> None:
    pairs = [(row % len(one), other_row % len(other)) for row, other_row in pairs]
    rows, other_rows = np.array(pairs, np.int64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "_COMPARED_VALUES", compared)
        found = equal_lists(from_rows(one, "<u4"), rows, from_rows(other, "<u4"), other_rows)
    assert found.tolist() == [one[row] == other[other_row] for row, other_row in pairs]


def test_videos_with_the_same_gops_lie_anywhere() -> None:
    one = merge([video("a", frames=10), video("b", frames=3, offset=9000)])
    other = merge([video("b", frames=3), video("c", frames=10, shard="other.shard", offset=70), video("d", frames=11)])
    # The last has as many GOPs as the first, and checksums are numbered in each video.
    rows, other_rows = np.array([0, 0, 1, 0]), np.array([1, 0, 0, 2])
    assert equal_gops(one, rows, other, other_rows).tolist() == [True, False, True, True]


# Ids that are decoded when they are asked for


@given(st.lists(st.lists(IDS, max_size=6), max_size=4), st.integers(1, 3))
def test_chosen_ids_are_a_sequence_of_texts(columns: list[list[str]], decoded: int) -> None:
    """Each second row of some columns, the last one first."""
    expected = tuple(each for column in columns for each in column[::-2])
    found = ChosenIds([(from_texts(column), np.arange(len(column))[::-2]) for column in columns])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen_ids, "_DECODED_ROWS", decoded)
        assert tuple(found) == expected
    assert found == expected
    assert expected == found
    assert hash(found) == hash(expected)
    assert len(found) == len(expected)
    assert bool(found) == bool(expected)
    assert [found[place] for place in range(len(expected))] == list(expected)
    assert (found[:2], found[-2:]) == (expected[:2], expected[-2:])
    assert found != (*expected, "more")
    assert found != expected[1:] or not expected
    with pytest.raises(IndexError):
        found[len(expected)]
    for each in expected:
        assert each in found
        assert found.index(each) == expected.index(each)
