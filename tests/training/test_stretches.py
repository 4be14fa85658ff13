"""Clips from stretches of videos: within them and nowhere else, in any loader; and windows that are seconds apart."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import shortgop
from datasets import make_dataset
from shortgop.errors import DatasetWarning, UsageError
from shortgop.training.which_clips.clips import placed_index
from shortgop.training.which_clips.policies import AllClips, CenterClips, RandomClips, RandomFrames, UniformClips
from shortgop.training.which_clips.stretches import Stretches, within
from synthetic import constant_rate_pts, make_video
from training_videos import check_item, make_videos, numbers
from video_tables import clips_of, listed, video_table

NTSC = Fraction(30000, 1001)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Videos of 40, 25 and 9 frames, at 10, 30 and 10 frames/s."""
    return make_videos(tmp_path_factory.mktemp("clips"))


def clips_within(policy: Any, bounds: list[tuple[int, int]], **options: Any) -> Any:
    """The clips of a policy in stretches of videos of 100 frames, one each."""
    frames = Stretches([0] * len(bounds), frames=bounds)
    return placed_index(policy, within(frames, video_table([100] * len(bounds), **options)), seed=0)


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(1, 10)).map(lambda pair: (pair[0], sum(pair))), min_size=1),
    st.sampled_from(
        [
            AllClips(3, stride=2, step=2, ends="drop"),
            RandomClips(4, clips_per_video=3, ends="drop"),
            UniformClips(2, clips_per_video=3, ends="drop"),
            CenterClips(3, fps=15, ends="drop"),
            AllClips(3, ends="loop_video"),
            AllClips(4, fps=20, ends="repeat_last", jitter=0.1),
            RandomFrames(),
        ]
    ),
)
def test_a_stretch_has_the_clips_of_a_video_of_its_length(bounds: list[tuple[int, int]], policy: Any) -> None:
    index, alone = clips_within(policy, bounds), clips_of(policy, [stop - first for first, stop in bounds])
    assert len(index) == len(alone)
    assert index.too_short.tolist() == alone.too_short.tolist()
    draws = range(3 * len(index))
    for clip, same in zip(index.clips(draws) if draws else [], alone.clips(draws) if draws else [], strict=True):
        first, stop = bounds[same.video]
        assert clip.stretch == same.video
        assert clip.start == first + same.start
        assert clip.frames.tolist() == (first + same.frames).tolist()
        assert first <= clip.frames.min()
        assert clip.frames.max() < stop
        masks = [None if each.mask is None else each.mask.tolist() for each in (clip, same)]
        assert masks[0] == masks[1]


def test_every_frame_belongs_to_one_of_two_stretches_that_meet() -> None:
    """Also where the time lies in the middle of two frames, or was rounded to milliseconds."""
    for rate in (Fraction(10), NTSC, Fraction(25)):
        for place in range(1, 100):
            for seconds in ((place + Fraction(1, 2)) / rate, round(float(place / rate), 3)):
                both = Stretches([0, 0], seconds=[(None, seconds), (seconds, None)])
                table = within(both, video_table([101, 101], rates=[rate]))
                shown = [list(range(*bound)) for bound in zip(*_bounds(table), strict=True)]
                assert shown[0] + shown[1] == list(range(101))
                assert isinstance(seconds, Fraction) or shown[1][0] == place


def _bounds(table: Any) -> tuple[list[int], list[int]]:
    return table.first_frames.tolist(), (table.first_frames + table.num_frames).tolist()


def test_a_stretch_has_a_frame_at_least_and_may_end_shortly_behind_its_video() -> None:
    seconds = [(2, 2.01), (9.96, 9.97), (9, 10.5), (9.96, None), (None, None)]
    table = within(Stretches([0] * 5, seconds=seconds), video_table([100] * 5, rates=[Fraction(10)]))
    assert list(zip(*_bounds(table), strict=True)) == [(20, 21), (99, 100), (90, 100), (99, 100), (0, 100)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"seconds": [(10, None)]},
            "stretch 0, of video 'v0', is from 10.0 s to 10.0 s, and the video lasts from 0 s to",
        ),
        ({"seconds": [(0, 10.6)]}, "is from 0.0 s to 10.6 s, and the video lasts from 0 s to 10.0 s"),
        ({"seconds": [(-1, 3)]}, "is from -1.0 s to 3.0 s"),
        ({"seconds": [(3, 3)]}, "is from 3.0 s to 3.0 s, which is nothing"),
        ({"seconds": [(5, 3)]}, "which is nothing"),
        ({"seconds": [(float("nan"), 3)]}, "the start of stretch 0, of video 'v0', is nan; it has to be finite"),
        ({"seconds": [4]}, r"seconds of stretch 0 is 4; it is \(start, end\)"),
        ({"frames": [(3, 3)]}, "is from frame 3 to before frame 3, and the video has 100 frames"),
        ({"frames": [(3, 101)]}, "and the video has 100 frames"),
        ({"frames": [(-5, None)]}, "is from frame -5"),
        ({"frames": [(0.5, None)]}, "the first frame of stretch 0, of video 'v0', is 0.5; it has to be an integer"),
        ({"frames": [(0, 1), (2, 3)]}, "Stretches has 1 video and 2 of frames"),
        ({"frames": [(0, 1)], "seconds": [(0, 1)]}, "either seconds=.* or frames="),
        ({}, "either seconds=.* or frames="),
    ],
)
def test_a_stretch_that_makes_no_sense_is_refused(options: Any, said: str) -> None:
    with pytest.raises(shortgop.ShortGopError, match=said):
        within(Stretches(["v0"], **options), video_table([100], rates=[Fraction(10)]))


