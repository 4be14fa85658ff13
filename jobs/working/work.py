"""One unit of work: it encodes its sources and commits its shards and its part, in the process that calls it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import OutputError, ShortGopError, SourceError, ToolError
from ...manifests.dataset_files.parts import parts_of_unit, write_part
from ...manifests.dataset_files.publish import has_its_shards
from ...manifests.dataset_files.sections import Unused
from ...manifests.merging.merge import merge
from ...manifests.schema import SCHEMA
from ...manifests.tables import Failures, Manifest, empty, failures_table, shards_table
from ...prep.encode import prepare_video
from ...prep.encode_cuts import CutOut
from ...prep.manifest_rows import Identity
from ...prep.options import Options
from ...prep.shards import Committed, ShardWriter
from ...prep.timing.stretch import Stretch
from ...prep.tools.tool_choice import choose_ffmpeg
from ...storage.interface import Storage
from ..finding.fetched_sources import SourceFile, cut_out, file_of
from ..finding.source_files import options_of
from ..finding.store_files import NoRoomError
from ..sources.known_failures import RecordedFailures, recorded_failures
from ..units_of_work.task_memory import header_bytes
from ..units_of_work.unit_results import Failure, OnProgress, UnitProgress, UnitResult
from ..units_of_work.units import Item, Unit, same_file

_REPORT_EVERY_SECONDS = 0.5


class MoreMemoryError(Exception):
    """The pictures of a source take more memory than was asked for, in all `needed_bytes`."""

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(f"it takes {needed_bytes} bytes")
        self.needed_bytes = needed_bytes


@dataclass(frozen=True)
class Terms:
    """On which terms a step is done. It is handed back where a source takes more memory than `most_bytes` (None: it may
    take any). With `needs_room` it is handed back where this machine has no room for the copy of a source in a store;
    otherwise that is a failure of the source."""

    most_bytes: int | None = None
    needs_room: bool = False


ANY_TERMS = Terms()


def is_of_the_machine(error: Exception, terms: Terms) -> bool:
    """Whether an error of a step concerns every source alike, or the machine: it is raised, and nothing is committed.
    All others are failures of a source."""
    return isinstance(error, OutputError | ToolError | MoreMemoryError) or (
        terms.needs_room and isinstance(error, NoRoomError)
    )


def check_memory(file: SourceFile, options: Options, most_bytes: int | None) -> int | None:
    """How many bytes of memory a source takes, None if its header does not say. MoreMemoryError if these are more than
    `most_bytes` (None: they may be)."""
    needed_bytes = header_bytes(file.header(), options)
    if most_bytes is not None and needed_bytes is not None and needed_bytes > most_bytes:
        raise MoreMemoryError(needed_bytes)
    return needed_bytes


def check_unchanged(file: SourceFile, item: Item) -> None:
    """SourceError if the file of an item is another one than that at which the job looked."""
    # What is empty or cannot be read has no size, and fails for that reason.
    if item.size_bytes:
        file.check_unchanged(item.identity)


@contextlib.contextmanager
def unchanged(file: SourceFile, item: Item) -> Iterator[None]:
    """SourceError if the file is another one when the block begins or ends: it is opened several times, and frames of
    two files may have the same times. At the end also if there was nothing to read when the job looked at it."""
    check_unchanged(file, item)
    yield
    file.check_unchanged(item.identity)


def _looked_at(file: SourceFile, items: Sequence[Item]) -> Sequence[Item]:
    """The items of a file; those that could not be read when the job looked at them are what lies there now, if
    anything does. It may have been copied there since, or its store did not answer."""
    if all(item.identity for item in items):
        return items
    with contextlib.suppress(SourceError):
        found = file.identities([item.source.part for item in items])
        return [
            item if item.identity else replace(item, identity=identity)
            for item, identity in zip(items, found, strict=True)
        ]
    return items


def run_unit(
    dataset: Storage,
    unit: Unit,
    options: Options,
    on_progress: OnProgress,
    file: SourceFile | None = None,
    *,
    terms: Terms = ANY_TERMS,
) -> UnitResult:
    """Prepare a unit's sources and commit them. `file` is that of its only source, where it is open already.

    A source that cannot be prepared becomes a Failure and leaves no bytes. OutputError and ToolError concern every
    source alike: they are raised, and nothing is committed. So are MoreMemoryError, before anything is decoded of the
    source, and NoRoomError, where the `terms` say so.
    """
    committed = committed_result(dataset, unit)
    if committed is not None:
        return committed
    began = time.monotonic()
    ffmpeg = choose_ffmpeg(options.profile, use_gpu=options.use_gpu)
    progress = FrameCount(unit.id, on_progress)
    manifests: list[Manifest] = []
    failures: list[Failure] = []
    with contextlib.closing(ShardWriter(dataset, unit.id, options.profile.shard_bytes)) as shards:
        for items in same_file(unit.items):
            made = _prepared(dataset, items, options, ffmpeg.path, shards, progress, opened=file, terms=terms)
            for item, done in zip(items, made, strict=True):
                if isinstance(done, Manifest):
                    manifests.append(done)
                else:
                    failures.append(failure_of(item, done))
        # The rows of one video are in the form that merging gives, and merging takes time.
        rows = manifests[0] if len(manifests) == 1 else merge(manifests)
        committed = committed_result(dataset, unit)
        if committed is not None:
            return committed
        files = shards.commit()
    rows, unused = in_files(with_revisions(unit, rows), files)
    recorded = _to_record(unit, failures)
    _write(dataset, unit, rows, recorded, profile=options.profile.to_json(), unused=unused)
    progress.report()
    return replace(result_of(unit, rows), failures=tuple(failures), seconds=time.monotonic() - began)


def _prepared(  # noqa: PLR0917  # six unrelated inputs
    dataset: Storage,
    items: Sequence[Item],
    options: Options,
    ffmpeg_path: str,
    shards: ShardWriter,
    progress: FrameCount,
    *,
    opened: SourceFile | None,
    terms: Terms,
) -> Sequence[Manifest | Exception]:
    """The rows of a source, or of several stretches of one file, or the reasons why there are none. Errors of the
    machine are raised."""
    callbacks = {"on_plan": progress.plan, "on_frames": progress.add}
    done: Sequence[Manifest | Exception]
    mark = shards.mark()
    try:
        with file_of(dataset, items[0].source, options.policy, opened) as file:
            items = _looked_at(file, items)
            cuts = [
                CutOut(video_identity(item), item.source.part)
                for item in items
                if isinstance(item.source.part, Stretch)
            ]
            check_unchanged(file, items[0])
            if terms.most_bytes is not None:
                check_memory(file, options, terms.most_bytes)
            if cuts:
                done = cut_out(file, cuts, options, ffmpeg_path, shards, **callbacks)
            else:
                identity, own = video_identity(items[0]), options_of(options, items[0].source)
                done = [prepare_video(file.whole(), identity, own, ffmpeg_path, shards, **callbacks)]
            # What could not be read at all is not waited for once more.
            if items[0].identity or any(isinstance(each, Manifest) for each in done):
                file.check_unchanged(items[0].identity)
    except Exception as error:  # one bad source must not fail the others
        if is_of_the_machine(error, terms):
            raise
        shards.rollback(mark)
        done = [error] * len(items)
    if any(isinstance(each, Manifest) for each in done):
        progress.close_plan()
    else:
        progress.drop_plan()
    return done


def with_revisions(unit: Unit, rows: Manifest) -> Manifest:
    """The rows of a unit's videos with the revision and the last edit of their items."""
    items = {item.source.id: item for item in unit.items}
    ours = [items[video_id] for video_id in rows.ids]
    dtypes = SCHEMA["videos"]
    videos = replace(
        rows.videos,
        revision=np.array([item.revision for item in ours], dtype=dtypes["revision"].dtype),
        after_edit=np.array([item.after_edit for item in ours], dtype=dtypes["after_edit"].dtype),
    )
    return replace(rows, videos=videos)


