"""How files come into a dataset: written under .tmp, flushed, then linked to their names. Readers see only whole files.

A file gets its name by a hard link, which fails if the name is taken. So no file is ever replaced, even when several
processes or hosts write at once. The exceptions are zarr.json, .status.json, and parts from which dropped rows are
taken.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import os
import shutil
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from .errors import OutputError

NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""Errors of file systems without hard links: FAT, exFAT and some in user space; AFS has them within a folder only."""


def temporary_path(dataset: Path, name: str) -> Path:
    """A new path below .tmp. It is on the dataset's file system, so the file can be linked to its final name."""
    folder = dataset / ".tmp"
    with writing(folder):
        folder.mkdir(exist_ok=True)
    return folder / f"{name}.{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turns an OSError into an OutputError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some space and run the same command again",
            errno.EDQUOT: "raise the quota and run the same command again",
            errno.EFBIG: "write to a place that takes longer files, or divide the dataset into several",
            errno.EACCES: "give yourself permission to write there, or write somewhere else",
            errno.EROFS: "write somewhere else",
            errno.ENOENT: "make that folder first, or write somewhere else",
            errno.EISDIR: "a folder has that name; write somewhere else",
            errno.ENOTDIR: "a part of that path is a file; write somewhere else",
            errno.EEXIST: "a file has the name of a folder that is needed; write somewhere else",
        }
        remedy = remedies.get(error.errno or 0, "fix that and run the same command again")
        if error.errno == errno.ENOSPC and _lacks_names(path):
            remedy = "as many files are there as it takes (`df -i`): remove some, and run the same command again"
        if "such bucket" in (error.strerror or ""):
            remedy = "make the bucket first, or check its name"
        what = f"cannot write {path}: {error.strerror or error}"
        raise OutputError(f"{what}; {remedy}", file=str(path)) from error


def refuse_unwritable(folder: Path) -> None:
    """OSError if nothing may be written to a folder, or to the one in which it would be made."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        number = errno.ENOTDIR
    elif os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        return
    else:
        number = errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES
    raise OSError(number, os.strerror(number))


def _lacks_names(path: Path | str) -> bool:
    """Whether the file system of a path has room for bytes, and for no further file."""
    for folder in (Path(path), *Path(path).parents):
        with contextlib.suppress(OSError):
            there = os.statvfs(folder)
            # Some count no files at all.
            return there.f_files > 0 and there.f_favail == 0 and there.f_bavail > 0
    return False


def commit(temporary: Path, final: Path) -> bool:
    """Make a finished file visible under a free name: flush it, link it, flush its folder.

    Returns False if the name is taken. Then the existing file and the temporary one both stay as they are.
    """
    with writing(final):
        flush(temporary)
        final.parent.mkdir(exist_ok=True)
        named = _named(temporary, final)
        # Also if another process made the name: it may not have flushed the folder yet.
        flush(final.parent)
    return named


def _named(temporary: Path, final: Path) -> bool:
    try:
        os.link(temporary, final)
    except FileExistsError:
        # NFS repeats a request whose answer was lost, so the existing name may be the link just made.
        if not (final.exists() and temporary.samefile(final)):
            return False
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        return _renamed(temporary, final)
    temporary.unlink()
    return True


def _renamed(temporary: Path, final: Path) -> bool:
    """Like `_named`, for file systems without hard links. A lock on the folder keeps out other processes of this host.
    Nothing keeps out other hosts."""
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
    """Write a file's content, or a folder's names, to the disk, and wait until that is done."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def discarding(temporary: Path) -> Iterator[None]:
    """Removes `temporary` if the block fails. On a full disk that frees space for what comes next."""
    try:
        yield
    except BaseException:
        discard(temporary)
        raise


def discard(temporary: Path) -> None:
    """Remove a file or folder below .tmp, if it exists."""
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


def commit_bytes(dataset: Path, final: Path, data: bytes) -> bool:
    """Commit a file with these bytes. Returns False, and leaves nothing behind, if the name is taken."""
    temporary = _written(dataset, final, data)
    with discarding(temporary):
        committed = commit(temporary, final)
    if not committed:
        discard(temporary)
    return committed


def replace_bytes(dataset: Path, final: Path, data: bytes) -> None:
    """Write a file with these bytes, replacing an existing one in one step: only for the exceptions above."""
    temporary = _written(dataset, final, data)
    with discarding(temporary), writing(final):
        flush(temporary)
        temporary.replace(final)
        flush(final.parent)


def commit_by_content(temporary: Path, folder: Path, stem: str, suffix: str) -> str:
    """Commit a file under a name that no other content has: `stem`, a number if that is taken, and `suffix`. Returns
    the name. If a file of that name has the same bytes, the temporary one is removed."""
    for number in count():
        # The file with the plain name can have other bytes if it was damaged after it was written.
        name = f"{stem}.{number}{suffix}" if number else f"{stem}{suffix}"
        final = folder / name
        if commit(temporary, final):
            break
        with writing(final):
            if filecmp.cmp(temporary, final, shallow=False):
                discard(temporary)
                break
    return name


def _written(dataset: Path, final: Path, data: bytes) -> Path:
    temporary = temporary_path(dataset, final.name)
    with discarding(temporary), writing(final):
        temporary.write_bytes(data)
    return temporary
