"""Outputs of ClipDataset that are resized in several ways, and masks that have the crops of pictures."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import get_args

import pytest
import torch

import shortgop
from datasets import make_dataset
from shortgop import Output
from shortgop.readers.frame_format import Interpolation
from synthetic import constant_rate_pts, make_video
from test_outputs import clips_of, whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("interpolations")
    for name, size in (("a.mp4", (96, 64)), ("b.mp4", (66, 98))):
        make_video(root / name, pts=constant_rate_pts(Fraction(10), 24), timebase=Fraction(1, 10), size=size)
    assert make_dataset([root / "a.mp4", root / "b.mp4"], root / "dataset", gop_frames=8).failures == ()
    return root / "dataset"


def test_each_output_has_an_interpolation_of_its_own(folder: Path) -> None:
    modes: tuple[Interpolation, ...] = get_args(Interpolation)
    dataset = clips_of(folder, **{mode: Output(size=(24, 36), interpolation=mode) for mode in modes})
    item = dataset[0]
    for mode in modes:
        opened = shortgop.open(folder, size=(24, 36), interpolation=mode)
        assert torch.equal(item[mode], opened[item["video"]].get_frames_at(item["frame_numbers"]).data)
        clips = shortgop.ClipDataset(folder, shortgop.AllClips(4, stride=2, step=3), size=(24, 36), interpolation=mode)
        assert torch.equal(clips[0]["frames"], item[mode])
    assert (item["bicubic"].float() - item["bilinear"].float()).abs().mean() > 1
    assert torch.equal(
        item["nearest"], torch.nn.functional.interpolate(whole(folder, item), (24, 36), mode="nearest-exact")
    )


def test_a_mask_has_the_crop_of_its_picture_and_no_other_levels(folder: Path) -> None:
    dataset = clips_of(
        folder,
        picture=Output(size=(48, 56), crop="random-resized", flip=0.5),
        labels=Output(size=(48, 56), shared="picture", color="grey", interpolation="nearest"),
    )
    grey = shortgop.open(folder, color="grey")
    for item in (dataset[index] for index in range(0, len(dataset), 5)):
        top, left, height, width = item["crop"].tolist()
        frames = grey[int(item["video"])].get_frames_at(item["frame_numbers"]).data
        part = frames[:, :, top : top + height, left : left + width]
        expected = torch.nn.functional.interpolate(part, (48, 56), mode="nearest-exact")
        assert torch.equal(item["labels"], expected.flip(3) if item["flip"] else expected)
