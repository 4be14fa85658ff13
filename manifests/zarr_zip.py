"""Zarr stores in one file: zip files without compression, written with fixed dates and read by position.

The same members give the same bytes. Members are not compressed, so a few rows of a long array take a few positional
reads. zipfile reads only the directory, once for each file.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO, cast

from ..errors import CorruptDataError
from .zarr_read import OpenFile

_FILE_MODE = 0o644 << 16
_COPY_BYTES = 1 << 20
# The local header before each member. Its last fields are the lengths of the name and of the extra field after it.
_HEADER = struct.Struct("<4s22xHH")


def pack(files: Mapping[str, bytes]) -> bytes:
    """The bytes of a zip file with these members."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            archive.writestr(_info(name), files[name])
    return packed.getvalue()


def pack_folder(folder: Path, target: Path) -> None:
    """Write a zip file with every file below `folder`, in bounded memory."""
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    with zipfile.ZipFile(target, "w") as archive:
        for name in names:
            info = _info(name)
            # With this size zipfile decides whether the member needs 64-bit lengths.
            info.file_size = (folder / name).stat().st_size
            with (folder / name).open("rb") as source, archive.open(info, "w") as member:
                shutil.copyfileobj(source, member, _COPY_BYTES)


def _info(name: str) -> zipfile.ZipInfo:
    # A ZipInfo made by hand has a fixed date.
    info = zipfile.ZipInfo(name)
    info.external_attr = _FILE_MODE
    return info


@contextlib.contextmanager
def reading(file: Path) -> Iterator[OpenFile]:
    """Yields the function that opens a zip file's members. It raises KeyError for a name that the file does not have.

    The file stays open during the block, so it can be read to the end even after its name was removed.
    """
    with _opened(file) as (descriptor, directory):
        yield partial(_open_member, descriptor, directory)


def contents(file: Path) -> dict[str, tuple[int, int]]:
    """The length and the CRC-32 of each member, by name."""
    with _opened(file) as (_, directory):
        return {name: (member.size, member.crc32) for name, member in directory.items()}


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[tuple[int, dict[str, _Member]]]:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        yield descriptor, _directory(file, identity)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Member:
    header: int
    size: int
    crc32: int
    stored: bool


# Zip files of a dataset are never replaced. The identity is for a damaged file that was copied again.
@lru_cache(maxsize=32)
def _directory(file: Path, _identity: tuple[int, ...]) -> dict[str, _Member]:
    try:
        with zipfile.ZipFile(file) as archive:
            return {
                info.filename: _Member(
                    info.header_offset, info.file_size, info.CRC, info.compress_type == zipfile.ZIP_STORED
                )
                for info in archive.infolist()
            }
    except OSError:
        raise
    except Exception as error:
        # zipfile reports a failing disk as a bad zip file too. It also seeks before the start of a file that is too
        # short, which gives EINVAL.
        cause = error.__context__
        if isinstance(cause, OSError) and cause.errno != errno.EINVAL:
            raise cause from None
        # zipfile has half a dozen exceptions for damaged files.
        raise CorruptDataError(f"not a whole zip file: {type(error).__name__}: {error}") from error


def _open_member(descriptor: int, directory: Mapping[str, _Member], name: str) -> BinaryIO:
    member = directory[name]
    signature, name_length, extra_length = _HEADER.unpack(_pread(descriptor, _HEADER.size, member.header))
    if signature != b"PK\3\4" or not member.stored:
        raise zipfile.BadZipFile("a member is damaged or compressed")
    start = member.header + _HEADER.size + name_length + extra_length
    return cast(BinaryIO, _MemberFile(descriptor, start, member))


class _MemberFile(io.RawIOBase):
    """A member as a file. A member that is read whole is checked against its CRC-32."""

    def __init__(self, descriptor: int, start: int, member: _Member) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._start = start
        self._member = member
        self._position = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._member.size}[whence]
        if base + offset < 0:
            raise ValueError("the position is before the member's first byte")
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._member.size - self._position)
        count = left if size < 0 else min(size, left)
        data = _pread(self._descriptor, count, self._start + self._position)
        if count == self._member.size and zlib.crc32(data) != self._member.crc32:
            raise zipfile.BadZipFile("its CRC-32 differs")
        self._position += count
        return data


def _pread(descriptor: int, count: int, start: int) -> bytes:
    data = os.pread(descriptor, count, start)
    while len(data) < count:
        # Network file systems may return less than was asked for. Only an empty result means the end of the file.
        more = os.pread(descriptor, count - len(data), start + len(data))
        if not more:
            raise EOFError(f"the file ends at byte {start + len(data)}")
        data += more
    return data
