"""The lock of the one job that writes to a folder, and the removal of what writers that died left behind."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ..errors import DatasetBusyError
from ..whole_files import discard, writing
from .interface import LOCK_KEY, Holder
from .this_process import has_ended_here

REPLACE_LOCK_FILE = ".replace-lock"
# A younger file in .tmp may belong to a job on another host: where locks do not work, holding one proves nothing.
_STALE_SECONDS = 3600
# A process that a killed job was just starting has the job's lock until it runs its own program.
_SECONDS_TO_LET_GO = 5.0
# An NFS server keeps the locks of a host that has died for some 90 seconds.
_SECONDS_TO_REPLACE = 150.0
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


def this_holder() -> Holder:
    """This process, now."""
    return Holder(socket.gethostname(), os.getpid(), dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))


def has_ended(holder: Holder) -> bool:
    """Whether the holder was a process of this host, and that process has ended."""
    return holder.host == socket.gethostname() and has_ended_here(holder.pid)


@contextlib.contextmanager
def disk_lock(folder: Path) -> Iterator[None]:
    """The lock of `Storage.lock` for a folder.

    It ends with its process, and the next job removes what is left in .tmp. On exit .tmp itself is removed.
    """
    with contextlib.ExitStack() as held:
        with writing(folder):
            descriptor = os.open(folder, os.O_RDONLY)
            held.callback(os.close, descriptor)
            _lock(descriptor, folder)
            file = os.open(folder / LOCK_KEY, os.O_RDWR | os.O_CREAT, 0o666)
            held.callback(os.close, file)
            _lock(file, folder)
            before, me = _holder(folder), this_holder()
            # Where locks do not reach other hosts, that job may go on.
            elsewhere = before if before is not None and before.host != me.host else None
            _write(file, me)
        _sweep(folder, spare_recent=elsewhere is not None)
        try:
            yield
        finally:
            # Where locks do not reach other hosts, another job may have started meanwhile.
            is_last = _holder(folder) in (me, None)
            _sweep(folder, spare_recent=elsewhere is not None or not is_last)
            if is_last:
                _write(file, elsewhere)


@contextlib.contextmanager
def replace_lock(folder: Path) -> Iterator[None]:
    """One process at a time replaces a file of this folder, where locks work.

    The lock is that of another file. To lock the file that is replaced, it would have to be open, and NFS then
    renames it to .nfs... first: for a moment no file would have its name.
    """
    file = os.open(folder / REPLACE_LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline = time.monotonic() + _SECONDS_TO_REPLACE
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise DatasetBusyError(
                    f"another process has been about to replace a file of {folder} for {_SECONDS_TO_REPLACE:.0f} s; "
                    f"stop it, or remove {REPLACE_LOCK_FILE} there if it is gone, and run this again",
                    file=str(folder),
                )
            time.sleep(0.01)
        yield
    finally:
        os.close(file)


def _write(file: int, holder: Holder | None) -> None:
    os.ftruncate(file, 0)
    # This may fail on a full disk. The job's own writes report that better.
    with contextlib.suppress(OSError):
        os.pwrite(file, b"" if holder is None else json.dumps(asdict(holder)).encode(), 0)
        # NFS would keep it on this host as long as the file is open.
        os.fsync(file)


def _lock(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + _SECONDS_TO_LET_GO
    while not _try_lock(descriptor):
        holder = _holder(folder)
        if holder is not None and has_ended(holder) and time.monotonic() < deadline:
            time.sleep(0.05)
            continue
        who = f" (it is {holder})" if holder else ""
        raise DatasetBusyError(
            f"another job is writing to {folder}; wait for it, or stop it and run this again{who}",
            file=str(folder),
        )


def _try_lock(descriptor: int) -> bool:
    """Whether no other process has the lock. True where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _holder(folder: Path) -> Holder | None:
    """The last process that took the lock and has not released it, as far as this host can know."""
    try:
        return Holder(**json.loads((folder / LOCK_KEY).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _sweep(folder: Path, *, spare_recent: bool) -> None:
    """Remove the content of .tmp; with `spare_recent` only what has not changed for an hour."""
    temporary = folder / ".tmp"
    if not spare_recent:
        shutil.rmtree(temporary, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        for file in temporary.iterdir():
            if time.time() - file.stat().st_mtime > _STALE_SECONDS:
                discard(file)
        temporary.rmdir()
