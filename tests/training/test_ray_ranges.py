"""Which clips the read tasks of a Ray dataset read: every clip once, in ranges that share few shards and videos."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import UsageError
from shortgop.manifests.ragged import offsets_of
from shortgop.ray_data.clip_columns import Column, metadata_columns
from shortgop.ray_data.clip_ranges import block_ranges, task_ranges

# Clips of each video, and whether the video lies in another shard than the one before.
VIDEOS = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=60)


def planned(videos: list[tuple[int, bool]], num_tasks: int) -> list[range]:
    clips, new_shard = [clips for clips, _ in videos], [new for _, new in videos]
    shards = np.cumsum(np.array(new_shard, dtype=np.int64))
    return task_ranges(offsets_of(np.array(clips, dtype=np.int64)), shards, num_tasks)


@given(VIDEOS, st.integers(1, 100))
def test_every_clip_is_read_once_and_in_order(videos: list[tuple[int, bool]], num_tasks: int) -> None:
    count = sum(clips for clips, _ in videos)
    ranges = planned(videos, num_tasks)
    assert [place for places in ranges for place in places] == list(range(count))
    assert len(ranges) == min(num_tasks, count)


@given(VIDEOS, st.integers(1, 100))
def test_ranges_are_about_equally_long(videos: list[tuple[int, bool]], num_tasks: int) -> None:
    ranges = planned(videos, num_tasks)
    even = sum(clips for clips, _ in videos) / max(1, len(ranges))
    for places in ranges:
        assert even / 2 - 1 < len(places) < even * 3 / 2 + 1


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=60), st.integers(1, 100))
def test_a_range_ends_at_a_shard_or_a_video_if_one_ends_nearby(videos: list[tuple[int, bool]], num_tasks: int) -> None:
    ranges = planned(videos, num_tasks)
    ends = np.cumsum([clips for clips, _ in videos])[:-1].tolist()
    ends_of_shards = [end for end, (_, new) in zip(ends, videos[1:], strict=True) if new]
    count, tasks = sum(clips for clips, _ in videos), len(ranges)
    for task, places in enumerate(ranges[:-1], 1):
        even, window = task * count // tasks, count // (4 * tasks)
        near = [end for end in ends_of_shards if abs(end - even) <= window]
        near = near or [end for end in ends if abs(end - even) <= window] or [even]
        assert places.stop in near


def test_two_shards_of_nearly_equal_length_are_not_mixed() -> None:
    videos = [(10, False), (10, False), (9, True), (10, False)]
    assert planned(videos, 2) == [range(20), range(20, 39)]
    assert planned(videos, 4) == [range(10), range(10, 20), range(20, 29), range(29, 39)]


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 60))
def test_blocks_are_parts_of_a_range_and_bounded(start: int, count: int, clips_per_block: int) -> None:
    blocks = block_ranges(range(start, start + count), clips_per_block)
    assert [place for block in blocks for place in block] == list(range(start, start + count))
    assert all(len(block) == clips_per_block for block in blocks[:-1])
    assert all(0 < len(block) <= clips_per_block for block in blocks)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], "int64"),
        ([1, 2.5, None], "float64"),
        ([True, None], "bool"),
        (["cat", None], "text"),
        ([None], "text"),
        ([], "text"),
    ],
)
def test_columns_of_the_source_list(values: list[object], dtype: str) -> None:
    assert metadata_columns(["label"], [{"label": value} for value in values]) == [Column("label", dtype)]


@pytest.mark.parametrize("values", [[1, "cat"], [True, 1], [[1, 2]], [{"a": 1}]])
def test_columns_that_arrow_cannot_hold_are_refused(values: list[object]) -> None:
    with pytest.raises(UsageError, match="column 'label' of the source list has values of these types"):
        metadata_columns(["label"], [{"label": value} for value in values])
