"""Telling whether a source file is the one that was prepared, without reading all of it."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from ..errors import SourceError, SourceNotFoundError

SAMPLE_BYTES = 64 * 1024


def identity_of(path: str) -> tuple[int, int]:
    """A 64-bit fingerprint of a file's content, and its size in bytes.

    The fingerprint covers the size, the first 64 KiB and the last 64 KiB. It leaves out the path and the time
    of the last change, so that a corpus may be moved, copied or touched and nothing is encoded again. Two
    files, or two versions of one file, of the same length that differ only in between look the same: a few
    bytes repaired in place go unnoticed, as does a download that was given its full length before its middle
    had come in. What a muxer or an encoder writes anew differs in size, or in the headers or the index at an
    end, and is noticed.
    """
    try:
        # Asked before opening, as opening a pipe waits for somebody to write to it.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise SourceError(f"{path!r} is no regular file; name the video file itself", file=path)
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(SAMPLE_BYTES)
            file.seek(max(0, size - SAMPLE_BYTES))
            tail = file.read(SAMPLE_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceNotFoundError(
            f"{path!r} does not exist; put the file there, or name the place where it is", file=path
        ) from error
    except OSError as error:
        raise SourceError(
            f"cannot read {path!r}: {error.strerror or error}; mend that and run the same command again",
            file=path,
        ) from error
    digest = hashlib.blake2b(size.to_bytes(8, "big") + head + tail, digest_size=8).digest()
    return int.from_bytes(digest, "big"), size
