"""The lock of a command that changes a dataset where it is, and what its errors say: it cannot write somewhere else."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

from ...errors import OutputError
from ...storage.interface import Storage

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def changing(dataset: Storage) -> Iterator[None]:
    """The writer lock of a dataset that is there, for a block that changes it. OutputError names what helps where
    nothing can be written; DatasetBusyError if a job writes to it."""
    with writing_in_place(dataset), dataset.lock():
        yield


@contextmanager
def repairing(dataset: Storage) -> Iterator[None]:
    """Like `changing`, for a dataset whose zarr.json or snapshot is lost: `shortgop copy` does not read it."""
    copying = "copy its files with another program, such as `cp -r`, and then repair the copy"
    with writing_in_place(dataset, copying), dataset.lock():
        yield


@contextmanager
def writing_in_place(dataset: Storage, copying: str = "") -> Iterator[None]:
    """Errors of the block that say that the dataset must not be written to name the remedies that there are for one
    that is changed where it is. `copying` says how it is copied, "" by `shortgop copy`."""
    try:
        yield
    except OutputError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _REFUSED or dataset.url not in (error.file or ""):
            raise
        permission = "" if cause.errno == errno.EROFS else f"give yourself permission to write to {dataset}, or "
        raise OutputError(
            f"cannot write {error.file}: {cause.strerror or cause}; this changes the dataset where it is: "
            f"{permission}{copying or f'`shortgop copy {quote(str(dataset))} TARGET`, and then change the copy'}",
            file=error.file,
        ) from cause
