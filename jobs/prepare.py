"""The job that brings sources into a dataset: it plans units, runs them, and publishes snapshots as results come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice

from ..errors import DatasetBusyError, ShortGopError, UnreadableDataError, UsageError
from ..manifests.dataset_files import root_file
from ..manifests.dataset_files.in_place import changing
from ..manifests.dataset_files.publish import publish
from ..manifests.dataset_files.snapshots import open_manifest
from ..manifests.dataset_files.tidy import KEEP_SECONDS, tidy
from ..manifests.operations.column_changes import column_changes, not_asked_for
from ..manifests.operations.lost import lost_shards, where_it_is, why_lost
from ..manifests.operations.verify import damaged_videos, verify
from ..manifests.shared_memory.host_copies import copies_in
from ..manifests.tables import Manifest, empty
from ..prep.options import DEFAULT_POLICY, Options, SourcePolicy
from ..prep.profile import Profile
from ..prep.section_plan import SECTION_SECONDS
from ..storage import outages
from ..storage.interface import Storage
from .dataset_profile import begin_dataset, existing_profile
from .dry_run import dry_run as run_dry
from .encoding import encode
from .finding.ids import id_of_place
from .finding.importing import PLAIN, Importing
from .finding.source import Found
from .finding.sources import found_in
from .finding.typed_lines import OnTypes, ignore_types
from .job_report import report_of
from .outcome import Report
from .planning.deciding import Decided, FindLost, decide
from .planning.how import How
from .planning.planning import Known
from .preflight import refuse_own_memory, try_cluster, try_tools
from .progress.status_file import job_followed
from .progress.tally import OnProgress, Tally, ignore
from .running import Totals
from .sources.changed import Changed, check_choice
from .sources.failing import MaxFailures
from .sources.known_failures import withdraw_gone
from .sources.known_paths import KnownPaths
from .sources.listed_columns import update_listed
from .sources.source_listing import Listing, list_first
from .sources.source_table import SourceTable
from .units_of_work.where import Where
from .units_of_work.windows import WINDOW_SOURCES

__all__ = ["Report", "Where", "prepare", "repair"]


@dataclass(frozen=True, eq=False)
class _Snapshot:
    """The current snapshot of a dataset. `name` is None before the first one."""

    name: str | None
    manifest: Manifest


def prepare(
    sources: Sequence[str],
    out: Storage,
    profile: Profile,
    *,
    policy: SourcePolicy = DEFAULT_POLICY,
    importing: Importing = PLAIN,
    where: Where | None = None,
    keep_snapshots_seconds: float = KEEP_SECONDS,
    check: bool = False,
    changed: Changed = "keep",
    id_root: str | None = None,
    include_dropped: bool = False,
    max_failures: MaxFailures | None = None,
    retry_failed: bool = False,
    types: Mapping[str, str] | None = None,
    section_seconds: float = SECTION_SECONDS,
    window_sources: int = WINDOW_SOURCES,
    dry_run: bool = False,
    on_types: OnTypes = ignore_types,
    on_update: OnProgress = ignore,
) -> Report:
    """Bring `sources` (files, folders, globs, lists, URLs) into the dataset at `out`, which is made if there is none.

    Videos that are in the dataset already are left alone, except those in shards that are missing or were cut:
    these are made again. With `check` all shards are read, and videos whose bytes differ from those that were
    written are made again too. `changed` says what to do about sources that have changed since: "keep" the old frames
    and report it, "replace" them in the next snapshot, or "fail" before anything is encoded. Videos that are there get
    the columns that a list names, and keep their others. What was dropped is left out, unless `include_dropped`. The
    job ends with more failures than `max_failures`. Every job tries a source again that failed, but one that killed its
    workers only with `retry_failed`. `types` gives the types of columns of CSV and TSV lists that are not to be
    inferred, and `on_types` is told all of them. `policy` is about sources that are damaged or have gaps,
    `importing` about what sources are besides files. A source that is expected to keep one core busy for twice
    `section_seconds` or longer is encoded in sections of about that length, by several workers. Sources are looked at,
    and their units planned, `window_sources` at a time, while those before them are encoded. Windows whose videos the
    dataset has already come last. Sources of a new dataset are encoded while others are still being found.
    `where` says where the units run, by default on a local Ray.
    Ids are paths below `id_root`, by default below the folders that the dataset remembers, see `ids`. Snapshots that
    have not been current for more than `keep_snapshots_seconds` are removed. A `dry_run` changes nothing, and its
    report says what the job would do.

    Raises UsageError for arguments that make no sense, SourceError if the folders of sources do not answer or with
    "fail", OutputError if the dataset cannot be written, ToolError if ffmpeg or an encoder is missing, DatasetBusyError
    if another job writes to the dataset, TooManyFailuresError. Sources that cannot be prepared raise nothing: the
    report and the dataset list them.
    """
    check_choice(changed)
    find_lost = _lost_by_bytes if check else _lost_by_length
    how = How(
        Options(profile, policy, section_seconds=section_seconds),
        where or Where(), keep_snapshots_seconds, changed, Tally(on_update), include_dropped,
        max_failures, retry_failed, window_sources,
    )  # fmt: skip

    def find(roots: Sequence[str]) -> Iterator[Found]:
        known = _known_in(out)
        numbered = {root: age for age, root in enumerate(roots)}
        told = replace(
            importing,
            # A file of a corpus that was moved lies at another place, and has the same id.
            columns_at=lambda place: known().columns_at(place) or known().columns_of(id_of_place(numbered, place)),
            are_there=lambda places: known().are_there(places),
        )
        return found_in(sources, roots, importing=told, types=types, on_types=on_types)

    with SourceTable() as table:
        listing = list_first(table, sources, out, policy, find, window_sources, id_root)
        if dry_run:
            return run_dry(listing, out, how, find_lost)
        report = _job(listing, sources, out, how, find_lost)
        return replace(report, text_columns=not_asked_for(report.text_columns, types))


def repair(
    sources: Sequence[str],
    dataset: Storage,
    verified: Manifest,
    damaged: Mapping[str, str],
    *,
    policy: SourcePolicy = DEFAULT_POLICY,
    importing: Importing = PLAIN,
    where: Where | None = None,
    keep_snapshots_seconds: float = KEEP_SECONDS,
    on_update: OnProgress = ignore,
) -> Report:
    """Make the `damaged` videos of a dataset again, and no others.

    `damaged` says by id what is wrong with each video, as it was found in the manifest `verified`. Videos that are not
    among `sources` stay as they are, and so do those whose source has changed. All videos keep their columns, whatever
    a list among `sources` says. Raises what `prepare` raises, and UsageError if no source is one of the videos.
    """

    def find(roots: Sequence[str]) -> Iterator[Found]:
        for found in found_in(sources, roots, importing=importing):
            # The list may be older than what `annotate` has set since.
            yield found._replace(source=found.source._replace(attributes="{}"))

    with SourceTable() as table:
        listing = list_first(table, sources, dataset, policy, find, WINDOW_SOURCES)
        listing.complete()
        table.keep_only(damaged.keys())
        # A repair leaves alone what the dataset remembers and lists otherwise.
        listing.id_roots = listing.roots_before
        if not len(table):
            names = ", ".join(repr(video_id) for video_id in sorted(damaged)[:3])
            raise UsageError(
                f"none of the sources is a damaged video; give the sources of {names}{' ...' * (len(damaged) > 3)}, "
                "and --cuts, --list-root and --image-fps as prep was given them"
            )
        profile = existing_profile(dataset)
        if profile is None:
            raise UsageError(f"{dataset} has no videos to repair")

        def lost(_dataset: Storage, manifest: Manifest) -> dict[str, str]:
            # Another job may have made some of them again meanwhile.
            return {
                video_id: why
                for video_id, why in damaged.items()
                if where_it_is(manifest, video_id) == where_it_is(verified, video_id)
            }

        how = How(Options(profile, policy), where or Where(), keep_snapshots_seconds, "keep", Tally(on_update))
        return _job(listing, (), dataset, how, lost)


def _known_in(out: Storage) -> Callable[[], KnownPaths]:
    """What gives the files that the dataset has. It opens the dataset when it is first called. Where that cannot be
    done there are none: the job will say why."""

    @cache
    def known() -> KnownPaths:
        with suppress(ShortGopError, OSError):
            if root_file.is_dataset(out):
                return KnownPaths(_current(out).manifest)
        return KnownPaths(empty())

    return known


def _lost_by_length(out: Storage, manifest: Manifest) -> dict[str, str]:
    return why_lost(out, manifest, lost_shards(out, manifest))


def _lost_by_bytes(out: Storage, manifest: Manifest) -> dict[str, str]:
    problems = []
    for problem in verify(out, manifest):
        # As for `why_lost`, it is no reason to make videos again.
        if problem.is_unread:
            raise UnreadableDataError(
                f"{problem}; if the file stays unreadable, remove it, and its videos are made again", file=problem.file
            )
        problems.append(problem)
    return damaged_videos(manifest, problems) | _lost_by_length(out, manifest)


def _job(listing: Listing, arguments: Sequence[str], out: Storage, how: How, find_lost: FindLost) -> Report:
    """Prepare the sources of a listing. The failures of files that no longer exist in the folders among `arguments` are
    withdrawn."""
    table, tally = listing.table, how.tally
    refuse_own_memory(out, how.where)
    # Tried before anything is written: what fails here would fail in every worker.
    try_tools(how.options.profile, how.where)
    is_there = root_file.is_dataset(out)
    if not is_there:
        try_cluster(how.where)
    root_file.make_place(out)
    with changing(out) if is_there else out.lock():
        begin_dataset(out, how.options.profile)
        # All that the dataset has is compared with the sources before anything is encoded.
        compares = root_file.read_root(out).snapshot is not None
        with job_followed(out, tally, at_once=compares) as job, outages.waited_for():
            if compares:
                if not listing.is_complete:
                    tally.note("finding all sources")
                listing.complete()
            if withdraw_gone(out, arguments, table):
                publish(out)
            tidy(out, how.keep_seconds)
            before = _current(out)
            decided = _decided(listing, out, before.manifest, how, find_lost)
            _remember(out, listing)
            tally.expect(decided.to_prepare, lists_more=not listing.is_complete)
            if decided.due is not None:
                # Without those that were dropped or set aside.
                tally.expect_among(len(table) - len(decided.aside))
            totals, survey = Totals(), decided.surveyed
            if decided.to_prepare:
                job.encodes()
                totals, survey = encode(listing, decided, out, how)
            _update_labelled_later(listing, out, how.window_sources)
            tidy(out, how.keep_seconds)
            snapshot = root_file.read_root(out).snapshot
            # Where nothing was encoded, nothing has been published since.
            manifest = _current(out).manifest if decided.to_prepare else decided.known.manifest
            mixed, became_text, hiding = column_changes(out, (before.name, before.manifest), snapshot)
    num_sources = len(table) if decided.num_sources is None else decided.num_sources
    return report_of(
        decided,
        survey,
        totals,
        how,
        snapshot=snapshot,
        manifest=manifest,
        num_sources=num_sources,
        mixed=mixed,
        became_text=became_text,
        hiding=hiding,
    )


def _decided(listing: Listing, out: Storage, before: Manifest, how: How, find_lost: FindLost) -> Decided:
    if not listing.is_complete:
        # The dataset has nothing that a source could be compared with.
        return Decided(Known(before, {}), len(listing.table))
    decided = decide(listing, out, before, how, find_lost)
    if decided.relabelled:
        return replace(decided, known=Known(_current(out).manifest, decided.known.lost))
    return decided


def _update_labelled_later(listing: Listing, out: Storage, window_sources: int) -> None:
    """Give videos the columns that lists have for them, where these were found after the videos' units were planned."""
    later = listing.table.labelled_later()
    first = list(islice(later, window_sources))
    if first:
        others = iter(lambda: list(islice(later, window_sources)), [])
        update_listed(out, _current(out).manifest, chain([first], others))


def _remember(out: Storage, listing: Listing) -> None:
    """Let the dataset remember the folders that gave this job's sources their ids. The caller holds the writer lock."""
    known, new = root_file.read_root(out).id_roots, listing.id_roots[: root_file.MAX_ID_ROOTS]
    # Of the same folders another job has made the same ids.
    if known not in (listing.roots_before, new):
        raise DatasetBusyError(
            f"another job has prepared other folders into {out} meanwhile, which may change ids; run this again",
            file=out.url,
        )
    root_file.set_id_roots(out, new)


def _current(out: Storage) -> _Snapshot:
    name = root_file.read_root(out).snapshot
    return _Snapshot(name, empty() if name is None else open_manifest(out, name, copies=copies_in(None)))
