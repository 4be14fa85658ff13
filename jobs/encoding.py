"""Encoding what a job is to prepare, and meanwhile looking at the sources of the windows that follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError

from ..storage.interface import Storage
from .ahead import planned_ahead
from .deciding import Decided
from .failing import MaxFailures
from .how import How
from .look import Expected, Looking, count_in_stores
from .order import Order
from .planning import plan_window, sort_out
from .progress.tally import Tally
from .running import Totals, run_all
from .source_listing import Listing
from .source_table import SourceWindow
from .survey import Survey, surveyed, there_of, together
from .units import Unit

# So often it is asked whether more sources are found.
_ASK_SECONDS = 0.25

# The units of a window, and what is expected of its sources, by id.
_Plan = tuple[list[Unit], Mapping[str, Expected]]


def encode(listing: Listing, decided: Decided, out: Storage, how: How) -> tuple[Totals, Survey]:
    """Encode what is to be prepared. Returns what came of it, and what became of all sources. The caller holds the
    writer lock."""
    table, tally, known, due = listing.table, how.tally, decided.known, decided.due
    # The sources of the first window take the driver no longer than Ray takes to start.
    looking = Looking(many_sources=how.window_sources // 10)
    there = there_of(known, how.changed)
    surveys: list[Survey] = []
    # The thread that plans sets it. What has changed may have to be prepared, too.
    to_prepare = decided.to_prepare

    def plan(window: SourceWindow, is_over: Callable[[], bool]) -> _Plan:
        rows = table.rows(window)
        new = [row.source for row in rows if row.looked is None]
        num_in_store = count_in_stores(row.source for row in rows)
        looked = looking.look_at(new, how.options, there, num_in_store=num_in_store, is_over=is_over)
        looked += [row.looked for row in rows if row.looked is not None]
        items = [each.item for each in looked]
        sorted_out = sort_out(items, known, how.changed, decided.aside)
        surveys.append(surveyed(items, sorted_out, decided.aside))
        expected = {each.item.source.id: each.expected for each in looked}
        return plan_window(looked, sorted_out, known, how.options), expected

    def plans(is_over: Callable[[], bool]) -> Generator[_Plan]:
        nonlocal to_prepare
        if due is None:
            for window in _while_few_fail(listing.windows(is_over, tally.expect), tally, how.max_failures, is_over):
                yield plan(window, is_over)
            return
        for each in due:
            planned = plan(each.window, is_over)
            to_prepare += surveys[-1].to_prepare - each.to_prepare
            tally.expect(to_prepare)
            yield planned

    num_given = None if due is None else sum(each.window.count for each in due)

    def sources_total() -> int | None:
        """How many sources were given; None while they are still being listed."""
        return tally.sources_total if num_given is None else num_given

    def check(num_failed: int) -> None:
        listing.check()
        if how.max_failures is not None:
            how.max_failures.check(num_failed, sources_total())

    # After the first windows there are units only where sources have changed.
    num_due = sum(each.to_prepare > 0 for each in due or ())
    num_taken = 0
    is_looking = False
    with planned_ahead(plans) as ahead:

        def more(wait: bool) -> Sequence[Unit] | None:
            nonlocal num_taken, is_looking
            while not ahead.is_over:
                if wait and num_due <= num_taken < len(due or ()):
                    tally.note("looking for sources that have changed")
                    is_looking = True
                planned = ahead.take(wait=wait)
                if planned is None:
                    break
                num_taken += 1
                tally.plan(*planned)
                if planned[0]:
                    if is_looking:
                        tally.note("encoding")
                    return planned[0]
            return None if ahead.is_over else ()

        totals = run_all(
            Order(more=more, few_sources=how.window_sources), out, how.options, how.where,
            keep_seconds=how.keep_seconds, tally=tally, looking=looking, check=check,
        )  # fmt: skip
    return totals, together(surveys)


def _while_few_fail(
    windows: Iterable[SourceWindow], tally: Tally, limit: MaxFailures | None, is_over: Callable[[], bool]
) -> Iterator[SourceWindow]:
    """The windows. The next one waits while more of the sources that were found so far have failed than `limit` allows,
    and others are still being found: all of them decide whether the job ends."""
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
