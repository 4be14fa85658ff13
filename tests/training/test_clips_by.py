"""ClipsBy: clips whose frames a function of the user's own chooses."""

from __future__ import annotations

import functools
import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import DatasetWarning, UsageError, WrongTypeError
from shortgop.training.which_clips.clips_by import ChosenIndex
from synthetic import read_number
from video_tables import listed, video_table


def any_stride(video: Any, random: np.random.Generator, most: int = 4) -> Any:
    """Four frames at a stride from 1 to `most`, anywhere."""
    stride = random.integers(1, most + 1)
    return random.integers(video.num_frames - 3 * stride) + stride * np.arange(4)


def what_it_is_told(video: Any, _: np.random.Generator) -> list[int]:
    """The end of the video, by clip."""
    return [video.num_frames - 1 - video.clip, round(video.fps)]


def test_each_draw_has_frames_of_its_own_that_the_seed_and_the_draw_decide() -> None:
    index = ChosenIndex(shortgop.ClipsBy(any_stride, 4), video_table([40, 25]), seed=1)
    frames = np.array([clip.frames for clip in index.clips(range(0, 8000, 2))])
    strides = np.diff(frames)
    assert (strides == strides[:, :1]).all()
    counts = np.bincount(strides[:, 0], minlength=5)[1:]
    assert len(counts) == 4
    assert ((counts > 880) & (counts < 1120)).all()
    assert frames.min() == 0
    assert frames.max() == 39
    other = ChosenIndex(shortgop.ClipsBy(any_stride, 4), video_table([40, 25]), seed=2)
    assert listed(other, range(20)) != listed(index, range(20))
    assert listed(index, [7, 3]) == [listed(index, [7])[0], listed(index, [3])[0]]


def test_the_function_is_told_the_video_and_which_of_its_clips_it_is() -> None:
    index = ChosenIndex(shortgop.ClipsBy(what_it_is_told, 2, clips_per_video=3), video_table([40, 31]), seed=0)
    assert listed(index) == [(0, [39, 30]), (0, [38, 30]), (0, [37, 30]), (1, [30, 30]), (1, [29, 30]), (1, [28, 30])]
    assert index.firsts.tolist() == [0, 3, 6]


def test_frames_that_a_video_lacks_are_an_error_or_replaced() -> None:
    def beyond(video: Any, _: np.random.Generator) -> Any:
        return range(-2, video.num_frames + 2)

    table = video_table([3])
    with pytest.raises(UsageError, match=r"beyond, which ClipsBy called for draw 0, of video 'v0': a clip calls for"):
        ChosenIndex(shortgop.ClipsBy(beyond, 7), table, seed=0).clips([0])
    for ends, frames in (("clamp", [0, 0, 0, 1, 2, 2, 2]), ("loop_video", [1, 2, 0, 1, 2, 0, 1])):
        (clip,) = ChosenIndex(shortgop.ClipsBy(beyond, 7, ends=cast(Any, ends)), table, seed=0).clips([0])
        assert clip.frames.tolist() == frames
        assert clip.mask is not None
        assert clip.mask.tolist() == [False, False, True, True, True, False, False]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "it returned None, and not 2 frame numbers"),
        (3, "it returned 3, and not 2 frame numbers"),
        ([1, 2, 3], "it returned 3 frames, and num_frames is 2"),
        (np.zeros((2, 1), dtype=int), r"it returned frames of shape \(2, 1\), and not 2 frame numbers"),
        (np.linspace(0, 5.5, 2), r"a frame that it returned is .*0.0.*; it has to be an integer"),
    ],
)
def test_what_the_function_may_not_return(returned: Any, message: str) -> None:
    index = ChosenIndex(shortgop.ClipsBy(lambda *_: returned, 2), video_table([9]), seed=0)
    with pytest.raises(UsageError, match=message):
        index.clips([0])


def test_an_error_of_the_function_says_for_which_clip_it_was_called() -> None:
    index = ChosenIndex(shortgop.ClipsBy(any_stride, 4), video_table([9, 3]), seed=0)
    with pytest.raises(ValueError, match="high <= 0") as caught:
        index.clips([3])
    assert caught.value.__notes__ == ["any_stride, which ClipsBy called for draw 3, of video 'v1'"]


