"""Random crops and flips of outputs: where they lie, and how likely each is."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from shortgop import Output
from shortgop.training.pixels.named_outputs import Outputs


def drawn(output: Output, count: int, size: tuple[int, int] = (64, 96)) -> torch.Tensor:
    """Crops of many draws: (draws, 4)."""
    views = Outputs({"frames": output}, taken=(), seed=5).views(
        range(count), [(0, 0)] * count, [size] * count, ["v"] * count
    )
    return views.columns()["crop"]


def test_places_are_equally_likely() -> None:
    crops = drawn(Output(size=(60, 90), crop="random"), 12_000)
    counts = Counter((top, left) for top, left, _, _ in crops.tolist())
    assert set(counts) == set(itertools.product((0, 2, 4), (0, 2, 4, 6)))
    # Chi-square with 11 degrees of freedom: above 31.3 once in a thousand.
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 31.3


def test_random_resized_is_torchvisions() -> None:
    """Against torchvision.transforms.RandomResizedCrop.get_params, written down plainly, with other random numbers."""
    rng = np.random.default_rng(0)
    height, width, count = 256, 340, 6000

    def reference() -> tuple[int, int, int, int]:
        for _ in range(10):
            area = height * width * rng.uniform(0.08, 1.0)
            aspect = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
            w, h = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                # Sides are multiples of a sixteenth of the short side, 16 pixels of 256.
                h, w = 16 * round(h / 16), min(width, 16 * round(w / 16))
                return int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1)), h, w
        return 0, 0, height, width

    ours = drawn(Output(size=(224, 224), crop="random-resized"), count, (height, width)).numpy()
    theirs = np.array([reference() for _ in range(count)])
    for column in range(4):
        one, other = np.sort(ours[:, column]), np.sort(theirs[:, column])
        # Kolmogorov and Smirnov's distance: above 0.036 once in a thousand, and odd offsets add up to 1 in 80.
        grid = np.arange(0, 341, 2) + 1
        distance = np.abs(np.searchsorted(one, grid) - np.searchsorted(other, grid)).max() / count
        assert distance < 0.05, column
    assert (ours % 2 == 0).all()
    assert set((ours[:, 2:] % 16).ravel().tolist()) <= {0, 340 % 16}


def test_random_scaled_is_a_scaled_short_side_and_a_random_crop() -> None:
    """As RandomShortSideScale(256, 320, inverse uniform) and RandomCrop(224) of SlowFast and PyTorchVideo."""
    crops = drawn(Output(size=(224, 224), crop="random-scaled", scale=(224 / 320, 224 / 256)), 12_000, (256, 456))
    sides = Counter(crops[:, 2].tolist())
    assert torch.equal(crops[:, 2], crops[:, 3])
    # 0.7 to 0.875 of 256 in steps of 1/32, of which the outer ones are half as likely, or nearly.
    assert set(sides) == {176, 184, 192, 200, 208, 216, 224}
    inner = [sides[side] for side in (184, 192, 200, 208, 216)]
    expected = 12_000 / 32 / (224 / 256 - 224 / 320)
    # Chi-square with 5 degrees of freedom: above 20.5 once in a thousand.
    assert sum((count - expected) ** 2 / expected for count in inner) < 20.5
    for side, count in sides.items():
        lefts = Counter(crops[crops[:, 2] == side][:, 1].tolist())
        assert set(lefts) <= set(range(0, 456 - side + 1, 2))
        # Every place is about as likely: the mean is that of a uniform one within five deviations.
        mean = sum(left * each for left, each in lefts.items()) / count
        assert abs(mean - (456 - side) / 2) < 5 * (456 - side) / (12 * count) ** 0.5


@pytest.mark.parametrize(
    ("size", "shape", "largest"),
    [((256, 456), (256, 448), (256, 448)), ((240, 426), (448, 256), (240, 136)), ((108, 192), (128, 224), (108, 188))],
)
def test_random_scaled_is_the_largest_part_of_the_shape_unless_told(
    size: tuple[int, int], shape: tuple[int, int], largest: tuple[int, int]
) -> None:
    crops = drawn(Output(size=shape, crop="random-scaled"), 3000, size)
    assert {*map(tuple, crops[:, 2:].tolist())} == {largest}
    places = {*map(tuple, crops[:, :2].tolist())}
    spare = [side - part for side, part in zip(size, largest, strict=True)]
    assert places == {(top, left) for top in range(0, spare[0] + 1, 2) for left in range(0, spare[1] + 1, 2)}


@pytest.mark.parametrize("size", [(64, 400), (400, 64), (2, 2), (65, 97)])
@pytest.mark.parametrize(
    "output",
    [Output(size=(9, 9), crop="random-resized"), Output(size=(9, 9), crop="random-scaled", scale=(0.01, 1.0))],
)
def test_random_crops_that_are_resized_lie_within_frames_of_any_shape(output: Output, size: tuple[int, int]) -> None:
    for top, left, height, width in drawn(output, 200, size).tolist():
        assert min(top, left) >= 0
        assert min(height, width) >= 1
        assert top % 2 == left % 2 == 0
        assert top + height <= size[0]
        assert left + width <= size[1]


def test_flips_are_as_likely_as_was_asked() -> None:
    views = Outputs({"frames": Output(flip=0.3)}, taken=(), seed=5).views(
        range(4000), [(0, 0)] * 4000, [(64, 96)] * 4000, ["v"] * 4000
    )
    # Five standard deviations.
    assert abs(views.columns()["flip"].double().mean().item() - 0.3) < 0.037
    assert not any(
        each.flip
        for each in Outputs({"f": Output()}, taken=(), seed=5).views([0], [(0, 0)], [(8, 8)], "v").geometries["f"]
    )
