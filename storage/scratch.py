"""Files on this host's disk that work on a store needs for a while, and the removal of those that dead processes left.

A name holds the number of its process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import uuid
from pathlib import Path

from ..errors import OutputError
from .this_process import has_ended_here


def scratch_path(name: str) -> Path:
    """A new path in the folder for temporary files (TMPDIR). OutputError where other users may write to it."""
    return scratch_folder() / f"{os.getpid()}.{uuid.uuid4().hex[:12]}.{name}"


def scratch_folder() -> Path:
    """The folder of this user for temporary files. OutputError where other users may write to it."""
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    # Its name is known beforehand, and others may write to TMPDIR.
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OutputError(
            f"other users may write to {folder}; remove it, or set TMPDIR to a folder of your own",
            file=str(folder),
        )
    return folder


def remove_abandoned() -> None:
    """Remove what processes of this user that have ended left."""
    # The folder itself stays, be it empty: another process may have looked for it just now, and is about to make a file
    # in it. There is one for each user, and one more for each container that has the folder for temporary files in
    # common with this machine.
    with contextlib.suppress(OSError):
        for path in list(_folder().iterdir()):
            pid = path.name.partition(".")[0]
            if pid.isdecimal() and has_ended_here(int(pid)):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def _folder() -> Path:
    # Containers may share the folder for temporary files and have processes of the same number.
    try:
        container = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        container = 0
    return Path(tempfile.gettempdir()) / f"shortgop-{os.getuid()}-{container:x}"
