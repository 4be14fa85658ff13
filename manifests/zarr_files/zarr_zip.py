"""Zarr stores in one file: zip files without compression, written with fixed dates and read by position.

The same members give the same bytes. Members are not compressed, so a few rows of a long array take a few positional
reads. zipfile reads only the directory, once for each file.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from ...errors import CorruptDataError
from ...storage.interface import OpenedFile, Storage
from . import zip_bytes

_COPY_BYTES = 1 << 20
_MAX_DIRECTORIES = 32
# The local header before each member. Its last fields are the lengths of the name and of the extra field after it.
_HEADER = struct.Struct("<4s22xHH")


def pack(files: Mapping[str, bytes]) -> bytes:
    """The bytes of a zip file with these members."""
    small = zip_bytes.packed(files)
    if small is not None:
        return small
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            archive.writestr(_info(name), files[name])
    return packed.getvalue()


def opened(data: bytes) -> Callable[[str], BinaryIO]:
    """A function that opens a member of a zip file by its name, or raises KeyError. A member is checked against its
    CRC-32."""
    members = zip_bytes.unpacked(data)
    if members is None:
        archive = zipfile.ZipFile(io.BytesIO(data))
        return lambda name: cast(BinaryIO, archive.open(name))

    def open_member(name: str) -> BinaryIO:
        start, size, crc32 = members[name]
        content = data[start : start + size]
        if zlib.crc32(content) != crc32:
            raise zipfile.BadZipFile("its CRC-32 differs")
        return io.BytesIO(content)

    return open_member


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
    info.external_attr = zip_bytes.FILE_MODE
    return info


@dataclass(frozen=True)
class _Member:
    header: int
    size: int
    crc32: int
    stored: bool
    # Where the next member begins, or the directory.
    end: int


@dataclass(frozen=True, eq=False)
class Members:
    """The members of an open zip file: an OpenFile. KeyError for a name that the file does not have."""

    file: OpenedFile
    directory: Mapping[str, _Member]
    # Where the bytes of members begin that were opened before: a long array is opened once for each of its chunks.
    starts: dict[str, int] = field(default_factory=dict)

    def __call__(self, name: str) -> BinaryIO:
        start = self.starts.get(name)
        if start is None:
            start = self.starts[name] = _start_of_member(self.file, self.directory[name])
        return cast(BinaryIO, _MemberFile(self.file, start, self.directory[name]))

    def contents(self) -> dict[str, tuple[int, int]]:
        """The length and the CRC-32 of each member, by name. None of them is read."""
        return {name: (member.size, member.crc32) for name, member in self.directory.items()}

    def will_need(self, soon: Callable[[str], bool]) -> None:
        """Say of which members all is read soon."""
        self.file.will_need([(each.header, each.end) for name, each in self.directory.items() if soon(name)])


@contextlib.contextmanager
def reading(storage: Storage, key: str, soon: Callable[[str], bool] = lambda _: False) -> Iterator[Members]:
    """Yields the members of a zip file.

    The file stays open during the block. `soon` says of each member whether the block is about to read it whole.
    """
    with storage.open(key) as file:
        members = Members(file, _directory(storage, file))
        members.will_need(soon)
        yield members


# Zip files of a dataset are never replaced. The version is for a damaged file that was copied again.
_directories: OrderedDict[tuple[str, str, str], dict[str, _Member]] = OrderedDict()


def _directory(storage: Storage, file: OpenedFile) -> dict[str, _Member]:
    """What zipfile reads of a file's directory, once for each file."""
    which = (storage.url, file.stored.key, file.stored.version)
    found = _directories.get(which)
    if found is None:
        found = _directories[which] = _read_directory(file)
        while len(_directories) > _MAX_DIRECTORIES:
            # Another thread may have removed it.
            with contextlib.suppress(KeyError):
                _directories.popitem(last=False)
    return found


def _read_directory(file: OpenedFile) -> dict[str, _Member]:
    try:
        with zipfile.ZipFile(cast(BinaryIO, _WholeFile(file))) as archive:
            infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
            ends = [*(info.header_offset for info in infos[1:]), archive.start_dir]
            members = {
                info.filename: _Member(
                    info.header_offset, info.file_size, info.CRC, info.compress_type == zipfile.ZIP_STORED, end
                )
                for info, end in zip(infos, ends, strict=False)
            }
    except OSError:
        raise
    except Exception as error:
        # zipfile reports a failing disk as a bad zip file too.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        # zipfile has half a dozen exceptions for damaged files.
        raise CorruptDataError(f"not a whole zip file: {type(error).__name__}: {error}") from error
    if any(member.header < 0 for member in members.values()):
        # zipfile counts offsets from the end of the file.
        raise CorruptDataError("not a whole zip file: bytes are missing at its front")
    return members


def _start_of_member(file: OpenedFile, member: _Member) -> int:
    header = file.read(member.header, member.header + _HEADER.size)
    if not member.stored:
        raise zipfile.BadZipFile("a member is compressed")
    return member.header + _header_bytes(header)


def _header_bytes(header: bytes) -> int:
    """The length of a member's local header, from its first bytes."""
    signature, name_length, extra_length = _HEADER.unpack(header)
    if signature != b"PK\3\4":
        raise zipfile.BadZipFile("a member is damaged")
    return int(_HEADER.size + name_length + extra_length)


class _PartFile(io.RawIOBase):
    """Bytes of a file, as a file by themselves."""

    def __init__(self, file: OpenedFile, start: int, size: int) -> None:
        super().__init__()
        self._file, self._start, self._size, self._position = file, start, size, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("the position is before the first byte")
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        count = left if size < 0 else min(size, left)
        start = self._start + self._position
        data = self._file.read(start, start + count)
        self._position += count
        return data


class _WholeFile(_PartFile):
    def __init__(self, file: OpenedFile) -> None:
        super().__init__(file, 0, file.stored.num_bytes)


class _MemberFile(_PartFile):
    """A member as a file. A member that is read whole is checked against its CRC-32."""

    def __init__(self, file: OpenedFile, start: int, member: _Member) -> None:
        super().__init__(file, start, member.size)
        self._member = member

    def read(self, size: int = -1) -> bytes:
        data = super().read(size)
        if len(data) == self._member.size and zlib.crc32(data) != self._member.crc32:
            raise zipfile.BadZipFile("its CRC-32 differs")
        return data
