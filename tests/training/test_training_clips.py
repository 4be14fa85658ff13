"""Which frames a clip has: every policy against an obvious reference, and the conventions of other libraries."""

from __future__ import annotations

import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchcodec import samplers

import shortgop
from shortgop import AllClips, CenterClips, ClipsAt, RandomClips, RandomFrames, UniformClips
from shortgop.errors import UsageError
from shortgop.training.which_clips.clips import placed_index
from shortgop.training.which_clips.ends import PADDING, frames_within
from shortgop.training.which_clips.offsets import MultiRate, Offsets, frame_offsets, spacing
from shortgop.training.which_clips.references import ReferencedFrames
from test_training_keyed import chi_square_is_ordinary
from video_tables import clips_of, listed, video_table

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=6)
OFFSETS = st.lists(st.integers(-6, 12), min_size=1, max_size=6)


def starts_of(num_frames: int, offsets: list[int]) -> list[int]:
    return [start for start in range(num_frames) if all(0 <= start + offset < num_frames for offset in offsets)]


@given(LENGTHS, OFFSETS, st.integers(1, 4))
def test_all_clips_are_all_starts_from_which_every_frame_exists(
    lengths: list[int], offsets: list[int], step: int
) -> None:
    expected = [
        (video, [start + offset for offset in offsets])
        for video, length in enumerate(lengths)
        for start in starts_of(length, offsets)[::step]
    ]
    index = clips_of(AllClips(Offsets(frames=offsets), step=step, ends="drop"), lengths)
    assert len(index) == len(expected)
    if expected:
        assert listed(index) == expected
    assert index.too_short.tolist() == [v for v, length in enumerate(lengths) if not starts_of(length, offsets)]


