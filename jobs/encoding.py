"""Encoding what a job is to prepare.

Two threads do it. One plans window after window, see `window_plans`. The main thread, in which all of this module runs,
takes a plan when it needs more units, runs these and publishes their results.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..storage.interface import Storage
from .planning.ahead import Ahead, planned_ahead
from .planning.deciding import Decided
from .planning.how import How
from .planning.survey import Due, Survey, together
from .planning.window_plans import WindowPlan, WindowPlanner
from .progress.tally import Tally
from .running import Totals, run_all
from .sources.source_listing import Listing
from .sources.where_to_look import Looking
from .units_of_work.order import Order
from .units_of_work.units import Unit


def encode(listing: Listing, decided: Decided, out: Storage, how: How) -> tuple[Totals, Survey]:
    """Encode what is to be prepared. Returns what came of it, and what became of all sources. The caller holds the
    writer lock."""
    tally = how.tally
    # The sources of the first window take the driver no longer than Ray takes to start.
    looking = Looking(many_sources=how.window_sources // 10)

    def check(num_failed: int) -> None:
        listing.check()
        if how.max_failures is not None:
            # None while sources are still being found.
            num_sources = tally.sources_total if decided.num_sources is None else decided.num_sources
            how.max_failures.check(num_failed, num_sources)

    with planned_ahead(WindowPlanner(listing, decided, how, looking).plans) as ahead:
        planned = _PlannedUnits(ahead, decided.due or (), tally)
        totals = run_all(
            Order(more=planned.take, few_sources=how.window_sources), out, how.options, how.where,
            keep_seconds=how.keep_seconds, tally=tally, looking=looking, check=check,
        )  # fmt: skip
    return totals, together(planned.surveys)


class _PlannedUnits:
    """The units of windows in the order in which these are planned. `due` are all windows, if they are known. `surveys`
    say what becomes of the sources of the windows that were taken."""

    def __init__(self, ahead: Ahead[WindowPlan], due: Sequence[Due], tally: Tally) -> None:
        self.surveys: list[Survey] = []
        self._ahead = ahead
        self._tally = tally
        self._num_windows = len(due)
        # The others come last, and have units only where sources have changed.
        self._num_lacking = sum(each.to_prepare > 0 for each in due)
        self._is_looking = False

    def take(self, wait: bool) -> Sequence[Unit] | None:
        """The units of the next window that has any; an empty sequence if it is not planned yet, None if there is none.
        With `wait` it waits for one."""
        while not self._ahead.is_over:
            if wait and self._num_lacking <= len(self.surveys) < self._num_windows:
                self._tally.note("looking for sources that have changed")
                self._is_looking = True
            plan = self._ahead.take(wait=wait)
            if plan is None:
                break
            self.surveys.append(plan.survey)
            self._tally.plan(plan.units, plan.expected)
            if plan.units:
                if self._is_looking:
                    self._tally.note("encoding")
                return plan.units
        return None if self._ahead.is_over else ()
