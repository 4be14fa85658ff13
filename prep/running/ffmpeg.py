"""Finds a usable ffmpeg, and runs it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import selectors
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import IO, Any, Literal

from ...errors import ToolError
from . import processes
from .gpu_errors import lost_picture, tells_of_grain
from .processes import Process
from .stalls import Watch, activity_of_group
from .trial_runs import run_trial

ENVIRONMENT_VARIABLE = "SHORTGOP_FFMPEG"
_TRIAL_TIMEOUT_SECONDS = 60
_STDERR_KEPT_BYTES = 16_384
_READ_BYTES = 1 << 16
# ffmpeg writes its output in pieces, and lines for each frame into other pipes. To wake up for each of them takes time
# that ffmpeg could use (docs/design/prep.md). So until the output ends, all pipes are read every _GATHER_SECONDS. A
# read of half of what a pipe can hold says that ffmpeg may soon have to wait: then all are read again at once, and the
# next times after _LEAST_GATHER_SECONDS, twice that, and so on. Once the output came so fast, that goes no further than
# _BUSY_GATHER_SECONDS.
_GATHER_SECONDS, _BUSY_GATHER_SECONDS, _LEAST_GATHER_SECONDS = 0.2, 0.02, 0.005
# Linux makes new pipes of a user small when all of them can hold 64 MiB, see pipe(7): with these, those of 200 ffmpegs.
_OUTPUT_PIPE_BYTES, _OTHER_PIPE_BYTES = 1 << 17, 1 << 16
# AV_LOG_INFO: the level at which the source of a filter graph logs a frame whose format differs from the first one's.
_REPORT_LEVEL = 32
_CHANGE = b"incoming frame - w:"
_CHANGES_KEPT = 100
# What lines with tags of the source begin with. A message begins with the name of a decoder, a filter or a device in
# brackets, but for about one in 5000: ffmpeg leaves the name out where another thread has just logged a part of a line.
_INDENT = b" "
# Lines with the name of the source: ffmpeg's command line, and its list of inputs.
_NAMES_SOURCE = re.compile(rb" -hide_banner |\AInput #")
# More than such a message has.
_LINE_BYTES = 2000


@dataclass(frozen=True)
class Ffmpeg:
    """An ffmpeg program: its path, the version that it prints, and where it was found."""

    path: str
    version: str
    origin: str


@dataclass
class RunningFfmpeg:
    """A running ffmpeg. Read `stdout` to its end; the other fields are whole after that. What its log says is there as
    soon as it is read. `changes`: ffmpeg's log lines about frames whose format differs from the first one's, each once.
    `lost`: its first log line about a picture that a GPU's driver did not decode or copy, "" if there is none.
    `has_grain`: the filter showinfo saw frames with film grain."""

    stdout: IO[bytes]
    returncode: int = 0
    stats: bytes = b""
    changes: list[str] = field(default_factory=list)
    lost: str = ""
    has_grain: bool = False
    stderr: str = ""


def candidates() -> list[tuple[str, str]]:
    """(path, origin) of every ffmpeg that was found, best first."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen:
        return [(chosen, f"${ENVIRONMENT_VARIABLE}")]
    found = []
    on_path = shutil.which("ffmpeg")
    if on_path:
        found.append((on_path, "PATH"))
    with contextlib.suppress(ImportError, RuntimeError):
        import imageio_ffmpeg

        found.append((imageio_ffmpeg.get_ffmpeg_exe(), "imageio-ffmpeg"))
    return found


def unfit(path: str) -> str | None:
    """Why this ffmpeg cannot be used, or None when it can. It has to run, and to have -stats_enc_pre. ToolError when it
    is killed again and again, so that nothing is known of it."""
    version = version_of(path)
    if version is None:
        return "it does not run"
    help_text = _capture([path, "-hide_banner", "-h", "full"])
    if help_text is None:
        return f"version {version} fails with -h full"
    if "-stats_enc_pre" not in help_text:
        return f"version {version} is too old: -stats_enc_pre is missing, which FFmpeg has from 6.0 on"
    return None


@cache
def find_ffmpeg(encoder: str | None = None) -> Ffmpeg:
    """The first usable one of $SHORTGOP_FFMPEG, the ffmpeg on the PATH, and imageio-ffmpeg's; of those that were built
    with this encoder, if any was. ToolError without any, and when one is killed again and again: another one might
    encode otherwise."""
    usable = usable_ffmpegs()
    first = next(usable)
    if encoder is None or lists(first.path, "encoders", encoder):
        return first
    return next((each for each in usable if lists(each.path, "encoders", encoder)), first)