@given(LENGTHS, OFFSETS, st.integers(1, 5))
def test_uniform_and_center_clips_are_spread_over_the_starts(lengths: list[int], offsets: list[int], k: int) -> None:
    uniform, center = [], []
    for video, length in enumerate(lengths):
        starts = starts_of(length, offsets)
        if starts:
            last = len(starts) - 1
            chosen = [starts[j * last // (k - 1)] if k > 1 else starts[0] for j in range(k)]
            uniform += [(video, [start + offset for offset in offsets]) for start in chosen]
            center += [(video, [starts[last // 2] + offset for offset in offsets])]
    window = Offsets(frames=offsets)
    for policy, expected in (
        (UniformClips(window, clips_per_video=k, ends="drop"), uniform),
        (CenterClips(window, ends="drop"), center),
    ):
        index = clips_of(policy, lengths)
        assert len(index) == len(expected)
        if expected:
            assert listed(index) == expected


def test_random_clips_take_every_start_equally_often_in_every_round() -> None:
    index = clips_of(RandomClips(4, stride=2, clips_per_video=2), [20, 13])
    draws = range(4 * 14 * 7 * 40)
    found: dict[int, list[int]] = {0: [], 1: []}
    for clip in index.clips(draws):
        assert np.diff(clip.frames).tolist() == [2, 2, 2]
        found[clip.video].append(clip.start)
    assert chi_square_is_ordinary(np.bincount(found[0], minlength=14))
    assert chi_square_is_ordinary(np.bincount(found[1], minlength=7))


@given(st.integers(0, 3), st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_a_draw_means_the_same_alone_and_among_others(seed: int, draws: list[int]) -> None:
    index = placed_index(RandomClips(3, jitter=2), video_table([50, 9, 200]), seed)
    together = index.clips(draws)
    for draw, clip in zip(draws, together, strict=True):
        alone = index.clips([draw])[0]
        assert (clip.draw, clip.video, clip.frames.tolist()) == (draw, draw % 3, alone.frames.tolist())


def test_random_frames_are_every_frame_once_an_epoch_in_an_order_of_its_own() -> None:
    lengths = [5, 1, 12]
    index = clips_of(RandomFrames(), lengths)
    every = sorted((video, [frame]) for video, length in enumerate(lengths) for frame in range(length))
    epochs = [listed(index, range(18 * epoch, 18 * (epoch + 1))) for epoch in range(200)]
    assert all(sorted(epoch) == every for epoch in epochs)
    first = [every.index(epoch[0]) for epoch in epochs]
    assert chi_square_is_ordinary(np.bincount(first, minlength=18))


def test_jitter_moves_each_frame_alone_and_stays_in_the_video() -> None:
    index = clips_of(AllClips(3, stride=4, jitter=3), [12])
    assert len(index) == 1
    moved = np.array([frames for _, frames in listed(index, range(4000))]) - [0, 4, 8]
    assert moved.min() == 0
    assert moved.max() == 3
    assert chi_square_is_ordinary(np.bincount(moved @ [16, 4, 1], minlength=64))


@pytest.mark.parametrize(
    ("ends", "expected", "mask"),
    [
        ("repeat_last", [4, 6, 6, 6, 6], [1, 1, 0, 0, 0]),
        ("clamp", [4, 6, 7, 7, 7], [1, 1, 0, 0, 0]),
        ("wrap_clip", [4, 6, 4, 6, 4], [1, 1, 0, 0, 0]),
        ("loop_video", [4, 6, 0, 2, 4], [1, 1, 0, 0, 0]),
        ("black", [4, 6, 7, 7, 7], [1, 1, 0, 0, 0]),
    ],
)
def test_ends(ends: str, expected: list[int], mask: list[int]) -> None:
    frames, there = frames_within(np.arange(4, 14, 2), 8, ends)
    assert frames.tolist() == expected
    assert there.tolist() == [bool(each) for each in mask]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ("repeat_last", [0, 0, 0, 1, 2]),
        ("clamp", [0, 0, 0, 1, 2]),
        ("wrap_clip", [1, 2, 0, 1, 2]),
        ("loop_video", [8, 9, 0, 1, 2]),
    ],
)
def test_ends_before_the_start(ends: str, expected: list[int]) -> None:
    assert frames_within(np.arange(-2, 3), 10, ends)[0].tolist() == expected


@given(OFFSETS, st.integers(-8, 40), st.integers(1, 30), st.sampled_from(PADDING))
def test_a_frame_that_exists_is_never_replaced(offsets: list[int], start: int, length: int, ends: str) -> None:
    wanted = np.array(offsets) + start
    frames, mask = frames_within(wanted, length, ends)
    assert ((frames >= 0) & (frames < length)).all()
    assert mask.tolist() == [0 <= frame < length for frame in wanted.tolist()]
    assert (frames == wanted)[mask].all()


@pytest.mark.parametrize("ends", PADDING)
def test_a_short_video_has_one_clip_that_is_padded(ends: Any) -> None:
    index = clips_of(RandomClips(8, stride=2, ends=ends), [40, 9])
    assert index.too_short.tolist() == [1]
    clip = index.clips([1])[0]
    assert clip.start == 0
    assert clip.frames.tolist()[:5] == [0, 2, 4, 6, 8]
    assert clip.mask is not None
    assert clip.mask.tolist() == [True] * 5 + [False] * 3


def test_a_short_video_is_an_error_that_names_it_and_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"2 of 3 videos .*'v0' has 4 of 8, 'v2' has 7 of 8; give ends=\"drop\""):
        clips_of(AllClips(8), [4, 8, 7])


def test_whole_false_makes_a_clip_of_every_frame() -> None:
    """LeRobot's delta timestamps [-0.1, 0, 0.1] at 10 frames/s: every frame is an item, clamped at both ends."""
    index = clips_of(AllClips(Offsets(seconds=[-0.1, 0, 0.1]), whole=False, ends="clamp"), [4, 2], rates=[Fraction(10)])
    clips = index.clips(range(6))
    assert [clip.frames.tolist() for clip in clips] == [
        [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 3], [0, 0, 1], [0, 1, 1],
    ]  # fmt: skip
    masks = [clip.mask.tolist() for clip in clips if clip.mask is not None]
    # LeRobot's `*_is_pad` is the opposite.
    assert masks[0] == [False, True, True]
    assert masks[3] == [True, True, False]


@given(
    st.integers(1, 40),
    st.fractions(Fraction(1, 4), 120, max_denominator=1001),
    st.fractions(Fraction(1, 4), 120, max_denominator=1001),
)
def test_fps_takes_the_nearest_frame_exactly(count: int, fps: Fraction, rate: Fraction) -> None:
    offsets = frame_offsets(spacing(count, None, fps), rate)
    for index, offset in enumerate(offsets):
        due = index / fps
        assert abs(offset / rate - due) == min(abs(frame / rate - due) for frame in (offset - 1, offset, offset + 1))


def test_videos_of_different_rates_get_equal_steps_in_time() -> None:
    rates = [Fraction(24), Fraction(30000, 1001), Fraction(60)]
    index = clips_of(AllClips(4, fps=2, ends="drop"), [100, 100, 100], rates=rates)
    first_clips = [listed(index, [int(index.firsts[video])])[0][1] for video in range(3)]
    # 1.5 s are 44.96 frames of NTSC video.
    assert first_clips == [[0, 12, 24, 36], [0, 15, 30, 45], [0, 30, 60, 90]]
    assert np.diff(index.firsts).tolist() == [64, 55, 10]


def test_floats_count_as_they_are_printed() -> None:
    exact = spacing(50, None, Fraction(2997, 100))
    assert spacing(50, None, 29.97) == spacing(50, None, Decimal("29.97")) == exact


def test_a_rate_may_be_a_text_as_prep_takes_it() -> None:
    ntsc = spacing(50, None, Fraction(30000, 1001))
    assert spacing(50, None, "30000/1001") == spacing(50, None, "29.97") == ntsc
    assert MultiRate([(8, "30000/1001"), (8, "2")]) == MultiRate([(8, Fraction(30000, 1001)), (8, 2)])
    assert clips_of(RandomClips(4, fps="10"), [40]).fingerprint == clips_of(RandomClips(4, fps=10), [40]).fingerprint


def test_two_rates_in_one_clip() -> None:
    """One frame a second for 3 s, then two a second, at 8 frames/s."""
    index = clips_of(AllClips(MultiRate([(3, 1), (4, 2)])), [40], rates=[Fraction(8)])
    assert listed(index, [0])[0][1] == [0, 8, 16, 24, 28, 32, 36]
    assert len(index) == 40 - 36


@st.composite
def gops(draw: st.DrawFn) -> tuple[list[int], list[list[bool]], ReferencedFrames]:
    """Videos as lists of GOPs of 4 frames, the last one shorter: their lengths, which frames are referred to, and
    the same as the manifest has it."""
    patterns = [[True, *rest] for rest in draw(st.lists(st.lists(st.booleans(), max_size=3), min_size=1, max_size=4))]
    full = [p for p, pattern in enumerate(patterns) if len(pattern) == 4]
    of_videos = [
        [*(draw(st.lists(st.sampled_from(full), max_size=4)) if full else []), draw(st.integers(0, len(patterns) - 1))]
        for _ in range(draw(st.integers(1, 4)))
    ]
    before = np.array([np.cumsum([0, *pattern, *[False] * (4 - len(pattern))]) for pattern in patterns])
    first_gops = np.cumsum([0, *map(len, of_videos)])
    references = ReferencedFrames(before, np.concatenate(of_videos), first_gops, np.full(len(of_videos), 4))
    referenced = [[flag for pattern in video for flag in patterns[pattern]] for video in of_videos]
    return [len(flags) for flags in referenced], referenced, references


@given(gops())
def test_referenced_frames_are_counted_alike_for_one_video_and_for_many(
    videos: tuple[list[int], list[list[bool]], ReferencedFrames],
) -> None:
    """A clip's start is found from its own video's GOPs: with millions of GOPs the sums of all took 13 ms a clip."""
    lengths, referenced, references = videos
    for video, (length, flags) in enumerate(zip(lengths, referenced, strict=True)):
        stops = np.arange(length + 1)
        expected = np.cumsum([0, *flags]).tolist()
        assert references.counts(np.full(length + 1, video), stops).tolist() == expected
        assert [references.count(video, stop) for stop in stops.tolist()] == expected


@given(gops(), st.integers(1, 6), st.integers(1, 3))
def test_aligned_clips_start_on_frames_that_others_refer_to(
    videos: tuple[list[int], list[list[bool]], ReferencedFrames], span: int, step: int
) -> None:
    lengths, referenced, references = videos
    starts = [
        [start for start in starts_of(length, list(range(span))) if flags[start]]
        for length, flags in zip(lengths, referenced, strict=True)
    ]
    index = clips_of(AllClips(span, step=step, align="reference", ends="drop"), lengths, references=references)
    assert np.diff(index.firsts).tolist() == [len(each[::step]) for each in starts]
    if len(index):
        assert [clip.start for clip in index.clips(range(len(index)))] == [s for each in starts for s in each[::step]]
    random = clips_of(RandomClips(span, align="reference", ends="drop"), lengths, references=references)
    if len(random):
        drawn = random.clips(range(200))
        assert {(clip.video, clip.start) for clip in drawn} <= {
            (video, start) for video, each in enumerate(starts) for start in each
        }


@pytest.mark.long
def test_ten_million_videos_open_in_seconds_and_take_less_than_a_byte_each() -> None:
    count = 10_000_000
    videos = video_table([300])
    many = type(videos)(
        chosen=None,
        num_frames=np.arange(count) % 500 + 16,
        fps_num=np.array([30, 25])[np.arange(count) % 2],
        fps_den=np.ones(count, dtype=np.int64),
        name=str,
        references=videos.references,
    )
    started = time.process_time()
    index = placed_index(AllClips(16, fps=25, ends="drop"), many, 0)
    assert time.process_time() - started < 15
    assert index.counts.of_runs.nbytes < count / 10
    clip = index.clips([len(index) - 1])[0]
    # The last video has 515 frames and the rate 25.
    assert (clip.video, clip.frames.tolist()) == (count - 1, list(range(499, 515)))
    draws = [0, len(index) // 3, len(index) // 3 + 1, len(index) - 1]
    expected = np.searchsorted(index.firsts, draws, side="right") - 1
    assert [each.video for each in index.clips(draws)] == expected.tolist()


# Other libraries' conventions, from their own examples and sources.


def test_like_nvvl() -> None:
    """NVVL: two videos of 100 frames and sequences of 5 make 192 items, 0 to 95 in the first video."""
    index = clips_of(AllClips(5), [100, 100])
    assert len(index) == 192
    assert listed(index, [0, 95, 96, 191]) == [
        (0, [0, 1, 2, 3, 4]), (0, [95, 96, 97, 98, 99]), (1, [0, 1, 2, 3, 4]), (1, [95, 96, 97, 98, 99]),
    ]  # fmt: skip


@pytest.mark.parametrize("ends", [("repeat_last", "repeat_last"), ("wrap_clip", "wrap")])
@pytest.mark.parametrize(("clips", "frames", "stride"), [(1, 5, 1), (4, 5, 3), (7, 16, 4), (30, 16, 4), (3, 40, 3)])
def test_like_torchcodec_at_regular_indices(
    three_videos: Path, clips: int, frames: int, stride: int, ends: tuple[Any, Any]
) -> None:
    video = shortgop.open(three_videos)["film.mkv"]
    theirs = samplers.clips_at_regular_indices(  # type: ignore[attr-defined]
        video,  # type: ignore[arg-type]
        num_clips=clips, num_frames_per_clip=frames, num_indices_between_frames=stride, policy=ends[1],
    )  # fmt: skip
    expected = (theirs.pts_seconds * 24).round().long().tolist()
    index = clips_of(UniformClips(frames, stride=stride, clips_per_video=clips, ends=ends[0]), [len(video)])
    assert [frames for _, frames in listed(index)] == expected


@pytest.mark.parametrize(
    ("frames", "stride", "total", "valid", "mmaction"),
    [
        # SampleFrames(clip_len, frame_interval) of mmaction2 draws from total - clip_len * interval + 1 starts.
        (32, 2, 100, 38, 37),
        (8, 8, 64, 8, 1),
        (16, 4, 61, 1, 0),
    ],
)
def test_unlike_mmaction_no_start_is_lost(frames: int, stride: int, total: int, valid: int, mmaction: int) -> None:
    assert len(clips_of(AllClips(frames, stride=stride), [total])) == valid
    assert max(0, total - frames * stride + 1) == mmaction


def test_like_mmaction_out_of_bound() -> None:
    """`out_of_bound_opt="loop"` is frame % total; "repeat_last" is the last frame that is within."""
    loop = clips_of(CenterClips(4, stride=3, ends="loop_video"), [7])
    repeat = clips_of(CenterClips(4, stride=3, ends="repeat_last"), [7])
    assert listed(loop) == [(0, [0, 3, 6, 2])]
    assert listed(repeat) == [(0, [0, 3, 6, 6])]


@pytest.mark.parametrize(
    ("deltas", "fps", "expected"),
    [
        ([-0.2, -0.1, 0.0], 10, [-2, -1, 0]),
        ([0, 1 / 50, 2 / 50, 3 / 50], 50, [0, 1, 2, 3]),
        ([-1, -0.5, -0.20, -0.10, 0], 30, [-30, -15, -6, -3, 0]),
        ([t / 30 for t in range(8)], 30, list(range(8))),
    ],
)
def test_like_lerobot_delta_timestamps(deltas: list[float], fps: int, expected: list[int]) -> None:
    """round(delta * fps), as its examples give them."""
    assert list(frame_offsets(spacing(Offsets(seconds=deltas), None, None), Fraction(fps))) == expected


def test_a_policy_is_shown_as_what_makes_it() -> None:
    for policy in (
        AllClips(num_frames=16, step=2, ends="drop"),
        RandomClips(num_frames=MultiRate(stretches=((8, Fraction(1, 1)),)), jitter=Fraction(1, 8)),
        CenterClips(num_frames=3, fps="30000/1001"),
    ):
        assert eval(repr(policy)) == policy
    assert repr(RandomClips(16, stride=4)) == "RandomClips(num_frames=16, stride=4)"
    many = ClipsAt(range(1_000_000), frames=[0] * 1_000_000)
    assert len(repr(many)) < 200


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AllClips(0), "num_frames is 0; it has to be 1 or more"),
        (lambda: AllClips(4, stride=2, fps=3), "stride=2 and fps=3 both say how far apart frames are"),
        (lambda: AllClips(4, ends=cast(Any, "wrap")), "ends is 'wrap'; it can be error, drop, repeat_last"),
        (lambda: AllClips(4, whole=False), "whole=False makes clips that reach beyond"),
        (lambda: RandomClips(Offsets(frames=[-1, 0]), align="reference"), "align goes with clips whose earliest"),
        (lambda: RandomClips(4, align=cast(Any, "keyframe")), "align is 'keyframe'"),
        (lambda: RandomClips(MultiRate([(4, 2)]), stride=2), "goes with neither stride nor fps"),
        (lambda: MultiRate([(4, 0)]), "fps is 0"),
        (
            lambda: RandomClips(4, fps="source"),
            "fps is 'source'; it has to be a number, or a text such as '30000/1001'",
        ),
        (lambda: RandomClips(4, fps="-1/2"), "fps is '-1/2'; it is how many frames of a clip make a second"),
        (
            lambda: MultiRate([4]),  # type: ignore[list-item]
            "a stretch is 4",
        ),
        (Offsets, "either frames"),
        (lambda: Offsets(frames=[]), "Offsets is empty"),
        (lambda: ClipsAt([0], frames=[1, 2]), "1 videos and 2 places"),
        (lambda: AllClips(4, jitter=-1), "jitter is -1"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
