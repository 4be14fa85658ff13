"""Finds an ffmpeg that fits, tries what it can do, and runs it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import selectors
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import IO, Any, Literal

from ..errors import ToolError
from . import processes
from .processes import Process
from .stalls import Watch, activity_of_group

ENVIRONMENT_VARIABLE = "SHORTGOP_FFMPEG"
_TRIAL_TIMEOUT_SECONDS = 60
_STDERR_KEPT_BYTES = 16_384
_READ_BYTES = 1 << 16
# AV_LOG_INFO, at which the source of a filter graph says that it was given a frame unlike the first one.
_REPORT_LEVEL = 32
_CHANGE = b"incoming frame - "
_CHANGES_KEPT = 100
_ALPHA_LAYERS_FROM_VERSION = 8
_TRIAL_PICTURES = ("-v", "error", "-nostdin", "-f", "lavfi", "-i", "color=black:size=256x256:rate=10")


@dataclass(frozen=True)
class Ffmpeg:
    """An ffmpeg program: its path, its version as it prints it, and how it was found."""

    path: str
    version: str
    origin: str


@dataclass(frozen=True)
class Trial:
    """Whether something really ran, and if not, what ffmpeg said."""

    name: str
    works: bool
    detail: str


@dataclass
class Run:
    """A running ffmpeg. `stdout` is to be read to its end; after that the rest is filled in. `changes` are ffmpeg's
    reports on frames that are not like the first one, each once."""

    stdout: IO[bytes]
    returncode: int = 0
    stats: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    stderr: str = ""


def candidates() -> list[tuple[str, str]]:
    """(path, origin) of every ffmpeg there is, best first."""
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
    """Why this ffmpeg cannot be used, or None when it can: it has to run, and to report on each frame it encodes."""
    version = version_of(path)
    if version is None:
        return "it does not run"
    help_text = _capture([path, "-hide_banner", "-h", "full"])
    if help_text is None or "-stats_enc_pre" not in help_text:
        return f"version {version} is too old: it has no -stats_enc_pre, which came with FFmpeg 6.0"
    return None


@cache
def find_ffmpeg() -> Ffmpeg:
    """The ffmpeg to use: $SHORTGOP_FFMPEG, the one on the PATH, or imageio-ffmpeg's, whichever first is fit."""
    refused = []
    for path, origin in candidates():
        reason = unfit(path)
        if reason is None:
            return Ffmpeg(path=path, version=version_of(path) or "", origin=origin)
        refused.append(f"{path} (from {origin}): {reason}")
    raise ToolError(
        "no ffmpeg that can be used"
        + (": " + "; ".join(refused) if refused else "")
        + f"; `pip install imageio-ffmpeg` brings one, or set {ENVIRONMENT_VARIABLE} to FFmpeg 6.0 or newer"
    )


@cache
def version_of(path: str) -> str | None:
    """The version that a program prints as ffmpeg does; None when it does not run, or is something else."""
    text = _capture([path, "-version"])
    match = re.match(r"ffmpeg version (\S+)", text or "")
    return match.group(1) if match else None


def _capture(argv: Sequence[str]) -> str | None:
    try:
        done = processes.run(argv, timeout_seconds=_TRIAL_TIMEOUT_SECONDS)
    except OSError:
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


@cache
def try_encoder(path: str, encoder: str, preset: str | None = None) -> Trial:
    """Encode frames with `encoder` for real: a driver without its video libraries only fails then."""
    sample = [path, *_TRIAL_PICTURES, "-frames:v", "2", "-pix_fmt", "yuv420p", "-c:v", encoder]
    return _trial(encoder, [*sample, *(["-preset", preset] if preset else []), "-f", "null", "-"])


@cache
def try_nvdec(path: str) -> Trial:
    """Decode a frame on the GPU for real; no software fallback counts."""
    sample = [path, *_TRIAL_PICTURES, "-frames:v", "1", "-pix_fmt", "yuv420p", "-c:v", "libx264"]
    sample += ["-f", "h264", "pipe:1"]
    try:
        done = processes.run(sample, timeout_seconds=_TRIAL_TIMEOUT_SECONDS)
    except OSError as error:
        return Trial("nvdec", works=False, detail=f"no sample to decode: {error}")
    if done.returncode:
        return Trial("nvdec", works=False, detail=f"no sample to decode: {_complaint(done.stderr)}")
    decode = [path, "-v", "error", "-hwaccel", "cuda", "-hwaccel_output_format", "cuda", "-f", "h264", "-i", "pipe:0"]
    return _trial("nvdec", [*decode, "-vf", "hwdownload,format=nv12", "-f", "null", "-"], stdin=done.stdout)


@cache
def lists(path: str, kind: Literal["filters", "decoders"], name: str) -> bool:
    """Whether this ffmpeg was built with the filter or decoder."""
    listed = _capture([path, "-hide_banner", f"-{kind}"]) or ""
    return any(name in line.split()[1:2] for line in listed.splitlines())


def decodes_alpha_layers(path: str) -> bool:
    """Whether this ffmpeg decodes the alpha of HEVC, as FFmpeg 8 and later do."""
    release = re.match(r"n?(\d+)\.", version_of(path) or "")
    # Without a number it was built from sources between two releases.
    return release is None or int(release.group(1)) >= _ALPHA_LAYERS_FROM_VERSION


