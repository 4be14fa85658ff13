"""Plans of what to read and decode: held against models that are slow and plain."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import FrameIndexError
from shortgop.manifests.ragged import offsets_of
from shortgop.manifests.records import Pattern
from shortgop.readers.plan import (
    ByteRange,
    GopPlan,
    OutputFrames,
    Place,
    Repeat,
    VideoGops,
    coalesce,
    needed_samples,
    plan_frames,
    reorder_depth,
)

# The default profile's GOP: I P b b b P b b b ...
DEFAULT = Pattern(
    frames=(0, 4, 1, 2, 3, 8, 5, 6, 7, 12, 9, 10, 11, 15, 13, 14),
    referenced=tuple(position == 0 or position % 4 == 1 for position in range(16)),
)
HIERARCHICAL = Pattern(
    frames=(0, 8, 4, 2, 1, 3, 6, 5, 7), referenced=(True, True, True, True, False, False, True, False, False)
)


@dataclass(frozen=True)
class Case:
    """Videos and the clips that are asked of them."""

    gop_frames: list[int]
    segment_gops: list[int]
    num_frames: list[int]
    clips: list[tuple[int, list[int]]]

    @property
    def layout(self) -> VideoGops:
        counts = [-(-frames // gop) for frames, gop in zip(self.num_frames, self.gop_frames, strict=True)]
        segments = [-(-count // gops) for count, gops in zip(counts, self.segment_gops, strict=True)]
        return VideoGops(
            np.array(self.num_frames, dtype="<i8"),
            np.array(self.gop_frames, dtype="<i4"),
            np.array(self.segment_gops, dtype="<i4"),
            offsets_of(np.array(counts)),
            offsets_of(np.array(segments)),
        )

    @property
    def slots(self) -> list[tuple[int, int]]:
        """Video and frame of each slot of the output."""
        return [(video, frame) for video, frames in self.clips for frame in frames]


@st.composite
def requests(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 4))
    gop_frames, segment_gops, num_frames = (
        draw(st.lists(st.integers(1, most), min_size=count, max_size=count)) for most in (20, 5, 300)
    )
    clips = [
        (video, draw(st.lists(st.integers(0, num_frames[video] - 1), max_size=20)))
        for video in draw(st.lists(st.integers(0, count - 1), max_size=6))
    ]
    return Case(gop_frames, segment_gops, num_frames, clips)


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
def test_every_slot_of_the_output_is_filled_with_its_frame(case: Case) -> None:
    plan = plan_frames(case.layout, case.clips)
    filled: dict[int, tuple[int, int]] = {}
    for gop in plan.gops:
        for frame, places in zip(gop.frames, gop.places, strict=True):
            for output, to, geometry in places:
                assert (output, geometry) == (0, 0)
                assert to not in filled
                filled[to] = gop.video, gop.first_frame + frame
    for _, to, decoded in plan.repeats:
        assert to not in filled
        filled[to] = filled[decoded]
    assert [filled[to] for to in range(len(case.slots))] == case.slots


@given(requests())
def test_each_gop_is_decoded_once_and_each_frame_lies_in_it(case: Case) -> None:
    layout = case.layout
    gops = plan_frames(layout, case.clips).gops
    assert all(one.gop < other.gop for one, other in pairwise(gops))
    for gop in gops:
        gop_frames = case.gop_frames[gop.video]
        number = gop.gop - layout.first_gops[gop.video]
        assert gop.first_frame == number * gop_frames
        assert gop.segment == layout.first_segments[gop.video] + number // case.segment_gops[gop.video]
        assert list(gop.frames) == sorted(set(gop.frames))
        assert 0 <= gop.frames[0] <= gop.frames[-1] < min(gop_frames, case.num_frames[gop.video] - gop.first_frame)
    assert sum(len(gop.frames) for gop in gops) == len(set(case.slots))


def at(slot: int) -> tuple[Place, ...]:
    """The one place of a frame in the one output."""
    return (Place(output=0, slot=slot, geometry=0),)


def test_plan_of_two_clips() -> None:
    case = Case([16, 10], [3, 2], [100, 60], [(0, [17, 50, 16, 17]), (1, [25, 9]), (0, [50, 51])])
    plan = plan_frames(case.layout, case.clips)
    assert plan.gops == (
        GopPlan(gop=1, segment=0, video=0, first_frame=16, frames=(0, 1), places=(at(2), at(0))),
        GopPlan(gop=3, segment=1, video=0, first_frame=48, frames=(2, 3), places=(at(1), at(7))),
        GopPlan(gop=7, segment=3, video=1, first_frame=0, frames=(9,), places=(at(5),)),
        GopPlan(gop=9, segment=4, video=1, first_frame=20, frames=(5,), places=(at(4),)),
    )
    assert plan.repeats == ((0, 3, 0), (0, 6, 1))


@st.composite
def requests_of_outputs(draw: st.DrawFn) -> tuple[Case, list[OutputFrames]]:
    """Clips of equal length, and outputs that have some of their frames each, with geometries of their own."""
    layout = draw(requests())
    length = draw(st.integers(1, 6))
    clips = [
        (video, draw(st.lists(st.integers(0, min(5, layout.num_frames[video] - 1)), min_size=length, max_size=length)))
        for video, _ in layout.clips
    ]
    case = Case(layout.gop_frames, layout.segment_gops, layout.num_frames, clips)
    positions = st.none() | st.lists(st.integers(0, length - 1), min_size=1, max_size=8)
    geometries = st.none() | st.lists(st.integers(0, 2), min_size=len(clips), max_size=len(clips))
    return case, draw(st.lists(st.builds(OutputFrames, positions, geometries), min_size=1, max_size=3))


@given(requests_of_outputs())
def test_every_slot_of_every_output_is_filled_with_its_frame_and_geometry(
    request: tuple[Case, list[OutputFrames]],
) -> None:
    case, outputs = request
    plan = plan_frames(case.layout, case.clips, outputs)
    filled: dict[tuple[int, int], tuple[int, int, int]] = {}
    for gop in plan.gops:
        for frame, places in zip(gop.frames, gop.places, strict=True):
            # With one geometry an output has a frame once: others are copies.
            assert len({(place.output, place.geometry) for place in places}) == len(places) > 0
            for place in places:
                assert (place.output, place.slot) not in filled
                filled[place.output, place.slot] = gop.video, gop.first_frame + frame, place.geometry
    for output, slot, original in plan.repeats:
        assert (output, slot) not in filled
        filled[output, slot] = filled[output, original]
    expected = {}
    for number, output_frames in enumerate(outputs):
        slots = [
            (video, frame, 0 if output_frames.geometries is None else output_frames.geometries[clip])
            for clip, (video, frames) in enumerate(case.clips)
            for frame in (
                frames if output_frames.positions is None else [frames[each] for each in output_frames.positions]
            )
        ]
        expected.update({(number, slot): what for slot, what in enumerate(slots)})
    assert filled == expected
    # Nothing is decoded that no output has, and nothing twice.
    decoded = [(gop.video, gop.first_frame + frame) for gop in plan.gops for frame in gop.frames]
    assert sorted(decoded) == sorted({what[:2] for what in expected.values()})


@given(requests_of_outputs(), st.randoms(use_true_random=False))
def test_clips_that_go_to_rows_of_their_own_are_planned_as_those_in_order(
    request: tuple[Case, list[OutputFrames]], random: Random
) -> None:
    case, outputs = request
    rows = random.sample(range(3 * len(case.clips)), len(case.clips))
    in_order = plan_frames(case.layout, case.clips, outputs)
    in_rows = plan_frames(case.layout, case.clips, [replace(output, rows=rows) for output in outputs])
    lengths = [len(case.clips[0][1] if each.positions is None else each.positions) if rows else 0 for each in outputs]

    def moved(output: int, slot: int) -> int:
        clip, frame = divmod(slot, lengths[output])
        return rows[clip] * lengths[output] + frame

    for one, other in zip(in_order.gops, in_rows.gops, strict=True):
        places = tuple(
            tuple(place._replace(slot=moved(place.output, place.slot)) for place in frame) for frame in one.places
        )
        assert replace(one, places=places) == other
    assert in_rows.repeats == tuple(
        Repeat(output, moved(output, slot), moved(output, original)) for output, slot, original in in_order.repeats
    )


def test_plan_of_a_small_clip_and_its_middle_frame_in_two_crops() -> None:
    """NVVL's case, and a frame that two crops of one output need: it is converted twice and decoded once."""
    case = Case([16], [3], [100], [(0, [4, 5, 6]), (0, [5, 6, 7])])
    plan = plan_frames(case.layout, case.clips, [OutputFrames(None, [0, 1]), OutputFrames([1], [2, 2])])
    (gop,) = plan.gops
    assert gop.frames == (4, 5, 6, 7)
    assert gop.places == (
        ((0, 0, 0),),
        ((0, 1, 0), (1, 0, 2), (0, 3, 1)),
        ((0, 2, 0), (0, 4, 1), (1, 1, 2)),
        ((0, 5, 1),),
    )
    assert plan.repeats == ()