def in_files(rows: Manifest, files: Mapping[str, Committed]) -> tuple[Manifest, Unused]:
    """The rows with the files that their shards became, and, by file, the bytes that belong to no video. `files` is
    from `ShardWriter.commit`."""
    placed = [files[name] for name in rows.shards.name.texts()]
    unused = {file.name: file.unused for file in files.values() if file.unused is not None}
    return replace(rows, shards=shards_table([(file.name, file.length) for file in placed])), unused


def _write(
    dataset: Storage,
    unit: Unit,
    rows: Manifest,
    recorded: Sequence[Failure],
    *,
    profile: Mapping[str, Any] | None = None,
    unused: Unused | None = None,
) -> None:
    """Write a unit's part: the rows of its videos, and the failures to record. A retry that fails for the same reasons
    writes none, unless they were withdrawn meanwhile."""
    known = recorded_failures(dataset) if recorded else RecordedFailures()
    if len(rows.videos) or any((failure.id, failure.reason) not in known.failures for failure in recorded):
        again = any(failure.id in known.withdrawn for failure in recorded)
        rows = replace(rows, failures=_failures_of(known, recorded))
        write_part(dataset, unit.id, rows, profile, unused=unused, again=again)


def _to_record(unit: Unit, failures: Sequence[Failure]) -> list[Failure]:
    """The failures to record. A video that could not be made again is not among them, since its old rows are in the
    dataset."""
    there = {item.source.id for item in unit.items if item.revision and not item.dropped}
    return [failure for failure in failures if failure.id not in there]


