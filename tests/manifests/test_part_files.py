"""Part files as they are read: members of a zip file in memory."""

from __future__ import annotations

import io
import zipfile

import pytest

from example_manifests import rows, video
from shortgop.errors import CorruptDataError, MissingDataError
from shortgop.manifests.dataset_files.parts import pack, unpack
from shortgop.manifests.merging.merge import merge

ATTRIBUTES = {"format_version": 4, "unit": "u1"}


def packed_again(data: bytes, compression: int, without: str = "") -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(target, "w", compression) as copy:
        for name in archive.namelist():
            if name != without:
                copy.writestr(name, archive.read(name))
    return target.getvalue()


def test_a_part_is_what_was_packed_even_if_someone_compressed_it() -> None:
    part = merge([video("a"), video("b")])
    data = pack(part, ATTRIBUTES)
    for each in (data, b"before" + data, packed_again(data, zipfile.ZIP_DEFLATED)):
        found, attributes = unpack(each)
        assert rows(found) == rows(part)
        assert attributes == ATTRIBUTES


def test_a_changed_byte_is_noticed() -> None:
    data = pack(merge([video("a")]), ATTRIBUTES)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member = archive.read("gops/crc32/c/0")
    at = data.index(member) + len(member) - 1
    with pytest.raises(CorruptDataError, match="gops/crc32/c/0 cannot be decoded: BadZipFile: its CRC-32 differs"):
        unpack(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_a_missing_member_is_named() -> None:
    data = packed_again(pack(merge([video("a")]), ATTRIBUTES), zipfile.ZIP_STORED, without="gops/crc32/c/0")
    with pytest.raises(MissingDataError, match="gops/crc32/c/0"):
        unpack(data)


def test_a_part_without_its_first_bytes_is_damaged() -> None:
    data = pack(merge([video("a")]), ATTRIBUTES)
    with pytest.raises(CorruptDataError):
        unpack(data[100:])