def test_what_it_cannot_be_told() -> None:
    with pytest.raises(WrongTypeError, match="choose is 16; it is a function of a video"):
        shortgop.ClipsBy(cast(Any, 16), 4)
    with pytest.raises(UsageError, match=r'ends="drop" leaves out .*which only the function knows'):
        shortgop.ClipsBy(any_stride, 4, ends="drop")
    with pytest.raises(UsageError, match="num_frames is 0"):
        shortgop.ClipsBy(any_stride, 0)


def measure() -> Any:
    """A function, another one each time, as each process has one of its own."""

    def length(_: Any) -> int:
        return 2

    return length


def fingerprint(choose: Any, **options: Any) -> str:
    return ChosenIndex(shortgop.ClipsBy(choose, 4, **options), video_table([9]), seed=0).fingerprint


def test_a_function_among_the_arguments_is_told_by_its_name() -> None:
    """It was told by its address, so that no state was taken on in another process."""
    one, other = (functools.partial(any_stride, measure(), most=cast(Any, [measure()])) for _ in range(2))
    assert fingerprint(one) == fingerprint(other)


def test_a_set_among_the_arguments_is_told_alike_in_each_process() -> None:
    """Python orders texts in a set anew in each process, so that no state was taken on there."""
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other)
    assert fingerprint(functools.partial(any_stride, one)) == fingerprint(functools.partial(any_stride, other))
    assert fingerprint(functools.partial(any_stride, one)) != fingerprint(functools.partial(any_stride, {0, 9}))


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
@pytest.mark.parametrize(
    "held",
    [lambda each: each, lambda each: {"starts": [(each, 3)]}, lambda each: OrderedDict(starts=each)],
    ids=["alone", "in a dict", "in an ordered dict"],
)
def test_an_array_among_the_arguments_is_told_by_all_of_its_values(kind: Any, held: Any) -> None:
    """The repr of a large one has the first and the last ones alone: a state was taken on with another table of starts.
    That of a small one has a few digits of each."""

    def told(values: Any) -> str:
        return fingerprint(functools.partial(any_stride, held(kind(values))))

    one, other = list(range(2000)), list(range(2000))
    other[1000] = 0
    assert told(one) == told(one)
    assert told(one) != told(other)
    assert told([12.345671]) != told([12.345673])


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.eye(2000).to_sparse(),
        lambda: torch.ones(2000, device="meta"),
        lambda: torch.ones(2000, dtype=torch.bfloat16).requires_grad_(),
        lambda: torch.ones(2, 2000).mT,
        lambda: torch.tensor(1j).conj(),
        lambda: np.ones(2000, dtype="i4,f8")[::-2],
        lambda: np.ma.masked_equal(np.arange(2000), 5),
        lambda: np.array(None),
    ],
)
def test_arrays_of_any_kind_may_be_among_the_arguments(made: Any) -> None:
    """Some were an error."""
    assert fingerprint(functools.partial(any_stride, made())) == fingerprint(functools.partial(any_stride, made()))


def test_a_large_table_among_the_arguments_is_read_once(tmp_path: Path) -> None:
    """It was made a text of for each name of the function, in each message: minutes."""
    policy = shortgop.ClipsBy(functools.partial(any_stride, np.arange(1 << 22)), 4)
    started = time.process_time()
    names = {repr(policy) for _ in range(1000)}
    assert len(names) == 1
    assert time.process_time() - started < 2
    # A file that is larger than any memory is not read at all.
    (tmp_path / "large.npy").write_bytes(b"")
    os.truncate(tmp_path / "large.npy", 1 << 42)
    large = np.memmap(tmp_path / "large.npy", np.int64, "r")
    assert "memmap(int64, (549755813888,), large.npy)" in repr(shortgop.ClipsBy(functools.partial(any_stride, large)))


@pytest.mark.parametrize("count", [2, 2000])
def test_objects_in_an_array_count_by_their_class_alone_and_that_is_said(count: int) -> None:
    objects = np.array([Plain(1)] * count, dtype=object)
    with pytest.warns(DatasetWarning, match=r"object of \S+Plain, which has no __repr__"):
        fingerprint(functools.partial(any_stride, objects))


