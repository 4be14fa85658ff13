"""Files in a folder of this host: a local disk, or a network file system."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ..errors import OutputError
from ..whole_files import (
    commit,
    commit_by_content,
    commit_bytes,
    discard,
    discarding,
    refuse_unwritable,
    replace_bytes,
    temporary_path,
    writing,
)
from .disk_lock import REPLACE_LOCK_FILE, disk_lock, replace_lock
from .interface import LOCK_KEY, OpenedFile, Stored, Taken, Upload
from .network import RequestCounts
from .open_files import OpenFiles, read_exactly

_ABSENT = (errno.ENOENT, errno.ENOTDIR)
# ESTALE: another host has removed it.
_GONE = (errno.ENOENT, errno.ESTALE)
# No file of a dataset: what NFS makes of a file that is removed or replaced while a process has it open.
_REMOVED_BY_NFS = re.compile(r"\.nfs[0-9a-f]{16,}")
_NO_FILES = (".tmp", LOCK_KEY, REPLACE_LOCK_FILE)
# Each time another host replaced the file meanwhile.
_MAX_LOOKS = 10
_HASH_BYTES = 1 << 20
# Far below the 1024 descriptors that a process usually may have. Where the limit is low, at most a quarter of it.
_MAX_OPEN_FILES = 64
_MAX_PART_OF_DESCRIPTORS = 4

Found = TypeVar("Found")


class DiskStorage:
    """Files below a folder: see `Storage`.

    .tmp/            files being written; never read, removed when a job ends or the next one starts
    .lock            which process holds the lock; overwritten in place, and nothing depends on its content
    .replace-lock    empty; held while a file is replaced

    NFS keeps for some seconds what it found, also that there was nothing. Opening a folder makes it look again.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # A copy by pickle may be opened in a process that has another current folder.
        self.folder = Path(folder).absolute()
        self.url = str(self.folder)

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"DiskStorage({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiskStorage) and other.url == self.url

    def __hash__(self) -> int:
        return hash(self.url)

    def __reduce__(self) -> tuple[type[DiskStorage], tuple[str]]:
        return DiskStorage, (self.url,)

    @cached_property
    def _open_files(self) -> OpenFiles:
        return OpenFiles(_max_open_files())

    def place(self, key: str) -> str:
        return f"{self.url}/{key}" if key else self.url

    def find(self, key: str) -> Stored | None:
        try:
            # Making a Path takes longer than this call.
            status = self._looked_up(key, lambda: os.stat(self.place(key)))  # noqa: PTH116
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        return _stored(key, status) if stat.S_ISREG(status.st_mode) else None

    def files(self, folder: str, *, odd_keys: bool = False) -> Iterator[Stored]:
        del odd_keys  # a disk has none
        try:
            entries = os.scandir(self.place(folder))
        except OSError as error:
            if error.errno in _ABSENT:
                return
            raise
        with entries:
            for entry in entries:
                if (not folder and entry.name in _NO_FILES) or _REMOVED_BY_NFS.fullmatch(entry.name):
                    continue
                key = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir():
                    yield from self.files(key)
                    continue
                # It may be removed meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    yield _stored(key, entry.stat())

    def read(self, key: str, start: int = 0, stop: int | None = None, *, again: bool = False) -> bytes:
        if stop is None:
            return self._looked_up(key, lambda: _read_from(self.place(key), start))
        return self._open_files.read(self.place(key), start, stop, reopen=again)

    @contextlib.contextmanager
    def open(self, key: str) -> Iterator[OpenedFile]:
        descriptor, status = self._looked_up(key, lambda: _opened(self.place(key)))
        try:
            yield _DiskFile(descriptor, _stored(key, status))
        finally:
            os.close(descriptor)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read(key, start, stop) for start, stop in ranges]

    def will_need(self, key: str, start: int, stop: int) -> None:
        self._open_files.will_need(self.place(key), start, stop)

    def opens(self) -> tuple[int, int]:
        return self._open_files.hits_and_misses

    def counts(self) -> RequestCounts:
        return RequestCounts()

    def scratch(self, name: str) -> Path:
        return temporary_path(self.folder, name)

    def make(self, *, dry_run: bool = False) -> None:
        with writing(self.folder):
            if self.folder.exists() and not self.folder.is_dir():
                raise OutputError(f"{self} is a file; a dataset needs a folder: name another place", file=self.url)
            if self.folder.is_symlink() and not self.folder.exists():
                to = str(self.folder.readlink())
                raise OutputError(
                    f"{self} is a link to {to!r}, which does not exist; make that folder, or take the link away",
                    file=self.url,
                )
            if dry_run:
                refuse_unwritable(self.folder)
            else:
                self.folder.mkdir(parents=True, exist_ok=True)

    def put_new(self, key: str, data: bytes) -> bool:
        final = self.folder / key
        return commit_bytes(self.folder, final, data) or _has_bytes(final, data)

    def put_new_file(self, key: str, file: Path) -> bool:
        final, temporary = self.folder / key, temporary_path(self.folder, Path(key).name)
        with discarding(temporary), writing(final):
            # Not a hard link: a later change of the file would change the dataset.
            shutil.copyfile(file, temporary)
            committed = commit(temporary, final) or filecmp.cmp(temporary, final, shallow=False)
        discard(temporary)
        return committed

    def replace(self, key: str, data: bytes, version: str | None) -> bool:
        if version is None:
            return self.put_new(key, data)
        final = self.folder / key
        with writing(final), replace_lock(self.folder):
            # Another host may have replaced it while this one waited for the lock.
            _look_again(final.parent)
            now = self.find(key)
            if now is None or now.version != version:
                return False
            # Where locks do not work, another writer may replace the file between the comparison and this.
            replace_bytes(self.folder, final, data)
        return True

    def _looked_up(self, key: str, look: Callable[[], Found]) -> Found:
        """What `look` gives. If it finds no file, or one that another host has removed, it looks once more, or until it
        finds the file that came in its place."""
        for _ in range(_MAX_LOOKS):
            try:
                return look()
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                is_absent = error.errno == errno.ENOENT
            _look_again(Path(self.place(key)).parent)
            if is_absent:
                break
        return look()

    def start(self, stem: str, suffix: str) -> Upload:
        return _DiskUpload(self.folder, stem, suffix)

    def remove(self, key: str) -> None:
        taken = self.take(key)
        if taken is not None:
            taken.remove()

    def take(self, key: str) -> Taken | None:
        path = self.folder / key
        with writing(path), contextlib.suppress(FileNotFoundError):
            return _DiskTaken(self.folder, path)
        return None

    def lock(self) -> AbstractContextManager[None]:
        return disk_lock(self.folder)


