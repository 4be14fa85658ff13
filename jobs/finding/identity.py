"""A source file's fingerprint. It tells whether a file is the one that was prepared, without reading all of it."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from ...errors import SourceError, SourceNotFoundError
from ...wording import missing

SAMPLE_BYTES = 64 * 1024


def identity_of(path: str, start: int = 0, length: int | None = None) -> tuple[int, int]:
    """A 64-bit fingerprint of a file's content, and its size in bytes; with `length`, those of the bytes from `start`
    on.

    The fingerprint covers the size, the first 64 KiB and the last 64 KiB. It leaves out the path and the time of the
    last change, so a corpus can be moved, copied or touched and nothing is encoded again. Two files of the same length
    that differ only in between have the same fingerprint. So it does not show a few bytes that were repaired in place,
    nor a download that had its full length before its middle arrived. A file that was muxed or encoded again differs in
    size, or in the headers or the index at an end, and is noticed.

    SourceNotFoundError if the file does not exist, SourceError if it is not a regular file or cannot be read.
    """
    try:
        # Checked before opening, because opening a pipe waits for a writer.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise SourceError(f"{path!r} is not a regular file; name the video file itself", file=path)
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size if length is None else length
            sample_bytes = min(size, SAMPLE_BYTES)
            file.seek(start)
            head = file.read(sample_bytes)
            file.seek(start + size - sample_bytes)
            tail = file.read(sample_bytes)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceNotFoundError(
            f"{path!r} {missing(path, 'put the file there, or give the path where it is')}", file=path
        ) from error
    except OSError as error:
        raise SourceError(
            f"cannot read {path!r}: {error.strerror or error}; fix that and run the same command again",
            file=path,
        ) from error
    digest = hashlib.blake2b(size.to_bytes(8, "big") + head + tail, digest_size=8).digest()
    return int.from_bytes(digest, "big"), size
