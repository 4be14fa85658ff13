"""Motion JPEG: pictures that lack an end, and the lines that web cameras send before each picture, which may say how
long it is (RFC 2046, 5.1).

FFmpeg's demuxer for it ends with an error where a file ends within such lines, and reads to the end of the file where a
line does not end as it expects. So it is read as what it is without the lines, a stream of pictures one after the
other, in which FFmpeg finds each picture by its beginning. The lines then only tell where something is missing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

# Markers of JPEG: ISO/IEC 10918-1, B.1.1.3. Neither occurs within the data of a picture.
_START, _START_OF_SCAN, _END = b"\xff\xd8", b"\xff\xda", b"\xff\xd9"
# Headers that say how large a picture is, and where in them the height is.
_FRAME_HEADERS, _SIZE_AT = range(0xC0, 0xC4), 5
# The lines before a picture: a boundary, fields, and an empty line.
_LINES = re.compile(rb"(?i)\s*--[ -~]+\r?\n((?:[!-9;-~]+:[ -~\t]*\r?\n)+)\r?\n")
_LENGTH = re.compile(rb"(?im)^content-length:\s*(\d+)")
_MOST_BYTES_OF_LINES, _READ_BYTES = 4096, 1 << 20


def has_end(picture: bytes) -> bool:
    """Whether a picture has its end."""
    # Pictures within the headers, as of Exif, have an end too.
    return picture.rfind(_END) > picture.rfind(_START_OF_SCAN)


def is_field(packet: bytes, height: int) -> bool:
    """Whether the first picture in a packet is one of the two fields of a frame of this height, as FFmpeg tells it."""
    at = len(_START)
    while at + _SIZE_AT + 2 <= len(packet) and packet[at] == 0xFF:
        if packet[at + 1] in _FRAME_HEADERS:
            return 4 * int.from_bytes(packet[at + _SIZE_AT : at + _SIZE_AT + 2]) < 3 * height
        at += 2 + int.from_bytes(packet[at + 2 : at + 4])
    return False


def first_wrong_part(path: str) -> int | None:
    """The position of the first picture that is not as long as the lines before it say: something is missing in it, or
    behind it. None where there is none, where no lengths are stated, and where most of them are wrong. The last picture
    may be cut off."""
    size = Path(path).stat().st_size
    wrong: list[int] = []
    parts = 0
    with Path(path).open("rb") as file:
        found = _next_lines(file, 0, at_once=False)
        while found is not None:
            start, length = found
            if length is None:
                return None
            parts += 1
            if start + length >= size:
                break
            found = _next_lines(file, start + length, at_once=True)
            if found is None and not _is_rest(file, start + length):
                wrong.append(start)
                found = _next_lines(file, start, at_once=False)
    return wrong[0] if wrong and 2 * len(wrong) <= parts else None


def _next_lines(file: BinaryIO, at: int, *, at_once: bool) -> tuple[int, int | None] | None:
    """Where the picture behind the next lines begins, and how long they say that it is; with `at_once` only if they
    follow directly."""
    while True:
        file.seek(at)
        data = file.read(_MOST_BYTES_OF_LINES if at_once else _READ_BYTES)
        match = _LINES.match(data) if at_once else _LINES.search(data)
        if match is not None:
            length = _LENGTH.search(match[1])
            return at + match.end(), int(length[1]) if length else None
        if at_once or len(data) < _READ_BYTES:
            return None
        at += _READ_BYTES - _MOST_BYTES_OF_LINES


def _is_rest(file: BinaryIO, at: int) -> bool:
    """Whether nothing follows but lines, of which some may be missing."""
    file.seek(at)
    rest = file.read(_MOST_BYTES_OF_LINES + 1)
    return len(rest) <= _MOST_BYTES_OF_LINES and re.fullmatch(rb"\s*(-|--[\s -~]*)?", rest) is not None
