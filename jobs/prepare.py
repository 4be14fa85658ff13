"""The job: sources into a dataset. Plans the units, runs them, publishes snapshots as results come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..manifests import dataset as files
from ..manifests.errors import DatasetBusyError, OutputError, SourceError, UsageError
from ..manifests.locks import writer_lock
from ..manifests.lost import lost_shards, videos_of_shards, where_it_is
from ..manifests.publish import latest_root, publish, unpublished
from ..manifests.tables import Manifest, empty
from ..manifests.tidy import KEEP_SECONDS, remove_old_snapshots, tidy
from ..prep.encoders import choose_encoder
from ..prep.ffmpeg import find_ffmpeg
from ..prep.probe import estimate_frames
from ..prep.profile import Profile, profile_from_json
from .identity import identity_of
from .repair import LostVideo, changed_failure, lost_videos, with_loss
from .sources import Source, find_sources
from .units import Item, Unit, changed_sources, plan_units
from .work import Failure, UnitProgress, UnitResult, run_unit

# Looking at files is waiting for disks and networks, so more threads than cores.
_LOOK_THREADS = 16
# A snapshot is written whole, so its cost grows with the dataset: this keeps it to a few percent of the job.
_PUBLISH_EVERY_SECONDS = 20.0
_PUBLISH_SHARE = 0.05


@dataclass(frozen=True)
class Where:
    """Where units run: `runner` is "ray" or "inline", one after the other in this process; `address` is that of a Ray
    cluster, a local one is started without it; `workers` bounds how many units run at a time."""

    runner: str = "ray"
    address: str | None = None
    workers: int | None = None


@dataclass(frozen=True)
class Report:
    """What a job came to. `failures` lists every given source that is not in the dataset as it is now.

    `repaired` are the ids of videos that were made again because their shards were missing or damaged, `lost` those of
    videos whose shards still are; `videos_added` counts neither, frames and bytes are all that were written.
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


@dataclass
class Progress:
    """How far the job is. `frames_planned` rests on the sources' headers until each was looked at closely."""

    frames_done: int = 0
    frames_planned: int = 0
    videos_done: int = 0
    videos_planned: int = 0
    failures: list[Failure] = field(default_factory=list)
    note: str = ""


OnUpdate = Callable[[Progress], None]


def _ignore(_progress: Progress) -> None:
    """Nobody watches."""


def prepare(
    sources: Sequence[str],
    out: Path,
    profile: Profile,
    *,
    where: Where | None = None,
    keep_snapshots_seconds: float = KEEP_SECONDS,
    on_update: OnUpdate = _ignore,
) -> Report:
    """Bring `sources` (files, folders, globs, lists) into the dataset at `out`, making it where there is none.

    What is there already is left alone, but for videos in shards that are missing or were cut: those are made again.
    `where` says where the units run, by default on a local Ray. Snapshots that others took the place of longer ago
    than `keep_snapshots_seconds` are removed.

    Raises UsageError for arguments that make no sense, OutputError when the dataset cannot be written, ToolError when
    ffmpeg or an encoder is missing, DatasetBusyError when another job writes to the dataset. Sources that cannot be
    prepared are in the report, and in the dataset.
    """
    found = find_sources(sources)
    return _job(found, out, profile, where or Where(), keep_snapshots_seconds, on_update, _lost_by_length)


def repair(
    sources: Sequence[str],
    dataset: Path,
    verified: Manifest,
    damaged: Mapping[str, str],
    *,
    where: Where | None = None,
    keep_snapshots_seconds: float = KEEP_SECONDS,
    on_update: OnUpdate = _ignore,
) -> Report:
    """Make the `damaged` videos of a dataset again, and nothing else: what is wrong by their ids, as it was found in
    the manifest `verified`. Those of them that are none of `sources` stay as they are.

    Errors are those of `prepare`; UsageError when none of the sources is one of the videos.
    """
    found = [source for source in find_sources(sources) if source.id in damaged]
    if not found:
        names = ", ".join(repr(video_id) for video_id in sorted(damaged)[:3])
        raise UsageError(f"none of the sources is a damaged video, which are {names}{' ...' * (len(damaged) > 3)}")
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

    return _job(found, dataset, profile, where or Where(), keep_snapshots_seconds, on_update, lost)