class Plain:
    """A rule without a __repr__."""

    def __init__(self, stride: int) -> None:
        self.stride = stride

    def __call__(self, _: Any) -> Any:
        return self.stride * np.arange(4)


@dataclass(frozen=True)
class Told(Plain):
    """A rule whose __repr__ says its stride."""

    stride: int


def test_an_object_among_the_arguments_is_told_by_its_repr() -> None:
    """States of Plain(1) were taken on by Plain(2), and nothing said that they may be."""
    makers: list[Any] = [lambda rule: rule, lambda rule: functools.partial(any_stride, most=cast(Any, [rule]))]
    for made in makers:
        assert fingerprint(made(Told(1))) != fingerprint(made(Told(2)))
        with pytest.warns(DatasetWarning, match=r"object of \S+Plain, which has no __repr__: .* also where") as warned:
            # As in another process, where the object lies elsewhere.
            assert fingerprint(made(Plain(1))) == fingerprint(made(Plain(2)))
        assert len(warned) == 2


def test_a_text_among_the_arguments_is_told_in_full() -> None:
    """What looked like an address was cut out of it."""
    assert fingerprint(functools.partial(any_stride, "look at 0xff")) != fingerprint(
        functools.partial(any_stride, "look at 0xfe")
    )


def test_states_tell_functions_by_their_names_and_arguments() -> None:
    short = functools.partial(any_stride, most=2)
    assert repr(shortgop.ClipsBy(short, 4, ends="clamp")) == "ClipsBy(partial(any_stride, most=2), 4, ends='clamp')"
    assert fingerprint(short) == fingerprint(functools.partial(any_stride, most=2))
    others = [fingerprint(each) for each in (any_stride, what_it_is_told, short)]
    assert len({*others, fingerprint(short, clips_per_video=2), fingerprint(short, ends="clamp")}) == 5


def test_a_dataset_of_them_is_read_by_all_loaders(clips_folder: Path) -> None:
    """The frames that the function chose are shown: the same ones by any loader, others in each epoch."""
    outputs = {"frames": shortgop.Output(), "last": shortgop.Output(frames=[-1])}
    clips = shortgop.ClipDataset(clips_folder, shortgop.ClipsBy(any_stride, 4, clips_per_video=2), outputs=outputs)
    assert len(clips) == 2 * len(clips.source)
    sampler = shortgop.ElasticSampler(clips, 2)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        loaders: list[Any] = [
            shortgop.ClipLoader(clips, sampler, workers=1),
            DataLoader(clips, 2, sampler=sampler, num_workers=1, multiprocessing_context="fork"),
        ]
        ours, theirs = ([{**batch} for batch in loader] for loader in loaders)
        for batch, other in zip(ours, theirs, strict=True):
            assert batch["frame_numbers"].tolist() == other["frame_numbers"].tolist()
            for place, video in enumerate(batch["video"].tolist()):
                expected = [1000 * video + frame for frame in batch["frame_numbers"][place].tolist()]
                assert [read_number(frame) for frame in batch["frames"][place]] == expected
                assert read_number(other["last"][place][0]) == expected[-1]
        epochs.append(sorted(frames for batch in ours for frames in batch["frame_numbers"].tolist()))
    assert epochs[0] != epochs[1]
    for _ in range(2):
        list(DataLoader(clips, batch_size=2))
    with pytest.warns(DatasetWarning, match=r"call dataset.set_epoch"):
        list(DataLoader(clips, batch_size=2))


def test_clips_of_stretches_are_counted_from_their_start(clips_folder: Path) -> None:
    seen = []

    def last_two(video: Any, _: np.random.Generator) -> list[int]:
        seen.append((video.num_frames, video.stretch))
        return [video.num_frames - 2, video.num_frames - 1]

    videos = shortgop.Stretches([0, 0, 1], frames=[(10, 22), (2, 5), (0, None)])
    clips = shortgop.ClipDataset(clips_folder, shortgop.ClipsBy(last_two, 2), videos=videos)
    assert [clips[draw]["frame_numbers"].tolist() for draw in range(3)] == [[20, 21], [3, 4], [39, 40]]
    assert seen == [(12, 0), (3, 1), (41, 2)]
