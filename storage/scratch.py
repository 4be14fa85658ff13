"""Files on this host's disk that work on a store needs for a while, and the removal of those that dead processes left.

They lie in one folder for each user and container; a machine without containers counts as one. A name holds the number
of its process, when that began, and in which start of the system. By these the others there tell whether it has ended.
Processes of another container that has the same disk, at the same time or later, cannot. So what may be large, the copy
of a source, is locked while its process has it, and belongs to nobody where it is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from ..errors import OutputError
from .network_folders import shared_between_hosts
from .this_process import boot, has_ended_here, started

_COPY = "copy"
_LOOK_SECONDS = 0.05


def scratch_path(name: str) -> Path:
    """A new path in the folder for temporary files (TMPDIR). OutputError where other users may write to it."""
    pid = os.getpid()
    return scratch_folder() / f"{pid}-{started(pid)}-{_this_boot()}.{uuid.uuid4().hex[:12]}.{name}"


def scratch_folder() -> Path:
    """The folder of this user for temporary files. OutputError where other users may write to it."""
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    # Its name is known beforehand, and others may write to TMPDIR.
    if not _is_own(folder):
        raise OutputError(
            f"other users may write to {folder}; remove it, or set TMPDIR to a folder of your own",
            file=str(folder),
        )
    return folder


@contextlib.contextmanager
def scratch_copy(name: str) -> Iterator[tuple[Path, int]]:
    """A new empty file with this name in a folder of its own, and a descriptor of it. It is removed at the end of the
    block. OutputError as above, and OSError if it cannot be made."""
    while True:
        folder = scratch_path(_COPY)
        folder.mkdir(mode=0o700)
        try:
            path = folder / name
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _lock(folder, descriptor)
                # Another container may have found it a moment before, and removed it.
                if os.fstat(descriptor).st_nlink:
                    yield path, descriptor
                    return
            finally:
                os.close(descriptor)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(*, of_all_containers: bool = True) -> None:
    """Remove what processes of this user that have ended left. Without `of_all_containers` copies of other containers
    are not looked for: TMPDIR may have very many files."""
    with contextlib.suppress(OSError):
        own = _folder()
        if own.is_dir():
            _remove_of_this_container(own)
        if of_all_containers and shared_between_hosts(own.parent) is None:
            _remove_of_other_containers(own)


def remove_copies_of_ending(longest_seconds: float) -> None:
    """Remove the copies of processes of this user and container that end just now, as soon as they have. It returns
    when nobody else has one, after so long at most: others may have theirs for longer."""
    end = time.monotonic() + longest_seconds
    with contextlib.suppress(OSError):
        while _remove_of_this_container(_folder()) and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)


def _remove_of_this_container(folder: Path) -> bool:
    """Remove what ended processes left there. Returns whether other processes that live have copies."""
    own, others = f"{os.getpid()}-", False
    # The folder itself stays, be it empty: another process may have looked for it just now, and is about to make a file
    # in it.
    for path in list(folder.iterdir()):
        if _has_ended(path):
            _remove(path)
        elif path.name.endswith(f".{_COPY}") and not path.name.startswith(own):
            others = True
    return others


def _remove_of_other_containers(own: Path) -> None:
    """Remove the copies that no process has locked in the folders beside `own`, that of this container."""
    for folder in list(own.parent.glob(f"{_stem()}*")):
        if folder != own and _is_own(folder):
            for copy in list(folder.glob(f"*.{_COPY}/*")):
                _remove_unlocked(copy)


def _stem() -> str:
    return f"shortgop-{os.getuid()}-"


def _folder() -> Path:
    # Containers may share the folder for temporary files and have processes of the same number.
    try:
        container = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        container = 0
    return Path(tempfile.gettempdir()) / f"{_stem()}{container:x}"


def _is_own(folder: Path) -> bool:
    """Whether it is a folder to which no other user may write."""
    found = folder.lstat()
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode) and not others_write


def _this_boot() -> str:
    return boot().replace("-", "")[:12]


def _has_ended(path: Path) -> bool:
    """Whether the process of this container has ended whose file it is. Another one may have its number by now."""
    pid, _, rest = path.name.partition(".")[0].partition("-")
    start, _, its_boot = rest.partition("-")
    if not pid.isdecimal():
        return False
    if its_boot != _this_boot():
        # Of this host before it was started again, or of another host.
        return shared_between_hosts(path) is None
    return started(int(pid)) != start if start else has_ended_here(int(pid))


def _lock(folder: Path, descriptor: int) -> None:
    """Lock a file against being removed by other containers. Where files have no locks, they remove none. On network
    file systems they do not either, and waiting for a lock may take long there."""
    if shared_between_hosts(folder) is None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)


def _remove_unlocked(copy: Path) -> None:
    """Remove a copy of another container, and its folder, unless its process lives."""
    with contextlib.suppress(OSError):
        descriptor = os.open(copy, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            copy.unlink()
        finally:
            os.close(descriptor)
        copy.parent.rmdir()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
