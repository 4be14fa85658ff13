"""Copies of large snapshots' tables, decoded, in a cache folder of the host: all its processes map the same one.

    <key>/tables       the arrays of all tables, back to back
    <key>/checksums    the CRC-32C of each array, in pieces
    <key>/stamp        where each array lies, and what the file `tables` was like when it was last checked
    making-<...>/      a copy that is being made
    .lock              held by the process that makes one

`key` is a hash of what is in the snapshot, so a copy never becomes wrong. A copy is made under another name, and gets
its own in one step. Whatever is the matter with the folder, the snapshot itself can be read: nothing here is an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from ...errors import DatasetError, OutputError
from ...storage.network_folders import shared_between_hosts
from ...storage.scratch import scratch_folder
from ...storage.this_process import boot
from ..ragged import Array
from ..tables import Manifest
from .mapped_tables import CheckedRows, MappedFile, NewTables, Place, arrays_of, mapped
from .new_arrays import NewArray

# Copies that no process has opened for so long go when the next one is made: a dataset that grows leaves one for each
# snapshot.
_UNUSED_SECONDS = 7 * 24 * 3600.0
# Copies take at most this part of what the disk would have free without them.
_PART_OF_FREE = 2
# Another process is at it. A billion frames take some ten seconds.
_WAIT_SECONDS = 120.0
_MAKING = "making-"


@dataclass(frozen=True)
class HostCopies:
    """The copies in a folder of this host, which take at most `max_bytes` together; None is half of what the disk would
    have free without them. A snapshot whose encoded tables have less than `min_bytes` has no copy: it is decoded in a
    tenth of a second."""

    folder: Path
    max_bytes: int | None = None
    min_bytes: int = 16 << 20

    def find(self, key: str) -> Manifest | None:
        """The manifest with this key, if there is a copy of it."""
        return _opened(self.folder / key)

    def tables(self, key: str, read: Callable[[NewArray], Manifest]) -> Manifest | None:
        """The manifest with this key, from its copy, which is made of what `read` gives if there is none.

        `read` gets a function that makes the arrays to read into, and asks for no other copy. None if there can be no
        copy: the disk is full or read-only, the snapshot cannot be read, or another process takes too long to make it.
        """
        copy = self.folder / key
        found = _opened(copy)
        if found is not None:
            return found
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with _lock(self.folder / ".lock"):
                return _opened(copy) or self._made(copy, read)
        except (OSError, DatasetError):
            return None

    def _made(self, copy: Path, read: Callable[[NewArray], Manifest]) -> Manifest:
        self._remove_leftovers()
        making = self.folder / f"{_MAKING}{uuid.uuid4().hex[:12]}"
        making.mkdir()
        try:
            max_bytes = self._limit()
            descriptor = os.open(making / "tables", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            tables = NewTables(descriptor, max_bytes=max_bytes)
            file = MappedFile(descriptor, tables.places)
            _try_lock(descriptor)
            tables.add(arrays_of(read(tables.new)))
            _write(making / "checksums", tables.checksums)
            _write(making / "stamp", vars(_Stamp(tables.places, tables.num_bytes, _state(descriptor))))
            # Another process may have made the same copy, where locks do not work. Then this one has it to itself.
            with contextlib.suppress(OSError):
                making.rename(copy)
            self._make_room(copy)
            return mapped(file)
        finally:
            shutil.rmtree(making, ignore_errors=True)

    def _limit(self) -> int:
        if self.max_bytes is not None:
            return self.max_bytes
        taken = sum(_num_bytes(copy) for copy in self._copies())
        return (shutil.disk_usage(self.folder).free + taken) // _PART_OF_FREE

    def _copies(self) -> list[Path]:
        """All copies, the one that was opened longest ago first."""
        with_times = []
        for copy in self.folder.iterdir():
            with contextlib.suppress(OSError):
                with_times.append(((copy / "stamp").stat().st_mtime, copy))
        return [copy for _, copy in sorted(with_times) if not copy.name.startswith(_MAKING)]

    def _make_room(self, keep: Path) -> None:
        """Remove copies that nobody uses, and then those that were opened longest ago, until the limit holds. Processes
        that have mapped a copy keep it."""
        others = [copy for copy in self._copies() if copy != keep]
        limit = self._limit()
        taken = _num_bytes(keep) + sum(_num_bytes(copy) for copy in others)
        for copy in others:
            with contextlib.suppress(OSError):
                unused = time.time() - (copy / "stamp").stat().st_mtime > _UNUSED_SECONDS
                if unused or taken > limit:
                    taken -= _num_bytes(copy)
                    _remove(copy)

    def _remove_leftovers(self) -> None:
        """Remove what processes left behind that were killed while they made a copy."""
        for leftover in self.folder.glob(f"{_MAKING}*"):
            try:
                with (leftover / "tables").open("rb") as file:
                    # Its maker holds this lock as long as it lives.
                    if _try_lock(file.fileno()):
                        shutil.rmtree(leftover, ignore_errors=True)
            except FileNotFoundError:
                # Its maker was killed before the file was made. Others wait for the lock of the folder.
                shutil.rmtree(leftover, ignore_errors=True)
            except OSError:
                pass


def copies_in(cache_dir: Path | None) -> HostCopies | None:
    """The copies below a cache folder, by default below the user's own; in the folder for temporary files where several
    hosts have the cache folder. None where the user has none."""
    if cache_dir is None:
        try:
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        except RuntimeError:
            return None
        cache_dir = Path(base) / "shortgop"
    if shared_between_hosts(cache_dir) is not None:
        # A host may remove a copy that another has mapped. NFS then ends that process with SIGBUS, or reads fail.
        try:
            cache_dir = scratch_folder()
        except (OSError, OutputError):
            return None
    return HostCopies(cache_dir / "tables")


@dataclass(frozen=True)
class _Stamp:
    """What is known of a copy. `state` is that of its file when it was made, or when its checksums were last compared:
    any later change to it shows there."""

    places: Mapping[str, Place]
    num_bytes: int
    state: list[Any] = field(default_factory=list)


def _state(descriptor: int) -> list[Any]:
    """What changes with every change to a file. After a crash of the system its last pages may be lost, and so a file
    counts only as long as the system runs."""
    status = os.fstat(descriptor)
    # Where the start of the system is not known, the checksums are compared each time.
    this_boot = boot() or uuid.uuid4().hex
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, this_boot]


def _opened(copy: Path) -> Manifest | None:
    """The manifest in a copy. None if there is none, or it is damaged: then it is removed."""
    try:
        stamp = _read_stamp(copy)
        file = MappedFile(os.open(copy / "tables", os.O_RDONLY), stamp.places)
        state = _state(file.descriptor)
        if state != stamp.state:
            if state[1] < stamp.num_bytes or not _is_as_it_was_made(copy, file):
                _remove(copy)
                return None
            # A folder that is not this user's need not take it.
            with contextlib.suppress(OSError):
                _write(copy / "stamp", vars(_Stamp(stamp.places, stamp.num_bytes, state)))
        with contextlib.suppress(OSError):
            os.utime(copy / "stamp")
        return mapped(file)
    except OSError:
        return None
    except (ValueError, TypeError, KeyError):
        with contextlib.suppress(OSError):
            _remove(copy)
        return None


def _read_stamp(copy: Path) -> _Stamp:
    """ValueError, TypeError or KeyError if it is not as it was written."""
    content = _read(copy / "stamp")
    places = {name: (dtype, start, rows) for name, (dtype, start, rows) in content["places"].items()}
    return _Stamp(places, content["num_bytes"], content["state"])


def _read(file: Path) -> Any:
    """What `_write` wrote. ValueError if it is not as it was written."""
    checksum, _, text = file.read_bytes().partition(b"\n")
    if int(checksum, 16) != google_crc32c.value(text):
        raise ValueError("its CRC-32C differs")
    return json.loads(text)


def _write(file: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content).encode()
    temporary = file.with_name(f"{file.name}.{uuid.uuid4().hex[:12]}")
    temporary.write_bytes(b"%08x\n%b" % (google_crc32c.value(text), text))
    temporary.replace(file)


def _is_as_it_was_made(copy: Path, file: MappedFile) -> bool:
    """Whether all arrays of a copy's file have their checksums. ValueError if these are damaged."""
    try:
        checksums: Mapping[str, Sequence[CheckedRows]] = _read(copy / "checksums")
    except FileNotFoundError:
        return False
    size = os.fstat(file.descriptor).st_size
    if not size:
        return True
    with mmap.mmap(file.descriptor, size, access=mmap.ACCESS_READ) as memory:
        return all(
            _checksum(memory, start + first * itemsize, rows * itemsize) == checksum
            for name, (dtype, start, _) in file.places.items()
            for itemsize in (np.dtype(dtype).itemsize,)
            for first, rows, checksum in checksums[name]
        )


def _checksum(memory: mmap.mmap, start: int, num_bytes: int) -> int:
    view: Array = np.frombuffer(memory, "u1", num_bytes, start) if num_bytes else np.zeros(0, "u1")
    return int(google_crc32c.value(view))


def _num_bytes(copy: Path) -> int:
    try:
        return (copy / "tables").stat().st_size
    except OSError:
        return 0


def _remove(copy: Path) -> None:
    """Remove a copy. Its name disappears in one step."""
    aside = copy.with_name(f"{_MAKING}{uuid.uuid4().hex[:12]}")
    copy.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _lock(file: Path) -> Iterator[None]:
    """One process at a time makes a copy. TimeoutError if another is at it for too long."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Whether no other process has the lock. True where there are no locks: they only save work."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
