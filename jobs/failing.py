"""When failures end a job, and which sources a job does not try again by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from ..errors import TooManyFailuresError, UsageError
from ..storage.interface import Storage
from ..wording import counted
from .known_failures import said
from .units import Item
from .work import Failure

# Part of the reason of a source that kills whoever works on it.
WORKER_DIED = "its worker died"
_AGAIN = "it was set aside; --retry-failed tries it again"


@dataclass(frozen=True)
class MaxFailures:
    """How many sources may fail before the job ends: `count`, or `percent` of those that the job prepares."""

    count: int | None = None
    percent: Fraction | None = None

    def __str__(self) -> str:
        return f"{float(self.percent):g}%" if self.percent is not None else str(self.count)

    def check(self, failed: int, total: int) -> None:
        """TooManyFailuresError if `failed` of `total` sources are too many."""
        too_many = self.count is not None and failed > self.count
        if self.percent is not None:
            too_many = 100 * failed > self.percent * total
        if too_many:
            raise TooManyFailuresError(
                f"{failed} of {counted(total, 'source')} failed, more than --max-failures {self} allows; what is "
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


def set_aside(dataset: Storage, items: Iterable[Item]) -> dict[str, Failure]:
    """The items that killed their workers in an earlier job, each with its failure, by id.

    Every job tries other failures again, at the cost of one attempt. These cost several workers each time, and what
    else ran on their machines when memory ran out.
    """
    reasons = dict(said(dataset).failures)
    return {
        item.source.id: Failure(
            item.source.id, item.source.given, f"{reasons[item.source.id]}; {_AGAIN}", item.source.path
        )
        for item in items
        if WORKER_DIED in reasons.get(item.source.id, "")
    }
