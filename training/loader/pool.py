"""Starts workers, gives them units, gathers their answers, and replaces those that die."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from multiprocessing import connection, forkserver
from typing import Any

from ...errors import DatasetError, UsageError
from ...warned import warn
from ...wording import counted
from .arena import Arena
from .messages import Cancel, Done, ReadsItems, Ready, UseArena, Work
from .notebook import check_known_to_workers
from .passed_files import pass_file
from .worker import SameEnvironment, serve

# How often work is given out again after the first time, if workers die.
_MAX_REPEATS = 2
# Failed starts in a row, counted over all workers. If a worker was killed before it was ready, that may be chance.
_MAX_FAILED_STARTS = 2
_MAX_KILLED_STARTS = 10
# The exit code that multiprocessing reports if the fork server was killed, and the real one is not known.
_UNKNOWN_EXIT_CODE = 255
# The most work that waits at each worker: enough to keep it busy until the training loop asks for the next batch. It
# has to fit into the worker's pipe. Otherwise sending work could wait for a worker that itself waits until its answer
# is read.
_MAX_CLIPS_WAITING, _MAX_UNITS_WAITING = 1024, 64
_SECONDS_TO_END = 0.5
# How long to wait for the end of a worker that was killed, or that has closed its pipe.
_SECONDS_TO_DIE = 10.0
# How long to start a worker anew where the fork server ends meanwhile, and how many of these may. Another one takes
# seconds to start, and ten of them on a busy machine.
_SECONDS_TO_START, _MAX_SERVERS = 60.0, 4
_SECONDS_BETWEEN_STARTS = 0.02
# After so long without any worker it is told what may keep them from starting. They take some seconds, and on a slow
# file system, from which all of them import torch, a minute.
_SECONDS_UNTIL_TOLD = 120.0


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: connection.Connection
    pidfd: int | None
    """Becomes readable when the worker has ended, also if the fork server, which usually reports that, was killed. None
    on systems without pidfds."""
    arenas: set[int] = field(default_factory=set)
    work: deque[Work] = field(default_factory=deque)
    """What it was given and has not answered, in the order in which it does it."""
    ready: bool = False

    @property
    def clips_waiting(self) -> int:
        return sum(len(each.draws) for each in self.work)


class WorkerPool:
    """Worker processes, each with a pipe of its own. They share no lock and no queue, so that none can block another.

    Used by one thread at a time.
    """

    def __init__(self, dataset: ReadsItems, workers: int, threads: int) -> None:
        check_known_to_workers(dataset)
        self._start_arguments = dataset, threads, os.getpid()
        self._arenas: dict[int, Arena] = {}
        self._waiting: deque[Work] = deque()
        self._repeats: Counter[int] = Counter()
        self._failed_starts, self._killed_starts = 0, 0
        self.restarts = 0
        """How many workers died and were replaced."""
        self._context: Any = _forkserver()
        self._workers: list[_Worker] = []
        self._tell_at: float | None = time.monotonic() + _SECONDS_UNTIL_TOLD
        """When to tell that no worker has started; None once one has, or that was told."""
        try:
            for _ in range(workers):
                self._workers.append(self._started())
        except BaseException:
            self.close()
            raise

    def add_arena(self, number: int, arena: Arena) -> None:
        """Workers get to know it when they first need it."""
        self._arenas[number] = arena

    def submit(self, work: Work) -> None:
        self._waiting.append(work)
        self._deal()

    def cancel(self, pass_number: int) -> list[int]:
        """Give up the work of a pass. Returns the numbers of what no worker was given; the rest is answered."""
        given_up = [work.number for work in self._waiting if work.pass_number == pass_number]
        self._waiting = deque(work for work in self._waiting if work.pass_number != pass_number)
        for worker in self._workers:
            if any(work.pass_number == pass_number for work in worker.work):
                self._tell(worker, Cancel(pass_number))
        return given_up

    def answers(self, *, wait: bool) -> list[Done]:
        """What was done since the last call; with `wait`, at least one answer.

        DatasetError when workers do not start.
        """
        answers: list[Done] = []
        while True:
            ready = self._ready(wait=wait and not answers)
            for worker in list(self._workers):
                if worker.pipe in ready or worker.process.sentinel in ready:
                    answers += self._received(worker, ended=worker.process.sentinel in ready)
            self._deal()
            if answers or not wait:
                return answers

    def _ready(self, *, wait: bool) -> set[Any]:
        sources = [each for worker in self._workers for each in (worker.pipe, worker.process.sentinel)]
        if wait and self._tell_at is not None:
            if ready := connection.wait(sources, max(0.0, self._tell_at - time.monotonic())):
                return set(ready)
            self._tell_at = None
            warn(
                f"no worker of the loader has started after {_SECONDS_UNTIL_TOLD:g} s. Each begins by importing the "
                'script, where it runs all that is not below `if __name__ == "__main__":`, and may wait for ever: '
                "torch.distributed.init_process_group waits for the ranks to come again. Move such lines below it, or "
                "take workers=0"
            )
        return set(connection.wait(sources, None if wait else 0))

    def _received(self, worker: _Worker, *, ended: bool) -> list[Done]:
        answers: list[Done] = []
        try:
            while worker.pipe.poll():
                message = worker.pipe.recv()
                if isinstance(message, Ready):
                    worker.ready, self._tell_at = True, None
                    self._failed_starts, self._killed_starts = 0, 0
                else:
                    # In the order in which it was given the work.
                    worker.work.popleft()
                    self._repeats.pop(message.work, None)
                    answers.append(message)
        except (EOFError, OSError):
            ended = True
        return answers + (self._replaced(worker) if ended else [])

    def _replaced(self, worker: _Worker) -> list[Done]:
        """Put another worker in the place of one that died. Its first piece of work may be what killed it."""
        place = self._workers.index(worker)
        del self._workers[place]
        worker.pipe.close()
        code = _exit_code(worker, _SECONDS_TO_DIE)
        end = _described(code)
        answers: list[Done] = []
        if not worker.ready:
            if code < 0 or code == _UNKNOWN_EXIT_CODE:
                self._killed_starts += 1
            else:
                self._failed_starts += 1
            if self._failed_starts >= _MAX_FAILED_STARTS or self._killed_starts >= _MAX_KILLED_STARTS:
                raise DatasetError(
                    f"the loader's workers do not start: one {end} before it was ready. What it wrote to stderr says "
                    'why; a script that makes a ClipLoader has to do so under `if __name__ == "__main__":`, and what '
                    "the dataset consists of, such as its class and its transform, has to be importable, so above that "
                    "line. What a notebook or standard input defines is not: put it into a module, or take workers=0"
                )
        elif worker.work:
            first = worker.work[0]
            self._repeats[first.number] += 1
            if self._repeats[first.number] > _MAX_REPEATS:
                worker.work.popleft()
                answers.append(Done(first.number, first.pass_number, error=_killed_again(first, end)))
        self._waiting.extendleft(reversed(worker.work))
        self.restarts += 1
        self._workers.insert(place, self._started())
        return answers

    def _deal(self) -> None:
        """Give waiting work to the workers that have the least to do."""
        while self._waiting:
            worker = min(self._workers, key=lambda worker: worker.clips_waiting)
            clips = worker.clips_waiting + len(self._waiting[0].draws)
            if worker.work and (clips > _MAX_CLIPS_WAITING or len(worker.work) >= _MAX_UNITS_WAITING):
                return
            work = self._waiting.popleft()
            if work.arena not in worker.arenas:
                worker.arenas.add(work.arena)
                arena = self._arenas[work.arena]
                self._tell(worker, UseArena(work.arena, arena.areas), arena.file)
            worker.work.append(work)
            self._tell(worker, work)

    def _tell(self, worker: _Worker, message: Any, file: int | None = None) -> None:
        # A worker that is gone is noticed where answers are waited for, and its work is done by another.
        with contextlib.suppress(ConnectionError):
            worker.pipe.send(message)
            if file is not None:
                pass_file(worker.pipe, file)

    def _started(self) -> _Worker:
        deadline = time.monotonic() + _SECONDS_TO_START
        servers = set()
        while True:
            try:
                return self._start()
            except (EOFError, ConnectionError) as error:
                # The fork server was killed, or what it imports raised. Once it has ended, another one is started.
                servers.add(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]  # noqa: SLF001
                if len(servers) >= _MAX_SERVERS or time.monotonic() > deadline:
                    raise DatasetError(_servers_end()) from error
                time.sleep(_SECONDS_BETWEEN_STARTS)

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe(duplex=True)
        dataset, threads, process_id = self._start_arguments
        process = self._context.Process(
            target=serve,
            args=(SameEnvironment(), theirs, dataset, threads, process_id),
            name="shortgop loader",
            daemon=True,
        )
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            ours.close()
            raise UsageError(
                f"the dataset cannot be sent to a worker process: {error}. Its class, its transform or "
                "the class of that, and the function of a ClipsBy have to be at the top level of a module; or take "
                "workers=0"
            ) from error
        except ConnectionError:
            ours.close()
            raise
        except OSError as error:
            ours.close()
            raise UsageError(
                f"the system does not start another worker process ({error.strerror or error}): give the loader fewer "
                "workers, or raise the system's limits, such as `ulimit -n` for open files"
            ) from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return _Worker(process, ours, _pidfd(process.pid))

    def close(self) -> None:
        """End the workers. They hold nothing that would have to be put in order."""
        for worker in self._workers:
            worker.pipe.close()
        deadline = time.monotonic() + _SECONDS_TO_END
        for worker in self._workers:
            _exit_code(worker, max(0.0, deadline - time.monotonic()))
        self._workers = []


def _pidfd(process: int) -> int | None:
    # Not in old kernels and some sandboxes.
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(process)
    return None


def _exit_code(worker: _Worker, seconds: float) -> int:
    """Wait until a worker has ended, and kill it when it takes longer. It writes into no batch any more then."""
    process = worker.process
    process.join(seconds)
    if worker.pidfd is None:
        process.kill()
    else:
        # Without its fork server a process counts as ended at once.
        if not connection.wait([worker.pidfd], 0):
            signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)
            connection.wait([worker.pidfd])
        os.close(worker.pidfd)
    process.join()
    code: int = process.exitcode
    process.close()
    return code


def _described(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _killed_again(work: Work, end: str) -> DatasetError:
    return DatasetError(
        f"a worker {end} while it read {counted(len(work.draws), 'clip')} (draws {', '.join(map(str, work.draws[:5]))}"
        f"{', ...' if len(work.draws) > 5 else ''}), as did {_MAX_REPEATS} before it: read them with workers=0 to see "
        "why, or give the loader less to do at once if the system lacks memory"
    )


def _servers_end() -> str:
    server: Any = forkserver._forkserver  # noqa: SLF001
    chosen = ", ".join(name for name in server._preload_modules if name != __name__)  # noqa: SLF001
    imports = f"; it imports {chosen}, as multiprocessing.set_forkserver_preload says: an error there ends it"
    return (
        "the loader's workers do not start: the fork server, which starts them, ended again and again. What it wrote "
        f"to stderr says why{imports if chosen else ''}"
    )


def _forkserver() -> Any:
    """Processes start from a clean process that has this module imported: none is forked from this one, which may use
    CUDA and has threads."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        raise UsageError("this system has no fork server, which ClipLoader starts workers with; take workers=0")
    if multiprocessing.current_process().daemon:
        raise UsageError(
            "this process is a daemon, as those of multiprocessing.Pool are, and Python lets daemons start no "
            "processes: take workers=0, or start it by torch.multiprocessing.spawn or "
            "concurrent.futures.ProcessPoolExecutor"
        )
    context = multiprocessing.get_context("forkserver")
    server: Any = forkserver._forkserver  # noqa: SLF001  # it has no other way to ask
    # What the program chose to have imported stays. By default that is the script, which the newest versions of Python
    # do import there. A server that ends or waits meanwhile says nothing of the script: workers do, which import it.
    chosen = server._preload_modules  # noqa: SLF001
    if __name__ not in chosen:
        context.set_forkserver_preload([*(chosen if chosen != ["__main__"] else []), __name__])
    return context