def test_no_frames_need_no_gops() -> None:
    plan = plan_frames(Case([16], [3], [100], []).layout, [(0, [])])
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


@given(st.lists(RANGES, max_size=30), st.integers(0, 50), st.integers(1, 200), st.integers(1, 30))
def test_reads_cover_every_range_once(
    ranges: list[ByteRange], max_gap_bytes: int, max_read_bytes: int, max_parts: int
) -> None:
    reads = coalesce(ranges, max_gap_bytes=max_gap_bytes, max_read_bytes=max_read_bytes, max_parts=max_parts)
    assert sorted(part for read in reads for part in read.parts) == list(range(len(ranges)))
    for read in reads:
        parts = [ranges[part] for part in read.parts]
        assert {part.file for part in parts} == {read.range.file}
        assert read.range.start == min(part.start for part in parts)
        assert read.range.stop == max(part.stop for part in parts)
        assert [part.start for part in parts] == sorted(part.start for part in parts)
        assert len(parts) <= max_parts
        assert len(parts) == 1 or read.range.stop - read.range.start <= max_read_bytes
        covered = {byte for part in parts for byte in range(part.start, part.stop)}
        holes = [after - before - 1 for before, after in pairwise(sorted(covered))]
        assert max(holes, default=0) <= max_gap_bytes
    order = [(read.range.file, read.range.start) for read in reads]
    assert order == sorted(order)


