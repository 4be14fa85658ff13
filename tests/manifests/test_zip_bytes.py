"""Small zip files in memory are what zipfile makes of the same members, and say when they are damaged."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.manifests.zarr_files import zarr_zip, zip_bytes

FILES = st.dictionaries(st.text(st.characters(exclude_categories=("Cs", "Cc"))), st.binary(max_size=40), max_size=8)


def by_zipfile(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name)
            info.external_attr = zip_bytes.FILE_MODE
            archive.writestr(info, files[name])
    return packed.getvalue()


def members(data: bytes, names: list[str]) -> dict[str, bytes]:
    open_member = zarr_zip.opened(data)
    return {name: open_member(name).read() for name in names}


# zipfile takes a name that ends with a slash for a folder.
@given(FILES.filter(lambda files: not any(name.endswith("/") for name in files)))
def test_the_bytes_are_those_of_zipfile(files: dict[str, bytes]) -> None:
    assert zip_bytes.packed(files) == by_zipfile(files)


@given(FILES)
def test_members_are_found_without_zipfile(files: dict[str, bytes]) -> None:
    data = zip_bytes.packed(files)
    assert data is not None
    found = zip_bytes.unpacked(data)
    assert found is not None
    assert {name: data[start : start + size] for name, (start, size, _) in found.items()} == files
    assert members(data, list(files)) == files
    with pytest.raises(KeyError):
        zarr_zip.opened(data)("another name")


@given(FILES.filter(len), st.data())
def test_a_damaged_file_never_gives_other_bytes(files: dict[str, bytes], data: st.DataObject) -> None:
    packed = bytearray(zip_bytes.packed(files) or b"")
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.sampled_from([len(packed), at]))
    try:
        found = members(bytes(packed[:cut]), list(files))
    except Exception:  # noqa: BLE001  # zipfile has half a dozen exceptions for damaged files
        return
    assert found == files


def test_compressed_and_dated_files_are_left_to_zipfile() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"a" * 1000)
    assert zip_bytes.unpacked(packed.getvalue()) is None
    assert members(packed.getvalue(), ["a"]) == {"a": b"a" * 1000}


def test_files_that_need_lengths_of_64_bits_are_left_to_zipfile(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a": b"abc", "b": b"defg"}
    monkeypatch.setattr(zip_bytes, "_MOST_BYTES", 7)
    assert zip_bytes.packed(files) is None
    assert zarr_zip.pack(files) == by_zipfile(files)
    monkeypatch.setattr(zip_bytes, "_MOST_BYTES", 8)
    assert zip_bytes.packed(files) == by_zipfile(files)
    monkeypatch.setattr(zip_bytes, "_MOST_MEMBERS", 2)
    assert zip_bytes.packed(files) is None
