"""Running a job's units, here or on Ray, and publishing snapshots as their results come."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace

from ..errors import DatasetBusyError, OutputError
from ..manifests.dataset_files.publish import publish
from ..manifests.dataset_files.tidy import remove_old_snapshots
from ..prep.options import Options
from ..storage.interface import Storage
from .look import Looking
from .order import Order
from .progress.job_status import status_left
from .progress.status_board import StatusBoard, status_kept
from .progress.tally import Tally
from .step_work import run_step
from .unit_results import Failure, UnitResult
from .where import Where

# A snapshot is written whole, so its cost grows with the dataset. These keep it to a fiftieth of the job.
_PUBLISH_EVERY_SECONDS = 20.0
_PUBLISH_SHARE = 0.02


@dataclass(frozen=True)
class Totals:
    """The sums of the results of units."""

    videos: int = 0
    frames: int = 0
    bytes: int = 0
    failures: Sequence[Failure] = ()


@contextmanager
def job_followed(out: Storage, tally: Tally, *, at_once: bool) -> Iterator[Callable[[], None]]:
    """Keeps the status of the job in the dataset until the block ends. Yields the function that says that the job has
    something to encode.

    The status begins `at_once`, or where an earlier job left one: otherwise that job would seem to be the last one, or
    to be dead, while this one finds its sources and compares them. Elsewhere it begins with the first thing to encode.
    A job that finds nothing to do after a finished one leaves the status of that one, which says more. The caller holds
    the writer lock.
    """
    file, earlier = status_left(out)
    is_kept = has_work = False

    def put_back() -> bytes | None:
        return file if earlier is not None and earlier.state == "finished" and not has_work else None

    with ExitStack() as kept:

        def keep() -> None:
            nonlocal is_kept
            if not is_kept:
                is_kept = True
                board = StatusBoard((), earlier=() if earlier is None else earlier.history)
                tally.tell(board)
                kept.enter_context(status_kept(out, board, put_back=put_back))

        def work() -> None:
            nonlocal has_work
            has_work = True
            keep()

        if at_once or file is not None:
            keep()
        yield work


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
    profile = options.profile.to_json()
    results = videos = frames = num_bytes = 0
    failures: list[Failure] = []
    published, cost = time.monotonic(), 0.0
    try:
        # Closed here, so that Ray ends before the lock on the dataset is released.
        with closing(_results(order, out, options, where, tally, looking)) as finished:
            for result in finished:
                results += 1
                videos, frames, num_bytes = videos + result.videos, frames + result.frames, num_bytes + result.bytes
                failures += result.failures
                tally.on_result(result)
                check(len(failures))
                since = time.monotonic() - published
                if results == 1 or since > max(_PUBLISH_EVERY_SECONDS, cost / _PUBLISH_SHARE):
                    start = time.monotonic()
                    publish(out, profile)
                    remove_old_snapshots(out, keep_seconds)
                    published = time.monotonic()
                    cost = published - start
        # The last result may have come before all sources were found.
        check(len(failures))
    except BaseException:
        # Finished parts are published, whatever ends the job. On a full disk that may have to wait for the next job.
        with suppress(OutputError, DatasetBusyError):
            publish(out, profile)
        raise
    publish(out, profile)
    return Totals(videos, frames, num_bytes, failures)


def _results(  # noqa: PLR0917  # what `run_all` was given
    order: Order, out: Storage, options: Options, where: Where, tally: Tally, looking: Looking
) -> Generator[UnitResult, None, None]:
    # Filled here once, so that progress begins with the totals of the first units.
    order.fill(wait=True)
    if where.runner == "inline":
        yield from _results_here(order, out, replace(options, use_gpu=where.uses_gpus), tally)
    else:
        yield from _results_on_ray(order, out, options, where, tally, looking)


def _results_here(order: Order, out: Storage, options: Options, tally: Tally) -> Generator[UnitResult, None, None]:
    """The results of the units, which run in this process, one after the other."""
    tally.note("encoding")
    while order.fill(wait=True):
        step = order.next()
        result = order.done(step, run_step(out, step, options, tally.on_progress))
        if result is not None:
            yield result


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
