"""How a ClipDataset calls a transform: with random numbers of its own, for a clip or for a batch. Its error names the
clip."""

from __future__ import annotations

import random
import re
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import shortgop
from shortgop.errors import WrongTypeError
from training_videos import make_videos, numbers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


class Noisy:
    """A transform that draws from every generator that transforms use."""

    def __call__(self, frames: torch.Tensor) -> Any:
        return torch.tensor([*drawn(), float(frames.float().mean())])


def drawn() -> list[float]:
    return [random.random(), np.random.rand(), torch.rand(()).item()]  # noqa: NPY002  # what transforms use


def seed_all() -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)


def test_a_transform_draws_the_same_for_the_same_draw_and_leaves_generators_alone(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.AllClips(2), transform=Noisy())
    seed_all()
    expected = drawn()
    seed_all()
    together = [item["frames"].tolist() for item in dataset.__getitems__([3, 9, 3 + len(dataset)])]
    assert dataset[9]["frames"].tolist() == together[1]
    # The same clip in another epoch.
    assert together[0][:3] != together[2][:3]
    assert together[0][3] == together[2][3]
    assert drawn() == expected


def test_a_transform_of_a_batch_gets_all_clips(folder: Path) -> None:
    dataset = shortgop.ClipDataset(
        folder, shortgop.AllClips(2), transform=lambda frames: frames.float().mean((2, 3, 4)), transform_batch=True
    )
    items = dataset.__getitems__([0, 1, 2])
    assert [item["frames"].shape for item in items] == [(2,)] * 3


@pytest.mark.parametrize("transform", [Noisy, torch.nn.Upsample, partial(torch.nn.Upsample, mode="nearest")])
def test_a_class_in_place_of_its_object_is_refused(folder: Path, transform: Any) -> None:
    """Its objects would be the items' frames: torch.nn.Upsample takes anything for its size."""
    with pytest.raises(WrongTypeError, match=r"class (Noisy|Upsample), .*; give it an object of that class: "):
        shortgop.ClipDataset(folder, shortgop.AllClips(2), transform=transform)
    with pytest.raises(WrongTypeError, match="has to be a function of frames"):
        shortgop.ClipDataset(folder, shortgop.AllClips(2), transform=cast(Any, 3))


class Wrapped(torch.Tensor):
    """Frames as a class of their own, as torchvision's tv_tensors.Video are."""


def test_a_class_that_frames_become_is_a_transform(folder: Path) -> None:
    dataset = shortgop.ClipDataset(folder, shortgop.AllClips(2), transform=Wrapped)
    assert isinstance(dataset[0]["frames"], Wrapped)


@pytest.mark.first_case_short
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_a_transform_names_the_clip(folder: Path, together: bool, workers: int) -> None:
    dataset = shortgop.ClipDataset(
        folder, shortgop.CenterClips(3), transform=fails_for_the_second_video, transform_batch=together
    )
    loader = shortgop.ClipLoader(dataset, range(3), batch_size=3, workers=workers)
    with pytest.raises(ZeroDivisionError) as raised:
        list(loader)
    others = r"draw 0, which starts at frame 18 of video '[^']*a.mp4'; " if together else ""
    notes = "".join(raised.value.__notes__)
    assert re.search(
        f"The transform was called with {others}draw 1, which starts at frame 11 of video '[^']*b.mp4'", notes
    )
    loader.close()


@pytest.mark.parametrize("together", [False, True])
def test_an_error_of_a_transform_says_that_it_got_a_dict(folder: Path, together: bool) -> None:
    """One that takes frames fails with "KeyError: None" where outputs were added, which tells nobody why."""
    outputs = {"small": shortgop.Output(size=(16, 16)), "frames": shortgop.Output()}
    dataset = shortgop.ClipDataset(
        folder, shortgop.CenterClips(3), outputs=outputs, transform=lambda clip: clip[None], transform_batch=together
    )
    with pytest.raises(KeyError) as raised:
        dataset[1]
    assert any("was called with a dict ('small', 'frames') of draw 1" in note for note in raised.value.__notes__)


def fails_for_the_second_video(frames: torch.Tensor) -> torch.Tensor:
    shown = [numbers(clip)[0] for clip in (frames if frames.ndim == 5 else [frames])]
    if any(1000 <= first < 2000 for first in shown):
        raise ZeroDivisionError("the transform is wrong")
    return frames
