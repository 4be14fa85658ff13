"""Refusals name what is wrong, and say what to do instead."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from datasets import make_dataset
from shortgop.errors import UsageError, WrongTypeError
from synthetic import constant_rate_pts, make_video


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two videos of 40 frames at 10 frames/s, whose frames differ in size."""
    root = tmp_path_factory.mktemp("refusals")
    for name, size in (("a.mp4", (96, 64)), ("b.mp4", (128, 96))):
        pts = constant_rate_pts(Fraction(10), 40)
        make_video(root / name, pts=pts, timebase=Fraction(1, 10), size=size)
    make_dataset([root / "a.mp4", root / "b.mp4"], root / "dataset", gop_frames=8)
    return root / "dataset"


@pytest.mark.first_case_short
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_over_frames_of_several_sizes_says_what_get_clips_says(folder: Path, workers: int) -> None:
    """It asked for a size of "the output", where there are no outputs."""
    clips = shortgop.ClipDataset(folder, shortgop.AllClips(4, step=4))
    loader = shortgop.ClipLoader(
        clips, shortgop.ElasticSampler(clips, 20, order=shortgop.Sequential()), workers=workers
    )
    remedy = (
        r"open the dataset with size=\(height, width\).*; where sizes are to differ, take shortgop.MixedClips of one "
        "dataset for each size, with a shortgop.BucketSampler$"
    )
    said = f"frames of video 'b.mp4' have shape .* 'a.mp4' .*: {remedy}"
    with pytest.raises(UsageError, match=said):
        list(loader)
    with pytest.raises(UsageError, match=said):
        clips.source.get_clips([("a.mp4", [0]), ("b.mp4", [0])])
    alone = shortgop.ClipLoader(clips, shortgop.ElasticSampler(clips, 10, order=shortgop.Sequential()), workers=workers)
    with pytest.raises(UsageError, match=f"clips of video 'b.mp4' .*: {remedy}"):
        list(alone)


def test_clips_of_several_lengths_in_a_loader_are_told_as_such(folder: Path) -> None:
    """It asked for a size, where the number of frames differs."""
    videos = shortgop.open(folder, size=(32, 48))
    parts = [shortgop.ClipDataset(videos, shortgop.CenterClips(frames)) for frames in (4, 8)]
    both = shortgop.MixedClips(parts)
    sampler = shortgop.ElasticSampler(both, 4, order=shortgop.Sequential())
    with pytest.raises(
        UsageError, match=r"\(8, 3, 32, 48\), .*: all clips of a batch have as many frames; .* for each length, with"
    ):
        list(shortgop.ClipLoader(both, sampler, workers=0))


def test_a_size_with_width_and_height_exchanged_is_noticed(tmp_path: Path) -> None:
    """`prepare` takes (width, height), and `open` took the same tuple without a word."""
    pts = constant_rate_pts(Fraction(10), 8)
    make_video(tmp_path / "a.mp4", pts=pts, timebase=Fraction(1, 10), size=(96, 64))
    make_dataset([tmp_path / "a.mp4"], tmp_path / "one", gop_frames=8)
    with pytest.warns(shortgop.DatasetWarning, match=r"size=\(96, 64\) is .* with size=\(64, 96\) frames keep"):
        assert shortgop.open(tmp_path / "one", size=(96, 64))["a.mp4"][0].shape == (3, 96, 64)
    with pytest.warns(shortgop.DatasetWarning, match=r"all videos have height 64 and width 96"):
        shortgop.ClipDataset(tmp_path / "one", shortgop.RandomClips(4), size=(96, 64), crop="center")
    for size in ((64, 96), (96, 65), (64, 64), 64, None):
        shortgop.open(tmp_path / "one", size=size)
    # A part of the pictures may have the shape that is asked for.
    shortgop.open(tmp_path / "one", size=(96, 64), crop=(0, 0, 60, 40))
    # Videos of other sizes beside them: any size may be meant.
    make_video(tmp_path / "b.mp4", pts=pts, timebase=Fraction(1, 10), size=(64, 96))
    make_dataset([tmp_path / "a.mp4", tmp_path / "b.mp4"], tmp_path / "both", gop_frames=8)
    shortgop.open(tmp_path / "both", size=(96, 64))


@pytest.mark.parametrize(
    ("start", "stop", "why"),
    [
        (2, 1, "it stops before it starts"),
        (-1, 1, "a range starts at 0 s or later"),
        (3.9, 5, "the video lasts 4.0 s, and a range stops there at the latest"),
        (4, 5, "the video lasts 4.0 s, and a range has to start before that"),
        (float("nan"), 1, "its start is no number"),
        (1, float("nan"), "its stop is no number"),
    ],
)
def test_a_range_of_time_that_is_none_says_why(folder: Path, start: float, stop: float, why: str) -> None:
    with pytest.raises(UsageError, match=f"video 'a.mp4' has no range from {start} s to {stop} s: {why}"):
        shortgop.open(folder)["a.mp4"].get_frames_played_in_range(start, stop)


def test_a_clip_before_the_first_is_named_as_it_was_asked_for(folder: Path) -> None:
    clips = shortgop.ClipDataset(folder, shortgop.AllClips(1), videos=["a.mp4"])
    for dataset in (clips, shortgop.MixedClips([clips])):
        assert int(dataset[-40]["start"]) == 0
        with pytest.raises(UsageError, match="there is no clip -41: the dataset has 40 clips"):
            dataset[-41]


