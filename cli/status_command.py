"""`shortgop status`: how far a job is, from any machine that reads the dataset."""

from __future__ import annotations

import dataclasses
import heapq
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from ..errors import NotADatasetError, ShortGopError, UsageError, not_read
from ..storage.interface import Storage, Stored
from ..storage.locate import storage_at
from ..wording import byte_size, counted, duration
from .app import EXIT_FAILED, EXIT_NOT_HEARD_OF, app, err, errors, out
from .parameters import DatasetArgument, JsonOption
from .printing import print_json
from .progress import encoded

if TYPE_CHECKING:
    from ..jobs.progress.job_status import JobStatus, Task
    from ..jobs.progress.node_work import NodeWork

_LOOK_EVERY_SECONDS = 2.0
# A job that wrote nothing for so long is given up, and so is a dataset that cannot be read for so long. A head that
# Kubernetes or Slurm starts again is mostly back by then.
_GIVE_UP_SECONDS = 600.0
# The clocks of two machines may differ. So a status that seems older than that is watched for so long first: a job that
# lives writes it every five seconds.
_WATCH_SECONDS = 30.0
_NODES_SHOWN = 10


@app.command(short_help="Show the progress of a job, or how the last one ended.")
def status(
    dataset: DatasetArgument,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Wait until a job begins, and go on until it ends. Exit status 1: it failed; 4: it was not heard of "
            "for ten minutes.",
        ),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="SECONDS",
            help="With --watch: leave out a job that was over before this time, in seconds since 1970 as `date +%s` "
            "prints them, and wait for the next one. `now` leaves out each that is over already.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of the job that writes to DATASET, or how the last job ended. Works from any machine."""
    with errors():
        after = _second(since, watch=watch)
        storage = storage_at(dataset)
        found = _when_over(storage, _first(storage, after)) if watch else _read(storage)
        if as_json:
            print_json(dataclasses.asdict(found) | {"seconds_left": found.seconds_left, "has_died": found.has_died})
        else:
            for line in status_lines(found, time.time(), _changed(storage, found)):
                out.print_line(line)
        if watch and found.state == "running":
            silence = f"the job was not heard of for {duration(_GIVE_UP_SECONDS)} or more"
            err.print_line(f"error: {silence}; it is dead, or cannot write to the dataset", style="red")
            raise typer.Exit(EXIT_NOT_HEARD_OF)
        if watch and found.state == "ended":
            raise typer.Exit(EXIT_FAILED)


def _second(since: str | None, *, watch: bool) -> float | None:
    """The second that `--since` names, since 1970. None without it; later than any time for `now`."""
    if since is None:
        return None
    if not watch:
        raise UsageError("--since is for --watch; without it the last job is shown, whenever that was")
    if since == "now":
        return math.inf
    try:
        return math.floor(float(since))
    except (ValueError, OverflowError):  # what is no number, nan, inf
        raise UsageError(f"--since {since} is no time; give seconds since 1970, as `date +%s` prints, or now") from None


def _read(storage: Storage) -> JobStatus:
    """ShortGopError if it cannot be read."""
    from ..jobs.progress.job_status import STATUS_KEY, read_status
    from ..manifests.dataset_files.root_file import read_root

    try:
        return read_status(storage)
    except NotADirectoryError:
        # It says what the dataset is instead.
        read_root(storage)
        raise
    except OSError as error:
        raise not_read(storage.place(STATUS_KEY), error) from error


def _first(storage: Storage, after: float | None) -> JobStatus:
    """The status, waited for until there is one. UsageError for a place where no job can write it.

    With `after` it is waited for until it was written after this second, by the clock of the place, or while this
    waits. A job that runs writes it every few seconds, and one that finds nothing to do writes it too. So an older one
    is that of a job that is over or dead.
    """
    try:
        # What cannot be read from the beginning is no store that fails now and then.
        old, found = _look(storage, after)
        if found is not None and (after is None or _is_after(old, after)):
            return found
        err.print_line(f"nothing {'yet' if old is None else 'new yet'} at {storage}: waiting for a job to begin")
        return _next(storage, after, old)
    except NotADatasetError as error:
        # Exit status 1 would say that the job has failed.
        raise UsageError(error.message, file=error.file) from error


def _next(storage: Storage, after: float | None, old: Stored | None) -> JobStatus:
    """The first status that is found from now on; with `after` that of another file than the old one."""
    read = time.monotonic()
    while True:
        time.sleep(_LOOK_EVERY_SECONDS)
        try:
            stored, found = _look(storage, after)
        except NotADatasetError:
            raise
        except ShortGopError:
            if time.monotonic() - read >= _GIVE_UP_SECONDS:
                raise
            continue
        read = time.monotonic()
        if found is not None and (after is None or stored != old):
            return found


def _look(storage: Storage, after: float | None) -> tuple[Stored | None, JobStatus | None]:
    """The status, and its file, which is only looked for with `after`; None where no job has written any."""
    from ..jobs.progress.job_status import NoStatusError

    try:
        # Before the status is read, which may be written in between.
        stored = None if after is None else _stored(storage)
        return stored, _read(storage)
    except NoStatusError:
        return None, None


