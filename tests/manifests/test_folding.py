"""Many parts are merged in groups, and the snapshot is the same."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from example_manifests import drop, edit, failure, rows, video
from shortgop.errors import OutputError
from shortgop.manifests.merging.folding import Folding
from shortgop.manifests.merging.frame_runs import timeline_blocks
from shortgop.manifests.merging.merge import merge, merge_tables
from shortgop.manifests.tables import Manifest, Timeline

PARTS = st.one_of(
    st.builds(
        video,
        st.sampled_from("abcd"),
        offset=st.sampled_from([0, 9000]),
        frames=st.integers(1, 20),
        revision=st.integers(0, 2),
        after_edit=st.integers(0, 5),
    ),
    st.builds(failure, st.sampled_from("abcd"), st.just("lost"), st.integers(0, 3)),
    st.builds(edit, st.sampled_from("abcd"), st.integers(1, 9), label=st.integers(0, 9)),
    st.builds(drop, st.sampled_from("abcd"), st.integers(1, 9)),
)


def closing(path: Path, manifests: int, frames: int) -> contextlib.closing[Folding]:
    return contextlib.closing(Folding(lambda: path, group_manifests=manifests, group_frames=frames))


@settings(max_examples=60, deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=10), st.integers(1, 4), st.integers(1, 40))
# Each video alone has the frames of a group, and the failures wait.
@example(3 * [video("a", offset=0, frames=1, revision=0, after_edit=0)] + 3 * [failure("a", "lost", 0)], 4, 1)
def test_groups_merge_to_the_same(
    tmp_path_factory: pytest.TempPathFactory, parts: list[Manifest], manifests: int, frames: int
) -> None:
    path = tmp_path_factory.mktemp("fold") / "timelines"
    with closing(path, manifests, frames) as fold:
        for part in parts:
            fold.add(part)
        few, timelines = fold.result()
        most_groups = len(parts) // manifests + sum(int(part.first_frames[-1]) for part in parts) // frames
        assert len(few) <= most_groups + manifests - 1
        tables, runs = merge_tables(few, timelines)
        pts = np.concatenate([np.zeros(0, "<i8"), *timeline_blocks(runs, timelines, block_rows=7)])
        assert rows(replace(tables, timeline=Timeline(pts))) == rows(merge(parts))
    assert not path.exists()


def test_few_parts_need_no_file(tmp_path: Path) -> None:
    with contextlib.closing(Folding(lambda: tmp_path / "missing" / "timelines")) as fold:
        for number in range(20):
            fold.add(video(str(number)))
        assert len(fold.result()[0]) == 20


@pytest.mark.parametrize("frames", [10, 100_000])
def test_a_disk_that_is_full_is_said_to_be(tmp_path: Path, frames: int) -> None:
    """Whether the system refuses the first bytes or the last, which are written where the file is flushed or closed."""
    part = video("a", frames=frames)
    (tmp_path / "timelines").symlink_to("/dev/full")
    with closing(tmp_path / "timelines", 1, 1000) as fold, pytest.raises(OutputError, match="No space left on device"):
        fold.add(part)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with closing(tmp_path / "missing" / "timelines", 2, 1000) as fold:
        fold.add(video("a"))
        with pytest.raises(OutputError, match="missing/timelines"):
            fold.add(video("b"))
