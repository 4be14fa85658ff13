"""Everything that a job was told about how to prepare its sources."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from ..errors import UsageError
from .profile import Profile
from .stalls import DEFAULT_LIMIT_SECONDS

_MAX_STALL_SECONDS = 86_400

Gaps = Literal["fail", "close", "keep"]


@dataclass(frozen=True)
class SourcePolicy:
    """What to do about sources that are not as they should be.

    A profile belongs to the dataset; this may differ from job to job, so that what one job refused the next one can
    take. `salvage`: a damaged source is prepared from the frames that decode. `gaps`: what becomes of a source with a
    gap of more than `max_gap_seconds` between two frames: an error, the frames behind it moved up, or the frame before
    it shown for as long. `max_stall_seconds`: how long reading a source, or ffmpeg at work on it, may make no progress
    before that is given up and tried again.
    """

    salvage: bool = False
    gaps: Gaps = "fail"
    max_gap_seconds: Fraction = Fraction(10)
    max_stall_seconds: Fraction = Fraction(DEFAULT_LIMIT_SECONDS)

    def __post_init__(self) -> None:
        if self.gaps not in get_args(Gaps):
            raise UsageError(f"--gaps is {self.gaps!r}; it takes {', '.join(get_args(Gaps))}")
        if self.max_gap_seconds <= 0:
            raise UsageError(f"--max-gap is {self.max_gap_seconds}; it takes more than 0 seconds")
        if not 0 < self.max_stall_seconds <= _MAX_STALL_SECONDS:
            raise UsageError(f"--max-stall is {self.max_stall_seconds}; it takes more than 0 seconds, up to a day")


DEFAULT_POLICY = SourcePolicy()


@dataclass(frozen=True)
class Options:
    """What the dataset's videos are to be, and what to do about sources that are not as they should be."""

    profile: Profile
    policy: SourcePolicy = DEFAULT_POLICY
