"""The job that brings sources into a dataset: it plans units, runs them, and publishes snapshots as results come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..errors import DatasetBusyError, UsageError
from ..manifests import layout
from ..manifests.edits import dropped, last_number
from ..manifests.equal_contents import equal_contents
from ..manifests.lost import lost_shards, where_it_is, why_lost
from ..manifests.publish import latest_root, publish, unpublished
from ..manifests.snapshots import open_manifest
from ..manifests.tables import Manifest, empty
from ..manifests.tidy import KEEP_SECONDS, tidy
from ..manifests.verify import damaged_videos, verify
from ..prep.ffmpeg import find_ffmpeg
from ..prep.options import DEFAULT_POLICY, Options, SourcePolicy
from ..prep.profile import Profile, profile_from_json
from ..prep.section_plan import SECTION_SECONDS
from ..prep.tool_choice import check_tools
from ..storage.interface import Storage
from ..wording import counted
from .changed import Changed, changed_failure, check_choice, next_revisions, refuse_changed, refuse_two_files
from .failing import MaxFailures, set_aside
from .gpu_readable import not_for_gpus
from .ids import MAX_ROOTS, id_roots
from .importing import PLAIN, Importing
from .known_failures import withdraw_gone
from .known_paths import with_known_ids
from .labels import update_listed, with_known_columns
from .lists import OnTypes, ignore_types
from .look import Expected, look_at, other_files, search
from .outcome import Report, with_context
from .running import run_all
from .sources import Source, find_sources, folders_of
from .tally import OnProgress, Tally, ignore
from .units import Item, Unit, after_edits, changed_sources, long_apart, plan_units, with_costs
from .where import Where
from .work import Failure

__all__ = ["Report", "Where", "existing_profile", "prepare", "repair"]


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
    on_types: OnTypes = ignore_types,
    on_update: OnProgress = ignore,
) -> Report:
    """Bring `sources` (files, folders, globs, lists, URLs) into the dataset at `out`, which is made if there is none.

    Videos that are in the dataset already are left alone, except those in shards that are missing or were cut:
    these are made again. With `check` all shards are read, and videos whose bytes differ from those that were
    written are made again too. `changed` says what to do about sources that have changed since: "keep" the old frames
    and report it, "replace" them in the next snapshot, or "fail" before anything is encoded. Videos that are there get
    the columns that a list names, and keep their others. What was dropped is left out, unless `include_dropped`. With
    more failures than `max_failures` the job ends. A source that failed is tried again by every job, but one that
    killed its workers only with `retry_failed`. `types` gives the types of columns of CSV and TSV lists that are not to
    be inferred, and `on_types` is told all of them. `policy` is about sources that are damaged or have gaps,
    `importing` about what sources are besides files. A source that is expected to keep one core busy for twice
    `section_seconds` or longer is encoded in sections of about that length, by several workers. `where` says where the
    units run, by default on a local Ray. Ids are paths below `id_root`, by default below the folders that the dataset
    remembers, see `ids`. Snapshots that have not been current for more than `keep_snapshots_seconds` are removed.

    Raises UsageError for arguments that make no sense, SourceError if the folders of sources do not answer or with
    "fail", OutputError if the dataset cannot be written, ToolError if ffmpeg or an encoder is missing, DatasetBusyError
    if another job writes to the dataset, TooManyFailuresError. Sources that cannot be prepared raise nothing: the
    report and the dataset list them.
    """
    check_choice(changed)
    find_lost = _lost_by_bytes if check else _lost_by_length
    how = _How(
        Options(profile, policy, section_seconds=section_seconds),
        where or Where(), keep_snapshots_seconds, changed, Tally(on_update), include_dropped,
        max_failures, retry_failed,
    )  # fmt: skip

    def find(roots: Sequence[str]) -> list[Source]:
        return find_sources(sources, roots, importing=importing, types=types, on_types=on_types)

    return _job(_find(sources, out, policy, find, id_root), out, how, find_lost)


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
    among `sources` stay as they are, and so do those whose source has changed. Raises what `prepare` raises, and
    UsageError if no source is one of the videos.
    """
    found = _find(sources, dataset, policy, partial(find_sources, sources, importing=importing))
    # A repair leaves alone what the dataset remembers and lists otherwise.
    ours = [source for source in found.sources if source.id in damaged]
    found = _Found(ours, folders=(), id_roots=found.roots_before, roots_before=found.roots_before)
    if not found.sources:
        names = ", ".join(repr(video_id) for video_id in sorted(damaged)[:3])
        raise UsageError(
            f"none of the sources is a damaged video; give the sources of {names}{' ...' * (len(damaged) > 3)}"
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

    how = _How(Options(profile, policy), where or Where(), keep_snapshots_seconds, "keep", Tally(on_update))
    return _job(found, dataset, how, lost)


# Finds what is wrong with videos of a manifest, by their ids.
_FindLost = Callable[[Storage, Manifest], Mapping[str, str]]


def _lost_by_length(out: Storage, manifest: Manifest) -> dict[str, str]:
    return why_lost(out, manifest, lost_shards(out, manifest))


def _lost_by_bytes(out: Storage, manifest: Manifest) -> dict[str, str]:
    return damaged_videos(manifest, verify(out, manifest)) | _lost_by_length(out, manifest)


@dataclass(frozen=True)
class _How:
    """The settings of a job other than its sources and its dataset, and what adds up its progress."""

    options: Options
    where: Where
    keep_seconds: float
    changed: Changed
    tally: Tally
    include_dropped: bool = False
    max_failures: MaxFailures | None = None
    retry_failed: bool = False


@dataclass(frozen=True)
class _Found:
    """The sources of a job. The failures of files that no longer exist in `folders` are withdrawn. `id_roots` are those
    that gave the sources their ids, `roots_before` those that the dataset remembered at that time."""

    sources: Sequence[Source]
    folders: Sequence[str]
    id_roots: tuple[str, ...]
    roots_before: tuple[str, ...]


@dataclass(frozen=True)
class _Todo:
    """What a job does. `units` make the `repaired` videos, which are lost, the `replaced` ones, whose source has
    changed, and those that are new. `kept` are the sources that have changed and do not replace their videos, `aside`
    are the failures, by id, of those that are not tried again."""

    units: list[Unit]
    repaired: frozenset[str]
    replaced: frozenset[str]
    kept: list[Item]
    aside: Mapping[str, Failure]


def _job(found: _Found, out: Storage, how: _How, find_lost: _FindLost) -> Report:
    profile, tally = how.options.profile, how.tally
    # Tried before anything is written: what fails here would fail in every worker.
    _try_tools(profile, how.where)
    layout.make_place(out)
    with out.lock():
        if not layout.is_dataset(out):
            layout.create(out, profile.to_json())
        # Finished parts of a job that died come first: a video among them decides the dataset's profile.
        publish(out)
        _bind(out, profile)
        if withdraw_gone(out, found.folders, found.sources):
            publish(out)
        tidy(out, how.keep_seconds)
        before = _current(out)
        drops = {} if how.include_dropped else dropped(before)
        left_out = {source.id for source in found.sources} & drops.keys()
        taken = [source for source in found.sources if source.id not in left_out]
        lost = find_lost(out, before)
        tally.note(f"looking at {counted(len(taken), 'source')}")
        known = dict(zip(before.ids, before.videos.identity.tolist(), strict=True))
        items, estimates = _look(taken, before, known, lost, how)
        items = with_known_ids(items, before)
        relabelled = update_listed(out, before, [item.source for item in items])
        before = _current(out) if relabelled else before
        aside = {} if how.retry_failed else set_aside(out, items)
        todo = _plan(items, before, known, lost, estimates, aside, how)
        _remember(out, found)
        tally.plan(todo.units, estimates)
        results = []
        if todo.units:
            results = run_all(
                todo.units, out, how.options, how.where,
                keep_seconds=how.keep_seconds, tally=tally, max_failures=how.max_failures,
            )  # fmt: skip
        tidy(out, how.keep_seconds)
        snapshot = layout.read_root(out).snapshot
        after = _current(out) if todo.units else before
    repaired = _made_again(before, after, todo.repaired)
    replaced = _made_again(before, after, todo.replaced)
    to_prepare = sum(len(unit.items) for unit in todo.units)
    failures = [failure for result in results for failure in result.failures]
    still_lost = lost.keys() - repaired - replaced
    return Report(
        sources=len(found.sources),
        already_there=len(items) - to_prepare - len(todo.kept) - len(todo.aside),
        videos_added=sum(result.videos for result in results) - len(repaired) - len(replaced),
        frames_added=sum(result.frames for result in results),
        bytes_added=sum(result.bytes for result in results),
        seconds=tally.seconds,
        failures=(
            *(with_context(failure, lost, todo.replaced) for failure in failures),
            *(changed_failure(item, lost) for item in todo.kept),
            *todo.aside.values(),
        ),
        snapshot=snapshot,
        repaired=tuple(sorted(repaired)),
        lost=tuple(sorted(still_lost)),
        replaced=tuple(sorted(replaced)),
        outdated=tuple(sorted(todo.replaced.union(item.source.id for item in todo.kept) - replaced - still_lost)),
        relabelled=relabelled,
        dropped=tuple(sorted(left_out)),
        equal_contents=equal_contents(after),
        not_for_gpus=not_for_gpus(after),
    )


def _find(
    arguments: Sequence[str],
    out: Storage,
    policy: SourcePolicy,
    find_below: Callable[[Sequence[str]], list[Source]],
    id_root: str | None = None,
) -> _Found:
    """The sources that `find_below` finds, given the folders that ids are below."""
    roots_before = layout.read_root(out).id_roots if layout.is_dataset(out) else ()

    def find() -> _Found:
        roots = id_roots(roots_before, folders_of(arguments), id_root)
        return _Found(find_below(roots), arguments, roots, roots_before)

    return search(find, arguments, policy)


def _remember(out: Storage, found: _Found) -> None:
    """Let the dataset remember the folders that gave this job's sources their ids. The caller holds the writer lock."""
    if layout.read_root(out).id_roots != found.roots_before:
        raise DatasetBusyError(
            f"another job has prepared other folders into {out} meanwhile, which may change ids; run this again",
            file=out.url,
        )
    layout.set_id_roots(out, found.id_roots[:MAX_ROOTS])


def _look(
    sources: Sequence[Source], manifest: Manifest, known: Mapping[str, int], lost: Mapping[str, str], how: _How
) -> tuple[list[Item], dict[str, Expected]]:
    """The sources as they are now, and by id what is expected of them. `known` has the identities of the
    dataset's videos. UsageError or SourceError if the job should not go on; nothing has been changed then."""
    items, estimates = look_at(sources, how.options, known, lost, replace=how.changed == "replace")
    changed = changed_sources(items, known)
    refuse_two_files(changed, manifest, other_files(how.options.policy))
    if how.changed == "fail":
        refuse_changed(changed)
    return items, estimates


def _plan(  # noqa: PLR0917  # what is known of sources and dataset
    items: Sequence[Item],
    manifest: Manifest,
    known: Mapping[str, int],
    lost: Mapping[str, str],
    expected: Mapping[str, Expected],
    aside: Mapping[str, Failure],
    how: _How,
) -> _Todo:
    """What to do about sources that were looked at just now."""
    changed = changed_sources(items, known)
    ids = frozenset(item.source.id for item in changed)
    replaced = ids if how.changed == "replace" else frozenset[str]()
    repaired = frozenset(lost) - ids
    done = {video_id: identity for video_id, identity in known.items() if video_id not in repaired | replaced}
    done |= dict.fromkeys(aside, 0)
    again = next_revisions(with_known_columns(manifest, items), manifest, repaired | replaced)
    profile_key = how.options.profile.key()
    units = plan_units(
        after_edits(again, last_number(manifest), dropped(manifest)),
        profile_key=profile_key,
        done=done,
        shard_bytes=how.options.profile.shard_bytes,
    )
    seconds = {video_id: each.seconds for video_id, each in expected.items()}
    units = long_apart(units, profile_key, seconds, long_seconds=2 * how.options.section_seconds)
    units = with_costs(units, seconds)
    return _Todo(units, repaired, replaced, [] if replaced else changed, aside)


def _current(out: Storage) -> Manifest:
    snapshot = layout.read_root(out).snapshot
    return empty() if snapshot is None else open_manifest(out, snapshot)


def _made_again(before: Manifest, after: Manifest, ids: frozenset[str]) -> set[str]:
    def revision(manifest: Manifest, video_id: str) -> int:
        return int(manifest.videos.revision[manifest.row_of(video_id)])

    return {video_id for video_id in ids if revision(after, video_id) > revision(before, video_id)}


def existing_profile(out: Storage) -> Profile | None:
    """The profile of the dataset at `out`. None if there is no dataset, or if no video in it fixes the profile."""
    if not layout.is_dataset(out):
        return None
    root = latest_root(out)
    bound = root.snapshot is not None and len(open_manifest(out, root.snapshot).videos) > 0
    # A job that died may have left videos that no snapshot has yet.
    bound = bound or any(len(found.videos) for _, found in unpublished(out, root))
    return profile_from_json(root.profile) if bound else None


def _try_tools(profile: Profile, where: Where) -> None:
    """ToolError if ffmpeg is missing, or if the encoder or its preset does not run here. With a cluster the encoder is
    not tried: the cluster's workers may have encoders that this machine lacks."""
    find_ffmpeg()
    if where.cluster is None:
        check_tools(profile, use_gpu=where.uses_gpus)


def _bind(out: Storage, profile: Profile) -> None:
    """Give a dataset without videos this profile. UsageError if a dataset with videos has another one."""
    known = existing_profile(out)
    if known is None:
        layout.set_profile(out, profile.to_json())
    elif known != profile:
        differences = ", ".join(
            f"{name} {value} there and {profile.to_json()[name]} here"
            for name, value in known.to_json().items()
            if profile.to_json()[name] != value
        )
        raise UsageError(
            f"{out} was prepared with other options ({differences}); leave them out, or choose another --out"
        )
