"""Which of the waiting checks comes next, by what came of the last one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from check_report import Check, Outcome


def following(check: Check, outcome: Outcome, waiting: Sequence[Check]) -> list[Check]:
    """The waiting checks in the order in which they are to run.

    Where a check failed, what explains it is next: there may be no second look at this machine. Where one hung, those
    that go the same ways are last: they may hang too, each for all of its time, and that time is the others'. Where a
    check that goes several ways hung, it is not known which one hangs, and only those that go all of them are last.
    """
    first = [each for each in waiting if outcome.result == "failed" and each.explains == check.name]
    ways = set(check.ways)
    last = [each for each in waiting if outcome.hung and ways and ways <= set(each.ways) and each not in first]
    between = [each for each in waiting if each not in first and each not in last]
    return [*first, *between, *last]
