"""What a job would do: the sources are found, compared with the dataset and planned as a job does it. Nothing is
written, and no Ray is started."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import TooManyFailuresError
from ..manifests.dataset_files import root_file
from ..manifests.dataset_files.in_place import writing_in_place
from ..manifests.dataset_files.snapshots import open_manifest
from ..manifests.operations.stored_bytes import live_bytes
from ..manifests.shared_memory.host_copies import copies_in
from ..manifests.tables import Manifest, empty
from ..prep.timing.stretch import Stretch
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
from .progress.job_status import JobStatus, status_changed, status_left
from .progress.tally import Tally, ignore
from .running import Totals
from .sources.failing import MaxFailures
from .sources.known_failures import recorded_failures
from .sources.source_listing import Listing
from .sources.where_to_look import Looking
from .units_of_work.unit_results import Failure
from .units_of_work.units import BytesOfFiles
from .units_of_work.where import Where


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
    # Without a job that encodes, joining a cluster costs more than looking at sources here.
    decided = decide(listing, out, before, replace(how, where=Where("inline")), find_lost, dry_run=True)
    # No progress counts the frames: none of them is encoded.
    planner = WindowPlanner(listing, decided, replace(how, tally=Tally(ignore)), Looking(how.window_sources))
    failed_before = {failed for failed, _ in recorded_failures(out).failures} if is_there else set[str]()
    sums, seen = _Sums(decided.known.lost, failed_before), 0
    for plan in planner.plans(bool):
        sums.add(plan)
        seen += plan.survey.to_prepare + plan.survey.there + len(plan.survey.kept)
        how.tally.note(f"planning; {seen} of {counted(len(listing.table) - len(decided.aside), 'source')}")
    num_sources = decided.num_sources or 0
    _refuse_too_many(how.max_failures, sums.unreadable, num_sources)
    survey, (_, job) = together(sums.surveys), status_left(out)
    report = report_of(
        decided,
        # None of those that would be replaced is one that failed to be.
        replace(survey, replaced=frozenset()),
        Totals(failures=sums.unreadable),
        how,
        snapshot=snapshot,
        manifest=before,
        num_sources=num_sources,
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
            failed_before=tuple(sorted(sums.failed_before)),
            made_again=len(survey.replaced | sums.again),
            replaced=tuple(sorted(survey.replaced)),
            bytes=_bytes_as_before(job, before, sums),
            job_runs=_runs(out, job),
        ),
    )


@dataclass
class _Sums:
    """What the windows of a job would prepare. A large corpus has a thousand windows, and memory holds one. `lost` says
    what is wrong with the lost videos of the dataset; those of `again` would be made again. `failed_ids` are the
    failures that the dataset records. `unreadable` are sources that cannot be looked at."""

    lost: Mapping[str, str]
    failed_ids: Collection[str]
    surveys: list[Survey] = field(default_factory=list)
    again: set[str] = field(default_factory=set)
    unreadable: list[Failure] = field(default_factory=list)
    source_bytes: BytesOfFiles = field(default_factory=BytesOfFiles)
    silent: list[str] = field(default_factory=list)
    failed_before: list[str] = field(default_factory=list)
    sources: int = 0
    frames: int = 0
    with_frames: int = 0
    has_stretches: bool = False

    def add(self, plan: WindowPlan) -> None:
        self.surveys.append(plan.survey)
        for item in (item for unit in plan.units for item in unit.items):
            source, expected = item.source, plan.expected[item.source.id]
            if expected.problem:
                self.unreadable.append(Failure(source.id, source.given, expected.problem, source.path))
                continue
            self.again |= {source.id} & self.lost.keys()
            self.source_bytes.add(item)
            self.has_stretches |= isinstance(source.part, Stretch)
            self.sources, self.frames = self.sources + 1, self.frames + expected.frames
            self.with_frames += bool(expected.frames or expected.seconds)
            if expected.is_silent:
                self.silent.append(source.id)
            if source.id in self.failed_ids:
                self.failed_before.append(source.id)


def _refuse_too_many(limit: MaxFailures | None, failures: Sequence[Failure], num_sources: int) -> None:
    """TooManyFailuresError if already those failures end the job that are known before anything is encoded."""
    if limit is not None and limit.is_exceeded(len(failures), num_sources):
        raise TooManyFailuresError(
            f"{len(failures)} of {counted(num_sources, 'source')} cannot be prepared, more than --max-failures {limit} "
            f"allows, {failures[0].id} for one: {failures[0].reason}; a dry run without --max-failures names them all"
        )


def _bytes_as_before(job: JobStatus | None, before: Manifest, sums: _Sums) -> int | None:
    """How many bytes the jobs before would have made of these sources; None if they made none. It goes by the bytes of
    sources. Where there are stretches it goes by the frames of the dataset: the bytes of a file do not say how much of
    it is taken. Sources whose frames are not known count as the others do. How long it would take is not said: of a job
    of some sources most is the start of Ray and of its workers."""
    frames = int(before.first_frames[-1])
    if sums.has_stretches and sums.frames > 0 and frames > 0:
        # The history has frames of which nothing was made: they count while they are encoded, also in a job that died.
        return sums.frames * sums.sources // sums.with_frames * int(live_bytes(before).sum()) // frames
    # Of sources that all failed nothing was made. The bytes of a file of several units are in the stretch of the first.
    history = [each for each in (() if job is None else job.history) if each.bytes_out]
    bytes_in = sum(each.bytes_in for each in history)
    return sums.source_bytes.total * sum(each.bytes_out for each in history) // bytes_in if bytes_in else None


def _runs(out: Storage, job: JobStatus | None) -> bool:
    """Whether a job writes to the dataset, as far as its status tells."""
    if job is None or job.state != "running" or job.has_died:
        return False
    return not job.may_be_dead(time.time(), status_changed(out, job))
