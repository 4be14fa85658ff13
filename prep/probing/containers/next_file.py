"""Another file that was joined behind the first one (`cat a.ivf b.ivf`), in formats of which FFmpeg reads the first one
only, or one of another format behind it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .chains import Break, first_break
from .matroska_elements import segment_end
from .mp4_fragments import top_boxes
from .searching import found_behind, seek_within

_IVF_HEADER, _IVF_FRAME_HEADER = 32, 12
_ASF_START, _ASF_OBJECT = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"), 24
_WTV_START = bytes.fromhex("b7d800203749da11a64e0007e95ead8d")
_WTV_SECTORS_AT, _WTV_SECTOR = 0x5C, 4096
_SWF_LENGTH_AT = 4
_PNG_START, _PNG_CHUNK = b"\x89PNG\r\n\x1a\n", 12
# With what files begin, by FFmpeg's names of the formats. Those of Flash may be compressed.
_STARTS = {
    "ivf": (b"DKIF",),
    "asf": (_ASF_START,),
    "wtv": (_WTV_START,),
    "swf": (b"FWS", b"CWS", b"ZWS"),
    "apng": (_PNG_START,),
    "flv": (b"FLV\x01",),
}
# MP4s of pictures (HEIF, AVIF, raw ones of cameras, JPEG 2000), and of sound, by their brands.
_NO_VIDEO = b"hei[cfmsx]|hev[cmsx]|mif[12]|msf1|avi[fs]|avc[is]|crx |jp2 |M4[ABP] |F4[AB] |aax |aaxc"
# The first page of a stream of Ogg in which a video begins: Theora, Daala, Dirac, VP8, and others as OGM.
_OGG_VIDEO = rb"OggS\0\x02.{20}\x01.(?:\x80theora|\x80daala|BBCD\0|OVP80|\x01video)"
_NUT_START, _Y4M_START = rb"nut/multimedia container\0", rb"YUV4MPEG2 [WHFIACX]\w"
# Parameter sets, perhaps behind a delimiter, of a profile and a level that are in use, or with the bits that are
# reserved.
_H264_START = rb"\0\0\0\x01(?:\x09[\x10-\xf0]\0\0\0?\x01)?[\x27\x47\x67][\x42\x4d\x58\x64\x6e\x7a\xf4\x2c].[\x09-\x3e]"
_HEVC_START = rb"\0\0\0\x01(?:\x46\x01.\0\0\0?\x01)?\x40\x01..\xff\xff"
# A header with a code of a rate and a marker bit. Sides of multiples of 16 are no letters, as of a box of this length.
_RATE_CODED = re.escape(bytes(flags for flags in range(256) if 1 <= flags & 0x0F <= 8))
_MARKED = re.escape(bytes(flags for flags in range(256) if flags & 0x20))
_MPEG_START = rb"\0\0\x01\xb3(?![ -~]{4})...[" + _RATE_CODED + b"]..[" + _MARKED + b"]"
_TRANSPORT_PACKET = rb"\x47[\0-\x7f].[\x10-\x3f]"
# With what a video of another format begins behind a file: as AVI, Matroska, MP4, FLV, ASF, Ogg, MXF, IVF, NUT,
# YUV4MPEG2, RealMedia, WTV, raw H.264, HEVC, MPEG-1, MPEG-2 and DV, and as a program or a transport stream, also of
# packets with a time each (M2TS), of which several are looked at. Pictures and sound may well lie there, as cameras and
# programs write them. In Ogg the first page of each stream comes before all others.
_OTHERS = {
    "avi": rb"RIFF....AVI LIST",
    "matroska": rb"\x1aE\xdf\xa3.{1,40}\x42\x82.(?:matroska|webm)",
    "mov": rb"\0\0\0[\x10-\x80]ftyp(?!" + _NO_VIDEO + rb")[\w ]{4}",
    "flv": rb"FLV\x01[\x01\x05]\0\0\0\x09",
    "asf": re.escape(_ASF_START),
    "ogg": rb"(?=OggS\0\x02).{0,600}?" + _OGG_VIDEO,
    "mxf": rb"\x06\x0e\x2b\x34\x02\x05\x01\x01\x0d\x01\x02",
    "mpeg": rb"\0\0\x01\xba(?:[\x40-\x7f].{8}[\xf8-\xff]|[\x20-\x2f].{7})\0\0\x01",
    "mpegts": b"(?:" + _TRANSPORT_PACKET + b".{184}){4}" + _TRANSPORT_PACKET,
    "ivf": rb"DKIF\0\0\x20\0",
    "nut": _NUT_START,
    "yuv4mpegpipe": _Y4M_START,
    "rm": rb"\.RMF\0\0\0[\x10\x12]\0[\0\1]",
    "wtv": re.escape(_WTV_START),
    "h264": _H264_START,
    "hevc": _HEVC_START,
    "mpegvideo": _MPEG_START,
    "dv": rb"\x1f\x07\0[\x3f\xbf]",
    "m2ts": b"(?:.{4}" + _TRANSPORT_PACKET + b".{184}){4}.{4}" + _TRANSPORT_PACKET,
}
_OTHERS_BYTES = 4 * 192 + 8
# With these kinds of boxes an MP4 goes on, so no file of another format begins there: there may be many.
_MP4_BOXES = frozenset(
    (b"ftyp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"sidx", b"styp", b"emsg", b"prft", b"uuid")
)
# With what one begins behind a file, by FFmpeg's names of the format of that.
_OTHER_THAN = {
    demuxer: re.compile(b"(?s)" + b"|".join(start for kind, start in _OTHERS.items() if kind != demuxer))
    for demuxer in ("avi", "matroska", "mov", *_STARTS)
}
# With what another file begins, in formats that do not say how long one is, and of which FFmpeg reads it as damage.
_ANYWHERE = {
    "nut": re.compile(_NUT_START),
    "yuv4mpegpipe": re.compile(_Y4M_START),
}
_RIFF = 12


@dataclass(frozen=True)
class Chain:
    """What is found along the chain of a file's chunks, tags or frames. `broken`: where it breaks; `next_begin`: where
    another file begins behind the first one, None where none does, or where the first one does not say how long it is.
    """

    broken: Break | None = None
    next_begin: int | None = None


def chain_of(path: str, demuxer: str) -> Chain:
    """Follow the chain of a file, which reads in all of it where it is long: once is enough."""
    broken = first_break(path, demuxer)
    return Chain(broken, _next_begin(path, demuxer, broken))


def _next_begin(path: str, demuxer: str, broken: Break | None) -> int | None:
    if demuxer in ("avi", "matroska", "mov"):
        return _other_behind(path, demuxer)
    if demuxer in _ANYWHERE:
        return next((begin for begin, _ in found_behind(path, _ANYWHERE[demuxer])), None)
    starts = _STARTS.get(demuxer)
    end = _end_of(path, demuxer, broken) if starts else None
    # A file does not end at its start, whatever a damaged header says.
    if not (starts and end):
        return None
    with Path(path).open("rb") as file:
        seek_within(file, end)
        head = file.read(_OTHERS_BYTES)
        return end if head.startswith(starts) or _OTHER_THAN[demuxer].match(head) else None


def _other_behind(path: str, demuxer: str) -> int | None:
    """Where a video of another format begins behind a file of one of which FFmpeg reads several, or of which other
    signs tell if there are."""
    with Path(path).open("rb") as file:
        match demuxer:
            case "mov":
                ends = [at for kind, at, _ in top_boxes(path) if kind not in _MP4_BOXES]
            case "avi":
                ends = [_riffs_end(file)]
            case _:
                ends = [end for end in (segment_end(path),) if end is not None]
        for end in ends:
            seek_within(file, end)
            if end and _OTHER_THAN[demuxer].match(file.read(_OTHERS_BYTES)):
                return end
    return None


def _riffs_end(file: BinaryIO) -> int:
    """Behind the last of the lists of an AVI that follow one another, each of which has its length."""
    at = 0
    while (header := file.read(_RIFF)).startswith(b"RIFF") and any(length := header[4:8]):
        even = int.from_bytes(length, "little")
        at += 8 + even + even % 2
        seek_within(file, at)
    return at


def _end_of(path: str, demuxer: str, broken: Break | None) -> int | None:
    """Where the first file ends, by what it says itself."""
    end_of = {"ivf": _ivf_end, "asf": _asf_end, "wtv": _wtv_end, "swf": _swf_end, "apng": _png_end}.get(demuxer)
    if end_of is None:
        return broken.position if broken else None
    with Path(path).open("rb") as file:
        return end_of(file)


def _number(file: BinaryIO, at: int, size: int, *, is_big: bool = False) -> int | None:
    """The number of `size` bytes at this position; None where the file ends before it does."""
    seek_within(file, at)
    data = file.read(size)
    return int.from_bytes(data, "big" if is_big else "little") if len(data) == size else None


def _ivf_end(file: BinaryIO) -> int | None:
    """Behind the last frame, each of which has its length before it, or before zeros."""
    at = _IVF_HEADER
    while True:
        seek_within(file, at)
        header = file.read(_IVF_FRAME_HEADER)
        is_empty = at > _IVF_HEADER and not any(header)
        if header.startswith(_STARTS["ivf"]) or len(header) < _IVF_FRAME_HEADER or is_empty:
            return at
        at += _IVF_FRAME_HEADER + int.from_bytes(header[:4], "little")


def _asf_end(file: BinaryIO) -> int | None:
    """Before the second header among the objects, each of which has its length."""
    at = 0
    while True:
        seek_within(file, at)
        header = file.read(_ASF_OBJECT)
        length = int.from_bytes(header[16:], "little")
        if at and header.startswith(_ASF_START):
            return at
        if len(header) < _ASF_OBJECT or length < _ASF_OBJECT:
            return None
        at += length


def _wtv_end(file: BinaryIO) -> int | None:
    sectors = _number(file, _WTV_SECTORS_AT, 4)
    return sectors * _WTV_SECTOR if sectors else None


def _swf_end(file: BinaryIO) -> int | None:
    # The lengths of others are those of what is compressed in them.
    return _number(file, _SWF_LENGTH_AT, 4) if file.read(1) == b"F" else None


def _png_end(file: BinaryIO) -> int | None:
    """Behind the chunk that is the last one of a picture."""
    at = len(_PNG_START)
    while (length := _number(file, at, 4, is_big=True)) is not None:
        is_last = file.read(4) == b"IEND"
        at += length + _PNG_CHUNK
        if is_last:
            return at
    return None
