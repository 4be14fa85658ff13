"""Where the chain of a file breaks, in which each chunk (AVI), each tag (FLV), each block (GIF) or each picture with
its length before it (Motion JPEG) directly follows the one before; and whether an ASF file lacks its end.

After damage, FFmpeg's demuxers search for the next one without a message. The timestamps of an AVI are a count of its
chunks, so they are wrong behind a break.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..headers.gif_blocks import blocks_break
from ..headers.motion_jpeg import first_wrong_part
from .searching import found_behind
from .zero_tail import zeros_from

_HEADER = struct.Struct("<4sI")
_KNOWN = re.compile(rb"\d\d(dc|db|wb|tx|pc|iv|__)|ix\d\d|idx1|JUNK|junk|hdrl|INFO|LIST|RIFF")
_NUMBERED = re.compile(rb"\d\d(dc|db|wb)")
_OPENED = (b"movi", b"rec ", b"AVIX", b"AVI ")
# Other chunks that recorders write between frames, of places and accelerations. Damaged names of frames have digits.
_FOREIGN = re.compile(rb"[A-Za-z]{3}[A-Za-z0-9_ ]")
_TAG_TYPES = (8, 9, 18)  # sound, video, metadata
_FLV_HEADER_BYTES, _TAG_HEADER_BYTES, _BACK_LINK_BYTES, _STREAM_NUMBER = 9, 11, 4, slice(8, 11)
# A tag's type, its length and time, and the number of its stream, which is 0.
_TAG = re.compile(rb"(?s)(?=([\x08\x09\x12].{7}\0\0\0))")
# A chunk of a stream: its number and kind, and the length.
_CHUNK = re.compile(rb"(?s)(?=(\d\d(?:dc|db|wb).{4}))")


@dataclass(frozen=True)
class Break:
    """Where a chain of chunks or tags breaks. `is_end`: nothing behind it belongs to the file, so that it is the end of
    a shorter one; `in_packet`: what is at the break may be the beginning of a packet; `is_cut`: a chunk is longer than
    what is left of the file."""

    position: int
    is_end: bool = False
    in_packet: bool = False
    is_cut: bool = False


def first_break(path: str, container: str) -> Break | None:
    """Where the chain breaks; None where it does not, and in other containers, which have no such chain. A file that
    only ends too early is no break."""
    find = {
        "avi": _avi_break, "flv": _flv_break, "gif": blocks_break, "mjpeg": first_wrong_part,
    }.get(container)  # fmt: skip
    at = find(path) if find is not None else None
    if at is None:
        return None
    if container not in ("avi", "flv"):
        return Break(at)
    with Path(path).open("rb") as file:
        if container == "avi":
            is_known = _KNOWN.fullmatch(_header(file, at)[0]) is not None
            is_cut = is_known and not _has_behind(path, at, _CHUNK, _is_whole_chunk)
            # Zeros up to the end of the file may begin within a header, too.
            zeros = zeros_from(path)
            return Break(at, is_end=is_cut or (zeros is not None and zeros < at + _HEADER.size), is_cut=is_cut)
        file.seek(at)
        in_packet = _TAG.match(file.read(_TAG_HEADER_BYTES)) is not None
        return Break(at, not _has_behind(path, at, _TAG, _is_whole_tag), in_packet)


def _has_behind(path: str, at: int, start: re.Pattern[bytes], is_whole: Callable[[BinaryIO, int, bytes], bool]) -> bool:
    """Whether a whole chunk or tag with this start lies anywhere behind this position."""
    with Path(path).open("rb") as file:
        return any(is_whole(file, place, found[1]) for place, found in found_behind(path, start, at + 1))


def _is_whole_chunk(file: BinaryIO, at: int, header: bytes) -> bool:
    """Whether another chunk, or the end of the file, is where the chunk of a stream ends that begins here."""
    size, length = file.seek(0, 2), int.from_bytes(header[4:8], "little")
    end = at + _HEADER.size + length + length % 2
    return end == size or (end + _HEADER.size <= size and _KNOWN.fullmatch(_header(file, end)[0]) is not None)


def _is_whole_tag(file: BinaryIO, at: int, header: bytes) -> bool:
    """Whether the link back to its beginning is where the tag ends that begins here."""
    tag_bytes = _TAG_HEADER_BYTES + int.from_bytes(header[1:4])
    file.seek(at + tag_bytes)
    return file.read(_BACK_LINK_BYTES) == tag_bytes.to_bytes(_BACK_LINK_BYTES)


def _flv_break(path: str) -> int | None:
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        at = int.from_bytes(file.read(_FLV_HEADER_BYTES)[5:]) + _BACK_LINK_BYTES
        while at + _TAG_HEADER_BYTES <= size:
            file.seek(at)
            header = file.read(_TAG_HEADER_BYTES)
            end = at + _TAG_HEADER_BYTES + int.from_bytes(header[1:4])
            if header[0] & 31 not in _TAG_TYPES:
                return at
            if end + _BACK_LINK_BYTES > size:
                # Another file may lie there, whose first byte looks like the type of a tag.
                return at if any(header[_STREAM_NUMBER]) else None
            file.seek(end)
            if int.from_bytes(file.read(_BACK_LINK_BYTES)) != end - at:
                return at
            at = end + _BACK_LINK_BYTES
    return None


def _avi_break(path: str) -> int | None:
    """The position of the first chunk that is not valid or is cut off, or None."""
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        at, in_movi = 0, False
        while at + _HEADER.size <= size:
            kind, length = _header(file, at)
            if not _KNOWN.fullmatch(kind) and in_movi and _KNOWN.fullmatch(_header(file, at - 1)[0]):
                # Some recorders do not fill up chunks of an odd length.
                at -= 1
                kind, length = _header(file, at)
            if not _KNOWN.fullmatch(kind) and not (in_movi and _is_foreign(file, at, size)):
                # Anything may lie between and after the lists.
                return at if in_movi else None
            if kind in (b"LIST", b"RIFF"):
                file.seek(at + _HEADER.size)
                name = file.read(4)
                in_movi = name in (b"movi", b"rec ") or (in_movi and name not in _OPENED)
                if name in _OPENED:
                    at += 12
                    continue
            elif kind == b"idx1":
                in_movi = False
            following = at + _HEADER.size + length + length % 2
            if in_movi and kind not in (b"LIST", b"RIFF") and following > size + 1:
                return at
            at = following
    return None


def _is_foreign(file: BinaryIO, at: int, size: int) -> bool:
    """Whether a chunk of another kind lies here, with one of a known or of such a kind behind it, or the end."""
    kind, length = _header(file, at)
    following = at + _HEADER.size + length + length % 2
    if not _FOREIGN.fullmatch(kind) or following + _HEADER.size > size:
        return _FOREIGN.fullmatch(kind) is not None and following == size
    behind = _header(file, following)[0]
    return bool(_KNOWN.fullmatch(behind) or _FOREIGN.fullmatch(behind))


def lacks_movi(path: str) -> bool:
    """Whether the chunks of an AVI do not lead to the list that has its frames. FFmpeg then finds the first ones
    somewhere behind its beginning."""
    size, at = Path(path).stat().st_size, 12
    with Path(path).open("rb") as file:
        while at + 12 <= size:
            kind, length = _header(file, at)
            if kind == b"LIST" and file.read(4) == b"movi":
                return False
            at += _HEADER.size + length + length % 2
    return True


def bytes_before(path: str, stream_index: int) -> dict[int, int]:
    """How many bytes of each other stream of an AVI lie before the first chunk of this one, by the numbers of streams;
    none where it has no chunk."""
    size, at, found = Path(path).stat().st_size, 12, dict[int, int]()
    with Path(path).open("rb") as file:
        while at + 12 <= size:
            kind, length = _header(file, at)
            if kind == b"LIST" and file.read(4) in (b"movi", b"rec "):
                at += 12
                continue
            if _NUMBERED.fullmatch(kind):
                if int(kind[:2]) == stream_index:
                    return found
                found[int(kind[:2])] = found.get(int(kind[:2]), 0) + length
            at += _HEADER.size + length + length % 2
    return {}


def _header(file: BinaryIO, at: int) -> tuple[bytes, int]:
    file.seek(at)
    kind, length = _HEADER.unpack(file.read(_HEADER.size))
    return kind, length


_ASF_DATA = bytes.fromhex("3626b2758e66cf11a6d900aa0062ce6c")
_ASF_OBJECT = struct.Struct("<16sQ")


def lacks_asf_end(path: str) -> bool:
    """Whether an ASF file ends within its data, by their length, or may do so as they state none. Its last packet may
    be incomplete then."""
    end = asf_data_end(path)
    return end is None or end > Path(path).stat().st_size


def asf_data_end(path: str) -> int | None:
    """Where the data of an ASF file end; None where it does not say."""
    size, at = Path(path).stat().st_size, 0
    with Path(path).open("rb") as file:
        while at + _ASF_OBJECT.size <= size:
            file.seek(at)
            kind, length = _ASF_OBJECT.unpack(file.read(_ASF_OBJECT.size))
            if length <= _ASF_OBJECT.size:
                return None
            if kind == _ASF_DATA:
                return int(at + length)
            at += length
    return None
