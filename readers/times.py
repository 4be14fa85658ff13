"""From frames to seconds and back, on a constant frame rate.

Frame k is shown from k / fps on. Outside, that time is a float, the nearest one, which may be a little later or
earlier. A frame counts as shown from its exact time or from that float on, whichever comes first, so that the
time that a frame was returned with leads to the same frame again, at every rate; an exact Fraction does too.
"""

from __future__ import annotations

import math
from fractions import Fraction

Seconds = float | Fraction


def seconds_of(frame: int, fps: Fraction) -> float:
    """When a frame is shown: the float nearest to frame / fps."""
    # Python divides integers with a single rounding.
    return frame * fps.denominator / fps.numerator


def _exact(seconds: Seconds) -> Fraction:
    # Scalars of numpy and torch are no numbers to Fraction, but they are to float.
    return seconds if isinstance(seconds, Fraction) else Fraction(float(seconds))


def frame_played_at(seconds: Seconds, fps: Fraction) -> int:
    """The frame that is shown at `seconds`, which is finite and not negative."""
    frame = math.floor(_exact(seconds) * fps)
    return frame + 1 if seconds_of(frame + 1, fps) <= seconds else frame


def first_frame_from(seconds: Seconds, fps: Fraction) -> int:
    """The first frame whose time is not before `seconds`, which is finite and not negative."""
    frame = math.ceil(_exact(seconds) * fps)
    return frame - 1 if frame > 0 and seconds_of(frame - 1, fps) >= seconds else frame


def resampled(start_seconds: float, stop_seconds: float, fps: float) -> list[float]:
    """Times from `start_seconds` on in steps of 1 / fps: as many as come nearest to filling the range."""
    exact = (stop_seconds - start_seconds) * fps
    count = math.floor(exact)
    if exact - count >= 0.5:
        count += 1
    step = 1.0 / fps
    return [start_seconds + number * step for number in range(count)]
