"""Ray for as long as a job lasts: a local one that is started for it, or a cluster that it joins."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import ray
from ray._private import utils
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from ...errors import ShortGopError, ToolError
from ...machine_cpus import cpus_to_run_on
from ...machine_memory import machine_memory_bytes, memory_limit_bytes
from ...storage.scratch import remove_copies_of_ending
from ...wording import byte_size, plain
from ..finding.plain_values import valid_text
from ..units_of_work.gpu_slots import Slots, slots_of, with_machines
from .asking import PatientQuestion, head_patience_seconds
from .cluster_machines import AskSlots
from .ray_first_driver import PATIENCE_SECONDS, answered
from .ray_login import login_to_cluster, login_to_own, restored_login
from .ray_start import NotStartedError, another, patient_start

LOST = (WorkerCrashedError, NodeDiedError, OutOfMemoryError, ObjectLostError)
"""The errors of a task whose worker, machine or result is lost. Jobs let Ray retry no task (max_retries=0): one whose
worker its memory monitor has killed it would retry without end, unless the cluster is told otherwise."""

# A job's own Ray looks at itself for a dashboard and for other nodes that it does not have: 3 % of a core in all
# (benchmarks/idle_ray.py). These environment variables make it do so more rarely. Ray ignores those that it does not
# know.
_RARE_LOOKS = {
    # Measuring its processes (ray/dashboard/modules/reporter/reporter_consts.py), and sending what its programs count.
    "REPORTER_UPDATE_INTERVAL_MS": "60000",
    "METRICS_RECORD_INTERVAL_S": "60",
    "EVENT_AGENT_REPORT_INTERVAL_SECONDS": "5",
    "RAY_metrics_report_interval_ms": "60000",
    # Looking for new log files, although the driver asked for none: ten times a second. The interval holds from so many
    # files on (ray/_private/log_monitor.py).
    "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0",
    "LOG_NAME_UPDATE_INTERVAL_S": "60",
    # Looking whether a cluster should grow, and telling the other nodes what is free here.
    "AUTOSCALER_UPDATE_INTERVAL_S": "60",
    "RAY_gcs_pull_resource_loads_period_milliseconds": "5000",
    "RAY_raylet_report_resources_period_milliseconds": "1000",
    # Looking for workers that have nothing to do, and for memory of objects, of which a job has none.
    "RAY_kill_idle_workers_interval_ms": "2000",
    "RAY_raylet_check_gc_period_milliseconds": "1000",
}

# With less for its logs and sockets Ray may not start.
_LEAST_DISK_BYTES = 20_000_000

# What Ray's own processes and the driver take, about, and what units get at least.
_BYTES_OF_RAY = 500_000_000
_LEAST_MEMORY_BYTES = 100_000_000

# Ray gives its processes a second to end, and kills them then.
_TO_END_SECONDS = 3.0

# Ray's sockets lie below TMPDIR, and their names end at 107 bytes, of which Ray's own part takes up to 68.
_MOST_TMPDIR_BYTES = 39
_USUAL_TMPDIR = "/tmp"  # noqa: S108  # Ray's own default


def _free_of_machines() -> dict[str, dict[str, float]]:
    """What no task has of each machine, by the ids of their nodes; nothing where Ray does not say so."""
    try:
        # No part of Ray's interface, so a version may lack it. Then steps of which nothing is heard wait for Ray.
        from ray._private.state import available_resources_per_node
    except ImportError:
        return {}
    free: dict[str, dict[str, float]] = available_resources_per_node()  # type: ignore[no-untyped-call]
    return free


@contextlib.contextmanager
def connected(
    cluster: str | None, workers: int | None, streams_per_gpu: int, patience_seconds: float = PATIENCE_SECONDS
) -> Iterator[AskSlots]:
    """Ray for as long as the context lasts: the cluster at `cluster`, an address that `cluster_address` returned, or a
    local Ray for None. Yields a function that says how many units can run at a time now, how many of them with a GPU,
    and on which machines. `patience_seconds` is for `ray_first_driver`. ToolError if Ray cannot
    be started or joined."""

    def ask() -> Slots:
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        machines = {each["NodeID"]: each["Resources"] for each in nodes if each["Alive"]}
        return with_machines(slots_of(resources, workers, streams_per_gpu), machines, _free_of_machines())

    if ray.is_initialized():
        raise ToolError("Ray is in use in this process already; call ray.shutdown() first, or choose the runner inline")
    # Ray replaces the handler when it starts, and removes it when it ends.
    with restored_login(), _restored_sigterm():
        try:
            with _restored_sigterm():
                _init(cluster, workers, patience_seconds)
            yield PatientQuestion(ask, head_patience_seconds())
        except RayTaskError:
            raise
        except RayError as error:
            # Where the machine of the driver or the head is lost, unless Ray ends this process at once.
            raise ToolError(
                f"the Ray of this job is lost: {brief(error)}; what is finished is kept, so run the same command again"
            ) from error
        finally:
            # Also if the process was told to end while Ray was starting.
            ray.shutdown()
            # Workers that were at work end without removing the copies of their sources. On other machines the next
            # process does that.
            remove_copies_of_ending(_TO_END_SECONDS)


def _init(cluster: str | None, workers: int | None, patience_seconds: float) -> None:
    with another(utils, "get_entrypoint_name", lambda _own: lambda: shown_command(sys.argv)):
        _join_or_start(cluster, workers, patience_seconds)


def shown_command(arguments: Sequence[str]) -> str:
    """The command of a job for Ray, which keeps it, and shows it on its dashboard: with URLs without what may be a
    secret, and with escapes for what is not UTF-8, which Ray does not take."""
    return plain(shlex.join(map(_without_secrets, arguments)))


def _without_secrets(argument: str) -> str:
    before, mark, after = argument.partition("://")
    # Whatever follows a query may be a part of it: a name in it may have a blank, or a quote.
    text = before + mark + re.split(r"[?#]", after, maxsplit=1)[0]
    return re.sub(r"(?<=://)[^/]*@", "", text)


def _join_or_start(cluster: str | None, workers: int | None, patience_seconds: float) -> None:
    try:
        if cluster is not None:
            address = login_to_cluster(cluster)
            with answered(address, patience_seconds):
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            return
        login_to_own()
        with _own_environment(), patient_start():
            ray.init(
                # A separate Ray, even if a cluster runs on this machine.
                address="local",
                num_cpus=workers or _allowed_cores(),
                _memory=_allowed_memory_bytes(),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                # By default Ray waits for workers that may die meanwhile, see `ray_first_driver`.
                _system_config={"prestart_worker_first_driver": False},
            )
    except ShortGopError:
        raise
    except Exception as error:
        # Ray raises plain ones where a busy machine is slow to start it.
        what = f"cannot join the Ray cluster at {cluster}" if cluster else "a local Ray does not start"
        why = str(error).rstrip(".")
        is_of_cluster = cluster is not None and not isinstance(error, UnicodeEncodeError)
        first = "look whether it runs" if is_of_cluster else _remedy(error)
        raise ToolError(
            f"{what}: {why}; {first}, or give --runner inline, which does the same work in this process without Ray"
        ) from error


def _remedy(error: Exception) -> str:
    """What to do where a local Ray does not start, or one does not take the name of a folder. It does not say
    itself that its disk is full."""
    if isinstance(error, UnicodeEncodeError):
        what = "move the program to another one"
        if (current := os.getcwd()) != valid_text(current):  # noqa: PTH109
            what = "run the command in another one"
        elif (folder := os.environ.get("RAY_TMPDIR", "")) != valid_text(folder):
            what = "set RAY_TMPDIR to another one"
        return f"Ray takes no folder whose name is not UTF-8: {what}"
    # Ray takes the first of these, also one that Python would pass over because nothing can be written there.
    folder = os.environ.get("RAY_TMPDIR") or _short_tmpdir() or os.environ.get("TMPDIR") or _USUAL_TMPDIR
    with contextlib.suppress(OSError):
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < _LEAST_DISK_BYTES:
            return (
                f"its logs and sockets lie in {folder}, which has only {byte_size(free_bytes)} left: free some space, "
                "set RAY_TMPDIR to another folder"
            )
    if isinstance(error, NotStartedError) and error.has_ended:
        return f"{folder}/ray/session_latest/logs says why (raylet.err, raylet.out): mend that"
    if isinstance(error, OSError) and not isinstance(error, TimeoutError | ConnectionError):
        # It is not there, may not be written to, or has a name of more than some 40 characters.
        return f"its logs and sockets lie in {folder}: set RAY_TMPDIR to another folder, such as /tmp"
    return "run the same command again when the machine is less busy"


def _short_tmpdir() -> str | None:
    """Where a local Ray keeps its sockets if TMPDIR is too long for their names, or is not UTF-8; None if it is not."""
    folder = os.environ.get("TMPDIR", "")
    is_long = len(os.fsencode(folder)) > _MOST_TMPDIR_BYTES
    return _USUAL_TMPDIR if is_long or folder != valid_text(folder) else None


def _allowed_cores() -> int | None:
    """The cores that this process may use, where these are not all of the machine: Ray would count all. None where it
    may use all; then Ray looks how many a container has."""
    allowed = cpus_to_run_on()
    return allowed if allowed < (os.cpu_count() or 1) else None


def _allowed_memory_bytes() -> int | None:
    """What units may take of the memory that this process may have, where that is not all of the machine, as in a job
    of Slurm: Ray looks at the limit of a container alone. None where it may have all."""
    allowed = memory_limit_bytes()
    if allowed >= machine_memory_bytes():
        return None
    # Ray takes as large a part of what it finds.
    return max(_LEAST_MEMORY_BYTES, int(0.7 * (allowed - _BYTES_OF_RAY)))


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """Let a Ray that starts here take less of the machine, and have sockets with short names, unless the environment
    says otherwise."""
    wanted = dict(_RARE_LOOKS)
    if (folder := _short_tmpdir()) is not None:
        wanted["RAY_TMPDIR"] = folder
    own = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _restored_sigterm() -> Iterator[None]:
    """Restores the handler of SIGTERM. `ray.init` replaces it by one that ends the process without cleaning up, and
    `ray.shutdown` lets the system end the process at once, while Python still says that the handler is there."""
    before = signal.getsignal(signal.SIGTERM)
    # None is a handler that is not Python's.
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    try:
        yield
    except SystemExit as error:
        # Ray's handler raised this on a SIGTERM that came while Ray was starting. It was meant for the caller's, which
        # may raise something else.
        if error.code == signal.SIGTERM and callable(before):
            before(signal.SIGTERM, None)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def brief(error: Exception) -> str:
    """What an error of Ray says, without the trace of the worker."""
    return str(error).strip().splitlines()[0]