def test_it_is_told_how_many_stretches_do_not_lie_in_their_videos() -> None:
    """Lists of annotations often have some: each was told only once those before it had been corrected."""
    seconds = [(0, 3), (0, 11), (5, 3)] * 5
    with pytest.raises(
        UsageError, match=r"^stretch 1, .*; 10 of 15 stretches are wrong: 1, 2, .*, 11, \.\.\.; correct them"
    ):
        within(Stretches(["v0"] * 15, seconds=seconds), video_table([100] * 15, rates=[Fraction(10)]))
    with pytest.raises(UsageError, match=r"^stretch 1, .*; 2 of 3 stretches are wrong: 1, 2; correct"):
        within(Stretches(["v0"] * 3, frames=[(0, 3), (0, 101), (7, 7)]), video_table([100] * 3))


def test_stretches_that_are_too_short_are_told_with_their_video() -> None:
    with pytest.raises(UsageError, match="1 of 2 stretches have fewer frames than a clip of .*: 'v1' has 3 of 4"):
        clips_within(CenterClips(4), [(0, 4), (7, 10)])


def test_other_stretches_are_other_clips_for_a_state_that_is_resumed() -> None:
    prints = {clips_within(CenterClips(4), [bound]).fingerprint for bound in ((0, 8), (1, 9), (0, 9))}
    assert len(prints) == 3
    assert clips_of(CenterClips(4), [8]).fingerprint not in prints


def test_clips_of_annotated_intervals_through_both_loaders(folder: Path) -> None:
    actions = {"wave": ("a.mp4", 0.5, 1.5), "nod": ("a.mp4", 3, 4), "run": ("b.mp4", 0.1, 0.5)}
    stretches = shortgop.Stretches(
        [each[0] for each in actions.values()], seconds=[each[1:] for each in actions.values()]
    )
    clips = shortgop.ClipDataset(
        folder, shortgop.RandomClips(3, clips_per_video=4), videos=stretches, metadata=["label"]
    )
    bounds = [(5, 15), (30, 40), (3, 15)]
    labels = list(actions)
    order = shortgop.ClassBalanced(labels)
    plain = DataLoader(
        clips, batch_size=6, sampler=shortgop.ElasticSampler(clips, 6, order=order), num_workers=1,
        multiprocessing_context="spawn",
    )  # fmt: skip
    ours = shortgop.ClipLoader(clips, shortgop.ElasticSampler(clips, 6, order=order), workers=0)
    of_stretches = []
    for batch, same in zip(plain, ours, strict=True):
        of_stretches += batch["stretch"].tolist()
        assert batch["stretch"].tolist() == same["stretch"].tolist()
        assert batch["frame_numbers"].tolist() == same["frame_numbers"].tolist()
        for place, clip in enumerate(clips.clip_index.clips(batch["draw"].tolist())):
            item = {name: batch[name][place] for name in batch}
            check_item(item, clip)
            first, stop = bounds[int(item["stretch"])]
            assert first <= item["frame_numbers"].min() <= item["frame_numbers"].max() < stop
    assert sorted(of_stretches) == [0] * 4 + [1] * 4 + [2] * 4
    assert clips.video_numbers.tolist() == [0, 0, 1]
    assert clips.column("label") == [0, 0, 1]


def test_without_stretches_items_are_as_they_were(folder: Path) -> None:
    assert "stretch" not in shortgop.ClipDataset(folder, shortgop.CenterClips(3))[0]


def test_clips_that_have_places_of_their_own_go_without_stretches(folder: Path) -> None:
    stretches = shortgop.Stretches(["a.mp4"], frames=[(0, 9)])
    with pytest.raises(UsageError, match="a ClipsAt says itself where its clips are"):
        shortgop.ClipDataset(folder, shortgop.ClipsAt(["a.mp4"], frames=[1]), videos=stretches)
    with pytest.raises(UsageError, match="metadata names 'stretch', which items have already"):
        shortgop.ClipDataset(folder, shortgop.CenterClips(3), videos=stretches, metadata=["stretch"])


