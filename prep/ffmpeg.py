"""The one place that starts processes: finds an ffmpeg that fits, tries what it can do, and runs it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import IO, Literal

from ..manifests.errors import ToolError

ENVIRONMENT_VARIABLE = "SHORTGOP_FFMPEG"
_TRIAL_TIMEOUT_SECONDS = 60
_STDERR_KEPT_BYTES = 16_384
# AV_LOG_INFO, at which the source of a filter graph says that it was given a frame unlike the first one.
_REPORT_LEVEL = 32
_CHANGE = b"incoming frame - "
_CHANGES_KEPT = 100
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
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_TIMEOUT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


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
        encoded = subprocess.run(
            sample, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_TIMEOUT_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return Trial("nvdec", works=False, detail=f"no sample to decode: {error}")
    decode = [path, "-v", "error", "-hwaccel", "cuda", "-hwaccel_output_format", "cuda", "-f", "h264", "-i", "pipe:0"]
    return _trial("nvdec", [*decode, "-vf", "hwdownload,format=nv12", "-f", "null", "-"], stdin=encoded)


@cache
def lists(path: str, kind: Literal["filters", "decoders"], name: str) -> bool:
    """Whether this ffmpeg was built with the filter or decoder."""
    listed = _capture([path, "-hide_banner", f"-{kind}"]) or ""
    return any(name in line.split()[1:2] for line in listed.splitlines())


def _trial(name: str, argv: Sequence[str], stdin: bytes = b"") -> Trial:
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=_TRIAL_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return Trial(name, works=False, detail=str(error))
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    works = done.returncode == 0
    return Trial(name, works=works, detail="runs" if works else first_reason(lines))


def first_reason(lines: Sequence[str]) -> str:
    """The line of ffmpeg's complaints that tells most: the first; what follows are its consequences."""
    return re.sub(r"^(\[[^\]]*\] *)+", "", lines[0]) if lines else "it failed without a word"


@contextlib.contextmanager
def running(path: str, argv: Sequence[str], stats_url_placeholder: str) -> Iterator[Run]:
    """Run ffmpeg and read its output while it runs.

    `stats_url_placeholder` in `argv` is replaced by a pipe whose lines end up in `Run.stats`. Leaving the block early
    kills the process; leaving it normally waits for its end. Everything goes through pipes, so that a process that
    dies leaves no file behind, and ffmpeg dies soon after its parent.
    """
    stats_read, stats_write = os.pipe()
    report_read, report_write = os.pipe()
    argv = [f"pipe:{stats_write}" if argument == stats_url_placeholder else argument for argument in argv]
    try:
        process = subprocess.Popen(
            [path, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(stats_write, report_write),
            env={**os.environ, "FFREPORT": f"file=/dev/fd/{report_write}:level={_REPORT_LEVEL}"},
        )
    except OSError as error:
        os.close(stats_read)
        os.close(report_read)
        raise ToolError(f"cannot start {path}: {error.strerror or error}", file=path) from error
    finally:
        os.close(stats_write)
        os.close(report_write)
    if process.stdout is None or process.stderr is None:
        raise AssertionError("both were asked for as pipes")
    run = Run(stdout=process.stdout)
    stderr = bytearray()
    readers = [
        threading.Thread(target=_keep_lines, args=(os.fdopen(stats_read, "rb"), run.stats), daemon=True),
        threading.Thread(target=_keep_changes, args=(os.fdopen(report_read, "rb"), run.changes), daemon=True),
        threading.Thread(target=_keep_start, args=(process.stderr, stderr), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        yield run
    except BaseException:
        process.kill()
        raise
    finally:
        process.stdout.close()
        run.returncode = process.wait()
        for reader in readers:
            reader.join()
        run.stderr = stderr.decode(errors="replace").strip()


def _keep_lines(pipe: IO[bytes], lines: list[str]) -> None:
    with pipe:
        lines.extend(line.decode().rstrip("\n") for line in pipe)


def _keep_changes(pipe: IO[bytes], changes: list[str]) -> None:
    """Of ffmpeg's own log, which is written beside what it complains of, what it says of frames unlike the first."""
    seen: set[bytes] = set()
    with pipe:
        for line in pipe:
            # Every such frame has a line of its own; only its time differs.
            change = line.partition(_CHANGE)[2].partition(b" pts_time")[0]
            if change and change not in seen and len(seen) < _CHANGES_KEPT:
                seen.add(change)
                changes.append((_CHANGE + change).decode(errors="replace"))


def _keep_start(pipe: IO[bytes], kept: bytearray) -> None:
    # What comes after the first complaints are their consequences, and a damaged file can cause megabytes of them.
    with pipe:
        while chunk := pipe.read(4096):
            kept.extend(chunk[: max(0, _STDERR_KEPT_BYTES - len(kept))])
