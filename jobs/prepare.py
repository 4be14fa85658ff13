"""The job that brings sources into a dataset: it plans units, runs them, and publishes snapshots as results come."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import DatasetBusyError, OutputError, SourceError, UsageError
from ..manifests import layout
from ..manifests.lost import lost_shards, where_it_is, why_lost
from ..manifests.publish import latest_root, publish, unpublished, writer_lock
from ..manifests.tables import Manifest, empty
from ..manifests.tidy import KEEP_SECONDS, remove_old_snapshots, tidy
from ..manifests.verify import damaged_videos, verify
from ..prep.encoders import choose_encoder
from ..prep.ffmpeg import find_ffmpeg
from ..prep.mounts import read_in_time
from ..prep.options import DEFAULT_POLICY, Options, SourcePolicy
from ..prep.probe import estimate_frames
from ..prep.profile import Profile, profile_from_json
from ..prep.stalls import REMEDY, StalledError, in_time, stall_limit
from ..wording import counted
from .cluster_address import cluster_address
from .identity import identity_of
from .importing import PLAIN, Importing
from .known_failures import withdraw_gone
from .places import absolute
from .repair import LostVideo, changed_failure, lost_videos, with_loss
from .source_parts import identity_of_part
from .sources import Source, find_sources
from .tally import OnUpdate, Progress, Tally, ignore
from .units import Item, Unit, changed_sources, plan_units
from .work import Failure, UnitResult, run_unit

# Looking at files mostly waits for disks and networks, so there are more threads than cores.
_LOOK_THREADS = 16
# A snapshot is written whole, so its cost grows with the dataset. These keep that cost to a few percent of the job.
_PUBLISH_EVERY_SECONDS = 20.0
_PUBLISH_SHARE = 0.05


@dataclass(frozen=True)
class Where:
    """Where units run. UsageError if the values contradict each other.

    `runner` is "ray", or "inline" for one unit after the other in this process. `address` is that of a Ray cluster,
    HOST:PORT or `auto`. Without it $RAY_ADDRESS counts. Without that, or with `local`, a local Ray is started.
    `workers` bounds how many units run at a time.
    """

    runner: str = "ray"
    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.runner not in ("ray", "inline"):
            raise UsageError(f"--runner is {self.runner!r}; it takes ray or inline")
        if self.workers is not None and (
            isinstance(self.workers, bool) or not isinstance(self.workers, int) or self.workers < 1
        ):
            raise UsageError(f"--workers is {self.workers!r}; it takes a whole number of at least 1")
        if self.runner == "inline" and self.address is not None:
            raise UsageError(
                f"--address {self.address} names a Ray cluster, but --runner inline does not use Ray; leave one out"
            )
        if self.runner == "inline" and self.workers not in (None, 1):
            raise UsageError(
                f"--workers is {self.workers}, but --runner inline runs one unit after the other; leave one out"
            )
        if self.address is not None:
            cluster_address(self.address, {})

    @property
    def cluster(self) -> str | None:
        """The address of the Ray cluster to join, or None. UsageError if $RAY_ADDRESS is not such an address."""
        return cluster_address(self.address, os.environ) if self.runner == "ray" else None


@dataclass(frozen=True)
class Report:
    """The result of a job. `failures` lists every given source whose present content is not in the dataset.

    `repaired` are the ids of videos that were made again because their shards were missing or damaged, `lost` the ids
    of videos whose shards still are. `videos_added` counts neither. `frames_added` and `bytes_added` count all that was
    written.
    """

    sources: int
    already_there: int
    videos_added: int
    frames_added: int
    bytes_added: int
    seconds: float
    failures: tuple[Failure, ...]
    snapshot: str | None
    repaired: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def prepare(
    sources: Sequence[str],
    out: Path,
    profile: Profile,
    *,
    policy: SourcePolicy = DEFAULT_POLICY,
    importing: Importing = PLAIN,
    where: Where | None = None,
    keep_snapshots_seconds: float = KEEP_SECONDS,
    check: bool = False,
    on_update: OnUpdate = ignore,
) -> Report:
    """Bring `sources` (files, folders, globs, lists) into the dataset at `out`, which is made if it does not exist.

    Videos that are in the dataset already are left alone, except those in shards that are missing or were cut: these
    are made again. With `check` all shards are read, and videos whose bytes differ from those that were written are
    made again too. `policy` is about sources that are damaged or have gaps, `importing`
    about what more the columns of lists say. `where` says where the units run, by
    default on a local Ray. Snapshots that have not been current for more than `keep_snapshots_seconds` are removed.

    Raises UsageError for arguments that make no sense, SourceError if the folders of sources do not answer, OutputError
    if the dataset cannot be written, ToolError if ffmpeg or an encoder is missing, DatasetBusyError if another job
    writes to the dataset. Sources that cannot be prepared raise nothing: the report and the dataset list them.
    """
    how = _How(Options(profile, policy), where or Where(), keep_snapshots_seconds, on_update)
    find_lost = _lost_by_bytes if check else _lost_by_length
    return _job(_find(sources, policy, importing), absolute(out), how, find_lost, folders=sources)


def repair(
    sources: Sequence[str],
    dataset: Path,
    verified: Manifest,
    damaged: Mapping[str, str],
    *,
    policy: SourcePolicy = DEFAULT_POLICY,
    importing: Importing = PLAIN,
    where: Where | None = None,
    keep_snapshots_seconds: float = KEEP_SECONDS,
    on_update: OnUpdate = ignore,
) -> Report:
    """Make the `damaged` videos of a dataset again, and no others.

    `damaged` says by id what is wrong with each video, as it was found in the manifest `verified`. Videos that are not
    among `sources` stay as they are. Raises what `prepare` raises, and UsageError if no source is one of the videos.
    """
    found = [source for source in _find(sources, policy, importing) if source.id in damaged]
    if not found:
        names = ", ".join(repr(video_id) for video_id in sorted(damaged)[:3])
        raise UsageError(
            f"none of the sources is a damaged video; give the sources of {names}{' ...' * (len(damaged) > 3)}"
        )
    profile = existing_profile(dataset)
    if profile is None:
        raise UsageError(f"{dataset} has no videos to repair")

    def lost(_dataset: Path, manifest: Manifest) -> dict[str, str]:
        # Another job may have made some of them again meanwhile.
        return {
            video_id: why
            for video_id, why in damaged.items()
            if where_it_is(manifest, video_id) == where_it_is(verified, video_id)
        }

    how = _How(Options(profile, policy), where or Where(), keep_snapshots_seconds, on_update)
    return _job(found, absolute(dataset), how, lost)


# Finds what is wrong with videos of a manifest, by their ids.
_FindLost = Callable[[Path, Manifest], Mapping[str, str]]


def _lost_by_length(out: Path, manifest: Manifest) -> dict[str, str]:
    return why_lost(out, manifest, lost_shards(out, manifest))


def _lost_by_bytes(out: Path, manifest: Manifest) -> dict[str, str]:
    return damaged_videos(manifest, verify(out, manifest)) | _lost_by_length(out, manifest)


@dataclass(frozen=True)
class _How:
    """The settings of a job, other than its sources and its dataset."""

    options: Options
    where: Where
    keep_seconds: float
    on_update: OnUpdate


def _job(found: Sequence[Source], out: Path, how: _How, find_lost: _FindLost, folders: Sequence[str] = ()) -> Report:
    """Run a job. The failures of files that no longer exist in `folders` are withdrawn."""
    started = time.monotonic()
    profile, where = how.options.profile, how.where
    progress = Progress()
    # Tried before anything is written: what fails here would fail in every worker.
    _try_tools(profile, where)
    layout.make_folder(out)
    with writer_lock(out):
        if not layout.is_dataset(out):
            layout.create(out, profile.to_json())
        # Finished parts of a job that died come first: a video among them decides the dataset's profile.
        publish(out)
        _bind(out, profile)
        if withdraw_gone(out, folders, found):
            publish(out)
        tidy(out, how.keep_seconds)
        manifest = _current(out)
        lost = lost_videos(manifest, find_lost(out, manifest))
        known = dict(zip(manifest.ids, manifest.videos.identity.tolist(), strict=True))
        progress.note = f"looking at {counted(len(found), 'source')}"
        how.on_update(progress)
        items, estimates = _look_at(found, how.options, known, lost)
        changed = changed_sources(items, known)
        again = lost.keys() - {item.source.id for item in changed}
        done = {video_id: identity for video_id, identity in known.items() if video_id not in again}
        units = plan_units(items, profile_key=profile.key(), done=done, shard_bytes=profile.shard_bytes)
        state = Tally(units, estimates, progress, how.on_update)
        results: list[UnitResult] = []
        if units:
            results = _run(units, out, how, state)
        tidy(out, how.keep_seconds)
        snapshot = layout.read_root(out).snapshot
        repaired = _made_again(_current(out) if lost else manifest, lost)
    failures = [failure for result in results for failure in result.failures]
    todo = sum(len(unit.items) for unit in units)
    return Report(
        sources=len(found),
        already_there=len(found) - todo - len(changed),
        videos_added=sum(result.videos for result in results) - len(repaired),
        frames_added=sum(result.frames for result in results),
        bytes_added=sum(result.bytes for result in results),
        seconds=time.monotonic() - started,
        failures=(
            *(with_loss(failure, lost) for failure in failures),
            *(changed_failure(item, lost) for item in changed),
        ),
        snapshot=snapshot,
        repaired=tuple(sorted(repaired)),
        lost=tuple(sorted(lost.keys() - repaired)),
    )


def _find(arguments: Sequence[str], policy: SourcePolicy, importing: Importing) -> list[Source]:
    with stall_limit(float(policy.max_stall_seconds)):
        try:
            return in_time(lambda: find_sources(arguments, importing), f"looking for sources in {', '.join(arguments)}")
        except StalledError as error:
            raise SourceError(f"{error.message}: {REMEDY}") from error


def _current(out: Path) -> Manifest:
    snapshot = layout.read_root(out).snapshot
    return empty() if snapshot is None else layout.open_manifest(out, snapshot)


def _made_again(manifest: Manifest, lost: Mapping[str, LostVideo]) -> set[str]:
    revisions = manifest.videos.revision
    return {video_id for video_id, video in lost.items() if revisions[manifest.row_of(video_id)] >= video.revision}


def existing_profile(out: Path) -> Profile | None:
    """The profile of the dataset at `out`. None if there is no dataset, or if no video in it fixes the profile."""
    out = absolute(out)
    if not layout.is_dataset(out):
        return None
    root = latest_root(out)
    bound = root.snapshot is not None and len(layout.open_manifest(out, root.snapshot).videos) > 0
    # A job that died may have left videos that no snapshot has yet.
    bound = bound or any(len(found.videos) for found in unpublished(out, root).values())
    return profile_from_json(root.profile) if bound else None


def _try_tools(profile: Profile, where: Where) -> None:
    """ToolError if ffmpeg is missing, or if the encoder or its preset does not run here. With a cluster the encoder is
    not tried: the cluster's workers may have encoders that this machine lacks."""
    ffmpeg = find_ffmpeg()
    if where.cluster is None:
        choose_encoder(ffmpeg.path, profile)


