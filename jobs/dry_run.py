"""What a job would do: the sources are found, compared with the dataset and planned as a job does it. Nothing is
written, and no Ray is started."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..errors import ShortGopError
from ..manifests.dataset_files import root_file
from ..manifests.dataset_files.in_place import writing_in_place
from ..manifests.dataset_files.snapshots import open_manifest
from ..manifests.shared_memory.host_copies import copies_in
from ..manifests.tables import empty
from ..storage.interface import Storage
from ..wording import counted
from .dataset_profile import refuse_other_profile
from .job_report import report_of
from .outcome import Planned, Report
from .planning.deciding import FindLost, decide
from .planning.how import How
from .planning.survey import Survey, together
from .planning.window_plans import WindowPlan, WindowPlanner
from .preflight import refuse_own_memory, try_tools
from .progress.job_status import read_status
from .progress.tally import Tally, ignore
from .running import Totals
from .sources.source_listing import Listing
from .sources.where_to_look import Looking
from .units_of_work.unit_results import Failure
from .units_of_work.units import BytesOfFiles


def dry_run(listing: Listing, out: Storage, how: How, find_lost: FindLost) -> Report:
    """The report of a job that was not run. What a job has finished that died before it published that counts as not
    done. Raises what ends a job before it encodes anything."""
    refuse_own_memory(out, how.where)
    try_tools(how.options.profile, how.where)
    is_there = root_file.is_dataset(out)
    with writing_in_place(out) if is_there else contextlib.nullcontext():
        root_file.make_place(out, dry_run=True)
    refuse_other_profile(out, how.options.profile)
    snapshot = root_file.read_root(out).snapshot if is_there else None
    before = empty() if snapshot is None else open_manifest(out, snapshot, copies=copies_in(None))
    how.tally.note("finding all sources")
    listing.complete()
    # Without a dataset there are no failures that could be set aside.
    how = replace(how, retry_failed=how.retry_failed or snapshot is None)
    decided = decide(listing, out, before, how, find_lost, dry_run=True)
    # No progress counts the frames: none of them is encoded.
    planner = WindowPlanner(listing, decided, replace(how, tally=Tally(ignore)), Looking(how.window_sources))
    sums = _Sums(decided.known.lost)
    for plan in planner.plans(bool):
        sums.add(plan)
        seen = sum(each.to_prepare + each.there + len(each.kept) for each in sums.surveys)
        how.tally.note(f"planning; {seen} of {counted(len(listing.table), 'source')}")
    survey = together(sums.surveys)
    report = report_of(
        decided,
        # None of those that would be replaced is one that failed to be.
        replace(survey, replaced=frozenset()),
        Totals(failures=sums.unreadable),
        how,
        snapshot=snapshot,
        manifest=before,
        num_sources=decided.num_sources or 0,
        mixed=(),
        became_text=(),
        hiding=(),
    )
    return replace(
        report,
        lost=tuple(each for each in report.lost if each not in sums.again),
        planned=Planned(
            sources=sums.sources,
            source_bytes=sums.source_bytes.total,
            frames=sums.frames,
            sources_with_frames=sums.with_frames,
            silent=tuple(sorted(sums.silent)),
            made_again=len(survey.replaced | sums.again),
            replaced=tuple(sorted(survey.replaced)),
            bytes=_bytes_as_before(out, sums.source_bytes.total),
        ),
    )


@dataclass
class _Sums:
    """What the windows of a job would prepare. A large corpus has a thousand windows, and memory holds one. `lost` says
    what is wrong with the lost videos of the dataset; those of `again` would be made again. `unreadable` are sources
    that cannot be looked at."""

    lost: Mapping[str, str]
    surveys: list[Survey] = field(default_factory=list)
    again: set[str] = field(default_factory=set)
    unreadable: list[Failure] = field(default_factory=list)
    source_bytes: BytesOfFiles = field(default_factory=BytesOfFiles)
    silent: list[str] = field(default_factory=list)
    sources: int = 0
    frames: int = 0
    with_frames: int = 0

    def add(self, plan: WindowPlan) -> None:
        self.surveys.append(plan.survey)
        for item in (item for unit in plan.units for item in unit.items):
            source, expected = item.source, plan.expected[item.source.id]
            if expected.problem:
                self.unreadable.append(Failure(source.id, source.given, expected.problem, source.path))
                continue
            self.again |= {source.id} & self.lost.keys()
            self.source_bytes.add(item)
            self.sources, self.frames = self.sources + 1, self.frames + expected.frames
            self.with_frames += bool(expected.frames or expected.seconds)
            if expected.is_silent:
                self.silent.append(source.id)


def _bytes_as_before(out: Storage, source_bytes: int) -> int | None:
    """How many bytes the jobs before would have made of so many bytes of sources; None if they made none. How long it
    would take is not said: of a job of some sources most is the start of Ray and of its workers."""
    with contextlib.suppress(ShortGopError, OSError):
        # Of sources that all failed nothing was made.
        history = [each for each in read_status(out).history if each.bytes_in and each.bytes_out]
        if history:
            return source_bytes * sum(each.bytes_out for each in history) // sum(each.bytes_in for each in history)
    return None
