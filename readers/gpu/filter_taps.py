"""The filters with which libswscale resizes one axis: bilinear or bicubic, and as wide as the scale when it reduces.

The source is `initFilter` in FFmpeg's libswscale/utils.c. The weights are its integers, so what is filtered with them
equals what libswscale gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from ...manifests.ragged import Array
from ..frame_format import Interpolation
from ..nearest_samples import nearest_samples

Axis = Literal["columns", "lines"]

# The sum of an element's weights.
COLUMN_BITS, LINE_BITS = 14, 12
_BITS: dict[Axis, int] = {"columns": COLUMN_BITS, "lines": LINE_BITS}
# libswscale's vector code on x86-64 takes so many samples at once; tails of filters beyond that are cut.
_ALIGNMENT: dict[Axis, int] = {"columns": 4, "lines": 2}
# How many samples a filter spans that enlarges, less one. For others it is multiplied with the scale.
_SPANS: dict[Interpolation, int] = {"bilinear": 2, "bicubic": 4}
# SWS_MAX_REDUCE_CUTOFF: the part of the sum that may be cut.
_CUT = 0.002


@dataclass(frozen=True, eq=False)
class Taps:
    """What each element of an axis is made of.

    Element i is the sum over j of source[first[i] + j] * weights[i, j]. `first` is int32, (target,); `weights` is
    int32, (target, taps), and its rows add up to 1 << 14 for columns and 1 << 12 for lines, save for rounding. No index
    lies outside the source.
    """

    first: Array
    weights: Array

    def part(self, start: int, count: int) -> Taps:
        """The filters of `count` elements from `start` on."""
        return Taps(self.first[start : start + count], self.weights[start : start + count])

    def nearest(self, count: int) -> Taps:
        """The nearest elements to those of an axis of `count`."""
        chosen = nearest_samples(len(self.first), count)
        return Taps(self.first[chosen], self.weights[chosen])

    def repeated(self, count: int) -> Taps:
        """Each element twice, as far as `count` goes."""
        return Taps(self.first.repeat(2)[:count], self.weights.repeat(2, axis=0)[:count])


def same(count: int, axis: Axis) -> Taps:
    """An axis as it is."""
    return _single(np.arange(count), axis)


def _single(first: Array, axis: Axis) -> Taps:
    return Taps(first.astype(np.int32), np.full((len(first), 1), 1 << _BITS[axis], dtype=np.int32))


@lru_cache(maxsize=1024)
def resized(
    source: int, target: int, axis: Axis, interpolation: Interpolation = "bilinear", *, left: bool = False
) -> Taps:
    """An axis of `source` samples resized to `target`.

    Samples lie in the middle of what they stand for. With `left` those of the source lie a quarter of that before it:
    so does the chroma of H.264 and HEVC, unless a stream says otherwise.
    """
    # 16.16 fixed point, as are all positions below but for their double scale.
    step = ((source << 16) + (target >> 1)) // target
    if abs(step - (1 << 16)) < 10 and not left:
        return _single(np.minimum(np.arange(target), source - 1), axis)
    reduces = step > 1 << 16
    span = _SPANS[interpolation]
    taps = 1 + (-(-span * source // target) if reduces else span)
    taps = max(1, min(taps, source - 2))
    centres = step - (1 << 15 if left else 1 << 16) + 2 * step * np.arange(target, dtype=np.int64)
    starts = centres - (taps - 2) * (1 << 16)
    first = np.where(starts >= 0, starts >> 17, -(-starts >> 17))
    distances = np.abs(((first[:, None] + np.arange(taps)) << 17) - centres[:, None]) << 13
    if reduces:
        distances = distances * target // source
    unit = 1 << (54 - min(max(source // target, 1).bit_length() - 1, 8))
    weights = (
        _cubic(distances, unit) if interpolation == "bicubic" else np.maximum((1 << 30) - distances, 0) * (unit >> 30)
    )
    first, weights = _without_tails(first, weights, int(_CUT * unit), _ALIGNMENT[axis])
    return _in_integers(*_inside(first, weights, source), 1 << _BITS[axis])


def _cubic(distances: Array, unit: int) -> Array:
    """The weights at distances in units of 1 << 30, of the cubic filter of Keys with a = -0.5: B = 0 and C = 0.5."""
    one, c = 1 << 24, 1 << 23
    reach = 1 << 31
    outside, distances = distances >= reach, np.minimum(distances, reach - 1)
    squares = distances * distances >> 30
    cubes = squares * distances >> 30
    near = (12 * one - 6 * c) * cubes + (-18 * one + 6 * c) * squares + (6 * one << 30)
    far = -6 * c * cubes + 30 * c * squares - 48 * c * distances + (24 * c << 30)
    weights = np.where(outside, 0, np.where(distances < 1 << 30, near, far))
    # Rounded towards zero, as C does it.
    return np.asarray(np.sign(weights) * (np.abs(weights) // ((1 << 54) // unit)))


def _without_tails(first: Array, weights: Array, cut: int, alignment: int) -> tuple[Array, Array]:
    """The filters without the ends that libswscale leaves out: those of weights that add up to `cut` or less."""
    rows, taps = weights.shape
    leading = (np.cumsum(np.abs(weights), axis=1) <= cut).sum(axis=1)
    # No filter may begin after the next one.
    moved = np.minimum.accumulate((first + leading)[::-1])[::-1] - first
    padded = np.concatenate([weights, np.zeros_like(weights)], axis=1)
    weights = padded[np.arange(rows)[:, None], moved[:, None] + np.arange(taps)]
    trailing = (np.cumsum(np.abs(weights[:, :0:-1]), axis=1) <= cut).sum(axis=1)
    longest = int((taps - trailing).max())
    kept = longest if longest == 1 and alignment == 2 else -(-longest // alignment) * alignment
    return first + moved, weights[:, :kept]


def _inside(first: Array, weights: Array, source: int) -> tuple[Array, Array]:
    """The same filters where each sample outside the source is the one at its edge."""
    rows, taps = weights.shape
    indices = np.clip(first[:, None] + np.arange(taps), 0, source - 1)
    length = int((indices[:, -1] - indices[:, 0]).max()) + 1
    first = np.minimum(indices[:, 0], source - length)
    inside = np.zeros((rows, length), dtype=np.int64)
    np.add.at(inside, (np.arange(rows)[:, None], indices - first[:, None]), weights)
    return first, inside


def _in_integers(first: Array, weights: Array, total: int) -> Taps:
    """Weights that add up to `total`. What rounding leaves of one goes to the next."""
    scale = np.maximum((weights.sum(axis=1) + total // 2) // total, 1)
    rounded = np.zeros(weights.shape, dtype=np.int32)
    left = np.zeros(len(weights), dtype=np.int64)
    for tap in range(weights.shape[1]):
        value = weights[:, tap] + left
        half = np.where(value >= 0, scale >> 1, -(scale >> 1))
        # Rounded towards zero, as C does it.
        rounded[:, tap] = np.sign(value + half) * (np.abs(value + half) // scale)
        left = value - rounded[:, tap] * scale
    used = np.flatnonzero(rounded.any(axis=0))
    return Taps(first.astype(np.int32), np.ascontiguousarray(rounded[:, : used[-1] + 1]))
