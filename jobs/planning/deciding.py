"""What a job does, decided before it encodes anything: which of its sources the dataset lacks, and whether to go on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...manifests.merging.edits import dropped
from ...manifests.tables import Manifest
from ...storage.interface import Storage
from ..sources.failing import set_aside
from ..sources.listed_columns import update_listed
from ..sources.source_listing import Listing
from ..sources.where_to_look import Looking
from ..units_of_work.unit_results import Failure
from .how import How
from .planning import Known
from .survey import Due, LookingAtMany, Survey, ToLookAt, due, look_at_others, look_first, survey, together

# Finds what is wrong with videos of a manifest, by their ids.
FindLost = Callable[[Storage, Manifest], Mapping[str, str]]


@dataclass(frozen=True)
class Decided:
    """What is known of sources and dataset before anything is encoded. `to_prepare` is how many sources are prepared at
    least, `due` has the windows of all `num_sources` in the order in which they are planned; None while these are
    still being found. `surveyed` is what becomes of sources if nothing is prepared. `aside` are the failures of sources
    that are not tried again, `left_out` the ids of those that were dropped, `relabelled` is how many videos got other
    columns."""

    known: Known
    to_prepare: int
    due: Sequence[Due] | None = None
    surveyed: Survey = field(default_factory=Survey)
    aside: Mapping[str, Failure] = field(default_factory=dict)
    num_sources: int | None = None
    left_out: tuple[str, ...] = ()
    relabelled: int = 0


def decide(
    listing: Listing, out: Storage, before: Manifest, how: How, find_lost: FindLost, *, dry_run: bool = False
) -> Decided:
    """Compare all sources with the dataset as it was before, and let it have the columns that lists name, but for a
    `dry_run`.

    Windows with sources that the dataset lacks come first: whether one of the others has changed is found out while
    these are encoded. Where it lacks none, all sources are looked at here, since most often nothing is to be done.
    """
    table = listing.table
    num_sources, windows = len(table), [*listing.windows()]
    left_out = [] if how.include_dropped else sorted(each for each in dropped(before) if each in table)
    table.remove(left_out)
    known = Known(before, find_lost(out, before))
    with _looking_ahead(how) as looking_at:
        given = ToLookAt(table, windows, known, how.options, how.changed, looking_at, how.tally.note)
        look_first(given)
        aside = {} if how.retry_failed else set_aside(out, table.find)
        planned = sorted(due(table, windows, known, aside), key=lambda each: not each.to_prepare)
        surveys: list[Survey] = []
        if not any(each.to_prepare for each in planned):
            look_at_others(given)
            surveys = list(survey(table, windows, known, how.changed, aside))
            planned = [Due(window, each.to_prepare) for window, each in zip(windows, surveys, strict=True)]
    relabelled = update_listed(out, before, map(table.labels, windows), dry_run=dry_run)
    return Decided(
        known, sum(each.to_prepare for each in planned), planned, together(surveys), aside, num_sources,
        tuple(left_out), relabelled,
    )  # fmt: skip


@contextlib.contextmanager
def _looking_ahead(how: How) -> Iterator[LookingAtMany]:
    """Where sources are looked at before anything is encoded: more than those of two windows on the cluster, if any."""
    looking = Looking(many_sources=how.window_sources // 10)
    with contextlib.ExitStack() as joined:

        def looking_at(num_sources: int) -> Looking:
            if num_sources > 2 * how.window_sources and how.where.cluster is not None and looking.elsewhere is None:
                from ..cluster import ray_looks

                how.tally.note(f"joining the Ray cluster at {how.where.cluster}")
                looking.elsewhere = joined.enter_context(ray_looks.looks_before_encoding(how.where))
            return looking

        yield looking_at