# What is wrong with videos of a manifest, by their ids.
_FindLost = Callable[[Path, Manifest], Mapping[str, str]]


def _lost_by_length(out: Path, manifest: Manifest) -> dict[str, str]:
    shards = lost_shards(out, manifest)
    return {video_id: shards[name] for video_id, name in videos_of_shards(manifest, shards).items()}


def _job(  # noqa: PLR0917
    found: Sequence[Source],
    out: Path,
    profile: Profile,
    where: Where,
    keep_seconds: float,
    on_update: OnUpdate,
    find_lost: _FindLost,
) -> Report:
    started = time.monotonic()
    progress = Progress()
    # Before anything is written: what no worker could do is found out at once, not by each of them.
    _try_tools(profile, where)
    files.make_folder(out)
    with writer_lock(out):
        if not files.is_dataset(out):
            files.create(out, profile.to_json())
        # What a job that died left finished comes first: a video among it says which profile the dataset has.
        publish(out)
        _bind(out, profile)
        tidy(out, keep_seconds)
        manifest = _current(out)
        lost = lost_videos(manifest, find_lost(out, manifest))
        known = dict(zip(manifest.ids, manifest.videos.identity.tolist(), strict=True))
        progress.note = f"looking at {len(found)} sources"
        on_update(progress)
        items, estimates = _look_at(found, profile, known, lost)
        changed = changed_sources(items, known)
        again = lost.keys() - {item.source.id for item in changed}
        done = {video_id: identity for video_id, identity in known.items() if video_id not in again}
        units = plan_units(items, profile_key=profile.key(), done=done, shard_bytes=profile.shard_bytes)
        state = _State(units, estimates, progress, on_update)
        results: list[UnitResult] = []
        if units:
            results = _run(units, out, profile, where, state, keep_seconds)
        tidy(out, keep_seconds)
        snapshot = files.read_root(out).snapshot
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


def _current(out: Path) -> Manifest:
    snapshot = files.read_root(out).snapshot
    return empty() if snapshot is None else files.open_manifest(out, snapshot)


def _made_again(manifest: Manifest, lost: Mapping[str, LostVideo]) -> set[str]:
    revisions = manifest.videos.revision
    return {video_id for video_id, video in lost.items() if revisions[manifest.row_of(video_id)] >= video.revision}


def existing_profile(out: Path) -> Profile | None:
    """The profile of the dataset at `out`, or None where there is none, or no video in it that would bind it."""
    if not files.is_dataset(out):
        return None
    root = latest_root(out)
    bound = root.snapshot is not None and len(files.open_manifest(out, root.snapshot).videos) > 0
    # Or a job that died left videos that no snapshot has yet.
    bound = bound or any(len(found.videos) for found in unpublished(out, root).values())
    return profile_from_json(root.profile) if bound else None


def _try_tools(profile: Profile, where: Where) -> None:
    """ToolError when ffmpeg is missing, or the encoder or its preset does not run here; a cluster's workers may have
    encoders that this machine lacks."""
    ffmpeg = find_ffmpeg()
    if where.address is None and not os.environ.get("RAY_ADDRESS"):
        choose_encoder(ffmpeg.path, profile)