def usable_ffmpegs() -> Iterator[Ffmpeg]:
    """Every ffmpeg that can be used, best first. ToolError without any, and when one is killed again and again."""
    found, refused = False, []
    for path, origin in candidates():
        reason = unfit(path)
        if reason is None:
            found = True
            yield Ffmpeg(path=path, version=version_of(path) or "", origin=origin)
        else:
            refused.append(f"{path} (from {origin}): {reason}")
    if found:
        return
    raise ToolError(
        "no usable ffmpeg was found"
        + (": " + "; ".join(refused) if refused else "")
        + f"; run `pip install imageio-ffmpeg`, or set {ENVIRONMENT_VARIABLE} to the path of an FFmpeg 6.0 or newer"
    )


@cache
def version_of(path: str) -> str | None:
    """The version of an ffmpeg; None when the program does not run or is not ffmpeg. ToolError when it is killed again
    and again."""
    text = _capture([path, "-version"])
    match = re.match(r"ffmpeg version (\S+)", text or "")
    return match.group(1) if match else None


def _capture(argv: Sequence[str]) -> str | None:
    try:
        done = run_trial(argv, timeout_seconds=_TRIAL_TIMEOUT_SECONDS)
    except OSError:
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


@cache
def lists(path: str, kind: Literal["filters", "decoders", "encoders"], name: str) -> bool:
    """Whether this ffmpeg was built with the filter, decoder or encoder."""
    listed = _capture([path, "-hide_banner", f"-{kind}"]) or ""
    return any(name in line.split()[1:2] for line in listed.splitlines())


def filter_has(path: str, name: str, option: str) -> bool:
    """Whether this ffmpeg's filter of this name has an option of that name."""
    listed = _capture([path, "-hide_banner", "-h", f"filter={name}"]) or ""
    return any(line.split()[:1] == [option] for line in listed.splitlines())


def is_from_8_on(path: str) -> bool:
    """Whether this ffmpeg is FFmpeg 8 or later, which decodes alpha layers of HEVC, and takes bitstream filters for its
    input."""
    release = re.match(r"n?(\d+)\.", version_of(path) or "")
    # A version without a number is a build from between two releases, which is taken as new.
    return release is None or int(release.group(1)) >= 8


@cache
def crops_by_itself(path: str) -> bool:
    """Whether this ffmpeg crops as the container states (7.1 and later do), unless -apply_cropping tells it not to."""
    # Decoders have an option of that name in every version, but it is listed with an indent.
    return "\n-apply_cropping" in (_capture([path, "-hide_banner", "-h", "full"]) or "")


@contextlib.contextmanager
def running(path: str, argv: Sequence[str], stats_url_placeholder: str) -> Iterator[RunningFfmpeg]:
    """Run ffmpeg and read its output while it runs.

    `stats_url_placeholder` in `argv` is replaced by a pipe, which is read into `RunningFfmpeg.stats`. Leaving the block
    early kills the process; leaving it normally waits for its end. All output goes through pipes, so that a killed
    ffmpeg leaves no file, and ffmpeg ends soon after its parent. Reading and leaving the block raise StalledError when
    ffmpeg makes no progress; it is killed then, and no longer waited for if it does not end.
    """
    try:
        process, stats, report = _started(path, argv, stats_url_placeholder)
    except OSError as error:
        raise ToolError(f"cannot start {path}: {error.strerror or error}", file=path) from error
    output = _Output(process, (process.stdout, process.stderr, stats, report))
    run = output.run
    try:
        yield run
        output.drain()
    except BaseException:
        processes.end(process)
        raise
    finally:
        run.stdout.close()
        run.returncode = process.returncode or 0
        run.stderr = output.stderr.decode(errors="replace").strip()
        run.stats = bytes(output.stats)


def _started(path: str, argv: Sequence[str], stats_url_placeholder: str) -> tuple[Process, IO[bytes], IO[bytes]]:
    """A running ffmpeg, its statistics and its log."""
    (stats, stats_end), (report, report_end) = processes.pipes_from_child()
    argv = [f"pipe:{stats_end.number}" if argument == stats_url_placeholder else argument for argument in argv]
    env = {**processes.environment(), "FFREPORT": f"file=/dev/fd/{report_end.number}:level={_REPORT_LEVEL}"}
    try:
        return processes.start([path, *argv], inherit=(stats_end, report_end), env=env), stats, report
    except OSError:
        stats.close()
        report.close()
        raise
    finally:
        stats_end.close()
        report_end.close()