def test_aligned_clips_of_a_stretch_start_at_its_frames_that_others_refer_to(folder: Path) -> None:
    policy = shortgop.AllClips(4, align="reference")
    whole = shortgop.ClipDataset(folder, policy, videos=["a.mp4"])
    starts = [item["start"] for item in whole]
    assert 1 < len(starts) < 37
    first, stop = starts[2] - 1, starts[-2] + 2
    part = shortgop.ClipDataset(folder, policy, videos=shortgop.Stretches(["a.mp4"], frames=[(first, stop)]))
    assert [item["start"] for item in part] == [start for start in starts if first <= start <= stop - 4]


def test_a_stretch_of_which_align_leaves_no_start_is_not_left_out_in_silence(folder: Path) -> None:
    """No frame refers to frames 1 and 2. It had no clip, whatever `ends` was, and nothing said so."""
    stretches = shortgop.Stretches(["a.mp4", "a.mp4"], frames=[(0, 8), (1, 3)])
    policy = shortgop.RandomClips(2, align="reference")
    for num_frames, why in (2, "no frame that others refer to where a clip fits"), (5, "2 of 5"):
        said = rf"1 of 2 stretches have no frame where a clip of .* may start: 'a.mp4' has {why}; give "
        with pytest.raises(UsageError, match=rf'{said}ends="drop" to leave them out, or leave align out; where'):
            shortgop.ClipDataset(folder, replace(policy, num_frames=num_frames), videos=stretches)
    rules: list[Any] = ["drop", "repeat_last"]
    for ends in rules:
        clips = shortgop.ClipDataset(folder, replace(policy, ends=ends), videos=stretches)
        assert (len(clips), clips.too_short) == (1, ("a.mp4",))
        with pytest.warns(DatasetWarning, match="the dataset has no clips: no video has a frame where one may start"):
            shortgop.ClipDataset(
                folder, replace(policy, ends=ends), videos=shortgop.Stretches(["a.mp4"], frames=[(1, 3)])
            )


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.sampled_from([Fraction(10), Fraction(25), NTSC, Fraction(50)]),
    st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(1, 3), Fraction(7, 30)]),
)
def test_windows_start_at_the_frames_nearest_to_every_so_many_seconds(
    lengths: list[int], rate: Fraction, step: Fraction
) -> None:
    index = clips_of(AllClips(5, step_seconds=step, ends="drop"), lengths, rates=[rate])
    expected = []
    for video, length in enumerate(lengths):
        starts = [int(each * step * rate + Fraction(1, 2)) for each in range(400)]
        expected += [(video, list(range(start, start + 5))) for start in starts if start + 5 <= length]
    assert len(index) == len(expected)
    assert not expected or listed(index) == expected


def test_videos_of_different_rates_have_equally_many_windows_in_a_minute() -> None:
    rates = [Fraction(10), NTSC, Fraction(60)]
    index = clips_of(AllClips(8, fps=8, step_seconds=1.5), [600, 1798, 3600], rates=rates)
    assert np.diff(index.firsts).tolist() == [40, 40, 40]
    starts = [float(clip.start / rates[clip.video]) for clip in index.clips(range(40, 80))]
    assert starts == pytest.approx([1.5 * number for number in range(40)], abs=0.5 / 29.97)


def test_steps_in_seconds_that_make_no_sense_are_refused() -> None:
    for options, said in (
        ({"step_seconds": 0}, "step_seconds is 0; it has to be more than 0"),
        ({"step_seconds": 1, "step": 2}, "step=2 and step_seconds=1 both say how far apart clips start; give one"),
        ({"step_seconds": 1, "align": "reference"}, "step_seconds says where clips start, and so does align"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            AllClips(4, **options)
    with pytest.raises(UsageError, match=r"less than a frame of video 'v1', which has 10\.0 frames/s"):
        clips_of(AllClips(4, step_seconds=0.05), [90, 90], rates=[Fraction(30), Fraction(10)])


def test_times_on_the_clock_of_a_source_that_begins_late(tmp_path: Path) -> None:
    """Of a file whose first frame is shown at 2 s, what it shows from 2.4 s to 2.6 s."""
    pts = constant_rate_pts(Fraction(25), 30, Fraction(1, 1000), start=2000)
    make_video(tmp_path / "late.mkv", pts=pts, timebase=Fraction(1, 1000))
    make_dataset([tmp_path / "late.mkv"], tmp_path / "dataset")
    video = shortgop.open(tmp_path / "dataset")[0]
    begins = video.source_seconds([0]).item()
    stretch = Stretches([video.id], seconds=[(2.4 - begins, 2.6 - begins)])
    clips = shortgop.ClipDataset(tmp_path / "dataset", AllClips(1), videos=stretch)
    assert [numbers(item["frames"]) for item in clips] == [[10], [11], [12], [13], [14]]
