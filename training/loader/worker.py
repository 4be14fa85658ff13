"""What a worker process does: it reads units of clips into the loader's memory, one after the other."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import connection, parent_process
from typing import Any

import torch

from ...errors import UsageError
from ..datasets.drawn_items import noting_draws
from ..pixels.rows import Rows
from ..pixels.transforms import seeded
from ..which_clips.keyed import key
from .arena import Arena, MappedArena
from .batch_rows import write_items
from .messages import Cancel, Done, ReadsItems, Ready, Spent, UseArena, Work
from .passed_files import passed_file

# Units whose bytes are read ahead of the one that is decoded.
_UNITS_AHEAD = 2


def read_work(dataset: ReadsItems, work: Work, arena: Arena | MappedArena) -> Done:
    """Read the items of a unit into their rows. An error is part of the answer."""
    before, skipped, started = dataset.stats(), dataset.skipped_here, time.perf_counter()
    rest: tuple[dict[str, Any], ...] = ()
    failed: BaseException | None = None
    try:
        # A subclass may draw random numbers in its items, and all processes of a fork server start with torch's
        # generator in the same state.
        tensors, names = arena.tensors(work.area, work.kind), arena.areas.kinds[work.kind].names
        with seeded(key(*dataset.seeds, "items", *work.draws)), noting_draws(dataset, work.draws):
            items = dataset.items(work.draws, Rows(tensors, work.rows))
        rest = write_items(items, names, tensors, work.rows)
    except Exception as error:  # noqa: BLE001  # a transform may raise anything; the loader raises it again
        failed = error
    used = dataset.stats() - before
    spent = Spent(
        used.io_seconds,
        used.decode_seconds + used.conversion_seconds,
        time.perf_counter() - started,
        clips=len(work.draws),
    )
    return Done(work.number, work.pass_number, rest if any(rest) else (), failed, spent, dataset.skipped_here - skipped)


class SameEnvironment:
    """Gives the process that unpickles it the environment of the one that pickled it.

    A fork server keeps the environment in which it was started. The keys of a store may have been set or taken out
    since then, and opening the dataset goes by them. Variables that a script sets in workers alone stay.
    """

    def __reduce__(self) -> tuple[Callable[..., SameEnvironment], tuple[dict[str, str], set[str]]]:
        _names_seen.update(os.environ)
        return _take_environment, (dict(os.environ), _names_seen - os.environ.keys())


_names_seen = set(os.environ)
"""The variables that this process ever had, as far as was looked."""


def _take_environment(environment: dict[str, str], taken_out: set[str]) -> SameEnvironment:
    for name in taken_out:
        os.environ.pop(name, None)
    os.environ.update(environment)
    return SameEnvironment()


def serve(
    _environment: SameEnvironment,
    pipe: connection.Connection,
    dataset: ReadsItems,
    threads: int,
    loader_process: int,
) -> None:
    """Do the work that comes through the pipe until it ends, or the process on its other side does.

    The environment is the first argument, so that it is there when the dataset is unpickled.
    """
    # Ctrl-C reaches all processes of a terminal. The loader's process decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _end_with(loader_process)
    dataset.use_threads(threads)
    _Server(pipe, dataset).run()


class _Server:
    def __init__(self, pipe: connection.Connection, dataset: ReadsItems) -> None:
        self._pipe = pipe
        self._dataset = dataset
        self._arenas: dict[int, MappedArena] = {}
        self._work: deque[Work] = deque()
        self._announced: set[int] = set()
        self._cancelled: set[int] = set()
        """The numbers of pieces of work that wait and are not wanted any more."""

    def run(self) -> None:
        try:
            self._send(Ready())
            while True:
                started = time.perf_counter()
                self._receive()
                idle = time.perf_counter() - started
                work = self._work.popleft()
                self._announce()
                self._announced.discard(work.number)
                if work.number in self._cancelled:
                    self._cancelled.remove(work.number)
                    self._send(Done(work.number, work.pass_number))
                    continue
                done = read_work(self._dataset, work, self._arenas[work.arena])
                self._send(replace(done, spent=replace(done.spent, idle_seconds=idle)))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            # The loader is gone.
            return

    def _receive(self) -> None:
        """Take what came, and wait where there is no work."""
        while not self._work or self._pipe.poll():
            message = self._pipe.recv()
            if isinstance(message, Work):
                self._work.append(message)
            elif isinstance(message, UseArena):
                file = passed_file(self._pipe)
                self._arenas[message.arena] = MappedArena(file, message.areas)
            elif isinstance(message, Cancel):
                # Other passes may be running, earlier and later ones.
                self._cancelled |= {work.number for work in self._work if work.pass_number == message.pass_number}

    def _announce(self) -> None:
        """Have the bytes of the next units read while this one is decoded."""
        for work in list(self._work)[:_UNITS_AHEAD]:
            if work.number not in self._announced | self._cancelled:
                self._announced.add(work.number)
                try:
                    self._dataset.will_need(work.draws)
                except Exception:  # noqa: BLE001, S112  # reading it finds the same, in its turn
                    continue

    def _send(self, message: Any) -> None:
        if isinstance(message, Done) and message.error is not None:
            message = replace(message, error=_sendable(message.error))
        try:
            # Not as the pipe would do it, which sends tensors as descriptors that end with this process.
            data = pickle.dumps(message)
        except Exception as error:  # noqa: BLE001  # whatever the __reduce__ of an entry does
            refused = UsageError(
                f"an entry of the items cannot be sent to the loader's process: {error}. What a transform returns "
                "consists of tensors, numbers and objects that can be pickled; or take workers=0"
            )
            data = pickle.dumps(replace(message, rest=(), error=_sendable(refused)))
        self._pipe.send_bytes(data)


def _sendable(error: BaseException) -> BaseException:
    """The error with its traceback as a note; one that cannot be pickled as a RuntimeError."""
    lines = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # its own bytes
    except Exception:  # noqa: BLE001  # whatever its __reduce__ does
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"In worker process {os.getpid()}:\n{lines}")
    return error


def _end_with(process: int) -> None:
    """End this process as soon as that one does, whatever it is doing then.

    The pipe does not tell: a process that was forked from the loader's may hold its other end, and a transform may take
    any time before it is looked at.
    """
    end: Any = None
    if hasattr(os, "pidfd_open"):
        try:
            end = os.pidfd_open(process)
        except ProcessLookupError:
            os._exit(0)
        except OSError:
            # Old kernels, and some sandboxes.
            end = None
    parent = parent_process()
    if end is None and parent is not None:
        end = parent.sentinel

    def watch() -> None:
        connection.wait([end])
        os._exit(0)

    if end is not None:
        threading.Thread(target=watch, name="shortgop: ends with the loader", daemon=True).start()
