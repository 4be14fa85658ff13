"""From frames to seconds and back, on a constant frame rate.

Frame k is shown from k / fps on. Outside, that time is a float, the nearest one, which may be a little later or
earlier. A frame counts as shown from its exact time or from that float on, whichever comes first, so that the
time that a frame was returned with leads to the same frame again, at every rate; an exact Fraction does too. The end
of a video is the time of the frame that would follow its last one, by the same rule.
"""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import torch

from ..manifests.ragged import Array

Seconds = float | Fraction | Decimal | Array | torch.Tensor
"""A time as callers give it: Python's, numpy's or torch's scalars."""
Time = float | Fraction
"""The same as `arguments.number` makes it."""


def seconds_of(frame: int, fps: Fraction) -> float:
    """When a frame is shown: the float nearest to frame / fps."""
    # Python divides integers with a single rounding.
    return frame * fps.denominator / fps.numerator


def seconds_tensor(times: list[Any]) -> torch.Tensor:
    """Times of frames, or of clips of frames, as batches hold them: float64, on the CPU whatever torch's default is."""
    return torch.tensor(times, dtype=torch.float64, device="cpu")


def frame_played_at(seconds: Time, fps: Fraction, num_frames: int) -> int | None:
    """The frame that is shown at `seconds`; None before the first one and from the end of the last one on."""
    # Written so that NaN is refused, and before arithmetic with what is far too large.
    if not (seconds >= 0 and _is_up_to_the_end(seconds, fps, num_frames)):
        return None
    frame = math.floor(Fraction(seconds) * fps)
    if seconds_of(frame + 1, fps) <= seconds:
        frame += 1
    return frame if frame < num_frames else None


def first_frame_from(seconds: Time, fps: Fraction, num_frames: int) -> int:
    """The first frame whose time is not before `seconds`, which are not negative; `num_frames` where there is none."""
    if not _is_up_to_the_end(seconds, fps, num_frames):
        return num_frames
    frame = math.ceil(Fraction(seconds) * fps)
    if frame > 0 and seconds_of(frame - 1, fps) >= seconds:
        frame -= 1
    return min(frame, num_frames)


def is_range(start_seconds: Time, stop_seconds: Time, fps: Fraction, num_frames: int) -> bool:
    """Whether [start, stop) lies in a video and begins before its end, which may be given exactly or as a float."""
    ordered = start_seconds <= stop_seconds and _is_up_to_the_end(stop_seconds, fps, num_frames)
    return ordered and frame_played_at(start_seconds, fps, num_frames) is not None


def _is_up_to_the_end(seconds: Time, fps: Fraction, num_frames: int) -> bool:
    """Whether `seconds` are not behind the exact end, nor behind the float nearest to it."""
    # Between the two there is no other float.
    return seconds <= seconds_of(num_frames, fps) or (isinstance(seconds, Fraction) and seconds <= num_frames / fps)


def resampled_count(start_seconds: float, stop_seconds: float, fps: float) -> int:
    """How many times `resampled` gives; sys.maxsize stands for more."""
    exact = (stop_seconds - start_seconds) * fps
    if exact >= sys.maxsize:
        return sys.maxsize
    count = math.floor(exact)
    return count + 1 if exact - count >= 0.5 else count


def resampled(start_seconds: float, stop_seconds: float, fps: float) -> list[float]:
    """Times from `start_seconds` on in steps of 1 / fps: as many as come nearest to filling the range."""
    step = 1.0 / fps
    return [start_seconds + number * step for number in range(resampled_count(start_seconds, stop_seconds, fps))]