def _stored(storage: Storage) -> Stored | None:
    """The file of the status; None if there is none. ShortGopError if that cannot be found out."""
    from ..jobs.progress.job_status import STATUS_KEY

    try:
        return storage.find(STATUS_KEY)
    except OSError as error:
        # It says what is there instead.
        _read(storage)
        raise not_read(storage.place(STATUS_KEY), error) from error


def _is_after(stored: Stored | None, after: float) -> bool:
    # Stores know whole seconds alone, and so does `date +%s`: a job that was over within that second came before.
    return stored is not None and stored.modified_ns // 1_000_000_000 > after


def _changed(storage: Storage, found: JobStatus) -> float | None:
    from ..jobs.progress.job_status import status_changed

    return status_changed(storage, found)


def _when_over(storage: Storage, found: JobStatus) -> JobStatus:
    """Show the status until the job is over, and return it. It is that of a running job if that was not heard of for
    long. A status that cannot be read for as long is an error; until then, a store may fail now and then."""
    changed = read = time.monotonic()
    watched = found
    problem: ShortGopError | None = None
    with Live(console=err, auto_refresh=False, transient=True) as live:
        while found.state == "running":
            lines = status_lines(found, time.time(), _changed(storage, found))
            if problem is not None:
                lines.append(f"not read for {duration(round(time.monotonic() - read))}: {problem}")
            live.update(Group(*map(Text, lines)), refresh=True)
            time.sleep(_LOOK_EVERY_SECONDS)
            try:
                latest = _read(storage)
            except ShortGopError as error:
                if time.monotonic() - read >= _GIVE_UP_SECONDS:
                    raise
                problem = error
                continue
            problem, read = None, time.monotonic()
            if latest.written != found.written:
                changed = read
            watched, found = found, latest
            silent_seconds = max(read - changed, time.time() - found.written)
            if silent_seconds >= _GIVE_UP_SECONDS and read - changed >= _WATCH_SECONDS:
                break
    if found.state != "running" and found.written < watched.written:
        err.print_line("the job found nothing to do, and left what the one before it wrote:")
    return found


def status_lines(found: JobStatus, now: float, changed: float | None = None) -> list[str]:
    """What `shortgop status` prints, at the time `now` in seconds since 1970. `changed`: when the status was written by
    the clock of the place."""
    age = found.silent_seconds(now, changed)
    who = f"process {found.pid} on {found.host}"
    if found.state == "running":
        head = f"{who}, running for {duration(found.written - found.started)}, heard of {duration(age)} ago"
        if found.has_died:
            head += ": it has died; the same command goes on from there"
        elif found.may_be_dead(now, changed):
            head += ": it may be dead, unless clocks of machines differ; the same command goes on from there"
    else:
        why = f": {found.reason}" if found.reason else ""
        head = f"{who}, {found.state} {duration(age)} ago, after {duration(found.written - found.started)}{why}"
    failed = f", {found.sources_failed} of them failed" if found.sources_failed else ""
    return [
        head,
        *([f"now: {found.note}"] if found.state == "running" and found.note else []),
        f"{found.sources_done} of {counted(found.sources_total, 'source')} done{failed}{found.there_before()}",
        encoded(found),
        f"{byte_size(found.bytes_in)} of sources became {byte_size(found.bytes_out)}",
        *_nodes(found),
        *([f"{counted(found.units_running, 'unit')} running"] if found.units_running else []),
        *_tasks("running", found.running),
        *_tasks("slowest", found.slowest),
        *_tasks("largest", found.largest),
    ]


def _nodes(found: JobStatus) -> list[str]:
    """A line for each node. If there are many, only the nodes that encoded least: in the last minute while the job
    runs, before and later in the whole job."""
    has_rates = found.state == "running" and not found.pending.is_early
    did = found.node_rates if has_rates else found.nodes
    shown = sorted(found.nodes)
    if len(shown) > _NODES_SHOWN:
        shown = heapq.nsmallest(_NODES_SHOWN, shown, key=lambda node: did.get(node, 0))
    more = len(found.nodes) - len(shown)
    return [
        *(
            f"node {node or 'of this process'}: {counted(found.nodes[node], 'frame')}"
            + (f", {found.node_rates.get(node, 0.0):.0f} frames/s in the last minute" if has_rates else "")
            + (_finished(found.node_work[node]) if node in found.node_work else "")
            for node in shown
        ),
        *([f"and {counted(more, 'node')} that did more: --json lists all"] if more else []),
    ]


def _finished(work: NodeWork) -> str:
    """What became of the units that a node finished."""
    failed = f", {counted(work.sources_failed, 'source')} failed" if work.sources_failed else ""
    became = f"{byte_size(work.bytes_in)} of sources became {byte_size(work.bytes_out)}"
    return f"; {counted(work.units, 'unit')} done{failed}; {became}"


def _tasks(what: str, tasks: Sequence[Task]) -> list[str]:
    return [
        f"{what}: {task.source}, {counted(task.frames, 'frame')} in {duration(task.seconds)}"
        f"{f', {byte_size(task.num_bytes)}' if task.num_bytes else ''}{f', on {task.node}' if task.node else ''}"
        for task in tasks
    ]
