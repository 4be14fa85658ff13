"""Sizes, positions and numbers that damage may put anywhere: those beyond any file are its end, and none is an error of
prep itself."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from shortgop.prep.probing.containers.dolby_vision import profile_without_base
from shortgop.prep.probing.containers.matroska_elements import segment_end, top_element
from shortgop.prep.probing.containers.sample_entry import is_index_cut_off
from shortgop.prep.probing.probe import probe
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


def with_size(data: bytes, kind: bytes, size: int) -> bytes:
    """An MP4 of whose last box of this kind the header states this size."""
    at = data.rindex(kind) - 4
    return data[:at] + size.to_bytes(4) + data[at + 4 :]


@pytest.mark.parametrize(
    ("kind", "movflags"), [(b"moof", "frag_keyframe+empty_moov"), (b"mdat", "frag_keyframe+empty_moov"), (b"moov", "")]
)
def test_a_fragment_or_an_index_that_goes_on_to_the_end_of_the_file_is_read(
    tmp_path: Path, kind: bytes, movflags: str
) -> None:
    """A size of 0 says so (ISO/IEC 14496-12, 4.2). FFmpeg reads all of the file, and prep ended with an error of its
    own."""
    fragments = {"movflags": movflags} if movflags else {}
    pts = constant_rate_pts(Fraction(10), 4)
    video = make_video(tmp_path / "a.mp4", pts=pts, timebase=Fraction(1, 10), gop=2, container_options=fragments)
    whole = video.path
    whole.write_bytes(with_size(whole.read_bytes(), kind, 0))
    source = probe(str(whole))
    assert (source.num_packets, source.suspicion) == (len(pts), "")


@pytest.mark.parametrize("size", [8, 16])
def test_a_track_whose_list_of_sample_entries_is_empty_is_no_error_of_prep(tmp_path: Path, size: int) -> None:
    """FFmpeg opens one of them, and reads what lies behind the list."""
    path = tmp_path / "a.mp4"
    path.write_bytes(with_size(made(path), b"stsd", size))
    if size == 8:
        with pytest.raises(shortgop.NotAVideoError, match="does not open as a video"):
            probe(str(path))
    else:
        assert probe(str(path)).num_packets == 4


def element(kind: int, *bodies: bytes) -> bytes:
    content = b"".join(bodies)
    return kind.to_bytes((kind.bit_length() + 7) // 8) + bytes([0x80 | len(content)]) + content


@pytest.mark.parametrize(("type_of_mapping", "profile"), [(b"dvcC", 5), (bytes(4) + b"dvcC", 5), (b"\xff" * 9, 0)])
def test_the_kind_of_a_mapping_of_matroska_may_have_any_length(
    tmp_path: Path, type_of_mapping: bytes, profile: int
) -> None:
    """A damaged one that no number of 64 bits holds was an error of Python's."""
    mapping = element(0x41E4, element(0x41E7, type_of_mapping), element(0x41ED, bytes([1, 0, 5 << 1, 0, 0])))
    track = element(0xAE, element(0x83, b"\1"), element(0x86, b"V_MPEGH/ISO/HEVC"), mapping)
    path = tmp_path / "a.mkv"
    path.write_bytes(element(0x18538067, element(_TRACKS, track)))
    assert profile_without_base(str(path), "matroska,webm", 0, 1) == profile