@cache
def crops_by_itself(path: str) -> bool:
    """Whether this ffmpeg cuts off what the container says (7.1 and later), unless -apply_cropping tells it not to."""
    # The decoders' option of that name is listed in all of them, further in.
    return "\n-apply_cropping" in (_capture([path, "-hide_banner", "-h", "full"]) or "")


def _trial(name: str, argv: Sequence[str], stdin: bytes = b"") -> Trial:
    try:
        done = processes.run(argv, stdin=stdin, timeout_seconds=_TRIAL_TIMEOUT_SECONDS)
    except OSError as error:
        return Trial(name, works=False, detail=str(error))
    works = done.returncode == 0
    return Trial(name, works=works, detail="runs" if works else _complaint(done.stderr))


def _complaint(stderr: bytes) -> str:
    return first_reason(stderr.decode(errors="replace").strip().splitlines())


def first_reason(lines: Sequence[str]) -> str:
    """The line of ffmpeg's complaints that tells most: the first; what follows are its consequences."""
    return re.sub(r"^(\[[^\]]*\] *)+", "", lines[0]) if lines else "it failed without a word"


@contextlib.contextmanager
def running(path: str, argv: Sequence[str], stats_url_placeholder: str) -> Iterator[Run]:
    """Run ffmpeg and read its output while it runs.

    `stats_url_placeholder` in `argv` is replaced by a pipe whose lines end up in `Run.stats`. Leaving the block early
    kills the process; leaving it normally waits for its end. Everything goes through pipes, so that a process that
    dies leaves no file behind, and ffmpeg dies soon after its parent. StalledError, from reading and from leaving the
    block, when it makes no progress: it is killed, and left behind should it not die.
    """
    (stats, stats_end), (report, report_end) = processes.pipe_from_child(), processes.pipe_from_child()
    argv = [f"pipe:{stats_end.number}" if argument == stats_url_placeholder else argument for argument in argv]
    env = {**os.environ, "FFREPORT": f"file=/dev/fd/{report_end.number}:level={_REPORT_LEVEL}"}
    try:
        process = processes.start([path, *argv], inherit=(stats_end, report_end), env=env)
    except OSError as error:
        stats.close()
        report.close()
        raise ToolError(f"cannot start {path}: {error.strerror or error}", file=path) from error
    finally:
        stats_end.close()
        report_end.close()
    output = _Output(process, (process.stdout, process.stderr, stats, report))
    run = Run(stdout=io.BufferedReader(output, _READ_BYTES))
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
        run.stats.extend(output.stats.decode().splitlines())
        run.changes.extend(output.changes.seen)


class _Output(io.RawIOBase):
    """What ffmpeg writes: standard output, standard error, statistics, log. While its standard output is waited for,
    the other pipes are emptied, so that it never waits for its reader, and a watch is kept on it."""

    def __init__(self, process: Process, pipes: tuple[IO[bytes], ...]) -> None:
        self.stderr, self.stats, self.changes = bytearray(), bytearray(), _Changes()
        self._process = process
        self._pipes = pipes
        self._watch = Watch("ffmpeg", lambda: activity_of_group(process.pid))
        self._selector = selectors.PollSelector()
        for pipe in pipes:
            self._selector.register(pipe, selectors.EVENT_READ)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        stdout = self._pipes[0]
        while stdout in self._selector.get_map():
            if self._stdout_is_ready():
                data = os.read(stdout.fileno(), min(len(buffer), _READ_BYTES))
                if not data:
                    self._selector.unregister(stdout)
                buffer[: len(data)] = data
                return len(data)
        return 0

    def drain(self) -> None:
        """Take what is left and wait for ffmpeg's end, without its standard output: writing to that makes it end."""
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
        """Wait until something comes, and take it in unless it is standard output's."""
        ready = {key.fileobj for key, _ in self._selector.select(self._watch.look_seconds)}
        if ready:
            self._watch.progress()
        else:
            self._watch.look(self._watch.look_seconds)
        stdout, *others = self._pipes
        for pipe in others:
            if pipe in ready:
                data = os.read(pipe.fileno(), _READ_BYTES)
                if not data:
                    self._selector.unregister(pipe)
                self._keep(pipe, data)
        return stdout in ready

    def _keep(self, pipe: IO[bytes], data: bytes) -> None:
        _, stderr, stats, _ = self._pipes
        if pipe is stderr:
            # What comes after the first complaints are their consequences, and a damaged file can cause megabytes.
            self.stderr.extend(data[: max(0, _STDERR_KEPT_BYTES - len(self.stderr))])
        elif pipe is stats:
            self.stats.extend(data)
        else:
            self.changes.take(data)


class _Changes:
    """Of ffmpeg's own log, which is written beside what it complains of, what it says of frames unlike the first."""

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}
        self._rest = b""

    def take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            # Every such frame has a line of its own; only its time differs.
            change = line.partition(_CHANGE)[2].partition(b" pts_time")[0]
            if change and len(self.seen) < _CHANGES_KEPT:
                self.seen[(_CHANGE + change).decode(errors="replace")] = None