@pytest.mark.parametrize("key", [[], [0, 1], (0, 1), slice(0, 2), range(2), torch.arange(2), torch.empty(0)], ids=repr)
def test_several_clips_at_once_are_refused_with_what_reads_them(folder: Path, key: Any) -> None:
    """A dataset of torch has one item for a key. As `[]` was: 'a draw is []; it has to be an integer'."""
    clips = shortgop.ClipDataset(folder, shortgop.AllClips(1), videos=["a.mp4"])
    for dataset in (clips, shortgop.MixedClips([clips])):
        with pytest.raises(WrongTypeError, match=r"is no draw: .* dataset.__getitems__\(\[0, 1\]\); .*Subset\(dataset"):
            dataset[key]
        with pytest.raises(WrongTypeError, match="a draw is 'a.mp4'; it has to be an integer"):
            dataset["a.mp4"]  # type: ignore[index]
        assert [int(item["start"]) for item in dataset.__getitems__([0, 1])] == [0, 1]
        assert dataset.__getitems__([]) == []
        some = torch.utils.data.Subset(dataset, [3, 5])
        assert [int(some[place]["start"]) for place in range(2)] == [3, 5]


def test_a_loader_without_a_sampler_says_which_there_are(folder: Path) -> None:
    """It was a TypeError of Python's about an argument of __init__."""
    clips = shortgop.ClipDataset(folder, shortgop.AllClips(1, step=5), videos=["a.mp4"])
    with pytest.raises(UsageError, match=r"sampler is missing: .*ElasticSampler\(dataset, global_batch_size=32\)"):
        shortgop.ClipLoader(clips)
    with pytest.raises(UsageError, match=r"global_batch_size=3\).* order=shortgop.Sequential\(\), drop_last=False"):
        shortgop.ClipLoader(clips, batch_size=3)
    # What it says works.
    sampler = shortgop.ElasticSampler(clips, global_batch_size=3, order=shortgop.Sequential(), drop_last=False)
    batches = list(shortgop.ClipLoader(clips, sampler, workers=0))
    assert [batch["start"].tolist() for batch in batches] == [[0, 5, 10], [15, 20, 25], [30, 35]]


def _nothing(_: Any) -> Any:
    return None


@pytest.mark.parametrize("options", [{}, {"transform_batch": True}, {"outputs": {"x": shortgop.Output(size=(32, 32))}}])
def test_a_transform_that_returns_nothing(folder: Path, options: Any) -> None:
    size: Any = {} if "outputs" in options else {"size": (32, 32)}
    clips = shortgop.ClipDataset(folder, shortgop.AllClips(1), transform=_nothing, **options, **size)
    with pytest.raises(WrongTypeError, match="the transform returned None; .* has to return them"):
        next(iter(DataLoader(clips, batch_size=2)))


def test_a_table_of_clips_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no table", encoding="utf-8")
    with pytest.raises(UsageError, match="none.parquet does not exist; give the file that ClipTable.to_parquet wrote"):
        shortgop.ClipTable.from_parquet(tmp_path / "none.parquet")
    with pytest.raises(UsageError, match="cannot be read as a Parquet file"):
        shortgop.ClipTable.from_parquet(tmp_path / "text.parquet")


def test_values_that_normalize_divides_by(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"values are divided by std, and the one of channel 2 is 0: .* more than 0"):
        shortgop.open(folder, dtype=torch.float32, normalize=((0, 0, 0), (1, 1, 0)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 2}, "no parameter 'stride': the policy has it, such as"),
        ({"batch_size": 2}, "no parameter 'batch_size': the loader or its sampler has it"),
        ({"split": "train"}, r"no parameter 'split': .*dataset.where\(split="),
        ({"sise": (8, 8)}, "no parameter 'sise': its docstring and that of shortgop.open"),
        ({"videos": [True, False, True]}, r"videos has booleans; .* give dataset\[mask\]"),
        ({"videos": torch.tensor([True, False, True])}, "videos has booleans"),
    ],
)
def test_what_belongs_elsewhere_is_told_where(folder: Path, options: Any, message: str) -> None:
    with pytest.raises(WrongTypeError, match=message):
        shortgop.ClipDataset(folder, shortgop.RandomClips(2), **options)


def test_a_dataset_is_given_in_place_of_the_dataset_and_not_as_videos(folder: Path) -> None:
    """Its first video was called a number that is no integer."""
    videos = shortgop.open(folder)
    for given in (videos, list(videos)):
        with pytest.raises(WrongTypeError, match="such as video.id of each. A Dataset .* in place of the dataset"):
            shortgop.ClipDataset(folder, shortgop.RandomClips(2), videos=cast(Any, given))
    assert len(shortgop.ClipDataset(videos, shortgop.RandomClips(2), videos=videos.ids)) == len(videos)


def test_videos_that_are_too_short_are_told_with_what_a_clip_spans(folder: Path) -> None:
    said = r"RandomClips\(num_frames=4, stride=14\) spans: 'a.mp4' has 40 of 43, 'b.mp4' has 40 of 43;"
    with pytest.raises(UsageError, match=said):
        shortgop.ClipDataset(folder, shortgop.RandomClips(4, stride=14))
    # Frames at 0, 2 and 4 s.
    with pytest.raises(UsageError, match="'a.mp4' has 40 of 41, "):
        shortgop.ClipDataset(folder, shortgop.RandomClips(3, fps="1/2"))
