"""Figures with their uncertainty: medians and ratios of sums, with bootstrap intervals.

The interval is the percentile bootstrap's (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13):
the requests are drawn anew, with replacement, many times over, and the figure is taken of each draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..manifests.ragged import Array

CONFIDENCE = 0.95
_DRAWS = 1000
_SEED = 0


@dataclass(frozen=True)
class Estimate:
    """A figure, and the ends of the interval that holds the true one with 95 % confidence."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.value)} ({_short(self.low)}-{_short(self.high)})"


def median(values: Array) -> Estimate:
    """The median of `values`, (requests,)."""
    return _estimate(float(np.median(values)), np.median(values[_draws(len(values))], axis=1))


def ratio_of_sums(numerators: Array, denominators: Array) -> Estimate:
    """The sum of one array by the sum of the other, both (requests,) and of the same requests."""
    draws = _draws(len(numerators))
    resampled = numerators[draws].sum(axis=1) / denominators[draws].sum(axis=1)
    return _estimate(float(numerators.sum() / denominators.sum()), resampled)


def _draws(count: int) -> Array:
    # The same every time: the same measurement gives the same interval.
    return np.random.default_rng(_SEED).integers(count, size=(_DRAWS, count))


def _estimate(value: float, resampled: Array) -> Estimate:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, (tail, 1 - tail)).tolist()
    return Estimate(value, low, high)


def _short(value: float) -> str:
    """Two digits at least, and none that a measurement cannot give."""
    return f"{value:.2f}" if value < 1.995 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
