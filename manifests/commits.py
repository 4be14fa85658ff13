"""How files come into a dataset: written under .tmp, flushed, renamed. What a reader can see is whole."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .errors import OutputError

_FLUSH_THREADS = 8


def temporary_path(dataset: Path, name: str) -> Path:
    """A new path below .tmp, on the same file system as where it will be renamed to."""
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


def commit(temporary: Path, final: Path) -> None:
    """Make a finished file or folder visible: flush it, rename it into place, flush where it is now."""
    with writing(final):
        # Many small files flush faster side by side: the file system puts them into one transaction.
        with ThreadPoolExecutor(_FLUSH_THREADS) as pool:
            list(pool.map(flush, [*temporary.rglob("*"), temporary]))
        final.parent.mkdir(exist_ok=True)
        temporary.replace(final)
        flush(final.parent)


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
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise


def commit_bytes(dataset: Path, final: Path, data: bytes) -> None:
    """Make a file with these bytes visible, or leave nothing."""
    temporary = temporary_path(dataset, final.name)
    with discarding(temporary):
        with writing(final):
            temporary.write_bytes(data)
        commit(temporary, final)