def _bind(out: Path, profile: Profile) -> None:
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


def _look_at(
    sources: Sequence[Source], options: Options, known: Mapping[str, int], lost: Mapping[str, LostVideo]
) -> tuple[list[Item], dict[str, int]]:
    """Each source with its fingerprint and size, and by id about how many frames it will have."""

    # Stretches of a file share its fingerprint.
    of_file = functools.cache(identity_of)

    def look(source: Source) -> tuple[Item, int]:
        revision = lost[source.id].revision if source.id in lost else 0
        try:
            with stall_limit(float(options.policy.max_stall_seconds)):
                return read_in_time(source.path, lambda: look_closely(source, revision), "looking at it")
        except SourceError:
            # The file of a video in the dataset may be gone. The failure of any other source is recorded by its unit.
            return Item(source, known.get(source.id, 0), 0, revision), 0

    def look_closely(source: Source, revision: int) -> tuple[Item, int]:
        identity, size_bytes = identity_of_part(source.path, source.part, of_file)
        there = source.id in known and not revision
        frames = 0 if there or source.part else estimate_frames(source.path, options.profile.fps)
        return Item(source, identity, size_bytes, revision), frames

    with ThreadPoolExecutor(_LOOK_THREADS) as pool:
        looked = list(pool.map(look, sources))
    return [item for item, _ in looked], {item.source.id: frames for item, frames in looked}


