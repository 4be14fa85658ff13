"""One writer at a time, as far as file systems allow; publication does not rely on it.

Two locks, both held by the process and gone with it: `flock` on the dataset's folder, which keeps apart the processes
of one host, and `flock` on the file `.lock` in it, opened for writing, which NFS passes on to its server and so holds
between hosts too. Where a file system has neither, a job goes on without: `publish` lets nothing be lost.
"""

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
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import DatasetBusyError
from ..whole_files import discard, writing

LOCK_FILE = ".lock"
# What a job on another host may still be writing: a lock that was granted proves nothing where locks do not work.
_STALE_SECONDS = 3600
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True)
class Writer:
    """Who writes to a dataset, for messages: nothing is decided by the time."""

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def this_writer() -> Writer:
    """This process, now."""
    return Writer(socket.gethostname(), os.getpid(), dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))


@contextlib.contextmanager
def writer_lock(dataset: Path) -> Iterator[None]:
    """Held by the one job that writes to a dataset; DatasetBusyError when another holds it.

    Nothing has to be cleaned up after a crash. What a dead job left in .tmp is removed on the way in, and the folder
    on the way out.
    """
    with contextlib.ExitStack() as held:
        with writing(dataset):
            folder = os.open(dataset, os.O_RDONLY)
            held.callback(os.close, folder)
            _lock(folder, dataset)
            file = os.open(dataset / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
            held.callback(os.close, file)
            _lock(file, dataset)
            before, me = _holder(dataset), this_writer()
            os.ftruncate(file, 0)
            # On a full disk the job may still be able to say so.
            with contextlib.suppress(OSError):
                os.pwrite(file, json.dumps(asdict(me)).encode(), 0)
        _sweep(dataset, spare_recent=before is not None and before.host != me.host)
        try:
            yield
        finally:
            # Where locks do not work, another job may have come in meanwhile.
            alone = _holder(dataset) in (me, None)
            _sweep(dataset, spare_recent=not alone)
            if alone:
                os.ftruncate(file, 0)


def _lock(descriptor: int, dataset: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(dataset)
        who = f" (it is {holder})" if holder else ""
        raise DatasetBusyError(
            f"another job is writing to {dataset}; wait for it, or stop it and run this again{who}", file=str(dataset)
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _holder(dataset: Path) -> Writer | None:
    """Who took the lock last and has not given it back."""
    try:
        return Writer(**json.loads((dataset / LOCK_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _sweep(dataset: Path, *, spare_recent: bool) -> None:
    """Remove what is in .tmp; with `spare_recent` only what nobody has written to for an hour."""
    folder = dataset / ".tmp"
    if not spare_recent:
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            if time.time() - file.stat().st_mtime > _STALE_SECONDS:
                discard(file)
        folder.rmdir()
