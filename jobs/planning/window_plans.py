"""Plans the windows of a job, one after the other: looks at their sources, and divides what is to be done into units.

This runs in the thread of `ahead`, while the main thread encodes earlier windows. What it finds goes to the main thread
in a WindowPlan, which nobody changes. Besides, it tells the tally how many sources to expect. The main thread tells it
through the tally how many sources have failed, and through `looking` that machines have joined.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass

from ..sources.look import Expected, count_in_stores
from ..sources.source_listing import Listing
from ..sources.source_table import SourceWindow
from ..sources.where_to_look import Looking
from ..units_of_work.units import Unit
from .deciding import Decided
from .how import How
from .planning import plan_window, sort_out
from .survey import Survey, surveyed, there_of

# So often it is asked whether more sources are found.
_ASK_SECONDS = 0.25


@dataclass(frozen=True)
class WindowPlan:
    """The units of a window, what is expected of its sources, by id, and what becomes of them."""

    units: Sequence[Unit]
    expected: Mapping[str, Expected]
    survey: Survey


@dataclass(frozen=True, eq=False)
class WindowPlanner:
    """Plans the windows of a job; `looking` says where their sources are looked at."""

    listing: Listing
    decided: Decided
    how: How
    looking: Looking

    def plans(self, is_over: Callable[[], bool]) -> Generator[WindowPlan]:
        """The plans of all windows. Those of a new dataset come while its sources are still being found. CancelledError
        as soon as `is_over` says that nobody waits for them."""
        decided, tally = self.decided, self.how.tally
        if decided.due is None:
            for window in self._while_few_fail(self.listing.windows(is_over, tally.expect), is_over):
                yield self._plan(window, is_over)
            return
        # What has changed may have to be prepared, too.
        to_prepare = decided.to_prepare
        for each in decided.due:
            plan = self._plan(each.window, is_over)
            to_prepare += plan.survey.to_prepare - each.to_prepare
            tally.expect(to_prepare)
            yield plan

    def _plan(self, window: SourceWindow, is_over: Callable[[], bool]) -> WindowPlan:
        how, known, aside = self.how, self.decided.known, self.decided.aside
        rows = self.listing.table.rows(window)
        looked = self.looking.look_at(
            [row.source for row in rows if row.looked is None], how.options, there_of(known, how.changed),
            num_in_store=count_in_stores(row.source for row in rows), is_over=is_over,
        )  # fmt: skip
        looked += [row.looked for row in rows if row.looked is not None]
        items = [each.item for each in looked]
        sorted_out = sort_out(items, known, how.changed, aside)
        return WindowPlan(
            plan_window(looked, sorted_out, known, how.options),
            {each.item.source.id: each.expected for each in looked},
            surveyed(items, sorted_out, aside),
        )

    def _while_few_fail(self, windows: Iterable[SourceWindow], is_over: Callable[[], bool]) -> Iterator[SourceWindow]:
        """The windows. The next one waits while more of the sources that were found so far have failed than the job
        allows, and others are still being found: all of them decide whether the job ends."""
        tally, limit = self.how.tally, self.how.max_failures
        for window in windows:
            while (
                limit is not None
                and tally.sources_total is None
                and limit.is_exceeded(tally.sources_failed, tally.sources_found)
            ):
                if is_over():
                    raise CancelledError
                time.sleep(_ASK_SECONDS)
            yield window
