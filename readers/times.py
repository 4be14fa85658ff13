"""Converts frames to seconds and back, at a constant frame rate.

Frame k is shown from k / fps on. Callers get that time as the nearest float, which may be a little later or earlier. A
frame counts as shown from its exact time or from that float on, whichever comes first. So the time that was returned
with a frame leads to the same frame, at every rate, and so does the exact Fraction. A video ends at the time of
the frame that would follow its last one, by the same rule.
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
"""A time that callers give: a scalar of Python, numpy or torch."""
Time = float | Fraction
"""What `arguments.number` converts it to."""


def seconds_of(frame: int, fps: Fraction) -> float:
    """The time of a frame: the float nearest to frame / fps."""
    # Python rounds a quotient of integers once.
    return frame * fps.denominator / fps.numerator


def seconds_tensor(times: list[Any]) -> torch.Tensor:
    """Times of frames, or of clips of frames: float64, on the CPU whatever torch's default device is."""
    return torch.tensor(times, dtype=torch.float64, device="cpu")


def frame_played_at(seconds: Time, fps: Fraction, num_frames: int) -> int | None:
    """The frame that is shown at `seconds`; None before the first frame, and from the end of the last frame on."""
    # This form refuses NaN, and numbers that are too large for the arithmetic below.
    if not (seconds >= 0 and _is_up_to_the_end(seconds, fps, num_frames)):
        return None
    frame = math.floor(Fraction(seconds) * fps)
    if seconds_of(frame + 1, fps) <= seconds:
        frame += 1
    return frame if frame < num_frames else None


def first_frame_from(seconds: Time, fps: Fraction, num_frames: int) -> int:
    """The first frame at or after `seconds`, which are not negative; `num_frames` if there is none."""
    if not _is_up_to_the_end(seconds, fps, num_frames):
        return num_frames
    frame = math.ceil(Fraction(seconds) * fps)
    if frame > 0 and seconds_of(frame - 1, fps) >= seconds:
        frame -= 1
    return min(frame, num_frames)


def is_range(start_seconds: Time, stop_seconds: Time, fps: Fraction, num_frames: int) -> bool:
    """Whether [start, stop) lies in a video and starts before its end. The end may be exact or the nearest float."""
    ordered = start_seconds <= stop_seconds and _is_up_to_the_end(stop_seconds, fps, num_frames)
    return ordered and frame_played_at(start_seconds, fps, num_frames) is not None


def why_no_range(start_seconds: Time, stop_seconds: Time, fps: Fraction, num_frames: int) -> str:
    """What is wrong with a range that is none."""
    end = seconds_of(num_frames, fps)
    for name, time in (("start", start_seconds), ("stop", stop_seconds)):
        if isinstance(time, float) and math.isnan(time):
            return f"its {name} is no number"
    if start_seconds < 0:
        return "a range starts at 0 s or later"
    if stop_seconds < start_seconds:
        return "it stops before it starts"
    if frame_played_at(start_seconds, fps, num_frames) is None:
        return f"the video lasts {end} s, and a range has to start before that"
    return f"the video lasts {end} s, and a range stops there at the latest"


def _is_up_to_the_end(seconds: Time, fps: Fraction, num_frames: int) -> bool:
    """Whether `seconds` are at most the exact end, or at most the float nearest to it."""
    # No other float lies between the two.
    return seconds <= seconds_of(num_frames, fps) or (isinstance(seconds, Fraction) and seconds <= num_frames / fps)


def resampled_count(start_seconds: float, stop_seconds: float, fps: float) -> int:
    """The number of times that `resampled` returns, at most sys.maxsize."""
    exact = (stop_seconds - start_seconds) * fps
    if exact >= sys.maxsize:
        return sys.maxsize
    count = math.floor(exact)
    return count + 1 if exact - count >= 0.5 else count


def resampled(start_seconds: float, stop_seconds: float, fps: float) -> list[float]:
    """Times from `start_seconds` on, 1 / fps apart; their number is the range times fps, rounded half up."""
    step = 1.0 / fps
    return [start_seconds + number * step for number in range(resampled_count(start_seconds, stop_seconds, fps))]