@dataclass(frozen=True)
class _DiskFile:
    descriptor: int
    stored: Stored

    def read(self, start: int, stop: int) -> bytes:
        data = read_exactly(self.descriptor, start, stop)
        if data is None:
            raise EOFError(f"the file ends before byte {stop}")
        return data

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        """The system reads ahead by itself."""


class _DiskUpload:
    """A file below .tmp. Its name holds a hash of its content: an attempt that is repeated finds its file."""

    def __init__(self, folder: Path, stem: str, suffix: str) -> None:
        self._folder = folder
        self._final = folder / f"{stem}{suffix}"
        self._stem, self._suffix = stem, suffix
        self._temporary = temporary_path(folder, self._final.name)
        self._digest = _new_digest()
        self.num_bytes = 0
        with writing(self._final):
            self._file = self._temporary.open("w+b")

    def write(self, data: bytes) -> None:
        with writing(self._final):
            self._file.write(data)
        self.num_bytes += len(data)
        self._digest.update(data)

    def cut(self, num_bytes: int) -> int:
        if num_bytes == self.num_bytes:
            return num_bytes
        with writing(self._final):
            self._file.flush()
            self._file.seek(0)
            self._digest, left = _new_digest(), num_bytes
            while left:
                data = self._file.read(min(left, _HASH_BYTES))
                self._digest.update(data)
                left -= len(data)
            self._file.seek(num_bytes)
            self._file.truncate()
        self.num_bytes = num_bytes
        return num_bytes

    def commit(self) -> str:
        with writing(self._final):
            self._file.close()
        folder, _, stem = self._stem.rpartition("/")
        name = commit_by_content(
            self._temporary, self._folder / folder, f"{stem}-{self._digest.hexdigest()}", self._suffix
        )
        return f"{folder}/{name}" if folder else name

    def discard(self) -> None:
        # Closing flushes, which fails again on a full disk; the file is removed in any case.
        with contextlib.suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


class _DiskTaken:
    def __init__(self, folder: Path, path: Path) -> None:
        self._path = path
        self._aside = temporary_path(folder, path.name)
        path.rename(self._aside)

    def put_back(self) -> None:
        commit(self._aside, self._path)

    def remove(self) -> None:
        with writing(self._path):
            discard(self._aside)


def _read_from(path: str, start: int) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(start)
        return file.read()


def _opened(path: str) -> tuple[int, os.stat_result]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return descriptor, os.fstat(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def _look_again(folder: Path) -> None:
    """Let NFS forget what it had found in a folder, if that has changed since: also that there is no such folder."""
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    except OSError as error:
        if error.errno not in _GONE or folder == folder.parent:
            return
        _look_again(folder.parent)
        with contextlib.suppress(OSError):
            os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))


def _stored(key: str, status: os.stat_result) -> Stored:
    version = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return Stored(key, status.st_size, status.st_mtime_ns, version)


def _has_bytes(file: Path, data: bytes) -> bool:
    with writing(file):
        return file.stat().st_size == len(data) and file.read_bytes() == data


def _new_digest() -> Any:
    return hashlib.blake2b(digest_size=8)


def _max_open_files() -> int:
    # -1 where there is no limit.
    allowed = os.sysconf("SC_OPEN_MAX")
    return min(_MAX_OPEN_FILES, max(1, allowed // _MAX_PART_OF_DESCRIPTORS)) if allowed > 0 else _MAX_OPEN_FILES
