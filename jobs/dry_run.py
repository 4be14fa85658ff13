"""What a job would do: the sources are found, compared with the dataset and planned as a job does it. Nothing is
written, and no Ray is started."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace

from ..errors import ShortGopError
from ..manifests.tables import Manifest
from ..storage.interface import Storage
from .outcome import Planned, Report
from .planning.deciding import FindLost, decide
from .planning.how import How
from .planning.survey import together
from .planning.window_plans import WindowPlan, WindowPlanner
from .progress.job_status import read_status
from .progress.tally import Tally, ignore
from .sources.changed import changed_failure
from .sources.source_listing import Listing
from .sources.where_to_look import Looking
from .units_of_work.unit_results import Failure


def dry_run(
    listing: Listing, out: Storage, how: How, find_lost: FindLost, *, snapshot: str | None, before: Manifest
) -> Report:
    """The report of a job that was not run. `before` is what the dataset has in its current `snapshot`; nothing of it
    where there is no dataset yet. What a job has finished that died before it published that counts as not done."""
    how.tally.note("finding all sources")
    listing.complete()
    # Without a dataset there are no failures that could be set aside.
    how = replace(how, retry_failed=how.retry_failed or snapshot is None)
    decided = decide(listing, out, before, how, find_lost, dry_run=True)
    # The number of frames is not yet told here as progress: none of them will be done.
    planner = WindowPlanner(
        listing, decided, replace(how, tally=Tally(ignore)), Looking(many_sources=how.window_sources)
    )
    plans = list(planner.plans(bool))
    survey, lost = together(plan.survey for plan in plans), decided.known.lost
    planned, unreadable = _planned(plans)
    planned = replace(
        planned,
        made_again=len(survey.replaced | lost.keys() & _ids(plans)),
        replaced=tuple(sorted(survey.replaced)),
        seconds=_seconds(out, planned.frames),
        bytes=_bytes(before, planned.frames),
    )
    return Report(
        sources=len(listing.table) + len(decided.left_out),
        already_there=survey.there,
        videos_added=0,
        frames_added=0,
        bytes_added=0,
        seconds=how.tally.seconds,
        failures=(
            *unreadable,
            *(changed_failure(item, lost) for item in survey.kept),
            *decided.aside.values(),
        ),
        snapshot=snapshot,
        lost=tuple(sorted(lost.keys() - _ids(plans))),
        outdated=tuple(item.source.id for item in survey.kept),
        relabelled=decided.relabelled,
        dropped=decided.left_out,
        planned=planned,
    )


def _ids(plans: Iterable[WindowPlan]) -> set[str]:
    return {item.source.id for plan in plans for unit in plan.units for item in unit.items}


def _planned(plans: Iterable[WindowPlan]) -> tuple[Planned, list[Failure]]:
    """The sums of what the plans would prepare, and the sources that cannot be looked at."""
    unreadable: list[Failure] = []
    silent: list[str] = []
    # Several videos may be stretches of one file.
    sizes: dict[tuple[str, str], int] = {}
    sources = frames = with_frames = 0
    for plan in plans:
        without_frames = []
        for item in (item for unit in plan.units for item in unit.items):
            source, expected = item.source, plan.expected[item.source.id]
            if expected.problem:
                unreadable.append(Failure(source.id, source.given, expected.problem, source.path))
                continue
            sizes[source.file] = item.size_bytes
            sources, frames = sources + 1, frames + expected.frames
            if expected.frames:
                with_frames += 1
            else:
                without_frames.append(source.id)
        # Of a window with too many files in stores no header was read.
        if any(each.frames for each in plan.expected.values()):
            silent += without_frames
    return Planned(sources, sum(sizes.values()), frames, with_frames, tuple(sorted(silent))), unreadable


def _seconds(out: Storage, frames: int) -> float | None:
    with contextlib.suppress(ShortGopError, OSError):
        history = [each for each in read_status(out).history if each.frames > 0]
        if history:
            return frames * sum(each.seconds for each in history) / sum(each.frames for each in history)
    return None


def _bytes(before: Manifest, frames: int) -> int | None:
    there = int(before.videos.num_frames.sum())
    return int(frames * int(before.gops.length.sum()) / there) if there else None
