"""What the command line prints for people. Text that comes out of a file cannot control the terminal."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import OutputError
from ..wording import byte_size, plain

if TYPE_CHECKING:
    from ..manifests.operations.history import Difference, SnapshotSummary
    from ..manifests.operations.summary import VideoSummary

_LINES_AT_ONCE = 500


class PlainConsole(Console):
    """A console that shows control characters and does not send them to the terminal, and names such as `:dog:` as they
    are.

    What nobody reads any more (`| head`, a terminal that was closed) is left out, and so is what cannot be written to
    standard error: a job goes on where its log lies on a full disk. The exit status says how the work went, not how
    much of it was read.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, highlight=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Like rich's `print`, with each object on one line. OutputError if standard output cannot be written."""
        with self._written():
            super().print(*(plain(each) if isinstance(each, str) else each for each in objects), **options)

    def __exit__(self, *details: object) -> None:
        # Where a bar that is drawn anew is written. OutputError as for `print`.
        with self._written():
            super().__exit__(*details)

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            is_closed = _is_closed_terminal(self.file, error)
            leave_out(self.file)
            if not self.stderr and not is_closed:
                raise _no_output(error) from error

    def print_line(self, text: str, *, style: str | None = None) -> None:
        """Print text as it is: its brackets are no markup, and a long line is not broken. OutputError as for
        `print`."""
        self.print(text, style=style, markup=False, soft_wrap=True)

    def print_lines(self, lines: Iterable[str]) -> None:
        """Print lines as `print_line` does, some hundreds at once: each call of rich takes as long as six lines."""
        rest = iter(lines)
        while some := list(islice(rest, _LINES_AT_ONCE)):
            self.print(*some, sep="\n", markup=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Called by rich where nobody reads what is printed any more."""
        leave_out(self.file)


def print_json(value: Any) -> None:
    """Print a result for programs. OutputError if standard output cannot be written."""
    try:
        sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        leave_out(sys.stdout)
    except OSError as error:
        is_closed = _is_closed_terminal(sys.stdout, error)
        leave_out(sys.stdout)
        if not is_closed:
            raise _no_output(error) from error


def _is_closed_terminal(stream: IO[str], error: OSError) -> bool:
    # One that is closed is no terminal any more, but still no file of a disk that fails.
    return error.errno == errno.EIO and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)


def leave_out(stream: IO[str]) -> None:
    """Nothing more is written to the stream. What it still has in memory would be an error again when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _no_output(error: OSError) -> OutputError:
    return OutputError(f"cannot write what is printed: {error.strerror or error}; the command itself has done its work")


def cell(text: str) -> Text:
    """A table's cell that shows this text as it is, without rich's markup."""
    return Text(plain(text))


def video_table(videos: list[VideoSummary]) -> Table:
    """A table with a row for each video. A column of differences from the sources is there only if there are any."""
    differences = [_differences(video) for video in videos]
    differs = ["differs from its source"] if any(differences) else []
    table = Table("video", "frames", "fps", "size", "codec", "seconds", *differs)
    for video, difference in zip(videos, differences, strict=True):
        table.add_row(
            cell(video.id), str(video.num_frames), video.fps, f"{video.width}x{video.height}", video.codec,
            f"{video.duration_seconds:.2f}", *([cell(difference)] if differs else []),
        )  # fmt: skip
    return table


def snapshot_table(snapshots: list[SnapshotSummary]) -> Table:
    """A table with a row for each snapshot."""
    table = Table("snapshot", "written", "videos", "frames", "bytes", "changed since the one before")
    for each in snapshots:
        name = f"{each.name} (current)" if each.current else each.name
        if each.trouble:
            table.add_row(name, "", "", "", "", "cannot be read")
            continue
        size = byte_size(each.num_bytes)
        changed = cell(_changed(each.difference) if each.difference is not None else "")
        table.add_row(name, cell(each.written), str(each.num_videos), str(each.num_frames), size, changed)
    return table


def _changed(difference: Difference) -> str:
    counts = (
        ("added", difference.added),
        ("relabelled", difference.relabelled),
        ("replaced", difference.replaced),
        ("stored again", difference.stored_again),
        ("dropped", difference.dropped),
    )
    return ", ".join(f"{count} {what}" for what, count in counts if count) or "nothing"


def _differences(video: VideoSummary) -> str:
    counts = (
        ("dropped", video.dropped),
        ("shown more than once", video.repeated),
        ("in place of lost ones", video.salvaged),
    )
    frames = [f"{count} {what}" for what, count in counts if count]
    lost = ["cannot be read"] if video.lost else []
    return ", ".join([*lost, *video.given_up, *([f"frames: {', '.join(frames)}"] if frames else [])])
