"""How files come into a dataset: written under .tmp, flushed, linked. What a reader can see is whole.

A file gets its name by a hard link, which fails where there is something of that name: nothing that is there is ever
replaced, whoever else is writing, on this host or another. The root is the exception.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from .errors import OutputError

# What file systems without hard links say: FAT and exFAT, some of those in user space.
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def temporary_path(dataset: Path, name: str) -> Path:
    """A new path below .tmp, on the same file system as where it will be linked to."""
    folder = dataset / ".tmp"
    with writing(folder):
        folder.mkdir(exist_ok=True)
    return folder / f"{name}.{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the operating system's refusals into an OutputError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some space and run the same command again",
            errno.EDQUOT: "raise the quota and run the same command again",
            errno.EACCES: "give yourself permission to write there, or write somewhere else",
            errno.EROFS: "the file system is read-only; write somewhere else",
            errno.ENOENT: "make that folder first, or write somewhere else",
            errno.EISDIR: "there is a folder of that name; write somewhere else",
            errno.ENOTDIR: "a part of that path is a file; write somewhere else",
            errno.EEXIST: "there is a file where a folder is needed; write somewhere else",
        }
        remedy = remedies.get(error.errno or 0, "run the same command again once that is mended")
        what = f"cannot write {path}: {error.strerror or error}"
        raise OutputError(f"{what}; {remedy}", file=str(path)) from error


def commit(temporary: Path, final: Path) -> bool:
    """Make a finished file visible under a name that is free: flush it, link it, flush the folder it is in.

    False where the name is taken: what is there stays as it is, and so does the temporary file.
    """
    with writing(final):
        flush(temporary)
        final.parent.mkdir(exist_ok=True)
        named = _named(temporary, final)
        # Of what another put there as well: it may be about to do that.
        flush(final.parent)
    return named


def _named(temporary: Path, final: Path) -> bool:
    try:
        os.link(temporary, final)
    except FileExistsError:
        # NFS sends a request again when the answer was lost: the file that is there may be this one.
        if not (final.exists() and temporary.samefile(final)):
            return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _renamed(temporary, final)
    temporary.unlink()
    return True


def _renamed(temporary: Path, final: Path) -> bool:
    """The same where there are no hard links. A lock keeps the processes of one host apart; between two hosts nothing
    does on such a file system."""
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        if final.exists():
            return False
        temporary.rename(final)
    finally:
        os.close(folder)
    return True


def flush(path: Path) -> None:
    """Return when a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def discarding(temporary: Path) -> Iterator[None]:
    """Removes what was written so far when it cannot be finished; on a full disk that is space to go on with."""
    try:
        yield
    except BaseException:
        discard(temporary)
        raise


def discard(temporary: Path) -> None:
    """Remove a file or folder below .tmp, be it there or not."""
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


def commit_bytes(dataset: Path, final: Path, data: bytes) -> bool:
    """Make a file with these bytes visible, or leave nothing; False where the name is taken."""
    temporary = _written(dataset, final, data)
    with discarding(temporary):
        committed = commit(temporary, final)
    if not committed:
        discard(temporary)
    return committed


def replace_bytes(dataset: Path, final: Path, data: bytes) -> None:
    """Put a file with these bytes in the place of one that may be there. Only for the root."""
    temporary = _written(dataset, final, data)
    with discarding(temporary), writing(final):
        flush(temporary)
        temporary.replace(final)
        flush(final.parent)


def _written(dataset: Path, final: Path, data: bytes) -> Path:
    temporary = temporary_path(dataset, final.name)
    with discarding(temporary), writing(final):
        temporary.write_bytes(data)
    return temporary
