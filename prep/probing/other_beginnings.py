"""Recordings behind the first one of a file, or of a playlist, whose beginnings say otherwise how they are read.

FFmpeg reads the beginning of the first one only, and decodes all of them by it. Often no decoder notices: with other
parameters H.264 decodes to wrong pictures without an error.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from av.video.stream import VideoStream

from ...errors import CorruptDataError
from ...manifests.mp4 import Box, boxes, child, children
from .access_units import hevc_parameter_sets
from .matroska_elements import files_in, track_of
from .mp4_fragments import top_boxes

# Sample entries with which frames of H.264 and HEVC say how they are decoded, as those of other codecs do.
_SAY_IN_FRAMES = (b"avc3", b"hev1", b"dvav", b"dvhe")
_SAY_THEMSELVES = ("vp8", "vp9", "libvpx", "libvpx-vp9", "av1", "libdav1d", "libaom-av1", "mjpeg")
_ENTRY_FIELDS_BYTES, _STSD_FIELDS_BYTES = 78, 8
# As elsewhere, a longer one is damaged.
_MAX_MOOV_BYTES = 1 << 26
# RFC 9559 (Matroska), 5.1.4.1.
_CODEC_PRIVATE = 0x63A2
# How the tracks of pictures are read, by their ids: units in a second, what holds for samples that do not say it
# themselves, the kind of the sample entry, and parameters.
Statement = dict[int, tuple[int, bytes, bytes, bytes]]


def why_misread_fragments(path: str) -> str:
    """Why FFmpeg misreads a later part of an MP4 of fragments, and what to do: the end of a sentence about the file. ""
    if it does not."""
    found = _moovs(path)
    if len(found) < 2:
        return ""
    stated = []
    with Path(path).open("rb") as file:
        for begin, position, length in found:
            file.seek(position)
            stated.append((begin, statement_of(file.read(length))))
    return _why([(begin, each) for begin, each in stated if each], ".mp4")


def why_misread_segments(path: str, stream: VideoStream) -> str:
    """The same for Matroska files that were joined, which are read from their beginning to their end."""
    if stream.codec_context.name in _SAY_THEMSELVES:
        return ""
    tracks = [(begin, dict(track_of(path, stream.index, begin))) for begin in files_in(path)]
    stated = [(begin, track.get(_CODEC_PRIVATE, b"")) for begin, track in tracks if track]
    if stream.codec_context.name == "hevc":
        stated = [(begin, b"".join(hevc_parameter_sets(private))) for begin, private in stated]
    return _why([(begin, each) for begin, each in stated if each], Path(path).suffix)


def statement_of(init: bytes) -> Statement:
    """What the beginning of an MP4 says of its tracks of pictures; nothing where it cannot be read."""
    try:
        moov = next((box for box in boxes(init) if box.type == b"moov"), None)
        return {} if moov is None else dict(_tracks(init, moov))
    except (CorruptDataError, struct.error):
        return {}


def _why(stated: Sequence[tuple[int, Statement | bytes]], suffix: str) -> str:
    """`stated`: where each recording begins, and what that says."""
    at = next((later for (_, one), (later, other) in pairwise(stated) if one != other), None)
    if at is None:
        return ""
    return (
        f"has another recording from byte {at} on, which is encoded with other parameters, and FFmpeg reads it by "
        f"those of the first one; give both by themselves: OUT1{suffix} of `head -c {at} FILE > OUT1{suffix}` and "
        f"OUT2{suffix} of `tail -c +{at + 1} FILE > OUT2{suffix}`"
    )


def _moovs(path: str) -> list[tuple[int, int, int]]:
    """Where each beginning of fragments of an MP4 starts, with its ftyp, where its moov lies, and how long it is."""
    found, begin = [], -1
    moov: tuple[int, int, int] | None = None
    for kind, position, length in top_boxes(path):
        if kind in (b"moof", b"mdat"):
            begin = -1
        elif begin < 0:
            begin = position
        if kind == b"moov":
            moov = (begin, position, length) if length <= _MAX_MOOV_BYTES else None
        elif kind == b"moof" and moov is not None:
            found.append(moov)
            moov = None
    return found


def _tracks(data: bytes, moov: Box) -> list[tuple[int, tuple[int, bytes, bytes, bytes]]]:
    defaults = [trex for mvex in children(data, moov, b"mvex") for trex in children(data, mvex, b"trex")]
    found = []
    for trak in children(data, moov, b"trak"):
        mdia = child(data, trak, b"mdia")
        if data[child(data, mdia, b"hdlr").body :][8:12] != b"vide":
            continue
        header, units = child(data, trak, b"tkhd"), child(data, mdia, b"mdhd")
        track = _word(data, header.body + (20 if data[header.body] == 1 else 12))
        usual = [data[trex.body : trex.stop] for trex in defaults if _word(data, trex.body + 4) == track]
        stsd = child(data, child(data, child(data, mdia, b"minf"), b"stbl"), b"stsd")
        entry = next(boxes(data, stsd.body + _STSD_FIELDS_BYTES, stsd.stop))
        timescale = _word(data, units.body + (20 if data[units.body] == 1 else 12))
        found.append((track, (timescale, b"".join(usual), entry.type, _parameters(data, entry))))
    return found


def _parameters(data: bytes, entry: Box) -> bytes:
    """With which parameters the pictures of a sample entry are decoded; b"" where these are in the pictures."""
    if entry.type in _SAY_IN_FRAMES:
        return b""
    at = entry.body + _ENTRY_FIELDS_BYTES
    inside = Box(entry.type, entry.start, at, entry.stop)
    for box in children(data, inside, b"avcC"):
        return data[box.body : box.stop]
    for box in children(data, inside, b"hvcC"):
        return b"".join(hevc_parameter_sets(data[box.body : box.stop]))
    return b""


def _word(data: bytes, at: int) -> int:
    return int(struct.unpack_from(">I", data, at)[0])
