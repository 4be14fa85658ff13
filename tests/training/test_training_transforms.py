"""Transforms that people have, torchvision's and Kornia's: each draw has its own crop, the same in any worker."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from datasets import make_dataset
from shortgop.training.pixels.transforms import seeded
from shortgop.training.which_clips.keyed import key
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

SEED = 3
Transform = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("transforms")
    make_video(root / "a.mp4", pts=constant_rate_pts(Fraction(30), 4), timebase=Fraction(1, 30))
    make_dataset([root / "a.mp4"], root / "dataset", gop_frames=8)
    return root / "dataset"


@pytest.fixture(params=["torchvision", "kornia"])
def transform(request: pytest.FixtureRequest) -> Transform:
    """A random crop, flip and brightness of the frames of one clip."""
    return of_torchvision() if request.param == "torchvision" else OfKornia()


def of_torchvision() -> Any:
    """Not in the tests' environment: PyPI's torchvision is built for CUDA. Where torch is not, it cannot be imported,
    and where it is installed nevertheless, Lightning and transformers cannot be imported either."""
    try:
        v2 = import_module("torchvision.transforms.v2")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision cannot be imported: {error}")
    return v2.Compose([v2.RandomCrop((24, 32)), v2.RandomHorizontalFlip(), v2.ColorJitter(brightness=0.5)])


class OfKornia:
    """Of one clip, (frames, 3, height, width), or of several."""

    def __init__(self) -> None:
        kornia = import_module("kornia.augmentation")
        self.sequence = kornia.VideoSequential(
            kornia.RandomCrop((24, 32)), kornia.RandomHorizontalFlip(), kornia.ColorJiggle(brightness=0.5)
        )

    def __call__(self, frames: torch.Tensor) -> torch.Tensor:
        clips = frames if frames.ndim == 5 else frames[None]
        augmented: torch.Tensor = self.sequence(clips.float() / 255)
        return augmented if frames.ndim == 5 else augmented[0]


def clips_of_one_start(path: Path, **options: Any) -> shortgop.ClipDataset:
    """24 clips that are the same before they are transformed: frame 0 three times, and frame 3."""
    policy = shortgop.RandomClips(shortgop.Offsets(frames=[0, 0, 0, 3]), clips_per_video=24)
    return shortgop.ClipDataset(path, policy, size=(48, 64), seed=SEED, **options)


def loaded(dataset: shortgop.ClipDataset, workers: int = 0) -> list[Any]:
    context = "fork" if workers else None
    sampler = shortgop.ElasticSampler(dataset, 8)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=workers, multiprocessing_context=context)
    return list(loader)


def test_a_transform_gets_the_random_numbers_of_its_draw(path: Path, transform: Transform) -> None:
    plain, transformed = clips_of_one_start(path), clips_of_one_start(path, transform=transform)
    for draw in (0, 7, 24 + 5):
        frames = plain[draw]["frames"]
        with seeded(key(SEED, "transform", draw)):
            by_hand = transform(frames)
        assert torch.equal(transformed[draw]["frames"], by_hand)


def test_each_clip_has_one_crop_of_its_own(path: Path, transform: Transform) -> None:
    for batch in loaded(clips_of_one_start(path, transform=transform)):
        for frames in batch["frames"]:
            assert torch.equal(frames[0], frames[1])
            assert torch.equal(frames[0], frames[2])
        assert len({frames[0].numpy().tobytes() for frames in batch["frames"]}) == 8


def test_a_draw_is_the_same_clip_in_any_worker_and_batch(path: Path, transform: Transform) -> None:
    dataset = clips_of_one_start(path, transform=transform)
    for batch in loaded(dataset, workers=2):
        for place, draw in enumerate(batch["draw"].tolist()):
            assert torch.equal(batch["frames"][place], dataset[draw]["frames"])


def test_kornia_draws_a_crop_for_each_clip_of_a_batch_too(path: Path) -> None:
    dataset = clips_of_one_start(path, transform=OfKornia(), transform_batch=True)
    here, elsewhere = loaded(dataset), loaded(dataset, workers=2)
    for batch, same in zip(here, elsewhere, strict=True):
        assert torch.equal(batch["frames"], same["frames"])
        assert len({frames[0].numpy().tobytes() for frames in batch["frames"]}) == 8
        for frames in batch["frames"]:
            assert torch.equal(frames[0], frames[2])


def test_torchvision_draws_one_crop_for_a_whole_batch(path: Path) -> None:
    """What docs/training.md warns of."""
    for batch in loaded(clips_of_one_start(path, transform=of_torchvision(), transform_batch=True)):
        assert len({frames[0].numpy().tobytes() for frames in batch["frames"]}) == 1


def corner(frames: torch.Tensor) -> torch.Tensor:
    """A random part of 32x32 of frames of any size."""
    top, left = (int(torch.randint(side - 31, ())) for side in frames.shape[-2:])
    return frames[..., top : top + 32, left : left + 32]


@pytest.fixture(scope="module")
def of_several_sizes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sizes")
    for number, size in enumerate(((96, 64), (64, 96), (128, 64), (96, 64))):
        pts = constant_rate_pts(Fraction(30), 8)
        make_video(root / f"{number}.mp4", pts=pts, timebase=Fraction(1, 30), size=size, first_number=100 * number)
    make_dataset(sorted(root.glob("*.mp4")), root / "dataset", gop_frames=8)
    return root / "dataset"


@pytest.mark.parametrize("size", [None, 48, (40, 40)])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_transform_makes_a_batch_of_clips_of_several_sizes(of_several_sizes: Path, size: Any, on_error: Any) -> None:
    """They were refused before the transform saw them, unless a batch happened to have one size."""
    clips = shortgop.ClipDataset(
        of_several_sizes, shortgop.RandomClips(6, stride=2, ends="black"), size=size, transform=corner,
        on_error=on_error,
    )  # fmt: skip
    alone = [clips[draw] for draw in range(len(clips))]
    (batch,) = DataLoader(clips, batch_size=len(clips))
    sampler = shortgop.ElasticSampler(clips, len(clips), order=shortgop.Sequential())
    (other,) = shortgop.ClipLoader(clips, sampler, workers=0)
    for name in ("frames", "pts_seconds", "mask", "video", "start"):
        expected = torch.stack([torch.as_tensor(item[name]) for item in alone])
        assert torch.equal(batch[name], expected)
        assert torch.equal(other[name], expected)
    assert batch["frames"].shape == (4, 6, 3, 32, 32)
    assert not batch["frames"][:, 4:].any()
    assert clips.items([]) == []


def test_several_sizes_are_refused_where_no_transform_sees_one_clip(of_several_sizes: Path) -> None:
    for options in ({}, {"transform": corner, "transform_batch": True}):
        clips = shortgop.ClipDataset(of_several_sizes, shortgop.CenterClips(2), **options)  # type: ignore[arg-type]
        with pytest.raises(shortgop.UsageError, match=r"open the dataset with size=\(height, width\)"):
            next(iter(DataLoader(clips, batch_size=4)))


def with_mask(frames: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As for masked autoencoders."""
    return {**frames, "mask": torch.rand(16) < 0.9}


def test_an_entry_of_a_transform_that_items_have_already_is_refused(path: Path) -> None:
    """The mask of padded clips took its place without a word."""
    outputs = {"frames": shortgop.Output()}
    whole = shortgop.ClipDataset(path, shortgop.CenterClips(2), outputs=outputs, transform=with_mask)
    assert whole[0]["mask"].shape == (16,)
    padded = shortgop.ClipDataset(path, shortgop.CenterClips(6, ends="black"), outputs=outputs, transform=with_mask)
    with pytest.raises(shortgop.UsageError, match="the transform returned 'mask', which items have already"):
        padded[0]


@pytest.mark.parametrize("made", [torch.tensor(0.5), 0.5], ids=repr)
def test_one_value_for_a_whole_batch_is_told_as_such(path: Path, made: Any) -> None:
    clips = shortgop.ClipDataset(path, shortgop.AllClips(2), transform=lambda _: made, transform_batch=True)
    with pytest.raises(shortgop.UsageError, match="returned one value 'frames' for 3 clips; with transform_batch it"):
        clips.__getitems__([0, 1, 2])
