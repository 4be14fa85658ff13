"""What the rest of the product asks of a place that holds files: a folder on a disk, or a prefix in an object store.

A file has a key, such as "shards/0a1b-0.shard": relative to the place, with slashes, never empty, without "." and "..".
Files come whole or not at all, and appear under their key in one step. Nothing but `replace` changes a file.

What reads raises errors of the operating system, on stores too: FileNotFoundError, PermissionError, TimeoutError, or
another OSError whose `strerror` says what happened. Callers know what the file is for, and name the remedy. What writes
raises OutputError, which names the file and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .network import RequestCounts

# The `strerror` of an error if the bucket of a file is missing, and not only the file.
NO_BUCKET = "there is no such bucket"
LOCK_KEY = ".lock"
"""The file that whoever has the lock of a place writes when it takes it."""


@dataclass(frozen=True)
class Stored:
    """A file as a listing shows it. `version` differs whenever the content does: an ETag, or what identifies a file of
    a disk. `modified_ns` is the time of the last change by the clock of the place, in nanoseconds since 1970."""

    key: str
    num_bytes: int
    modified_ns: int
    version: str


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock. `since` is for messages only."""

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class OpenedFile(Protocol):
    """A file that is read in several pieces: see `Storage.open`."""

    @property
    def stored(self) -> Stored: ...

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop). EOFError if the file ends before `stop`."""
        ...

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Say that these bytes are read soon, so that a store sends them in few answers."""
        ...


class Upload(Protocol):
    """A new file that is written from its first byte to its last. It has no key before `commit`."""

    @property
    def num_bytes(self) -> int:
        """How many bytes the file has so far."""
        ...

    def write(self, data: bytes) -> None:
        """Append bytes."""
        ...

    def cut(self, num_bytes: int) -> int:
        """Take back what was written after the first `num_bytes`. Returns the length that the file has now: bytes that
        a store has received already cannot be taken back."""
        ...

    def commit(self) -> str:
        """Make the file visible. Returns its key, which no other content has."""
        ...

    def discard(self) -> None:
        """Remove what was written. Nothing happens after a commit or another discard."""
        ...


class Taken(Protocol):
    """A file that is about to be removed: see `Storage.take`."""

    def put_back(self) -> None: ...

    def remove(self) -> None: ...


class Storage(Protocol):
    """Files below one root. Any number of threads may use it. A pickle holds the place alone, no connection."""

    @property
    def url(self) -> str:
        """The root as users write it: an absolute path, or a URL without a slash at its end."""
        ...

    @property
    def folder(self) -> Path | None:
        """The root as a folder of this host; None for a store."""
        ...

    def __str__(self) -> str: ...

    def __hash__(self) -> int: ...

    def place(self, key: str) -> str:
        """The path or URL of a file, for messages."""
        ...

    # Reading

    def find(self, key: str) -> Stored | None:
        """A file's length, time and version; None if there is none. A folder is no file."""
        ...

    def files(self, folder: str, *, odd_keys: bool = False) -> Iterator[Stored]:
        """All files below `folder` ("" is the root), in no order. There are none below a folder that does not exist.

        A store may hold keys with an empty part, `.`, `..` or a control character. With `odd_keys` they come too, and
        cannot be read; without it, and where they cannot be listed, they are an OSError with EILSEQ that names one.
        """
        ...

    def read(self, key: str, start: int = 0, stop: int | None = None, *, again: bool = False) -> bytes:
        """Bytes [start, stop) of a file, `stop` being its end by default. EOFError if the file ends before `stop`.

        With `again` nothing that was kept of the file is used: bytes that were read before proved to be wrong.
        """
        ...

    def open(self, key: str) -> AbstractContextManager[OpenedFile]:
        """A file to be read in pieces during a block. On a disk it can be read to the end even after it was removed."""
        ...

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes [start, stop) of a file for each range, several at once."""
        ...

    def will_need(self, key: str, start: int, stop: int) -> None:
        """Say that these bytes are read soon. Nothing waits, and nothing is an error: `read` finds that out."""
        ...

    def opens(self) -> tuple[int, int]:
        """How many reads found their file open, and how many opened it; nothing is opened in a store."""
        ...

    def counts(self) -> RequestCounts:
        """The counts of requests through this object so far; a disk makes none."""
        ...

    # Writing

    def scratch(self, name: str) -> Path:
        """A new path on this host's disk, for a file or folder that the caller removes, or a later job."""
        ...

    def make(self, *, dry_run: bool = False) -> None:
        """Make the root, if it does not exist; not in a `dry_run`. OutputError if it cannot be made, as where a file
        has its name, or if it may not be written to, as far as that is known."""
        ...

    def put_new(self, key: str, data: bytes) -> bool:
        """Put a file under a free key. False if the key is taken by a file with another content."""
        ...

    def put_new_file(self, key: str, file: Path) -> bool:
        """Like `put_new` with the content of a file on this host's disk."""
        ...

    def replace(self, key: str, data: bytes, version: str | None) -> bool:
        """Replace a file if it still has this version, or put it if `version` is None and there is none. False if the
        file has another version, or is gone; the caller reads it again. There it may find what it meant to write: the
        answer of a store was lost, and another writer came after."""
        ...

    def start(self, stem: str, suffix: str) -> Upload:
        """Start a file whose key is `stem`, what makes it differ from every other content, and `suffix`."""
        ...

    def remove(self, key: str) -> None:
        """Remove a file, or a folder with all that is in it. Its key disappears first. Nothing happens if there is
        none."""
        ...

    def take(self, key: str) -> Taken | None:
        """Take a file aside, where that is possible, to look once more before it is removed. None if there is none."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """The lock of the one job that writes here. DatasetBusyError if another process holds it.

        A crash needs no cleaning up. Inside the block, what dead writers left behind is gone: temporary files, and
        unfinished uploads. Correctness rests on `put_new`, not on this lock, which some file systems do not have.
        """
        ...
