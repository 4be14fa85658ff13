"""What jobs did in the course of time, in a bounded number of stretches: for the chart of `shortgop report`.

The list goes on from one job to the next, because a job on machines that come and go is often several.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

MAX_STRETCHES = 240


class TimeStretch(NamedTuple):
    """What was done from `start` to `stop`, in seconds since 1970, in `seconds` of work.

    `frames` were encoded; it is negative where a source failed whose frames had been counted. `sources` are those that
    were finished, with the `failed` ones. `bytes_in` are those of finished sources, `bytes_out` those made of them.
    """

    start: float
    stop: float
    seconds: float
    frames: int
    sources: int
    failed: int
    bytes_in: int
    bytes_out: int


def with_stretch(
    history: Sequence[TimeStretch], new: TimeStretch, max_stretches: int = MAX_STRETCHES
) -> tuple[TimeStretch, ...]:
    """The history with one more stretch. If there are then too many, the two neighbours that together span the least
    time become one. So all stretches stay about equally long, and sums stay exact."""
    stretches = [*history, new]
    while len(stretches) > max_stretches:
        spans = [after.stop - before.start for before, after in pairwise(stretches)]
        first = spans.index(min(spans))
        stretches[first : first + 2] = [_merged(*stretches[first : first + 2])]
    return tuple(stretches)


def stretches_of(values: Sequence[Sequence[float]]) -> tuple[TimeStretch, ...]:
    """The stretches that a status file holds as lists. TypeError or ValueError if they are not what was written."""
    found = []
    for start, stop, seconds, *counts in values:
        frames, sources, failed, bytes_in, bytes_out = (int(count) for count in counts)
        found.append(
            TimeStretch(float(start), float(stop), float(seconds), frames, sources, failed, bytes_in, bytes_out)
        )
    return tuple(found)


def _merged(one: TimeStretch, two: TimeStretch) -> TimeStretch:
    return TimeStretch(
        one.start,
        two.stop,
        one.seconds + two.seconds,
        one.frames + two.frames,
        one.sources + two.sources,
        one.failed + two.failed,
        one.bytes_in + two.bytes_in,
        one.bytes_out + two.bytes_out,
    )
