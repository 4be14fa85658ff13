"""What is no index, time, option, path or name of a video is wrong usage, whatever a library would make of it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shortgop
from datasets import make_dataset
from synthetic import constant_rate_pts, make_video


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("wrong")
    make_video(root / "a.mp4", pts=constant_rate_pts(Fraction(10), 16), timebase=Fraction(1, 10))
    assert make_dataset([root / "a.mp4"], root / "dataset").failures == ()
    return root


@pytest.fixture(scope="module")
def dataset(folder: Path) -> shortgop.Dataset:
    return shortgop.open(folder / "dataset")


@pytest.fixture(scope="module")
def video(dataset: shortgop.Dataset) -> shortgop.Video:
    return dataset["a.mp4"]


@pytest.mark.parametrize(
    "indices",
    [
        torch.tensor([1.5]), np.array([0.5]), np.array([np.nan]), torch.tensor([np.inf]), torch.tensor([1 + 0j]),
        torch.tensor([True]), np.array([False]), [True], [np.bool_(True)], [1.0], ["1"], "1", b"1", 5, None, [[1]],
        np.array(["1"]), torch.tensor([[1]]), torch.empty(1, device="meta"),
    ],
    ids=repr,
)  # fmt: skip
def test_fractions_and_booleans_are_no_indices(video: shortgop.Video, dataset: shortgop.Dataset, indices: Any) -> None:
    for call in (video.get_frames_at, video.source_pts, lambda frames: dataset.get_clips([("a.mp4", frames)])):
        with pytest.raises(shortgop.UsageError):
            call(indices)


TRUTHS: list[Callable[[Any], object]] = [
    lambda d: d[True],
    lambda d: d[np.bool_(False)],
    lambda d: d.get_clips([(True, [0])]),
    lambda d: d.get_clips([(0, [True])]),
    lambda d: d[0][True],
    lambda d: d[0][False:5],
    lambda d: d[0][0:5:True],
    lambda d: d[0][0 : np.bool_(True)],
    lambda d: d[0].get_frame_at(torch.tensor([True])),
    lambda d: d[0].get_frames_in_range(0, 5, True),
    lambda d: d[0].get_frames_in_range(False, 5),
    lambda d: d[0].get_frame_played_at(True),
    lambda d: d[0].get_frames_played_at([0.5, False]),
    lambda d: d[0].get_frames_played_at(torch.tensor([True])),
    lambda d: d[0].get_frames_played_at(np.array([True])),
    lambda d: d[0].get_frames_played_in_range(False, 1.0),
    lambda d: d[0].get_frames_played_in_range(0.0, True),
    lambda d: d[0].get_all_frames(fps=True),
    lambda d: d[0].source_seconds([True]),
]


@pytest.mark.parametrize("number", range(len(TRUTHS)))
def test_a_boolean_is_no_number_anywhere(number: int, dataset: shortgop.Dataset) -> None:
    with pytest.raises(shortgop.UsageError):
        TRUTHS[number](dataset)


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"snapshot": 1}, "snapshot is 1; it has to be a string such as '0"),
    ({"snapshot": True}, "snapshot is True"),
    ({"snapshot": ""}, "has no snapshot ''; its current one is '0"),
    ({"snapshot": "../manifest"}, "has no snapshot '../manifest'"),
    ({"dimension_order": ["NCHW"]}, "dimension_order is"),
    ({"size": True}, "size is True"),
    ({"size": (True, 10)}, r"size is \(True, 10\)"),
    ({"size": "32"}, "size is '32'"),
    ({"size": np.array([10, 20])}, "size is array"),
    ({"crop": (0, 0, True, 10)}, "crop is"),
    ({"crop": (0, 0, 2.0, 10)}, "crop is"),
    ({"crop": 5}, "crop is 5"),
    ({"dtype": "uint8"}, "dtype is 'uint8'; it can be torch.uint8"),
    ({"normalize": ("123", "123"), "dtype": torch.float32}, "normalize is"),
    ({"normalize": ((True, 0, 0), (1, 1, 1)), "dtype": torch.float32}, "normalize is"),
    ({"normalize": ((0, 0, 0), (1, float("nan"), 1)), "dtype": torch.float32}, "normalize is"),
    ({"normalize": 5, "dtype": torch.float32}, "normalize is 5"),
    ({"color": None}, "color is None"),
    ({"interpolation": 3}, "interpolation is 3; it can be"),
    ({"interpolation": ["bicubic"]}, r"interpolation is \['bicubic'\]"),
    ({"threads": True}, "threads is True"),
    ({"threads": 2.0}, "threads is 2.0"),
    ({"threads": "2"}, "threads is '2'"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS, ids=str)
def test_options_of_the_wrong_type_are_wrong_usage(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(shortgop.UsageError, match=message):
        shortgop.open(folder / "dataset", **options)


@pytest.mark.parametrize("path", [1, None, ["d"], b"d", True])
def test_a_path_of_the_wrong_type(path: Any) -> None:
    with pytest.raises(shortgop.WrongTypeError, match="it has to be the folder that `shortgop prep` wrote"):
        shortgop.open(path)


def test_one_number_in_a_tuple_is_the_short_side_as_with_torchvision(folder: Path) -> None:
    for size in (32, (32,)):
        assert shortgop.open(folder / "dataset", size=size)["a.mp4"][0].shape == (3, 32, 48)  # type: ignore[arg-type]
        assert shortgop.Output(size=size).size == 32  # type: ignore[arg-type]


def test_options_of_numpy_are_numbers(folder: Path) -> None:
    dataset = shortgop.open(folder / "dataset", threads=np.int64(2), size=np.int32(32))  # type: ignore[arg-type]
    assert dataset["a.mp4"][0].shape == (3, 32, 48)


@pytest.mark.parametrize("key", [1.0, None, ["a.mp4"], b"a.mp4", torch.tensor([0, 1])], ids=repr)
def test_videos_are_named_by_an_id_or_a_number(dataset: shortgop.Dataset, key: Any) -> None:
    for call in (lambda: dataset[key], lambda: dataset.get_clips([(key, [0])])):
        # A list or a tensor may be a boolean for each video.
        with pytest.raises(shortgop.WrongTypeError, match="a video's number is .* or its id as a string|a boolean for"):
            call()
    assert key not in dataset


@pytest.mark.parametrize("requests", [None, 5, "ab", b"ab"])
def test_requests_are_a_list(dataset: shortgop.Dataset, requests: Any) -> None:
    with pytest.raises(shortgop.WrongTypeError, match="it has to be a list of"):
        dataset.get_clips(requests)


UNORDERED: list[tuple[Callable[[], Any], str]] = [
    (lambda: shortgop.ClassBalanced("label"), r"it has to be a list: .* a column as column\('label'\)"),
    (lambda: shortgop.Weighted("weight"), r"it has to be a list: .* a column as column\('weight'\)"),
    (lambda: shortgop.ClassBalanced({"a.mp4": 3}), "labels is the dict {'a.mp4': 3}; it has to be a list"),
    (lambda: shortgop.Weighted({0: 0.5}), "weights is the dict"),
    (lambda: shortgop.Systematic({0.5}), "weights is the set"),
    (lambda: shortgop.Mixture({3, 1}), "quotas is the set"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "message"), UNORDERED, ids=[message for _, message in UNORDERED])
def test_a_dict_a_set_or_a_name_is_no_list(dataset: shortgop.Dataset, make: Callable[[], Any], message: str) -> None:
    """The keys of a dict of labels were taken for labels."""
    clips = shortgop.ClipDataset(dataset, shortgop.RandomClips(4))
    with pytest.raises(shortgop.WrongTypeError, match=message):
        shortgop.ElasticSampler(clips, 1, order=make())


@pytest.mark.parametrize(
    ("policy", "named", "message"),
    [
        (
            "RandomClips",
            {"frames_per_clip": 16},
            "RandomClips has no parameter 'frames_per_clip': here it is num_frames",
        ),
        ("UniformClips", {"num_frames": 16, "num_clips": 4}, "'num_clips': here it is clips_per_video"),
        ("AllClips", {"num_frames": 16, "frame_interval": 4}, "'frame_interval': here it is stride"),
        ("AllClips", {"num_frames": 16, "seconds_between_clip_starts": 4}, "here it is step_seconds"),
        ("CenterClips", {"num_clips": 4}, "'num_clips': it has num_frames, stride, fps, ends, whole, jitter$"),
        ("SegmentFrames", {"num_clips": 4}, "'num_clips': it has num_frames, place$"),
        ("RandomFrames", {"n": 4}, "'n': it has none"),
    ],
)
def test_parameters_of_other_libraries_are_named_as_they_are_called_here(
    policy: str, named: dict[str, Any], message: str
) -> None:
    with pytest.raises(shortgop.WrongTypeError, match=message):
        getattr(shortgop, policy)(**named)


HUGE = 10**30
TOO_LARGE: list[tuple[Callable[[shortgop.ClipDataset], object], str]] = [
    (lambda clips: clips[HUGE], f"there is no clip {HUGE}; draws are integers of 64 bits"),
    (lambda clips: clips.items([0, HUGE]), f"there is no clip {HUGE}"),
    (lambda clips: clips.clip_table([HUGE]), f"there is no clip {HUGE}"),
    (lambda clips: shortgop.MixedClips([clips])[HUGE], f"there is no clip {HUGE}"),
    (lambda clips: clips.set_epoch(HUGE), f"epoch is {HUGE}; epochs count from 0 to "),
    (lambda clips: shortgop.MixedClips([clips]).set_epoch(1 << 62), "epoch is "),
    (lambda clips: shortgop.ElasticSampler(clips, 1).set_epoch(1 << 62), "epoch is "),
    (lambda clips: shortgop.ElasticSampler(clips, HUGE, drop_last=False), f"global_batch_size is {HUGE}; .* up to"),
    (lambda clips: shortgop.ClipLoader(clips, [0], batch_size=HUGE), f"batch_size is {HUGE}"),
    (lambda _: shortgop.AllClips(HUGE), f"num_frames is {HUGE}; it has to be 1 or more, up to 16777216"),
    (lambda _: shortgop.SegmentFrames(HUGE, place="middle"), "num_frames is "),
    (lambda _: shortgop.AllClips(2, stride=HUGE), "stride is "),
    (lambda _: shortgop.AllClips(2, step=HUGE), "step is "),
    (lambda _: shortgop.RandomClips(2, clips_per_video=1 << 62), "clips_per_video is "),
    (lambda _: shortgop.Chunked(4, window=HUGE), "window is "),
    (lambda _: shortgop.Mixture([HUGE]), "a quota is "),
    *(
        (
            lambda clips, policy=policy: shortgop.ClipDataset(clips.source, policy),
            "away from its start, .* give it another",
        )
        for policy in (
            shortgop.AllClips(3, stride=1 << 62, ends="clamp"),
            shortgop.RandomClips(2, jitter=HUGE),
            shortgop.RandomClips(2, fps=1e-300),
            shortgop.RandomClips(shortgop.Offsets(frames=[-HUGE, 0])),
            shortgop.ClipsAt([0], seconds=[0.5], num_frames=shortgop.Offsets(seconds=[HUGE]), ends="clamp"),
        )
    ),
    (
        lambda clips: shortgop.ClipDataset(clips.source, shortgop.ClipsAt([0, 0], frames=[1, HUGE])),
        "clip 1 of the table",
    ),
    (lambda _: shortgop.ClipTable(["a.mp4"], [1 << 63], [[0]]), "starts of a ClipTable has 9223372036854775808"),  # type: ignore[arg-type]
    (lambda clips: shortgop.Weighted([HUGE]).bound(clips.clip_index, 0), r"weights are \[.*\]; .* of 64 bits"),
]


@pytest.mark.parametrize("number", range(len(TOO_LARGE)))
def test_integers_that_are_too_large_are_told_with_what_they_are(number: int, dataset: shortgop.Dataset) -> None:
    """They were an OverflowError of numpy without a name; a number of frames took all memory."""
    call, message = TOO_LARGE[number]
    with pytest.raises(shortgop.UsageError, match=message):
        call(shortgop.ClipDataset(dataset, shortgop.RandomClips(4)))


def test_a_set_of_videos_is_in_the_order_of_the_dataset(tmp_path: Path) -> None:
    """Each process has another order of a set of texts: ranks would divide other clips than each other's."""
    names = [f"{letter}.mp4" for letter in "abcdefgh"]
    for name in names:
        make_video(tmp_path / name, pts=constant_rate_pts(Fraction(10), 8), timebase=Fraction(1, 10))
    assert make_dataset([tmp_path], tmp_path / "out").failures == ()
    dataset = shortgop.open(tmp_path / "out")
    for chosen in (set(names[2:]), frozenset(names[2:]), set(range(2, 8))):
        clips = shortgop.ClipDataset(dataset, shortgop.CenterClips(4), videos=chosen)
        assert clips.video_numbers.tolist() == list(range(2, 8))
    last = shortgop.ClipDataset(dataset[5:], shortgop.CenterClips(4), videos={"h.mp4", "f.mp4"})
    assert last.video_numbers.tolist() == [0, 2]