class _Output(io.RawIOBase):
    """ffmpeg's output: standard output, standard error, statistics, log. While one waits for standard output, the other
    pipes are emptied, so that ffmpeg never blocks on them, and its progress is watched."""

    def __init__(self, process: Process, pipes: tuple[IO[bytes], ...]) -> None:
        self.stderr, self.stats = bytearray(), bytearray()
        self.run = RunningFfmpeg(stdout=io.BufferedReader(self, _OUTPUT_PIPE_BYTES))
        self._log = _Log(self.run)
        self._process = process
        self._pipes = pipes
        self._watch = Watch("ffmpeg", lambda: activity_of_group(process.pid))
        self._selector = selectors.PollSelector()
        for pipe in pipes:
            self._selector.register(pipe, selectors.EVENT_READ)
        # Without any event it still reports that the other end is closed.
        self._stdout_end = select.poll()
        self._stdout_end.register(pipes[0], 0)
        wanted_bytes = (_OUTPUT_PIPE_BYTES, *[_OTHER_PIPE_BYTES] * len(pipes[1:]))
        self._much_bytes = {
            pipe: processes.widened(pipe, num) // 2 for pipe, num in zip(pipes, wanted_bytes, strict=True)
        }
        self._gather_seconds = self._longest_gather_seconds = _GATHER_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        stdout = self._pipes[0]
        while stdout in self._selector.get_map():
            if self._stdout_is_ready():
                wanted_bytes = min(len(buffer), _OUTPUT_PIPE_BYTES)
                data = os.read(stdout.fileno(), wanted_bytes)
                if not data:
                    self._selector.unregister(stdout)
                if len(data) >= self._much_bytes[stdout]:
                    self._longest_gather_seconds = _BUSY_GATHER_SECONDS
                if len(data) >= min(wanted_bytes, self._much_bytes[stdout]):
                    # There may be more.
                    self._gather_seconds = 0.0
                buffer[: len(data)] = data
                return len(data)
        return 0

    def drain(self) -> None:
        """Read the other pipes to their end and wait for ffmpeg. Standard output is closed, so ffmpeg ends if it writes
        more."""
        stdout = self._pipes[0]
        if stdout in self._selector.get_map():
            self._selector.unregister(stdout)
        stdout.close()
        while self._selector.get_map() and self._process.poll() is None:
            self._stdout_is_ready()
        while self._selector.get_map() and self._selector.select(0):
            self._stdout_is_ready()
        while self._process.poll() is None:
            if not self._process.wait(self._watch.look_seconds):
                self._watch.look(self._watch.look_seconds)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._selector.close()
        super().close()

    def _stdout_is_ready(self) -> bool:
        """Gather output and read it, except standard output. Returns whether standard output can be read."""
        stdout, *others = self._pipes
        look_seconds = self._watch.look_seconds
        start = time.monotonic()
        if not stdout.closed and stdout in self._selector.get_map():
            self._stdout_end.poll(1000 * min(self._gather_seconds, look_seconds))
        left_seconds = max(0.0, start + look_seconds - time.monotonic())
        ready = {key.fileobj for key, _ in self._selector.select(left_seconds)}
        if ready:
            self._watch.progress()
        else:
            self._watch.look(look_seconds)
        longer_seconds = max(_LEAST_GATHER_SECONDS, 2 * self._gather_seconds)
        self._gather_seconds = min(self._longest_gather_seconds, longer_seconds)
        for pipe in others:
            if pipe in ready:
                data = os.read(pipe.fileno(), _READ_BYTES)
                if not data:
                    self._selector.unregister(pipe)
                if len(data) >= self._much_bytes[pipe]:
                    self._gather_seconds = 0.0
                self._keep(pipe, data)
        return stdout in ready

    def _keep(self, pipe: IO[bytes], data: bytes) -> None:
        _, stderr, stats, _ = self._pipes
        if pipe is stderr:
            # Later lines are consequences of the first, and a damaged file can cause megabytes of them.
            self.stderr.extend(data[: max(0, _STDERR_KEPT_BYTES - len(self.stderr))])
        elif pipe is stats:
            self.stats.extend(data)
        else:
            self._log.take(data)


class _Log:
    """Puts what prep looks for in ffmpeg's log into `RunningFfmpeg`. It looks at all lines: standard error is not kept
    to its end."""

    def __init__(self, run: RunningFfmpeg) -> None:
        self._run = run
        self._rest = b""

    def take(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:_LINE_BYTES]
        run = self._run
        for line in (line[:_LINE_BYTES] for line in lines if not line.startswith(_INDENT)):
            if _NAMES_SOURCE.search(line):
                continue
            # ffmpeg logs a line for each such frame; without its time they are equal.
            change = line.partition(_CHANGE)[2].partition(b" pts_time")[0]
            if change and len(run.changes) < _CHANGES_KEPT:
                text = (_CHANGE + change).decode(errors="replace")
                run.changes += [] if text in run.changes else [text]
            run.lost = run.lost or lost_picture(line.decode(errors="replace"))
            run.has_grain = run.has_grain or tells_of_grain(line)
