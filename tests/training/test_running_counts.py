"""Which video a clip belongs to, found with one count for each run of videos."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.manifests.ragged import offsets_of
from shortgop.training.which_clips import running_counts
from shortgop.training.which_clips.running_counts import RunningCounts


@pytest.fixture(scope="module", autouse=True)
def _short_runs() -> Iterator[None]:
    """Runs of three videos, six counted at a time, whatever their number."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"_MOST_KEPT": 0, "_RUN_VIDEOS": 3, "BLOCK_VIDEOS": 6}.items():
            patch.setattr(running_counts, name, value)
        yield


def counts_of(clips: list[int], *, may_count_again: bool = True) -> RunningCounts:
    def count(start: int, stop: int) -> np.ndarray:
        assert 0 <= start <= stop <= len(clips)
        return np.array(clips[start:stop], dtype=np.int64)

    return running_counts.running_counts(len(clips), count, may_count_again=may_count_again)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.randoms(), st.booleans())
def test_each_clip_is_found_in_any_order(clips: list[int], rng: Random, may_count_again: bool) -> None:
    counts = counts_of(clips, may_count_again=may_count_again)
    expected = [(video, number) for video, count in enumerate(clips) for number in range(count)]
    assert len(counts) == len(expected)
    order = list(range(len(expected)))
    rng.shuffle(order)
    videos, numbers = counts.located(np.array(order, dtype=np.int64))
    assert list(zip(videos.tolist(), numbers.tolist(), strict=True)) == [expected[clip] for clip in order]
    assert counts.all().tolist() == offsets_of(np.array(clips)).tolist()


def test_one_count_is_kept_for_each_run() -> None:
    assert counts_of([2, 0, 1, 5, 1]).of_runs.tolist() == [0, 3, 9]
    # All are kept where a few cannot be counted alone.
    assert counts_of([2, 0, 1, 5, 1], may_count_again=False).of_runs.tolist() == [0, 2, 2, 3, 8, 9]
