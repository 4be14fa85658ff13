"""Plans of what to read and decode: held against models that are slow and plain."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.manifests.video import Pattern, VideoRow
from shortgop.readers.plan import GopPlan, needed_samples, plan_frames, reorder_depth
from shortgop.readers.ranges import ByteRange, coalesce

# The default profile's GOP: I P b b b P b b b ...
DEFAULT = Pattern(
    frames=(0, 4, 1, 2, 3, 8, 5, 6, 7, 12, 9, 10, 11, 15, 13, 14),
    referenced=tuple(position == 0 or position % 4 == 1 for position in range(16)),
)
HIERARCHICAL = Pattern(
    frames=(0, 8, 4, 2, 1, 3, 6, 5, 7), referenced=(True, True, True, True, False, False, True, False, False)
)


def video(num_frames: int = 100, gop_frames: int = 16, segment_gops: int = 3) -> VideoRow:
    return VideoRow(
        id="a.mp4",
        source="/videos/a.mp4",
        attributes_json="{}",
        fps_num=30,
        fps_den=1,
        num_frames=num_frames,
        gop_frames=gop_frames,
        segment_gops=segment_gops,
        config=0,
        timebase_num=1,
        timebase_den=30,
        first_gop=1000,
        first_segment=500,
        first_frame=20000,
    )


@st.composite
def requests(draw: st.DrawFn) -> tuple[VideoRow, list[int]]:
    row = video(draw(st.integers(1, 300)), draw(st.integers(1, 20)), draw(st.integers(1, 5)))
    return row, draw(st.lists(st.integers(0, row.num_frames - 1), max_size=60))


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    rest = draw(st.integers(0, 20))
    frames = (0, *draw(st.permutations(range(1, rest + 1))))
    referenced = (True, *draw(st.lists(st.booleans(), min_size=rest, max_size=rest)))
    return Pattern(frames, referenced)


@st.composite
def patterns_and_frames(draw: st.DrawFn) -> tuple[Pattern, set[int]]:
    pattern = draw(patterns())
    return pattern, draw(st.sets(st.sampled_from(pattern.frames)))


@given(requests())
def test_every_row_of_the_output_is_filled_with_its_frame(request: tuple[VideoRow, list[int]]) -> None:
    row, frames = request
    plan = plan_frames(row, np.array(frames, dtype=np.int64))
    filled: dict[int, int] = {}
    for gop in plan.gops:
        for frame, to in zip(gop.frames, gop.rows, strict=True):
            assert to not in filled
            filled[to] = gop.first_frame + frame
    for to, decoded in plan.repeats:
        assert to not in filled
        filled[to] = filled[decoded]
    assert [filled[to] for to in range(len(frames))] == frames


@given(requests())
def test_each_gop_is_decoded_once_and_each_frame_lies_in_it(request: tuple[VideoRow, list[int]]) -> None:
    row, frames = request
    gops = plan_frames(row, np.array(frames, dtype=np.int64)).gops
    assert all(one.gop < other.gop for one, other in pairwise(gops))
    for gop in gops:
        number = gop.gop - row.first_gop
        assert gop.first_frame == number * row.gop_frames
        assert gop.segment == row.first_segment + number // row.segment_gops
        assert gop.video == row.id
        assert list(gop.frames) == sorted(set(gop.frames))
        assert 0 <= gop.frames[0] <= gop.frames[-1] < row.frames_in_gop(number)
    assert sum(len(gop.frames) for gop in gops) == len(set(frames))


def test_plan_of_a_clip() -> None:
    plan = plan_frames(video(), np.array([17, 50, 16, 17]))
    assert plan.gops == (
        GopPlan(gop=1001, segment=500, video="a.mp4", first_frame=16, frames=(0, 1), rows=(2, 0)),
        GopPlan(gop=1003, segment=501, video="a.mp4", first_frame=48, frames=(2,), rows=(1,)),
    )
    assert plan.repeats == ((3, 0),)


def test_no_frames_need_no_gops() -> None:
    plan = plan_frames(video(), np.array([], dtype=np.int64))
    assert plan.gops == ()
    assert plan.repeats == ()


def closure(pattern: Pattern, frames: Iterable[int]) -> set[int]:
    """Samples that the frames may depend on: grown from the wanted ones until nothing is added.

    A picture may refer to any referenced one that comes before it in decode order.
    """
    needed = {pattern.frames.index(frame) for frame in frames}
    while True:
        grown = needed | {earlier for sample in needed for earlier in range(sample) if pattern.referenced[earlier]}
        if grown == needed:
            return needed
        needed = grown


@given(patterns_and_frames())
def test_what_is_fed_is_all_that_is_needed_and_nothing_else(case: tuple[Pattern, set[int]]) -> None:
    pattern, frames = case
    samples = needed_samples(pattern, frames)
    assert list(samples) == sorted(closure(pattern, frames))
    assert frames <= {pattern.frames[sample] for sample in samples}


@pytest.mark.parametrize(
    ("frames", "expected"),
    [((0,), 1), ((4,), 2), ((2,), 3), ((1, 2, 3), 5), ((15,), 5), ((13,), 6), (range(0, 16, 4), 4), (range(16), 16)],
)
def test_how_few_samples_the_default_profile_needs(frames: Iterable[int], expected: int) -> None:
    assert len(needed_samples(DEFAULT, frames)) == expected


@pytest.mark.parametrize(
    ("pattern", "depth"),
    [
        (Pattern((0,), (True,)), 0),
        (Pattern((0, 1, 2, 3), (True, True, True, False)), 0),
        (DEFAULT, 1),
        (HIERARCHICAL, 3),
    ],
)
def test_reorder_depth(pattern: Pattern, depth: int) -> None:
    assert reorder_depth(pattern) == depth


@given(patterns())
def test_a_decoder_that_holds_back_so_many_frames_puts_them_out_in_order(pattern: Pattern) -> None:
    depth = reorder_depth(pattern)
    held: list[int] = []
    shown = []
    for frame in pattern.frames:
        held = sorted([*held, frame])
        if len(held) > depth:
            shown.append(held.pop(0))
    assert [*shown, *held] == sorted(pattern.frames)


RANGES = st.builds(
    lambda file, start, length: ByteRange(file, start, start + length),
    st.integers(0, 2),
    st.integers(0, 300),
    st.integers(1, 60),
)


@given(st.lists(RANGES, max_size=30), st.integers(0, 50), st.integers(1, 200))
def test_reads_cover_every_range_once(ranges: list[ByteRange], max_gap_bytes: int, max_read_bytes: int) -> None:
    reads = coalesce(ranges, max_gap_bytes=max_gap_bytes, max_read_bytes=max_read_bytes)
    assert sorted(part for read in reads for part in read.parts) == list(range(len(ranges)))
    for read in reads:
        parts = [ranges[part] for part in read.parts]
        assert {part.file for part in parts} == {read.range.file}
        assert read.range.start == min(part.start for part in parts)
        assert read.range.stop == max(part.stop for part in parts)
        assert [part.start for part in parts] == sorted(part.start for part in parts)
        assert len(parts) == 1 or read.range.stop - read.range.start <= max_read_bytes
        covered = {byte for part in parts for byte in range(part.start, part.stop)}
        holes = [after - before - 1 for before, after in pairwise(sorted(covered))]
        assert max(holes, default=0) <= max_gap_bytes
    order = [(read.range.file, read.range.start) for read in reads]
    assert order == sorted(order)


@given(st.lists(RANGES, max_size=30), st.integers(0, 50))
def test_no_two_reads_could_have_been_one(ranges: list[ByteRange], max_gap_bytes: int) -> None:
    reads = coalesce(ranges, max_gap_bytes=max_gap_bytes, max_read_bytes=1 << 20)
    for one, other in pairwise(reads):
        assert one.range.file != other.range.file or other.range.start - one.range.stop > max_gap_bytes


def test_a_range_longer_than_a_read_is_read_alone() -> None:
    ranges = [ByteRange(0, 0, 10), ByteRange(0, 10, 110), ByteRange(0, 110, 120)]
    reads = coalesce(ranges, max_gap_bytes=10, max_read_bytes=50)
    assert [read.parts for read in reads] == [(0,), (1,), (2,)]
