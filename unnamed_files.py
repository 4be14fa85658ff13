"""Memory that several processes share: a file that has no name, so that it ends with its last user."""

from __future__ import annotations

import os
import tempfile


def unnamed_file(num_bytes: int) -> int:
    """A descriptor of such a file, to be mapped. All of its pages are there: a lack of memory is an OSError here, and
    not a signal later."""
    if hasattr(os, "memfd_create"):
        # Does not lie in /dev/shm, which is small in many containers.
        file = os.memfd_create("shortgop", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    try:
        os.ftruncate(file, num_bytes)
        if num_bytes and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, num_bytes)
    except BaseException:
        os.close(file)
        raise
    return file
