"""Edits and drops: what a dataset says of a video after its columns were changed, or it was taken out."""

import json
from functools import reduce
from itertools import islice, permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_manifests import colliding_parts, drop, edit, failure, rows, video
from shortgop.manifests.merging.edits import Drop, dropped, edits_of, last_number
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.tables import Manifest, empty
from sweep import SWEEP


def labels(manifest: Manifest) -> dict[str, Any]:
    texts = manifest.videos.attributes.texts()
    return {video_id: json.loads(text) for video_id, text in zip(manifest.ids, texts, strict=True)}


def in_any_order(*parts: Manifest) -> Manifest:
    """What the parts give, which is the same in all orders, all at once and one by one. Of six there are 720 orders: it
    tries about a hundred, all in a sweep."""
    expected = merge(parts)
    for order in islice(permutations(parts), None, None, 1 if SWEEP or len(parts) < 6 else 7):
        assert rows(merge(order)) == rows(reduce(lambda one, other: merge([one, other]), order)) == rows(expected)
    return expected


_PARTS = colliding_parts("a", "é")


@given(st.lists(_PARTS, max_size=8), st.lists(st.integers(1, 4)), st.randoms(use_true_random=False))
@settings(max_examples=150 if SWEEP else 60)
def test_parts_give_the_same_in_any_order_and_any_number_of_steps(
    parts: list[Manifest], steps: list[int], random: Random
) -> None:
    expected = rows(merge(parts))
    shuffled = parts.copy()
    random.shuffle(shuffled)
    snapshot = empty()
    for step in [*steps, len(parts)]:
        taken, shuffled = shuffled[:step], shuffled[step:]
        together = [snapshot, *taken]
        random.shuffle(together)
        snapshot = merge(together)
    assert rows(snapshot) == expected
    # A part that comes once more changes nothing, and neither does a snapshot of some of them.
    assert rows(merge([*parts[:2], snapshot, merge(parts[1:])])) == expected


def test_an_edit_sets_the_columns_that_it_names_and_leaves_the_others() -> None:
    merged = merge([video("a", attributes='{"label": "3", "split": "train"}'), edit("a", 1, label=3, weight=0.5)])
    assert labels(merged) == {"a": {"label": 3, "split": "train", "weight": 0.5}}


def test_an_edit_can_remove_a_column_and_a_later_one_can_set_it_again() -> None:
    parts = [video("a", attributes='{"label": 3, "split": "train"}'), edit("a", 1, "label", "none")]
    assert labels(merge(parts)) == {"a": {"split": "train"}}
    assert labels(merge([*parts, edit("a", 2, label=4)])) == {"a": {"label": 4, "split": "train"}}


def test_the_later_edit_of_a_column_counts() -> None:
    merged = in_any_order(video("a"), edit("a", 1, label=1, split="train"), edit("a", 2, label=2))
    assert labels(merged) == {"a": {"label": 2, "split": "train"}}
    # Of each column only the last edit is kept.
    assert [(each.number, each.attributes) for each in edits_of(merged.edits)] == [
        (1, {"split": "train"}),
        (2, {"label": 2}),
    ]


def test_a_video_that_is_made_again_has_the_edits_that_came_after_it_was_stored() -> None:
    merged = in_any_order(
        video("a", shard="1.shard", attributes='{"label": 0}'),
        edit("a", 1, label=1, split="train"),
        edit("a", 2, split="test"),
        # Stored when the first edit was known, and with another label.
        video("a", shard="2.shard", revision=1, after_edit=1, attributes='{"label": 9, "split": "train"}'),
    )
    assert merged.shards.name.texts() == ["2.shard"]
    assert labels(merged) == {"a": {"label": 9, "split": "test"}}


def test_edits_of_a_video_that_is_not_there_wait_for_it() -> None:
    assert labels(in_any_order(edit("a", 1, label=1), video("b"), video("a"))) == {"a": {"label": 1}, "b": {}}


def test_one_video_in_two_parts_has_the_columns_of_both() -> None:
    """Two attempts at a unit may have read different lists, and written the same bytes."""
    one, other = (video("a", attributes=text) for text in ('{"label": 1, "split": "a"}', '{"label": 2, "fold": 7}'))
    assert labels(in_any_order(one, other)) == {"a": {"label": 2, "split": "a", "fold": 7}}
    edits = edit("a", 1, "split", label=0)
    assert labels(in_any_order(one, other, edits)) == {"a": {"label": 0, "fold": 7}}


def test_two_edits_of_one_number_give_the_same_in_any_order() -> None:
    merged = in_any_order(video("a"), edit("a", 1, "split", label=1), edit("a", 1, label=2, split=None))
    assert labels(merged) == {"a": {"label": 2, "split": None}}


@pytest.mark.long
def test_what_was_dropped_does_not_come_back_with_an_older_part() -> None:
    merged = in_any_order(
        video("a", attributes='{"label": 0}'),
        edit("a", 1, label=1),
        drop("a", 2),
        video("a", shard="made again by a job that came too late", revision=1, after_edit=1),
        failure("a", "cut"),
        video("b"),
    )
    assert (merged.ids, merged.failures.id.texts(), edits_of(merged.edits)) == (["b"], [], [])
    assert dropped(merged).keys() == {"a"}


def test_a_video_that_is_taken_in_again_is_there_with_its_new_columns() -> None:
    merged = in_any_order(
        video("a", attributes='{"label": 0}'),
        edit("a", 1, label=1),
        drop("a", 2),
        video("a", revision=1, after_edit=2, attributes='{"label": 5}'),
        # By a worker that knew nothing of the drop, of a later revision.
        video("a", shard="late.shard", revision=2, after_edit=1),
    )
    assert (labels(merged), dropped(merged)) == ({"a": {"label": 5}}, {})
    again = in_any_order(merged, drop("a", 3), drop("a", 1, revision=7))
    assert (again.ids, dropped(again)) == ([], {"a": Drop(3, 7)})


def test_the_next_number_is_greater_than_any_before() -> None:
    assert last_number(empty()) == 0
    assert last_number(merge([video("a"), edit("a", 4, label=1), drop("a", 6)])) == 6
    assert last_number(merge([video("a", after_edit=9), drop("b", 6)])) == 9