@given(st.lists(RANGES, max_size=30), st.integers(0, 50))
def test_no_two_reads_could_have_been_one(ranges: list[ByteRange], max_gap_bytes: int) -> None:
    reads = coalesce(ranges, max_gap_bytes=max_gap_bytes, max_read_bytes=1 << 20, max_parts=30)
    for one, other in pairwise(reads):
        assert one.range.file != other.range.file or other.range.start - one.range.stop > max_gap_bytes


def test_a_range_longer_than_a_read_is_read_alone() -> None:
    ranges = [ByteRange(0, 0, 10), ByteRange(0, 10, 110), ByteRange(0, 110, 120)]
    reads = coalesce(ranges, max_gap_bytes=10, max_read_bytes=50, max_parts=3)
    assert [read.parts for read in reads] == [(0,), (1,), (2,)]


@pytest.mark.parametrize("frame", [10, 11, 16, 10**9, -1])
def test_no_plan_reads_what_is_behind_a_video(frame: int) -> None:
    """In the table of GOPs another video's come next."""
    layout = Case([4, 4], [2, 2], [10, 30], []).layout
    for clips in ([(0, [frame])], [(1, [29]), (0, [0, frame, 9])]):
        with pytest.raises(FrameIndexError, match=f"video number 0 has no frame {frame}: it has 10"):
            plan_frames(layout, clips)
