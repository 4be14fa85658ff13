"""When failures end a job, and which sources a job does not try again by itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from fractions import Fraction

from ...errors import TooManyFailuresError, UsageError
from ...storage.interface import Storage
from ...wording import counted
from ..finding.source import Source
from ..units_of_work.unit_results import Failure
from .known_failures import recorded_failures

# Part of the reason that is recorded for a source that kills its workers.
WORKER_DIED = "its worker died"
TRIES = 4
"""How often a worker may die of a step before the step is given up. Where the machine was lost, this is one round."""
# How many rounds may be followed by another one.
_ROUNDS, _MOST_ROUNDS = 1, 5
_AGAIN = "it was set aside; --retry-failed tries it again"


@dataclass(frozen=True)
class MaxFailures:
    """How many sources may fail before the job ends: `count`, or `percent` of all that were given. Those that the
    dataset has count too, so that the same command again ends as before where the same sources fail."""

    count: int | None = None
    percent: Fraction | None = None

    def __str__(self) -> str:
        return f"{float(self.percent):g}%" if self.percent is not None else str(self.count)

    def is_exceeded(self, failed: int, total: int | None) -> bool:
        """Whether `failed` of `total` sources are too many. `total` is None while it is not known."""
        if self.percent is not None and total is not None:
            return 100 * failed > self.percent * total
        return self.count is not None and failed > self.count

    def check(self, failed: int, total: int | None) -> None:
        """TooManyFailuresError if `failed` of `total` sources are too many. `total` is None while it is not known."""
        if self.is_exceeded(failed, total):
            of_all = counted(failed, "source") if total is None else f"{failed} of {counted(total, 'source')}"
            raise TooManyFailuresError(
                f"{of_all} failed, more than --max-failures {self} allows; what is "
                "finished is kept, and `shortgop info` lists the reasons; remove their cause and run the same command "
                "again, or allow more"
            )


def parse_max_failures(text: str | int | None) -> MaxFailures | None:
    """What a number such as 10, or a part such as 5%, stands for. UsageError for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)\s*%", str(text).strip())
    if match is None or (match[2] and Fraction(match[2]) > 100):
        raise UsageError(f"--max-failures is {str(text)!r}; it takes a number such as 10, or a part such as 5%")
    return MaxFailures(int(match[1])) if match[1] else MaxFailures(percent=Fraction(match[2]))


def is_chance(lost: int, machines_lost: int) -> bool:
    """Whether a step may be begun again that was lost `lost` times together with its machine. `machines_lost` counts
    all that the job has lost.

    A step that needs too much memory may take its machine along, and would take one after the other. So it is tried in
    two rounds. Where at least as many other machines were lost, as spot machines are, this says little of the step: it
    is tried in more rounds, though not without end.
    """
    rounds, within = divmod(lost, TRIES)
    return within > 0 or rounds <= _ROUNDS or (rounds <= _MOST_ROUNDS and machines_lost >= 2 * lost)


class Losses:
    """How often the worker of each step has died, and how often its machine or its result was lost, by a key."""

    def __init__(self) -> None:
        self.died: Counter[Hashable] = Counter()
        self._lost: Counter[Hashable] = Counter()

    def add(self, key: Hashable, machines_lost: int | None) -> bool:
        """Count a loss. Returns whether the step may be begun again. `machines_lost` is None where its worker alone
        died, else as in `is_chance`."""
        if machines_lost is None:
            self.died[key] += 1
            return self.died[key] < TRIES
        self._lost[key] += 1
        return is_chance(self._lost[key], machines_lost)

    def reason(self, key: Hashable, why: str, *, for_memory: bool) -> str:
        """Why a source is set aside whose worker died, the last time `why`, which may be for lack of memory."""
        times = f"{WORKER_DIED} {self.died[key] + self._lost[key]} times"
        if not for_memory:
            # The system tells nobody why it ends a process of a control group without memory, such as a job of Slurm.
            return (
                f"{times}; most often memory is short: take more, or let fewer units run at a time (--workers): {why}"
            )
        remedy = "take machines with more memory, or let fewer units run at a time (--workers)"
        return f"{times}, in the end because its machine ran out of memory; {remedy}: {why}"


def set_aside(dataset: Storage, find: Callable[[str], Source | None]) -> dict[str, Failure]:
    """The sources that killed their workers in an earlier job, each with its failure, by id. `find` gives the source of
    an id, None if the job has none.

    Every job tries other failures again, which costs one attempt. A source that kills its workers costs several workers
    each time, and, when memory runs out, other processes of their machines.
    """
    aside = {}
    for source_id, reason in sorted(recorded_failures(dataset).failures):
        source = find(source_id) if WORKER_DIED in reason else None
        if source is not None:
            aside[source_id] = Failure(source_id, source.given, f"{reason}; {_AGAIN}", source.path)
    return aside
