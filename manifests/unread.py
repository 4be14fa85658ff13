"""What it means that the system does not let a file be read: that it is gone, or nothing about the file at all."""

from __future__ import annotations

import errno

from ..errors import DatasetError, MissingDataError, UnreadableDataError

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
