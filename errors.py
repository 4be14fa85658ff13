"""Every error shortgop raises on purpose.

The tree is what `except` clauses may rely on:

    ShortGopError                    the root; carries where it happened
     ├─ UsageError (ValueError)      an argument or option makes no sense
     │   └─ WrongTypeError (TypeError)  it is of a type that makes none
     ├─ ToolError                    ffmpeg, an encoder or a library this needs is missing or unfit
     ├─ SourceError                  one source video cannot be prepared; the others can
     │   ├─ SourceNotFoundError      there is no such file
     │   ├─ NotAVideoError           there is a file, but no video stream in it
     │   ├─ DamagedSourceError       the file is cut short or its data does not decode
     │   └─ EncodeError              ffmpeg failed, or wrote something else than was planned
     ├─ DatasetError                 a dataset on disk cannot be used as it is
     │   ├─ NotADatasetError         nothing there, or something that is no dataset
     │   ├─ FormatVersionError       written by another version of the format
     │   ├─ MissingDataError         a file is missing, or shorter than the manifest says
     │   ├─ CorruptDataError         bytes are there, but not the ones that were written
     │   └─ UnreadableDataError      the system refuses to read a file, which says nothing of what is in it
     ├─ DatasetBusyError             another job is writing to this dataset
     ├─ OutputError                  the dataset cannot be written: disk full, no permission
     ├─ VideoNotFoundError (KeyError)   no video of that id or number
     ├─ FrameIndexError (IndexError)    no frame of that number or at that time
     └─ DecodeError                  a decoder refused data that is as it was written

Beside it stands DatasetWarning (UserWarning), for a dataset of which a part cannot be used.
"""

from __future__ import annotations

import errno
import re


class ShortGopError(Exception):
    """Root of all errors of this package; it says which piece of which dataset it concerns.

    Parameters that do not apply are None. `video` is a video's id, `frame` a frame index in it, `segment` a
    row of the segment table, `file` a path and `byte_range` the half-open range [start, stop) in that file.
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
        # KeyError prints the repr of its argument, so the text is always made here.
        where = [
            f"{name} {value!r}"
            for name in ("video", "frame", "segment", "file")
            if (value := getattr(self, name)) is not None and not self._says(name, value)
        ]
        if self.byte_range is not None:
            where.append(f"bytes {self.byte_range[0]} to {self.byte_range[1]}")
        return f"{self.message} [{', '.join(where)}]" if where else self.message

    def _says(self, name: str, value: str | int) -> bool:
        """Whether the message names it already. An id or a number has to stand there as one, not as a part of
        another word or number."""
        if name == "file":
            return str(value) in self.message
        return re.search(rf"\b{name} {re.escape(repr(value))}(?!\w)", self.message) is not None


class UsageError(ShortGopError, ValueError):
    """An argument or option makes no sense."""


class WrongTypeError(UsageError, TypeError):
    """An argument is of a type that makes no sense, such as a text where a number is wanted."""


class ToolError(ShortGopError):
    """ffmpeg, an encoder or a library that is needed is missing or unfit."""


class SourceError(ShortGopError):
    """One source video cannot be prepared; the others can."""


class SourceNotFoundError(SourceError):
    """There is no such source file."""


class NotAVideoError(SourceError):
    """The source is a file without a video stream that can be decoded."""


class DamagedSourceError(SourceError):
    """The source is cut short, or its data does not decode."""


class EncodeError(SourceError):
    """ffmpeg failed, or wrote something else than was planned."""


class DatasetError(ShortGopError):
    """A dataset on disk cannot be used as it is."""


class NotADatasetError(DatasetError):
    """Nothing there, or something that is no dataset."""


class FormatVersionError(DatasetError):
    """The dataset was written by another version of the format."""


class MissingDataError(DatasetError):
    """A file of the dataset is missing, or shorter than the manifest says."""


class CorruptDataError(DatasetError):
    """Bytes are there, but not the ones that were written."""


class UnreadableDataError(DatasetError):
    """The system refuses to read a file of the dataset: no permission, too many open files, no memory, a disk that
    fails. What is in the file may be as it was written."""


class DatasetBusyError(ShortGopError):
    """Another job is writing to this dataset."""


class OutputError(ShortGopError):
    """The dataset cannot be written: disk full, no permission, a path that is a file."""


class VideoNotFoundError(ShortGopError, KeyError):
    """The dataset has no video of that id or number."""


class FrameIndexError(ShortGopError, IndexError):
    """The video has no frame of that number, or none is shown at that time."""


class DecodeError(ShortGopError):
    """A decoder refused data that is as it was written."""


class DatasetWarning(UserWarning):
    """Some videos of a dataset cannot be read; the others can."""


_MISSING = (errno.ENOENT, errno.ENOTDIR)
_MEND = {
    errno.EMFILE: "raise the number of files that a process may have open (`ulimit -n`)",
    errno.ENFILE: "this machine has too many files open: close some",
    errno.EACCES: "give yourself permission to read it",
    errno.EPERM: "give yourself permission to read it",
    errno.EIO: "its disk or server fails: mend that",
    errno.ENOMEM: "free some memory",
}


def not_read(file: str, error: OSError | MemoryError, *, remedy: str = "") -> DatasetError:
    """A MissingDataError with the remedy when there is no such file, else an UnreadableDataError."""
    if isinstance(error, MemoryError):
        return UnreadableDataError(f"{file} does not fit into memory: free some", file=file)
    if error.errno in _MISSING:
        return MissingDataError(f"{file} is missing{'; ' if remedy else ''}{remedy}", file=file)
    mend = _MEND.get(error.errno or 0, "mend that")
    return UnreadableDataError(f"{file} cannot be read: {error.strerror or error}; {mend} and try again", file=file)
