"""Running a job's units, here or on Ray, and publishing snapshots as their results come."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ShortGopError
from ..manifests.dataset_files.publish import publish
from ..manifests.dataset_files.tidy import remove_old_snapshots
from ..prep.options import Options
from ..storage import outages
from ..storage.interface import Storage
from .progress.tally import Tally
from .sources.where_to_look import Looking
from .units_of_work.order import Order
from .units_of_work.steps import Outcome, Step
from .units_of_work.unit_results import Failure, UnitProgress, UnitResult
from .units_of_work.where import Where
from .working.step_work import run_step

_PUBLISH_EVERY_SECONDS = 20.0
_PUBLISH_SHARE = 0.02


@dataclass(frozen=True)
class Totals:
    """The sums of the results of units."""

    videos: int = 0
    frames: int = 0
    bytes: int = 0
    failures: Sequence[Failure] = ()


def run_all(
    order: Order,
    out: Storage,
    options: Options,
    where: Where,
    *,
    keep_seconds: float,
    tally: Tally,
    looking: Looking,
    check: Callable[[int], None],
) -> Totals:
    """Run the units and publish their results, whatever ends the job. The caller holds the writer lock.

    `looking` gets the machines that can look at sources. Snapshots that have not been current for more than
    `keep_seconds` are removed meanwhile. `check` gets the number of sources that have failed after each result and at
    the end. What it raises ends the job, as do OutputError, ToolError and DatasetBusyError.
    """
    publisher = _Publisher(out, options.profile.to_json(), keep_seconds)
    videos = frames = num_bytes = 0
    failures: list[Failure] = []
    try:
        # Closed here, so that Ray ends before the lock on the dataset is released. What ends the job also ends waits
        # for the store, of the publication below too.
        with closing(_results(order, out, options, where, tally, looking)) as finished, outages.waited_for():
            for result in finished:
                videos, frames, num_bytes = videos + result.videos, frames + result.frames, num_bytes + result.bytes
                failures += result.failures
                tally.on_result(result)
                check(len(failures))
                publisher.publish_if_due()
        # The last result may have come before all sources were found.
        check(len(failures))
    except BaseException:
        # Finished parts are published, whatever ends the job. On a full disk, or where the store does not answer, that
        # waits for the next job.
        with suppress(ShortGopError):
            publisher.publish()
        raise
    publisher.publish()
    return Totals(videos, frames, num_bytes, failures)


class _Publisher:
    """Publishes snapshots while results come: the first result at once, and others so rarely that it takes no more than
    a fiftieth of the job. A snapshot is written whole, so its cost grows with the dataset."""

    def __init__(self, out: Storage, profile: Mapping[str, Any], keep_seconds: float) -> None:
        self._out = out
        self._profile = profile
        self._keep_seconds = keep_seconds
        self._last_ended: float | None = None
        self._last_took_seconds = 0.0

    def publish_if_due(self) -> None:
        began = time.monotonic()
        pause_seconds = max(_PUBLISH_EVERY_SECONDS, self._last_took_seconds / _PUBLISH_SHARE)
        if self._last_ended is None or began - self._last_ended > pause_seconds:
            self.publish()
            remove_old_snapshots(self._out, self._keep_seconds)
            self._last_ended = time.monotonic()
            self._last_took_seconds = self._last_ended - began

    def publish(self) -> None:
        publish(self._out, self._profile)


def _results(  # noqa: PLR0917  # what `run_all` was given
    order: Order, out: Storage, options: Options, where: Where, tally: Tally, looking: Looking
) -> Generator[UnitResult, None, None]:
    # Filled here once, so that progress begins with the totals of the first units.
    order.fill(wait=True)
    if where.runner == "inline":
        yield from _results_here(order, out, replace(options, use_gpu=where.uses_gpus), tally)
    else:
        yield from _results_on_ray(order, out, options, where, tally, looking)


class _ToldToEnd(BaseException):
    """Carries what the caller's function for progress raised, which ends the job. An Exception that leaves the work on
    a source is taken for a failure of that source."""

    def __init__(self, raised: Exception) -> None:
        self.raised = raised


def _results_here(order: Order, out: Storage, options: Options, tally: Tally) -> Generator[UnitResult, None, None]:
    """The results of the units, which run in this process, one after the other."""
    tally.note("encoding")
    while order.fill(wait=True):
        step = order.next()
        result = order.done(step, _outcome_here(out, step, options, tally))
        if result is not None:
            yield result


def _outcome_here(out: Storage, step: Step, options: Options, tally: Tally) -> Outcome:
    def on_progress(report: UnitProgress) -> None:
        try:
            tally.on_progress(report)
        except Exception as error:
            raise _ToldToEnd(error) from error

    try:
        return run_step(out, step, options, on_progress)
    except _ToldToEnd as told:
        raised = told.raised
    # Here, and not above, so that it keeps what it says of its cause.
    raise raised


def _results_on_ray(  # noqa: PLR0917  # like `_results`
    order: Order, out: Storage, options: Options, where: Where, tally: Tally, looking: Looking
) -> Generator[UnitResult, None, None]:
    cluster = where.cluster
    tally.note(f"joining the Ray cluster at {cluster}" if cluster else "starting Ray (about ten seconds)")
    from .cluster import progress_boards, ray_connection, ray_looks, ray_runner

    shared = cluster is not None
    looking.is_joining = True
    with (
        ray_connection.connected(cluster, where.workers, where.streams_per_gpu) as ask_slots,
        ray_looks.looks_on_cluster(ask_slots) as look,
        progress_boards.progress_board(shared=shared) as board,
    ):

        def on_note(text: str) -> None:
            tally.note(text)
            # Ray has the first units by now, and they get cores before what is to be looked at for later ones.
            looking.elsewhere = look

        yield from ray_runner.run_units(
            out, order, options, ask_slots, board, tally.on_all_progress,
            on_split=tally.on_split, on_note=on_note, shared=shared,
        )  # fmt: skip
