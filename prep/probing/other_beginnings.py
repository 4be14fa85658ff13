"""Recordings behind the first one of a file, or of a playlist, whose beginnings say otherwise how they are read.

FFmpeg reads the beginning of the first one only, and decodes all of them by it. Often no decoder notices: with other
parameters H.264 decodes to wrong pictures without an error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from av.video.stream import VideoStream

from ...manifests.mp4 import Box, boxes, child, children
from .codec_names import codec_of
from .containers.matroska_elements import files_in, track_of
from .containers.mp4_fragments import top_boxes
from .containers.sample_entry import DAMAGED_BOXES, first_entry
from .containers.searching import found_behind, seek_within
from .containers.taking_apart import parts_remedy, remedy_without
from .headers.access_units import hevc_parameter_sets
from .picture import VP_AND_AV1

# Sample entries with which frames of H.264 and HEVC say how they are decoded, as those of other codecs do.
_SAY_IN_FRAMES = (b"avc3", b"hev1", b"dvav", b"dvhe")
_SAY_THEMSELVES = (*VP_AND_AV1, "mjpeg")
# Of AVI, those of other codecs as well.
_SAY_IN_AVI = ("h264", "hevc", "mpeg4", "mpeg1video", "mpeg2video", "dvvideo")
_RIFF = struct.Struct("<4sI4s")
# In the header of a stream: what it is, and the units in a second, as a quotient.
_AVI_KIND, _AVI_RATE = slice(0, 4), slice(20, 28)
# In its format: how many bytes a picture has, which says nothing of how it is decoded.
_AVI_IMAGE_BYTES = slice(20, 24)
_MAX_HDRL_BYTES = 1 << 20
# A GIF behind the end of another one, and the size of the canvas onto which its pictures are drawn. What lies before it
# comes last in the pattern: one that begins with plain bytes is searched for 25 times as fast.
_NEXT_GIF, _GIF_SIZE = re.compile(rb"(?s)GIF8[79]a(?<=[\0;]......)(....)"), slice(6, 10)
# The header of a frame of DV (IEC 61834-2), which says of which system it is, and how long it is.
_DV_FRAME, _DV_HEADER_BYTES, _PAL, _NTSC = re.compile(rb"(?s)\x1f\x07\0(.)"), 4, b"\x80", b"\0"
_DV_BYTES = {_PAL: 144_000, _NTSC: 120_000}
_ENTRY_FIELDS_BYTES = 78
# As elsewhere, a longer one is damaged.
_MAX_MOOV_BYTES = 1 << 26
# RFC 9559 (Matroska), 5.1.4.1.
_CODEC_PRIVATE = 0x63A2
# With what a second file begins of GXF, behind the last packet of the first one, and of RealMedia.
_WITH_TIMES_ANEW = {
    "gxf": re.compile(rb"(?s)\xe1\xe2(?<=\0\0\0\0\x01\xfb\0\0\0\x10\0\0\0\0..)(\0\0\0\0\x01\xbc)"),
    "rm": re.compile(rb"(\.RMF\0\0\0[\x10\x12]\0[\0\1])"),
}
_ANOTHER = "has another recording from byte {at} on, {how}; {remedy}"
_PARAMETERS = "which is encoded with other parameters, and FFmpeg reads it by those of the first one"
_TIMES = "whose times begin anew, and FFmpeg reads them as those of the first one"
_WRONG_SYSTEM = (
    "has a damaged header at byte {at}, which says PAL between frames of NTSC, and FFmpeg reads all behind it from the "
    "middles of frames on; {remedy}, without this frame"
)
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
    if codec_of(stream.codec_context) in _SAY_THEMSELVES:
        return ""
    tracks = [(begin, dict(track_of(path, stream.index, begin))) for begin in files_in(path)]
    tracks = [(begin, track) for begin, track in tracks if track]
    stated = [(begin, track.get(_CODEC_PRIVATE, b"")) for begin, track in tracks]
    if codec_of(stream.codec_context) == "hevc":
        stated = [(begin, b"".join(hevc_parameter_sets(private))) for begin, private in stated]
    # FFmpeg reads no more than two of them.
    begins = [begin for begin, _ in tracks if begin]
    return _why([(begin, each) for begin, each in stated if each], Path(path).suffix, begins)


def why_misread_joined(path: str, demuxer: str, stream: VideoStream) -> str:
    """The same for files of other formats that were joined."""
    match demuxer:
        case "avi":
            return _why_misread_riffs(path, stream)
        case "dv":
            return _why_misread_dv(path)
        case "gif":
            return _why_misread_gifs(path)
        case "gxf" | "rm":
            return _why_misread_times(path, _WITH_TIMES_ANEW[demuxer])
    return ""


def _why_misread_riffs(path: str, stream: VideoStream) -> str:
    """The same for AVI files, of which FFmpeg reads all frames by the first header."""
    stated = [(begin, header) for begin, header in _riffs(path) if header]
    if len(stated) < 2:
        return ""
    decodes_by_header = codec_of(stream.codec_context) not in (*_SAY_THEMSELVES, *_SAY_IN_AVI)
    return _why(
        [(begin, _avi_stream(header, stream.index, with_format=decodes_by_header)) for begin, header in stated],
        Path(path).suffix,
    )


def _why_misread_times(path: str, start: re.Pattern[bytes]) -> str:
    """The same for files that begin with the group in `start`, of which FFmpeg takes the times of the second one for
    those of the first."""
    begins = [begin + found.start(1) - found.start() for begin, found in found_behind(path, start)]
    if not begins:
        return ""
    return _ANOTHER.format(at=begins[0], how=_TIMES, remedy=parts_remedy(begins, Path(path).suffix))


def _why_misread_dv(path: str) -> str:
    """The same for raw DV, all frames of which FFmpeg takes for as long as the first one: those of PAL are longer than
    those of NTSC. A header alone may be damaged: another system counts where the next frame is there and says so too.
    Behind one of NTSC that says PAL, FFmpeg reads frames from their middles on; behind one of PAL it does not."""
    size, at, stated = Path(path).stat().st_size, 0, b""
    with Path(path).open("rb") as file:
        while (system := _dv_system(file, at)) is not None:
            stated = stated or system
            if system != stated and _dv_goes_on(file, at, system, size):
                return _ANOTHER.format(at=at, how=_PARAMETERS, remedy=parts_remedy([at], Path(path).suffix))
            if system == _PAL != stated and _dv_goes_on(file, at, stated, size):
                remedy = remedy_without(at, at + _DV_BYTES[stated], Path(path).suffix)
                return _WRONG_SYSTEM.format(at=at, remedy=remedy)
            at += _DV_BYTES[stated]
    return ""


def _dv_goes_on(file: BinaryIO, at: int, system: bytes, size: int) -> bool:
    """Whether the next frame of this system, or the end of the file, is where this one ends if it is of that system."""
    behind = at + _DV_BYTES[system]
    return behind == size or _dv_system(file, behind) == system


def _dv_system(file: BinaryIO, at: int) -> bytes | None:
    """What the header of a frame of DV at this position says of its system; None where there is none."""
    seek_within(file, at)
    found = _DV_FRAME.match(file.read(_DV_HEADER_BYTES))
    return None if found is None else bytes([found[1][0] & _PAL[0]])


def _why_misread_gifs(path: str) -> str:
    """The same for GIFs, whose pictures FFmpeg draws onto the canvas of the first one."""
    with Path(path).open("rb") as file:
        first = file.read(_GIF_SIZE.stop)[_GIF_SIZE]
    stated = [(begin, found[1]) for begin, found in found_behind(path, _NEXT_GIF)]
    return _why([(0, first), *stated], Path(path).suffix)


def statement_of(init: bytes) -> Statement:
    """What the beginning of an MP4 says of its tracks of pictures; nothing where it cannot be read."""
    try:
        moov = next((box for box in boxes(init) if box.type == b"moov"), None)
        return {} if moov is None else dict(_tracks(init, moov))
    except DAMAGED_BOXES:
        return {}


def _why(stated: Sequence[tuple[int, Statement | bytes]], suffix: str, begins: Sequence[int] = ()) -> str:
    """`stated`: where each recording begins, and what that says. `begins`: where to take them apart, if not only where
    that changes."""
    changes = [later for (_, one), (later, other) in pairwise(stated) if one != other]
    if not changes:
        return ""
    return _ANOTHER.format(at=changes[0], how=_PARAMETERS, remedy=parts_remedy(begins or changes, suffix))


def _riffs(path: str) -> Iterator[tuple[int, bytes]]:
    """Where each AVI begins in a file of several, one behind the other, and the list of its headers."""
    size, at = Path(path).stat().st_size, 0
    with Path(path).open("rb") as file:
        while at + _RIFF.size <= size:
            file.seek(at)
            riff, length, kind = _RIFF.unpack(file.read(_RIFF.size))
            if riff != b"RIFF" or not length:
                return
            if kind == b"AVI ":
                _, header_length, name = _RIFF.unpack(file.read(_RIFF.size).ljust(_RIFF.size, b"\0"))
                is_header = name == b"hdrl" and header_length <= _MAX_HDRL_BYTES
                yield at, file.read(header_length - 4) if is_header else b""
            at += 8 + length + length % 2


def _avi_stream(header: bytes, index: int, *, with_format: bool) -> bytes:
    """What the headers of an AVI say of the stream of this index: its kind and its rate, and its format if that says
    how frames are decoded."""
    lists = [body for kind, body in _chunks(header) if kind == b"LIST" and body.startswith(b"strl")]
    streams = [dict(_chunks(body[4:])) for body in lists]
    chosen = streams[index] if index < len(streams) else {}
    header, told = chosen.get(b"strh", b""), chosen.get(b"strf", b"") if with_format else b""
    return (
        header[_AVI_KIND]
        + _in_lowest_terms(header[_AVI_RATE])
        + told[: _AVI_IMAGE_BYTES.start]
        + told[_AVI_IMAGE_BYTES.stop :]
    )


def _in_lowest_terms(rate: bytes) -> bytes:
    if len(rate) < _AVI_RATE.stop - _AVI_RATE.start:
        return rate
    scale, units = struct.unpack("<II", rate)
    return str(Fraction(units, scale or 1)).encode()


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, at)
        yield kind, data[at + 8 : at + 8 + length]
        at += 8 + length + length % 2


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
        entry = first_entry(data, stsd)
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
