"""An MPEG-2 stream of field pictures: each field of a frame is a picture of its own, as broadcasts may be coded. No
encoder at hand writes it, so it is written here, of blocks that have one level each.

Formulas and codes: ISO/IEC 13818-2, 6.2.2 (sequence), 6.2.3 (picture), 6.2.4 and 6.2.5 (slice, macroblock), tables B.2,
B.12, B.13 and B.14.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthetic import burn

# Of this size the blocks of each field lie within the cells of a number, except at their edges.
WIDTH, HEIGHT = 256, 448
_MACROBLOCK, _BLOCK, _GREY = 16, 8, 128
_RATE_25, _SQUARE = 3, 1
_INTRA = 1
# How many bits a difference of levels has: the codes of table B.12 and B.13.
_LUMA_CODES = ("100", "00", "01", "101", "110", "1110", "11110", "111110", "1111110")
_CHROMA_CODE_OF_0, _END_OF_BLOCK = "00", "10"


def mpeg2_field_packets(numbers: range, *, gop: int) -> list[bytes]:
    """Two packets for each frame, the first with its upper field; `gop` frames begin with a sequence header."""
    packets = []
    for place, number in enumerate(numbers):
        luma = burn(number, WIDTH, HEIGHT).mean(axis=2) * (219 / 255) + 16
        for is_bottom in (0, 1):
            head = _sequence() if place % gop == 0 and not is_bottom else b""
            packets.append(head + _picture(luma[is_bottom::2], place % gop, is_bottom))
    return packets


def _bits(*fields: tuple[int, int]) -> str:
    """Numbers, each of so many bits."""
    return "".join(f"{value:0{count}b}" for value, count in fields)


def _unit(code: int, bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return b"\0\0\1" + bytes([code]) + int(bits, 2).to_bytes(len(bits) // 8)


def _sequence() -> bytes:
    rate, buffer = (0x3FFFF, 18), (112, 10)
    header = _bits((WIDTH, 12), (HEIGHT, 12), (_SQUARE, 4), (_RATE_25, 4), rate, (1, 1), buffer, (0, 3))
    # Main profile at main level, not progressive, 4:2:0.
    extension = _bits((1, 4), (0x48, 8), (0, 1), (1, 2), (0, 16), (1, 1), (0, 16))
    closed_gop = _bits((0, 25), (1, 1), (0, 6))
    return _unit(0xB3, header) + _unit(0xB5, extension) + _unit(0xB8, closed_gop)


def _picture(field: NDArray[np.float64], number: int, is_bottom: int) -> bytes:
    header = _bits((number, 10), (_INTRA, 3), (0xFFFF, 16), (0, 1))
    # No motion vectors, levels of 8 bits, which field this is, and none of the flags.
    extension = _bits((8, 4), (0xFFFF, 16), (0, 2), (1 + is_bottom, 2), (0, 10))
    rows = field.reshape(-1, _MACROBLOCK, WIDTH)
    return _unit(0, header) + _unit(0xB5, extension) + b"".join(_slice(row, k) for k, row in enumerate(rows, 1))


def _slice(row: NDArray[np.float64], number: int) -> bytes:
    quantizer, intra_macroblock = _bits((4, 5), (0, 1)), "11"
    bits, before = quantizer, _GREY
    for left in range(0, WIDTH, _MACROBLOCK):
        bits += intra_macroblock
        for y in (0, _BLOCK):
            for x in (left, left + _BLOCK):
                level = round(float(row[y : y + _BLOCK, x : x + _BLOCK].mean()))
                bits += _difference(level - before) + _END_OF_BLOCK
                before = level
        bits += 2 * (_CHROMA_CODE_OF_0 + _END_OF_BLOCK)
    return _unit(number, bits)


def _difference(value: int) -> str:
    size = abs(value).bit_length()
    rest = value if value > 0 else value + (1 << size) - 1
    return _LUMA_CODES[size] + (f"{rest:0{size}b}" if size else "")
