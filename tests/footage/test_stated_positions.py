"""Sizes and positions that damage put beyond any file are no errors of the file system, but the end of the file."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from shortgop.prep.probing.containers.matroska_elements import segment_end, top_element
from shortgop.prep.probing.containers.sample_entry import is_index_cut_off
from synthetic import constant_rate_pts, make_video

_TRACKS, _CHAPTERS = 0x1654AE6B, 0x1043A770
# An id, and a size of eight bytes: 2**55 of them.
_VOID, _FAR = b"\xec", b"\x01\x80" + bytes(6)


def made(path: Path) -> bytes:
    return make_video(path, pts=constant_rate_pts(Fraction(10), 4), timebase=Fraction(1, 10)).path.read_bytes()


def test_an_element_of_matroska_that_is_larger_than_any_file_ends_the_search(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    data = made(path)
    assert top_element(str(path), _TRACKS)
    # The segment's size has eight bytes; what follows is its first element.
    first = data.index(b"\x18\x53\x80\x67") + 12
    path.write_bytes(data[:first] + _VOID + _FAR + data[first:])
    assert top_element(str(path), _TRACKS) == b""
    path.write_bytes(_VOID + _FAR + data)
    assert segment_end(str(path)) is None


@pytest.mark.parametrize("position", [1 << 60, (1 << 72) - 1])
def test_a_list_of_elements_that_leads_beyond_any_file_leads_nowhere(tmp_path: Path, position: int) -> None:
    path = tmp_path / "a.mkv"
    data = made(path)
    first = data.index(b"\x18\x53\x80\x67") + 12
    entry = b"\x53\xab\x84" + _CHAPTERS.to_bytes(4) + b"\x53\xac\x89" + position.to_bytes(9)
    listed = b"\x4d\xbb" + bytes([0x80 | len(entry)]) + entry
    path.write_bytes(data[:first] + b"\x11\x4d\x9b\x74" + bytes([0x80 | len(listed)]) + listed + data[first:])
    assert top_element(str(path), _CHAPTERS) == b""
    assert top_element(str(path), _TRACKS)


@pytest.mark.parametrize("size", [1 << 45, (1 << 64) - 1])
def test_a_box_of_an_mp4_that_is_larger_than_any_file_ends_the_search(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.mp4"
    data = made(path)
    path.write_bytes((1).to_bytes(4) + b"free" + size.to_bytes(8) + data)
    assert not is_index_cut_off(str(path), None)
