"""ClipsAt: the clips of a table, each at its own place, in a frame or at a time."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import shortgop
from shortgop.errors import UsageError, WrongTypeError
from shortgop.training.which_clips.ends import PADDING
from shortgop.training.which_clips.offsets import Offsets
from shortgop.training.which_clips.policies import AllClips, CenterClips, ClipsAt
from shortgop.training.which_clips.stretches import Stretches
from shortgop.training.which_clips.table_index import table_index
from video_tables import clips_of, listed, video_table


def test_clips_at_places_of_a_table() -> None:
    videos = video_table([30, 30], rates=[Fraction(10)])
    by_frame = table_index(ClipsAt([1, 0], frames=[4, 6], num_frames=3, stride=2), videos, np.array([1, 0]), 0)
    assert listed(by_frame) == [(1, [4, 6, 8]), (0, [6, 8, 10])]
    # 0.46 s is nearest to frame 5, 0.96 s to frame 10: not 5 + 5 = 10 by luck, but rounded once each.
    by_time = table_index(ClipsAt([0], seconds=[0.46], num_frames=3, fps=4), videos, np.array([0]), 0)
    assert listed(by_time) == [(0, [5, 7, 10])]


@pytest.mark.parametrize("kind", [np.array, torch.tensor, tuple, "pandas"])
def test_times_come_in_any_kind_of_list(kind: Any) -> None:
    """More than one time in an array or a column of pandas was a ValueError of Python: its truth value is ambiguous."""
    if kind == "pandas":
        kind = pytest.importorskip("pandas").Series
    videos, times = video_table([30, 30], rates=[Fraction(10)]), [0.3, 1.2, 0.5]
    by_time = table_index(ClipsAt(kind([1, 0, 1]), seconds=kind(times)), videos, np.array([1, 0, 1]), 0)
    assert listed(by_time) == [(1, [3]), (0, [12]), (1, [5])]
    around = ClipsAt([0], frames=[10], num_frames=Offsets(seconds=kind([-0.5, 0, 0.2])))
    assert listed(table_index(around, videos, np.array([0]), 0)) == [(0, [5, 10, 12])]


def test_a_whole_table_of_pandas_is_told_to_have_names_of_columns_in_it() -> None:
    """The first one was taken for a stretch: seconds of stretch 0 is 'start'."""
    table = pytest.importorskip("pandas").DataFrame({"start": [0.5, 1], "end": [2, 2.5]})
    with pytest.raises(WrongTypeError, match=r"seconds is a DataFrame, .* for its rows give it \.to_numpy\(\)"):
        Stretches([0, 1], seconds=cast(Any, table))
    assert [list(each) for each in Stretches([0, 1], seconds=table.to_numpy()).seconds or ()] == [[0.5, 2], [1, 2.5]]


def test_a_table_that_leaves_its_video_is_refused_by_its_line() -> None:
    videos = video_table([30])
    with pytest.raises(UsageError, match="clip 1 of the table starts at frame 30 of video 'v0', which has 30 frames"):
        table_index(ClipsAt([0, 0], frames=[0, 30]), videos, np.array([0, 0]), 0)
    with pytest.raises(UsageError, match="clip 0 of the table calls for frames 28 to 32 of video 'v0'"):
        table_index(ClipsAt([0], frames=[28], num_frames=5), videos, np.array([0]), 0)
    with pytest.raises(UsageError, match="clip 1 of the table calls for frames 3 to 33 of video 'v0'"):
        table_index(ClipsAt([0, 0], seconds=[0, 0.1], num_frames=2, fps=1), video_table([31]), np.array([0, 0]), 0)
    with pytest.raises(UsageError, match="a frame of the table is 1.5"):
        table_index(ClipsAt([0], frames=cast(Any, [1.5])), videos, np.array([0]), 0)


@pytest.mark.parametrize(
    "places", [{"frames": [0, 31, 7, -1]}, {"seconds": [0, 3.1, 0.7, -1]}, {"frames": [0, 29, 7, 28], "num_frames": 5}]
)
def test_it_is_told_how_many_clips_of_a_table_leave_their_videos(places: Any) -> None:
    with pytest.raises(UsageError, match=r"^clip 1 of the table .*; 2 of 4 clips are wrong: 1, 3"):
        table_index(ClipsAt([0] * 4, **places), video_table([30], rates=[Fraction(10)]), np.zeros(4, np.int64), 0)


def test_a_time_before_the_end_of_its_video_has_a_frame_and_no_other_time_is_taken() -> None:
    """Of a video of 4 s at 30 frames/s frame 119 is the last one, until 4 s."""
    videos = video_table([120], rates=[Fraction(30)])

    def starts(seconds: list[Any], **options: Any) -> list[tuple[int, list[int]]]:
        table = ClipsAt([0] * len(seconds), seconds=seconds, **options)
        return listed(table_index(table, videos, np.zeros(len(seconds), dtype=np.int64), 0))

    late = [3.97, 3.99, 3.9999999999, Fraction(399, 100)]
    for ends in ("error", *PADDING):
        assert starts(late, ends=ends) == [(0, [119])] * 4
    assert starts([3.9], num_frames=Offsets(seconds=[0, 0.08])) == [(0, [117, 119])]
    padded = table_index(
        ClipsAt([0], seconds=[3.9], num_frames=Offsets(seconds=[0.09, 0.1]), ends="clamp"), videos, np.array([0]), 0
    )
    mask = padded.clips([0])[0].mask
    assert mask is not None
    assert mask.tolist() == [True, False]
    for late_time in (4, 4.0, Fraction(4), 7.5):
        lasts = "of video 'v0', which lasts from 0 s to just before 4.0 s"
        with pytest.raises(UsageError, match=rf"clip 1 .* at {float(late_time)} s {lasts}"):
            starts([1, late_time], ends="clamp")
    with pytest.raises(UsageError, match=r"clip 0 of the table starts at -0.01 s of video 'v0'"):
        starts([-0.01], ends="clamp")


@pytest.mark.parametrize("rate", [Fraction(30), Fraction(30000, 1001), Fraction(1), Fraction(24000, 1001)])
def test_the_seconds_that_a_video_lasts_are_not_within_it(rate: Fraction) -> None:
    for length in range(1, 40):
        videos, end = video_table([length], rates=[rate]), float(length / rate)
        before = ClipsAt([0], seconds=[np.nextafter(end, 0)])
        assert listed(table_index(before, videos, np.array([0]), 0)) == [(0, [length - 1])]
        with pytest.raises(UsageError, match="just before"):
            table_index(ClipsAt([0], seconds=[end]), videos, np.array([0]), 0)


def test_clips_that_fit_their_video_by_their_times_exist() -> None:
    """The last frame is due at 3.99 s of 4 s: the nearest frame would be the one at the end."""
    last = Offsets(seconds=[0, 3.99])
    assert listed(clips_of(AllClips(last), [120])) == [(0, [0, 119])]
    assert listed(clips_of(AllClips(Offsets(seconds=[-1, 2.99])), [120])) == [(0, [0, 119])]
    padded = clips_of(CenterClips(last, ends="black"), [120])
    assert padded.too_short.tolist() == []
    clip = padded.clips([0])[0]
    assert clip.mask is not None
    assert clip.mask.all()
    assert len(clips_of(AllClips(last, ends="drop"), [119])) == 0
    everywhere = clips_of(AllClips(Offsets(seconds=[0.03]), whole=False, ends="black"), [120])
    masks = [clip.mask.tolist() for clip in everywhere.clips([118, 119]) if clip.mask is not None]
    assert masks == [[True], [True]]
    at_frames = table_index(
        ClipsAt([0], frames=[118], num_frames=Offsets(seconds=[0, 0.05])), video_table([120]), np.array([0]), 0
    )
    assert listed(at_frames) == [(0, [118, 119])]


@pytest.mark.parametrize(
    ("places", "shown"),
    [
        ({"frames": [[0, 1], [5, 6]]}, r"frames of ClipsAt has \[0, 1\] for clip 0; each clip has one of these"),
        ({"frames": [3, range(2)]}, r"frames of ClipsAt has range\(0, 2\) for clip 1"),
        ({"frames": np.array([[0, 1], [5, 6]])}, r"frames of ClipsAt has array\(\[0, 1\]\) for clip 0"),
        ({"frames": torch.tensor([[0, 1], [5, 6]])}, r"frames of ClipsAt has tensor\(\[0, 1\]\) for clip 0"),
        ({"seconds": np.array([[0, 1], [5, 6]])}, r"seconds of ClipsAt has array\(\[0, 1\]\) for clip 0"),
    ],
)
def test_several_places_of_one_clip_are_refused_at_once(places: Any, shown: str) -> None:
    with pytest.raises(UsageError, match=shown):
        ClipsAt([0, 1], **places)
    with pytest.raises(UsageError, match=r"say which with num_frames=, a number or shortgop.Offsets\(frames="):
        ClipsAt([0, 1], **places)
    ClipsAt([0, 1], frames=cast(Any, torch.tensor([4, 5])))
    ClipsAt([0, 1], seconds=cast(Any, np.array([4.5, 5])))


def test_the_row_of_an_item_in_the_table_is_its_draw_modulo_the_rows(clips_folder: Path) -> None:
    """Also where an order draws rows several times in an epoch: labels of clips are found by it."""
    places = [30, 4, 17, 0]
    clips = shortgop.ClipDataset(clips_folder, ClipsAt([0, 1, 0, 1], frames=places))
    order = shortgop.Weighted([1, 2, 3, 4], num_samples=10, of="clips")
    sampler = shortgop.ElasticSampler(clips, 5, order=order)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in shortgop.ClipLoader(clips, sampler, workers=0):
            rows = batch["draw"] % len(clips)
            assert torch.tensor(places)[rows].tolist() == batch["start"].tolist()
            assert (rows % 2).tolist() == batch["video"].tolist()