def _run(units: Sequence[Unit], out: Path, how: _How, state: Tally) -> list[UnitResult]:
    profile = how.options.profile.to_json()
    results: list[UnitResult] = []
    published, cost = time.monotonic(), 0.0
    try:
        # Closed here, so that Ray ends before the lock on the dataset is released.
        with closing(_results(units, out, how, state)) as finished:
            for result in finished:
                results.append(result)
                state.on_result(result)
                since = time.monotonic() - published
                if len(results) == 1 or since > max(_PUBLISH_EVERY_SECONDS, cost / _PUBLISH_SHARE):
                    start = time.monotonic()
                    publish(out, profile)
                    remove_old_snapshots(out, how.keep_seconds)
                    published = time.monotonic()
                    cost = published - start
    except BaseException:
        # Finished parts are published, whatever ends the job. On a full disk that may have to wait for the next job.
        with suppress(OutputError, DatasetBusyError):
            publish(out, profile)
        raise
    publish(out, profile)
    return results


def _results(units: Sequence[Unit], out: Path, how: _How, state: Tally) -> Generator[UnitResult, None, None]:
    options, where = how.options, how.where
    if where.runner == "inline":
        state.note("encoding")
        for unit in units:
            yield run_unit(out, unit, options, state.on_progress)
        return
    cluster = where.cluster
    state.note(f"joining the Ray cluster at {cluster}" if cluster else "starting Ray (about ten seconds)")
    from . import ray_runner

    with ray_runner.connected(cluster, where.workers) as at_a_time:
        state.note(f"encoding, {at_a_time} at a time")
        shared = cluster is not None
        yield from ray_runner.run_units(out, units, options, at_a_time, state.on_progress, shared=shared)
