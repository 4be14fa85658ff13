"""Weights as integers on a line: each clip has an interval as long as its weight, and a point is in one of them."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any

import numpy as np

from ...errors import UsageError, WrongTypeError
from ...manifests.ragged import Array, offsets_of
from ...wording import counted
from ..which_clips.clips import Clips
from ..which_clips.offsets import listed

# All weights together; a point on the line times 2 is then still an int64.
_TOTAL = 1 << 61


@dataclass(frozen=True, eq=False)
class WeightLine:
    """Groups of clips side by side on a line: `clips` clips of `weight` each, from `bounds[g]` on.

    `bounds` is int64, (groups + 1,); `first_places` says where each group's clips are in the order of videos.
    """

    bounds: Array
    weight: Array
    first_places: Array

    @property
    def total(self) -> int:
        return int(self.bounds[-1])

    @property
    def heaviest(self) -> int:
        return int(self.weight.max())

    def places(self, points: Array) -> Array:
        """Which clip, by its place in the order of videos, each of these points belongs to."""
        groups = np.searchsorted(self.bounds, points, side="right") - 1
        return np.asarray(self.first_places[groups] + (points - self.bounds[groups]) // self.weight[groups])


def one_for_each(values: Any, what: str) -> Any:
    """An array as it is, or the values of any list. WrongTypeError for anything else; for a name it says what has the
    column of that name."""
    if isinstance(values, str):
        raise WrongTypeError(
            f"{what} is {values!r}; it has to be a list: ClipDataset has that of a column as column({values!r})"
        )
    return values if hasattr(values, "dtype") else listed(values, what)


def weight_line(clips: Clips, weights: Any, of: str, arranged: Array | None = None) -> WeightLine:
    """A line of the clips of a dataset.

    `weights` has one number for each video ("videos"; each of its clips has that weight) or one for each clip
    ("clips"). `arranged` is the order in which the videos come on the line. UsageError for weights that are missing,
    negative, not finite, all 0, or not as many.
    """
    given = one_for_each(weights, "weights")
    check_of(of, "weights")
    check_present(given, "weight", clips, of)
    values = np.asarray(given)
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise UsageError(f"weights are {shortened(given)}; they are a list of numbers, of 64 bits if they are integers")
    if of == "clips":
        counts, first_places = np.ones(len(clips), dtype=np.int64), np.arange(len(clips))
        # One weight a clip by its number: where a table has another order than the videos', they are taken along.
        values = values[clips.clip_numbers(first_places)] if len(values) == len(clips) else values
    else:
        counts, first_places = np.diff(clips.firsts), clips.firsts[:-1]
    if len(values) != len(counts):
        raise UsageError(f"there are {len(values)} weights and {len(counts)} {of}; each has one")
    if not np.isfinite(values).all() or (values < 0).any() or not (values * (counts > 0)).any():
        raise UsageError("weights have to be finite and 0 or more, and one of them more than 0")
    if arranged is not None:
        values, counts, first_places = values[arranged], counts[arranged], first_places[arranged]
    whole = _whole(values, counts)
    # Groups without length are never found; their weight must not be divided by.
    return WeightLine(offsets_of(whole * counts), np.maximum(whole, 1), first_places)


def check_of(of: Any, what: str) -> None:
    """UsageError for what has no weights or labels."""
    if of not in ("videos", "clips"):
        raise UsageError(f'of is {of!r}; {what} are of "videos" or of "clips"')


def check_present(given: Any, what: str, clips: Clips, of: str = "videos") -> None:
    """UsageError where some of the given values, one for each video or clip, are None or NaN: columns have these for
    videos without a value."""
    values = np.asarray(given) if hasattr(given, "dtype") else given
    kind = getattr(values, "dtype", np.dtype(object)).kind
    if kind in "iubUS":
        return
    absent = np.isnan(values) if kind == "f" else np.fromiter(map(_is_missing, values), dtype=bool)
    if not absent.any():
        return
    first = int(np.flatnonzero(absent)[0])
    named = f"clip {first}"
    if of == "videos":
        named = f"video {clips.video_name(first)!r}" if first < len(clips.firsts) - 1 else f"number {first}"
    raise UsageError(
        f"{absent.sum()} of {counted(len(absent), what)} {'is' if absent.sum() == 1 else 'are'} missing (None or NaN), "
        f"the first that of {named}; take clips of the videos that have one: give ClipDataset "
        "dataset.where(lambda columns: columns.present(name)), or their ids or numbers as videos="
    )


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, (float, np.floating)) and bool(np.isnan(value)))


def _whole(values: Array, counts: Array) -> Array:
    """Weights as integers with the same proportions, as nearly as int64 allows; equal ones become 1."""
    if values.dtype.kind == "f" and (values == np.floor(values)).all() and values.max() < 2**53:
        values = values.astype(np.int64)
    if values.dtype.kind in "iu" and float(np.dot(values.astype(np.float64), counts)) < _TOTAL / 2:
        whole = values.astype(np.int64)
        return np.asarray(whole // max(1, int(np.gcd.reduce(whole[whole > 0]))) if len(whole) else whole)
    floats = values.astype(np.float64)
    positive = floats[floats > 0]
    if (positive == positive[0]).all():
        return np.asarray((floats > 0).astype(np.int64))
    scale = _TOTAL / float(np.dot(floats / floats.max(), counts)) / 2
    scaled: Array = np.maximum(np.rint(floats / floats.max() * scale), floats > 0)
    return scaled.astype(np.int64)


def systematic_points(total: int, phase: int, slots: Array, num_slots: int) -> Array:
    """floor((slot * total + phase) / num_slots), exactly, with total < 2**62, phase < total and num_slots < 2**31.

    Neighbouring points are total / num_slots apart, so an interval of length w has floor or ceil of
    num_slots * w / total of them.
    """
    step, step_rest = divmod(total, num_slots)
    start, start_rest = divmod(phase, num_slots)
    points: Array = slots * step + start + (slots * step_rest + start_rest) // num_slots
    return points
