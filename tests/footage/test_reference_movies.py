"""QuickTime movies without pictures of their own, which name the files that have them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset
from mp4_writer import box, full_box
from shortgop.manifests.mp4 import boxes
from shortgop.prep.probing.probe import probe
from synthetic import constant_rate_pts, make_video

IN_ITSELF = 1


def alias(name: bytes) -> bytes:
    """What a Macintosh notes of a file: here its name alone."""
    return bytes(50) + bytes([len(name)]) + name.ljust(63, b"\0") + bytes(86)


@pytest.fixture
def movie(tmp_path: Path) -> Callable[[bytes], Path]:
    """Write a movie of 20 frames that says with this box where they are, and has them only if that is in itself."""
    pts = constant_rate_pts(Fraction(10), 20)
    whole = make_video(tmp_path / "whole.mov", pts=pts, timebase=Fraction(1, 10)).path.read_bytes()

    def with_reference(data: bytes, reference: bytes) -> bytes:
        parts = []
        for each in boxes(data):
            content = data[each.body : each.stop]
            if each.type in (b"moov", b"trak", b"mdia", b"minf", b"dinf"):
                content = with_reference(content, reference)
            elif each.type == b"dref":
                content = struct.pack(">II", 0, 1) + reference
            if each.type != b"mdat" or reference[11] & IN_ITSELF:
                parts.append(box(each.type, content))
        return b"".join(parts)

    def write(reference: bytes) -> Path:
        path = tmp_path / "movie.mov"
        path.write_bytes(with_reference(whole, reference))
        return path

    return write


@pytest.mark.parametrize(
    ("kind", "reference", "name"),
    [
        (b"alis", alias(b"tape 4.mov"), "tape 4.mov"),
        (b"rsrc", alias(b"tape 4.mov"), "tape 4.mov"),
        (b"url ", b"file:///Volumes/Tapes/4.mov\0", "file:///Volumes/Tapes/4.mov"),
    ],
)
def test_a_movie_whose_pictures_are_in_another_file_names_that(
    kind: bytes, reference: bytes, name: str, movie: Callable[[bytes], Path]
) -> None:
    """It was said that no frame decodes, with the advice to copy it again."""
    said = rf"movie.mov is a QuickTime reference movie: its pictures are in another file, which it calls '{name}'; give"
    with pytest.raises(shortgop.NotAVideoError, match=said):
        probe(str(movie(full_box(kind, 0, 0, reference))))


def test_a_movie_that_names_movies_of_several_qualities_says_which(tmp_path: Path) -> None:
    """It was said to have no video stream."""
    qualities = (
        (b"url ", b"fast.mov\0"),
        (b"alis", alias(b"slow.mov")),
    )
    files = (full_box(b"rdrf", 0, 0, kind, struct.pack(">I", len(name)), name) for kind, name in qualities)
    (tmp_path / "x.mov").write_bytes(box(b"moov", box(b"rmra", *(box(b"rmda", each) for each in files))))
    with pytest.raises(shortgop.NotAVideoError, match=r"reference movie: .* calls 'fast.mov', 'slow.mov'; give that"):
        probe(str(tmp_path / "x.mov"))


@pytest.mark.parametrize("reference", [full_box(b"alis", 0, IN_ITSELF), full_box(b"url ", 0, IN_ITSELF, b"x.mov\0")])
def test_a_movie_that_has_its_own_pictures_is_prepared_or_called_cut_off(
    reference: bytes, movie: Callable[[bytes], Path], tmp_path: Path
) -> None:
    path = movie(reference)
    assert make_dataset([path], tmp_path / "dataset").failures == ()
    # Without what comes before its index.
    path.write_bytes(path.read_bytes()[:28] + box(b"moov", path.read_bytes().partition(b"moov")[2]))
    with pytest.raises(shortgop.DamagedSourceError, match="copy or download it again"):
        probe(str(path))