def video_identity(item: Item) -> Identity:
    source = item.source
    return Identity(source.id, source.given, source.path, source.attributes, item.identity)


def committed_result(dataset: Storage, unit: Unit) -> UnitResult | None:
    """The result of the unit if it was committed before, else None. Its worker may have died after committing, or
    another attempt was faster.

    Its shards must not be written again then: not every encoder writes the same bytes twice.
    """
    attempts = (rows for rows, _ in parts_of_unit(dataset, unit.id))
    done = next((rows for rows in attempts if len(rows.videos) and has_its_shards(dataset, rows)), None)
    return None if done is None else replace(result_of(unit, done), was_there=True)


def result_of(unit: Unit, rows: Manifest) -> UnitResult:
    failed = rows.failures
    return UnitResult(
        unit=unit.id,
        videos=len(rows.videos),
        frames=int(rows.videos.num_frames.sum()),
        bytes=int(rows.shards.length.sum()),
        failures=tuple(
            Failure(failed.id.text(row), failed.source.text(row), failed.reason.text(row), failed.path.text(row))
            for row in range(len(failed))
        ),
    )


def give_up(dataset: Storage, unit: Unit, reason: str) -> UnitResult:
    """Commit a unit of which no source could be prepared. `reason` is the reason of each failure."""
    failures = tuple(Failure(item.source.id, item.source.given, reason, item.source.path) for item in unit.items)
    recorded = _to_record(unit, failures)
    _write(dataset, unit, empty(), recorded)
    return UnitResult(unit=unit.id, videos=0, frames=0, bytes=0, failures=failures)


def _failures_of(known: RecordedFailures, failures: Sequence[Failure]) -> Failures:
    return failures_table(
        [
            (failure.id, failure.source, failure.reason, known.time_of_new_row(failure.id), failure.path)
            for failure in failures
        ]
    )


def failure_of(item: Item, error: Exception) -> Failure:
    if isinstance(error, SourceError):
        reason = error.message
    elif isinstance(error, ShortGopError):
        reason = str(error)
    else:
        reason = f"{item.source.path}: unexpected {type(error).__name__}: {error}"
    return Failure(item.source.id, item.source.given, reason, item.source.path)


class FrameCount:
    """Adds up a unit's frames and reports them from time to time."""

    def __init__(self, unit: str, on_progress: OnProgress, section: int | None = None) -> None:
        self._unit = unit
        self._section = section
        self._on_progress = on_progress
        self._frames = 0
        self._planned = 0
        self._planned_now = 0
        self._reported = 0.0

    def plan(self, frames: int) -> None:
        # Called again if a source is planned anew; the last call counts.
        self._planned += frames - self._planned_now
        self._planned_now = frames
        self.report()

    def close_plan(self) -> None:
        self._planned_now = 0

    def drop_plan(self) -> None:
        self._planned -= self._planned_now
        self._planned_now = 0

    def add(self, frames: int) -> None:
        self._frames += frames
        if time.monotonic() - self._reported >= _REPORT_EVERY_SECONDS:
            self.report()

    def report(self) -> None:
        self._reported = time.monotonic()
        self._on_progress(UnitProgress(self._unit, self._frames, self._planned, self._section, is_own=True))
