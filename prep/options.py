"""The options of a job: how it prepares its sources."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, cast, get_args

from ..arguments import exact_seconds
from ..errors import UsageError
from .profile import Profile
from .running.stalls import DEFAULT_LIMIT_SECONDS
from .section_plan import SECTION_SECONDS

_MAX_STALL_SECONDS = 86_400

Gaps = Literal["fail", "close", "keep"]
Number = int | float | Fraction | str


@dataclass(frozen=True)
class SourcePolicy:
    """What to do about damaged sources, gaps in timestamps and stalls.

    The profile belongs to the dataset; the policy may differ from job to job, so that a later job can prepare a source
    that an earlier one refused. `salvage`: prepare damaged sources from the frames that decode. `gaps`: what to do
    about a gap of more than `max_gap_seconds` between two frames: "fail" refuses the source, "close" moves the frames
    after the gap to earlier times, "keep" shows the frame before the gap until its end. `max_stall_seconds`: how long
    reading a source, or ffmpeg at work on it, may make no progress before it is ended and tried again.
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


def named_policy(*, salvage: bool, gaps: str, max_gap: Number, max_stall: Number) -> SourcePolicy:
    """The policy that the options of these names stand for; times are in seconds. UsageError for invalid values."""
    return SourcePolicy(
        salvage=salvage,
        gaps=cast("Gaps", gaps),
        max_gap_seconds=exact_seconds(max_gap, "--max-gap"),
        max_stall_seconds=exact_seconds(max_stall, "--max-stall"),
    )


@dataclass(frozen=True)
class Options:
    """The profile of the dataset's videos, the policy for this job's sources, and whether a GPU may be used. A source
    that is expected to keep a core busy for twice `section_seconds` or longer is encoded in sections of about that many
    seconds of work."""

    profile: Profile
    policy: SourcePolicy = DEFAULT_POLICY
    use_gpu: bool = True
    section_seconds: float = SECTION_SECONDS
