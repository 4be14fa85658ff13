"""Every error shortgop raises on purpose.

The tree is what `except` clauses may rely on:

    ShortGopError                    the root; carries where it happened
     ├─ UsageError (ValueError)      an argument or option makes no sense
     │   └─ WrongTypeError (TypeError)  an argument has the wrong type
     ├─ ToolError                    ffmpeg, an encoder or a library is missing or does not work
     ├─ SourceError                  one source video cannot be prepared; the others can
     │   ├─ SourceNotFoundError      the file does not exist
     │   ├─ NotAVideoError           the file has no video stream that can be decoded
     │   ├─ DamagedSourceError       the file is cut short or its data does not decode
     │   └─ EncodeError              ffmpeg failed, or did not write what was planned
     ├─ DatasetError                 a dataset on disk cannot be used as it is
     │   ├─ NotADatasetError         there is no dataset at this path
     │   ├─ FormatVersionError       the dataset has another version of the format
     │   ├─ MissingDataError         a file is missing, or shorter than the manifest says
     │   ├─ CorruptDataError         the bytes differ from those that were written
     │   └─ UnreadableDataError      the system cannot read a file; its content may be intact
     ├─ DatasetBusyError             another job is writing to this dataset
     ├─ TooManyFailuresError         more sources failed than the job allows
     ├─ OutputError                  a dataset or a file cannot be written: disk full, no permission
     ├─ VideoNotFoundError (KeyError)   the dataset has no video with that id or number
     ├─ FrameIndexError (IndexError)    the video has no frame with that number or at that time
     └─ DecodeError                  a decoder rejected data whose bytes are intact

DatasetWarning (UserWarning) is the only warning: a part of a dataset cannot be used, or what was asked for may not be
what was meant.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from typing import Any


class ShortGopError(Exception):
    """Root of all errors of this package. It names the place that it concerns.

    `video` is a video's id, `frame` a frame index in that video, `segment` a row of the segment table, `file` a path
    and `byte_range` the half-open range [start, stop) of bytes in that file. What does not apply is None.
    """

    def __init__(
        self,
        message: str,
        *,
        video: str | None = None,
        frame: int | None = None,
        segment: int | None = None,
        file: str | None = None,
        byte_range: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.video = video
        self.frame = frame
        self.segment = segment
        self.file = file
        self.byte_range = byte_range

    def __str__(self) -> str:
        # KeyError.__str__ gives the repr of its argument, so this class makes the text itself.
        where = [
            f"{name} {value!r}"
            for name in ("video", "frame", "segment", "file")
            if (value := getattr(self, name)) is not None and not self._says(name, value)
        ]
        if self.byte_range is not None:
            where.append(f"bytes {self.byte_range[0]} to {self.byte_range[1]}")
        return f"{self.message} [{', '.join(where)}]" if where else self.message

    def _says(self, name: str, value: str | int) -> bool:
        """Whether the message already names this value. An id or a number counts only as a whole word, not as a part of
        another one."""
        if name == "file":
            return str(value) in self.message
        return re.search(rf"\b{name} {re.escape(repr(value))}(?!\w)", self.message) is not None


class UsageError(ShortGopError, ValueError):
    """An argument or option makes no sense."""


class WrongTypeError(UsageError, TypeError):
    """An argument has the wrong type, such as text in place of a number."""


class ToolError(ShortGopError):
    """ffmpeg, an encoder or a library is missing or does not work."""


class SourceError(ShortGopError):
    """One source video cannot be prepared; the others can."""


class SourceNotFoundError(SourceError):
    """The source file does not exist."""


class NotAVideoError(SourceError):
    """The source file has no video stream that can be decoded."""


class DamagedSourceError(SourceError):
    """The source is cut short, or its data does not decode."""


class EncodeError(SourceError):
    """ffmpeg failed, or did not write what was planned."""


class DatasetError(ShortGopError):
    """A dataset on disk cannot be used as it is."""


class NotADatasetError(DatasetError):
    """There is no dataset at this path."""


class FormatVersionError(DatasetError):
    """The dataset has a version of the format that this shortgop cannot read."""


class MissingDataError(DatasetError):
    """A file of the dataset is missing, or shorter than the manifest says."""


class CorruptDataError(DatasetError):
    """The bytes of a dataset differ from those that were written."""


class UnreadableDataError(DatasetError):
    """The system cannot read a file of the dataset: no permission, too many open files, no memory, a failing disk. The
    content of the file may be intact."""


class DatasetBusyError(ShortGopError):
    """Another job is writing to this dataset."""


class TooManyFailuresError(ShortGopError):
    """More sources failed than the job allows."""


class OutputError(ShortGopError):
    """A dataset or a file cannot be written: disk full, no permission, a path that is a file."""


class VideoNotFoundError(ShortGopError, KeyError):
    """The dataset has no video with that id or number."""

    def __init__(self, message: str, *, more: Callable[[], str] | None = None, **place: Any) -> None:
        """`more` gives the end of the message. It is called when the error is shown or sent: most of these errors are
        caught, and what is like an id takes long to find."""
        super().__init__(message, **place)
        self._more = more

    def __str__(self) -> str:
        if self._more is not None:
            self.message, self._more = self.message + self._more(), None
        return super().__str__()

    def __reduce__(self) -> str | tuple[Any, ...]:
        str(self)
        return super().__reduce__()


class FrameIndexError(ShortGopError, IndexError):
    """The video has no frame with that number, or shows none at that time."""


class DecodeError(ShortGopError):
    """A decoder rejected data whose bytes are intact."""


class DatasetWarning(UserWarning):
    """A part of a dataset cannot be used, or what was asked for may not be what was meant; the program goes on."""


_MISSING = (errno.ENOENT, errno.ENOTDIR)
_REMEDIES = {
    errno.EMFILE: "raise the number of files that a process may have open (`ulimit -n`)",
    errno.ENFILE: "close some of the files that are open on this machine",
    errno.EACCES: "give yourself permission to read it",
    errno.EPERM: "give yourself permission to read it",
    errno.EIO: "repair its disk or its server",
    errno.ENOMEM: "free some memory",
    errno.EILSEQ: "rename that object",
}


def not_read(file: str, error: OSError | MemoryError, *, remedy: str = "") -> DatasetError:
    """MissingDataError with `remedy` if the file does not exist, else UnreadableDataError."""
    if isinstance(error, MemoryError):
        return UnreadableDataError(f"{file} does not fit into memory; free some memory and try again", file=file)
    if error.errno in _MISSING:
        return MissingDataError(f"{file} is missing{'; ' if remedy else ''}{remedy}", file=file)
    # `file` may be the key of a table, without its store; then the error has the URL.
    in_store = any("://" in name for name in (file, str(error.filename)))
    if in_store and error.errno in (errno.EIO, errno.ETIMEDOUT):
        advice = "check the network and the store"
    else:
        advice = _REMEDIES.get(error.errno or 0, "fix that")
    return UnreadableDataError(f"{file} cannot be read: {error.strerror or error}; {advice} and try again", file=file)
