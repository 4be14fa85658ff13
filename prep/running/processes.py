"""Starts and ends processes; no other module does.

They are started by posix_spawn. `subprocess` closes inherited files in the child, before the new program runs, and
holds Python's lock until that is done. If such a file lies on a mount that does not answer, and the file system asks
the mount before it closes a file (FUSE, NFS), the child waits for the mount, and all threads of this process wait for
the child. With posix_spawn the kernel closes the files when the new program starts, and this process does not wait for
that. A program keeps its ordinary priority (`ordinary_priority`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from ...unnamed_files import unnamed_file
from .driver_folder import with_driver
from .ordinary_priority import with_ordinary_priority

# How long to wait for a killed process. One that waits for a dead mount or a driver does not end.
_GRACE_SECONDS = 5
_FIRST_SLEEP_SECONDS, _LONGEST_SLEEP_SECONDS = 0.0005, 0.05
_READ_BYTES = 1 << 16
# What a pipe can hold at least, on systems that do not say.
_LEAST_PIPE_BYTES = 1 << 12
# Python ignores these signals. Other programs rely on them to end at a closed pipe or a file that is too large.
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(eq=False)
class Process:
    """A child in its own process group, with the reading ends of its output. Not safe for several threads."""

    pid: int
    stdout: IO[bytes]
    stderr: IO[bytes]
    returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # This process ignores SIGCHLD, so the system keeps no status. `subprocess` returns 0 then as well.
                self.returncode = 0
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the process; returns whether it ended in this time."""
        deadline, sleep_seconds = time.monotonic() + timeout_seconds, _FIRST_SLEEP_SECONDS
        while self.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(sleep_seconds, left))
            sleep_seconds = min(2 * sleep_seconds, _LONGEST_SLEEP_SECONDS)
        return True


@dataclass(frozen=True)
class Finished:
    """The result of a process that ended by itself."""

    returncode: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class WritingEnd:
    """The end of a pipe that a child inherits. `number` is the descriptor in the child."""

    number: int
    _copy: int

    def action(self) -> tuple[int, int, int]:
        # dup2 of the copy to the end's own number, so that the child inherits it. Another number might belong to a file
        # on a dead mount, and dup2 would close that file before the program runs.
        return (os.POSIX_SPAWN_DUP2, self._copy, self.number)

    def close(self) -> None:
        os.close(self.number)
        os.close(self._copy)


def pipes_from_child() -> tuple[tuple[IO[bytes], WritingEnd], tuple[IO[bytes], WritingEnd]]:
    """Two pipes, of each the file from which this process reads, and the end to which the child writes. OSError, with
    none of them open, where this process may open no more files."""
    numbers: list[int] = []
    try:
        for _ in range(2):
            numbers += os.pipe()
            numbers.append(os.dup(numbers[-1]))
    except OSError:
        for number in numbers:
            os.close(number)
        raise
    one, other = numbers[:3], numbers[3:]
    return _pipe(*one), _pipe(*other)


def _pipe(read: int, write: int, copy: int) -> tuple[IO[bytes], WritingEnd]:
    return os.fdopen(read, "rb", buffering=0), WritingEnd(write, copy)


def widened(pipe: IO[bytes], num_bytes: int) -> int:
    """Let a pipe hold `num_bytes` where the system allows that. Returns how many it can hold."""
    if sys.platform != "linux":
        return _LEAST_PIPE_BYTES
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, num_bytes)
    try:
        return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    except OSError:
        return _LEAST_PIPE_BYTES


def start(
    argv: Sequence[str], *, inherit: Sequence[WritingEnd] = (), stdin: int | None = None, env: Mapping[str, str]
) -> Process:
    """Start a program. Its input is /dev/null unless `stdin` is a descriptor. OSError when it does not start."""
    (stdout, stdout_end), (stderr, stderr_end) = pipes_from_child()
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0) if stdin is None else (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_DUP2, stdout_end.number, 1),
        (os.POSIX_SPAWN_DUP2, stderr_end.number, 2),
        *(end.action() for end in inherit),
    ]
    try:
        pid = with_ordinary_priority(
            lambda: os.posix_spawnp(
                argv[0],
                list(argv),
                env,
                file_actions=actions,
                # Its own group, because the program may be a script that starts the real one.
                setpgroup=0,
                setsigdef=_DEFAULT_SIGNALS,
            ),
            end=lambda pid: end(Process(pid, stdout, stderr)),
        )
    except BaseException:
        stdout.close()
        stderr.close()
        raise
    finally:
        stdout_end.close()
        stderr_end.close()
    return Process(pid, stdout, stderr)


def name_of_signal(returncode: int) -> str:
    """The name of the signal that ended a program with this exit status. Some signals have none."""
    number = -returncode
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")


def environment() -> dict[str, str]:
    """The environment for ffmpeg, which finds NVIDIA's driver in it. SVT-AV1 would describe its settings on standard
    error, among ffmpeg's errors; with log level 1 it reports its own errors alone."""
    return {**with_driver(os.environ), "SVT_LOG": "1"}


def run(argv: Sequence[str], *, stdin: bytes = b"", timeout_seconds: float) -> Finished:
    """Run a program to its end. OSError when it does not start; TimeoutError when it takes longer, even if it cannot be
    ended."""
    deadline = time.monotonic() + timeout_seconds
    with _file_of(stdin) as source:
        process = start(argv, stdin=source, env=environment())
    try:
        output = _output(process, deadline)
        ended = output is not None and process.wait(max(0.0, deadline - time.monotonic()))
    except BaseException:
        end(process)
        raise
    finally:
        process.stdout.close()
        process.stderr.close()
    if output is None or not ended:
        end(process)
        raise TimeoutError(f"{argv[0]} did not end within {timeout_seconds:g} s")
    return Finished(process.returncode or 0, *output)


def _output(process: Process, deadline: float) -> tuple[bytes, bytes] | None:
    """Standard output and standard error; None when they are not complete by the deadline."""
    stdout, stderr = bytearray(), bytearray()
    with selectors.PollSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, stdout)
        selector.register(process.stderr, selectors.EVENT_READ, stderr)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            for key, _ in ready:
                data = os.read(key.fd, _READ_BYTES)
                key.data.extend(data)
                if not data:
                    selector.unregister(key.fileobj)
    return bytes(stdout), bytes(stderr)


@contextlib.contextmanager
def _file_of(content: bytes) -> Iterator[int]:
    """A descriptor for reading `content`."""
    with os.fdopen(unnamed_file(0), "w+b") as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


left_behind: list[Process] = []
"""Processes that were killed and had not ended when this process stopped waiting for them."""


def end(process: Process) -> None:
    """Kill a process and all processes in its group."""
    # Polling the earlier ones removes those that have ended, so that they do not stay as zombies.
    left_behind[:] = [earlier for earlier in left_behind if earlier.poll() is None]
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    if not process.wait(_GRACE_SECONDS):
        left_behind.append(process)
