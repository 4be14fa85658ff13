"""Temporary files of this host, which no killed process leaves behind for long.

Each process has a folder of its own below the host's temporary folder, and holds a lock beside it for as long as it
runs. A process that makes its folder removes those whose lock nobody holds: their processes were killed.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import uuid
from pathlib import Path

_LOCK = ".lock"
_mutex = threading.Lock()
_own: dict[int, tuple[Path, int]] = {}
"""Process id -> the folder of this process, and the descriptor that holds its lock. A forked process has its own."""


def host_folder() -> Path:
    """The folder for this process's temporary files. OSError if it cannot be made."""
    with _mutex:
        known = _own.get(os.getpid())
        if known is None or not known[0].is_dir():
            top = Path(tempfile.gettempdir()) / f"shortgop-{os.getuid()}"
            top.mkdir(mode=0o700, exist_ok=True)
            if top.stat().st_uid != os.getuid():
                raise PermissionError(13, "another user's folder has that name", str(top))
            remove_abandoned(top)
            known = _own[os.getpid()] = _locked_folder(top)
            atexit.register(_remove, *known, os.getpid())
        return known[0]


def remove_abandoned(top: Path) -> None:
    """Remove the folders below `top` whose processes have ended."""
    for lock in top.glob(f"*{_LOCK}"):
        with contextlib.suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.with_name(lock.name.removesuffix(_LOCK)), ignore_errors=True)
                lock.unlink()
            finally:
                os.close(descriptor)


def _locked_folder(top: Path) -> tuple[Path, int]:
    while True:
        folder = top / uuid.uuid4().hex[:12]
        lock = folder.with_name(folder.name + _LOCK)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the two calls another process may have taken the lock for an abandoned one, and removed it.
            if lock.exists():
                folder.mkdir(mode=0o700)
                return folder, descriptor
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _remove(folder: Path, descriptor: int, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_name(folder.name + _LOCK).unlink(missing_ok=True)
        os.close(descriptor)
