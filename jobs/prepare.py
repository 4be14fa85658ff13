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
from ..manifests.errors import OutputError, SourceError, UsageError
from ..prep.encoders import choose_encoder
from ..prep.ffmpeg import find_ffmpeg
from ..prep.options import DEFAULT_POLICY, Options, SourcePolicy
from ..prep.probe import estimate_frames
from ..prep.profile import Profile, profile_from_json
from ..prep.stalls import REMEDY, StalledError, in_time, stall_limit
from .cluster_address import cluster_address
from .identity import identity_of
from .known_failures import withdraw_gone
from .places import absolute
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
    cluster, HOST:PORT or `auto`; without it $RAY_ADDRESS counts, and without that, or with `local`, a local Ray is
    started; `workers` bounds how many units run at a time. UsageError when these make no sense together."""

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
                f"--address {self.address} names a Ray cluster and --runner inline does without Ray; leave one out"
            )
        if self.runner == "inline" and self.workers not in (None, 1):
            raise UsageError(
                f"--workers is {self.workers} and --runner inline does one unit after the other; leave one out"
            )
        if self.address is not None:
            cluster_address(self.address, {})

    @property
    def cluster(self) -> str | None:
        """The address of the Ray cluster to join, None for none; UsageError when $RAY_ADDRESS is no such address."""
        return cluster_address(self.address, os.environ) if self.runner == "ray" else None


@dataclass(frozen=True)
class Report:
    """What a job came to. `failures` lists every given source that is not in the dataset as it is now."""

    sources: int
    already_there: int
    videos_added: int
    frames_added: int
    bytes_added: int
    seconds: float
    failures: tuple[Failure, ...]
    snapshot: str | None


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
    policy: SourcePolicy = DEFAULT_POLICY,
    where: Where | None = None,
    on_update: OnUpdate = _ignore,
) -> Report:
    """Bring `sources` (files, folders, globs, lists) into the dataset at `out`, making it where there is none.

    What is there already is left alone. `policy` is about sources that are damaged or have gaps; `where` says where
    the units run, by default on a local Ray.
    Raises UsageError for arguments that make no sense, SourceError when their folders do not answer, OutputError when
    the dataset cannot be written, ToolError when ffmpeg or an encoder is missing. Sources that cannot be prepared are
    in the report, and in the dataset.
    """
    started = time.monotonic()
    where = where or Where()
    # Workers have another working directory, or another home.
    out = absolute(out)
    progress = Progress()
    found = _find(sources, policy)
    # Before anything is written: what no worker could do is found out at once, not by each of them.
    _try_tools(profile, where)
    if not files.is_dataset(out):
        files.create(out, profile.to_json())
    with files.writer_lock(out):
        _bind(out, profile)
        files.publish(out)
        if withdraw_gone(out, sources, found):
            files.publish(out)
        done = _identities(out)
        progress.note = f"looking at {len(found)} sources"
        on_update(progress)
        items, estimates = _look_at(found, profile, policy, done)
        changed = changed_sources(items, done)
        units = plan_units(items, profile_key=profile.key(), done=done, shard_bytes=profile.shard_bytes)
        state = _State(units, estimates, progress, on_update)
        results: list[UnitResult] = []
        if units:
            results = _run(units, out, Options(profile, policy), where, state)
        snapshot = files.read_root(out).snapshot
    failures = tuple(
        [failure for result in results for failure in result.failures]
        + [
            Failure(
                item.source.id,
                item.source.given,
                f"{item.source.given} has changed since it was prepared; its frames in the dataset are the old ones: "
                "prepare it into a new dataset, or under another id in a list",
                item.source.path,
            )
            for item in changed
        ]
    )
    todo = sum(len(unit.items) for unit in units)
    return Report(
        sources=len(found),
        already_there=len(found) - todo - len(changed),
        videos_added=sum(result.videos for result in results),
        frames_added=sum(result.frames for result in results),
        bytes_added=sum(result.bytes for result in results),
        seconds=time.monotonic() - started,
        failures=failures,
        snapshot=snapshot,
    )


def _find(arguments: Sequence[str], policy: SourcePolicy) -> list[Source]:
    with stall_limit(float(policy.max_stall_seconds)):
        try:
            return in_time(lambda: find_sources(arguments), f"looking for sources in {', '.join(arguments)}")
        except StalledError as error:
            raise SourceError(f"{error.message}: {REMEDY}") from error


def existing_profile(out: Path) -> Profile | None:
    """The profile of the dataset at `out`, or None where there is none, or no video in it that would bind it."""
    out = absolute(out)
    if not files.is_dataset(out):
        return None
    root = files.read_root(out)
    bound = root.snapshot is not None and len(files.open_manifest(out, root.snapshot).videos) > 0
    return profile_from_json(root.profile) if bound or _unpublished_videos(out, root) else None


def _unpublished_videos(out: Path, root: files.Root) -> bool:
    """Whether a job that died left videos that no snapshot has yet."""
    parts = files.finished_parts(out) if root.snapshot is None else set()
    return any(len(files.read_part(out, part).videos) for part in parts)


def _try_tools(profile: Profile, where: Where) -> None:
    """ToolError when ffmpeg is missing, or the encoder or its preset does not run here; a cluster's workers may have
    encoders that this machine lacks."""
    ffmpeg = find_ffmpeg()
    if where.cluster is None:
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


def _identities(out: Path) -> dict[str, int]:
    snapshot = files.read_root(out).snapshot
    if snapshot is None:
        return {}
    manifest = files.open_manifest(out, snapshot)
    files.check_shard_lengths(out, manifest)
    return dict(zip(manifest.ids, manifest.videos.identity.tolist(), strict=True))


def _look_at(
    sources: Sequence[Source], profile: Profile, policy: SourcePolicy, done: Mapping[str, int]
) -> tuple[list[Item], dict[str, int]]:
    """Each source's fingerprint and size, and about how many frames it will have."""

    def look(source: Source) -> tuple[Item, int]:
        try:
            with stall_limit(float(policy.max_stall_seconds)):
                return in_time(lambda: look_closely(source), "looking at it")
        except SourceError:
            # One that is in the dataset already may be gone; of another, its unit will record why it failed.
            return Item(source, done.get(source.id, 0), 0), 0

    def look_closely(source: Source) -> tuple[Item, int]:
        identity, size_bytes = identity_of(source.path)
        frames = 0 if source.id in done else estimate_frames(source.path, profile.fps)
        return Item(source, identity, size_bytes), frames

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


def _run(
    units: Sequence[Unit],
    out: Path,
    options: Options,
    where: Where,
    state: _State,
) -> list[UnitResult]:
    results: list[UnitResult] = []
    published, cost = time.monotonic(), 0.0
    try:
        # Closed here, so that Ray is gone before the lock on the dataset is.
        with closing(_results(units, out, options, where, state)) as finished:
            for result in finished:
                results.append(result)
                state.on_result(result)
                since = time.monotonic() - published
                if len(results) == 1 or since > max(_PUBLISH_EVERY_SECONDS, cost / _PUBLISH_SHARE):
                    start = time.monotonic()
                    files.publish(out)
                    published = time.monotonic()
                    cost = published - start
    except BaseException:
        # Whatever ends the job, what is finished goes in; on a full disk even that may have to wait for the next run.
        with suppress(OutputError):
            files.publish(out)
        raise
    files.publish(out)
    return results


def _results(
    units: Sequence[Unit],
    out: Path,
    options: Options,
    where: Where,
    state: _State,
) -> Generator[UnitResult, None, None]:
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