def _bind(out: Path, profile: Profile) -> None:
    """Make sure that the dataset's profile is this one; one without videos takes whichever comes."""
    known = existing_profile(out)
    if known is None:
        files.set_profile(out, profile.to_json())
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
    sources: Sequence[Source], profile: Profile, known: Mapping[str, int], lost: Mapping[str, LostVideo]
) -> tuple[list[Item], dict[str, int]]:
    """Each source's fingerprint and size, and about how many frames it will have."""

    def look(source: Source) -> tuple[Item, int]:
        revision = lost[source.id].revision if source.id in lost else 0
        try:
            identity, size_bytes = identity_of(source.path)
        except SourceError:
            # One that is in the dataset already may be gone; of another, its unit will record why it failed.
            return Item(source, known.get(source.id, 0), 0, revision), 0
        there = source.id in known and not revision
        frames = 0 if there else estimate_frames(source.path, profile.fps)
        return Item(source, identity, size_bytes, revision), frames

    with ThreadPoolExecutor(_LOOK_THREADS) as pool:
        looked = list(pool.map(look, sources))
    return [item for item, _ in looked], {item.source.id: frames for item, frames in looked}


class _State:
    """Adds up what units report into the job's progress."""

    def __init__(
        self, units: Sequence[Unit], estimates: dict[str, int], progress: Progress, on_update: OnUpdate
    ) -> None:
        self._progress = progress
        self._on_update = on_update
        self._estimates = {unit.id: sum(estimates[item.source.id] for item in unit.items) for unit in units}
        self._frames: dict[str, int] = {}
        progress.videos_planned = sum(len(unit.items) for unit in units)
        progress.frames_planned = sum(self._estimates.values())

    def note(self, text: str) -> None:
        self._progress.note = text
        self._on_update(self._progress)

    def on_progress(self, unit: UnitProgress) -> None:
        self._frames[unit.unit] = unit.frames
        self._estimates[unit.unit] = max(self._estimates.get(unit.unit, 0), unit.planned)
        self._update()

    def on_result(self, result: UnitResult) -> None:
        self._frames[result.unit] = self._estimates[result.unit] = result.frames
        self._progress.videos_done += result.videos
        self._progress.failures.extend(result.failures)
        self._update()

    def _update(self) -> None:
        self._progress.frames_done = sum(self._frames.values())
        self._progress.frames_planned = sum(self._estimates.values())
        self._on_update(self._progress)


def _run(  # noqa: PLR0917
    units: Sequence[Unit],
    out: Path,
    profile: Profile,
    where: Where,
    state: _State,
    keep_seconds: float,
) -> list[UnitResult]:
    results: list[UnitResult] = []
    published, cost = time.monotonic(), 0.0
    try:
        # Closed here, so that Ray is gone before the lock on the dataset is.
        with closing(_results(units, out, profile, where, state)) as finished:
            for result in finished:
                results.append(result)
                state.on_result(result)
                since = time.monotonic() - published
                if len(results) == 1 or since > max(_PUBLISH_EVERY_SECONDS, cost / _PUBLISH_SHARE):
                    start = time.monotonic()
                    publish(out, profile.to_json())
                    remove_old_snapshots(out, keep_seconds)
                    published = time.monotonic()
                    cost = published - start
    except BaseException:
        # Whatever ends the job, what is finished goes in; on a full disk even that may have to wait for the next run.
        with suppress(OutputError, DatasetBusyError):
            publish(out, profile.to_json())
        raise
    publish(out, profile.to_json())
    return results


def _results(
    units: Sequence[Unit],
    out: Path,
    profile: Profile,
    where: Where,
    state: _State,
) -> Generator[UnitResult, None, None]:
    if where.runner == "inline":
        state.note("encoding")
        for unit in units:
            yield run_unit(out, unit, profile, state.on_progress)
        return
    state.note(f"joining the Ray cluster at {where.address}" if where.address else "starting Ray (about ten seconds)")
    from . import ray_runner

    at_a_time = ray_runner.connect(where.address, where.workers)
    try:
        state.note(f"encoding, {at_a_time} at a time")
        yield from ray_runner.run_units(out, units, profile, at_a_time, state.on_progress)
    finally:
        ray_runner.disconnect()
