"""The blocks of a GIF (GIF89a specification): whether a picture has all of its own, and each follows the one before."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_HEADER, _HEADER_BYTES, _FLAGS = b"GIF8", 13, 10
_EXTENSION, _PICTURE = 0x21, 0x2C
# What an extension is that says how long the picture behind it is shown.
_CONTROL, _CONTROL_START = 0xF9, b"\x21\xf9\x04"
# Such an extension, with the picture directly behind it.
_ANNOUNCED_PICTURE = re.compile(rb"(?s)%b.{4}\0\x2c" % re.escape(_CONTROL_START))
# Behind the last picture: the end of its blocks, and the mark with which a GIF ends.
_WHOLE_END = b"\0;"
# Encoders fill all blocks of a picture but its last one.
_FULL = 255
_EXTENSION_BYTES, _PICTURE_BYTES = 2, 10
_HAS_COLOURS, _NUM_COLOURS = 0x80, 0x07


def has_picture(packet: bytes) -> bool:
    """Whether a packet has a picture, or the extension that says that one follows, even if that is cut off. What lies
    behind the last picture, such as a comment, is a packet of its own."""
    at, is_announced = _picture_at(packet)
    return is_announced or (at < len(packet) and packet[at] == _PICTURE)


def blocks_break(path: str) -> int | None:
    """The position of the last block that FFmpeg finds in a GIF, or of what is none in its place, if pictures lie
    behind it: a length is damaged. None where there are none."""
    data, at = Path(path).read_bytes(), 0
    with suppress(IndexError):
        while (behind := _behind_block(data, at)) is not None:
            at = behind
    if data[at : at + 1] == _WHOLE_END[1:]:
        return None
    return at if _has_wrong_control(data, at) or _ANNOUNCED_PICTURE.search(data, at + 1) else None


def _behind_block(data: bytes, at: int) -> int | None:
    """Where the header, the extension or the picture ends that begins at a place; None where none does."""
    if data[at] == _EXTENSION and not _has_wrong_control(data, at):
        return _behind_blocks(data, at + _EXTENSION_BYTES)
    if data[at] == _PICTURE:
        return _behind_blocks(data, _data_at(data, at))
    return at + _HEADER_BYTES + _colour_bytes(data[at + _FLAGS]) if data.startswith(_HEADER, at) else None


def _has_wrong_control(data: bytes, at: int) -> bool:
    """Whether an extension at a place that says that a picture follows has another length than all have: what it seems
    to have may be that picture, and others behind it."""
    return data.startswith(_CONTROL_START[:-1], at) and not _CONTROL_START.startswith(data[at : at + 3])


def _data_at(data: bytes, at: int) -> int:
    """Where the data begin of the picture at a place: behind its colours, and a byte that says how it is coded."""
    return at + _PICTURE_BYTES + _colour_bytes(data[at + _PICTURE_BYTES - 1]) + 1


def _picture_at(packet: bytes) -> tuple[int, bool]:
    """Where the extensions of a packet end, which is where its picture begins if it has one, or the end of a packet
    that ends within them; and whether one of them says that a picture follows."""
    is_first = packet.startswith(_HEADER) and len(packet) > _FLAGS
    at, is_announced = _HEADER_BYTES + _colour_bytes(packet[_FLAGS]) if is_first else 0, False
    try:
        while packet[at] == _EXTENSION:
            is_announced = is_announced or packet[at + 1] == _CONTROL
            at = _behind_blocks(packet, at + _EXTENSION_BYTES)
    except IndexError:
        at = len(packet)
    return at, is_announced


def has_end(packet: bytes) -> bool:
    """Whether the picture in a packet is not cut off within its blocks: FFmpeg's decoder may show what there is of it
    without a message."""
    at, is_announced = _picture_at(packet)
    is_whole = packet.endswith(_WHOLE_END)
    if at >= len(packet):
        return is_whole or not is_announced
    # Where a GIF goes up to its end, or goes on with something else, it is damaged if it lacks a picture, and not cut.
    if packet[at] != _PICTURE or is_whole:
        return True
    try:
        return not _lacks_data(packet, _data_at(packet, at))
    except IndexError:
        return False


def _colour_bytes(flags: int) -> int:
    """How long the colours are that a header or a picture states."""
    return 3 << (flags & _NUM_COLOURS) + 1 if flags & _HAS_COLOURS else 0


def _behind_blocks(packet: bytes, at: int) -> int:
    """Where the blocks that begin at a place end, each of which begins with its length, the last one with 0."""
    while packet[at]:
        at += packet[at] + 1
    return at + 1


def _lacks_data(packet: bytes, at: int) -> bool:
    """Whether the blocks of a picture that begin at a place end within its data. All are there where the last one is
    shorter than others, even without the 0 behind it."""
    lengths: list[int] = []
    # The last byte may also be the mark with which a GIF ends.
    while at < len(packet) - 1 and packet[at]:
        lengths.append(packet[at])
        at += packet[at] + 1
    if at < len(packet) and not packet[at]:
        return False
    *earlier, last = lengths or [_FULL]
    return at > len(packet) or last >= max(earlier, default=_FULL)
