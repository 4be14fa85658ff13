"""libswscale's integers for a matrix and a range: with them a GPU gives the CPU reader's pixels, not only close ones.

The source is FFmpeg's libswscale: `ff_yuv2rgb_coeffs` and `ff_yuv2rgb_c_init_tables` in yuv2rgb.c, and
`solve_range_convert` in swscale.c. Numbers are found from the table of coefficients as libswscale finds them.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ...errors import DecodeError

# 65536 times the coefficients of Cr for red, Cb for blue, and minus those of Cb and Cr for green, at limited range.
_BT709 = (117489, 138438, 13975, 34925)
_BT601 = (104597, 132201, 25675, 53279)
_FCC = (104448, 132798, 24759, 53109)
_SMPTE240M = (117579, 136230, 16907, 35559)
_BT2020 = (110013, 140363, 12277, 42626)
# By number of ISO/IEC 23091-2. libswscale takes 2, unspecified, for BT.601, and PyAV does so with 0.
_COEFFICIENTS = {0: _BT601, 1: _BT709, 2: _BT601, 4: _FCC, 5: _BT601, 6: _BT601, 7: _SMPTE240M, 9: _BT2020}

LUMA_LIMITED, CHROMA_LIMITED = (16, 235), (16, 240)


class ColorFactors(NamedTuple):
    """Factors for luma, V in red, U in blue, U in green and V in green, and an offset of luma.

    What they are multiples of depends on the formula that they are for.
    """

    luma: int
    red: int
    blue: int
    green_u: int
    green_v: int
    offset: int


class RangeFactors(NamedTuple):
    """Samples of 15 bits become (sample * factor + offset) >> 14."""

    factor: int
    offset: int


_SAME_RANGE = RangeFactors(1 << 14, 0)


@cache
def color_factors(matrix: int, *, full_range: bool) -> ColorFactors:
    """Factors of 8192, and the offset in levels of 8 bits. DecodeError for a matrix that libswscale does not know."""
    luma, red, blue, green_u, green_v, offset = _scaled(matrix, full_range=full_range)
    luma, red, blue, green_u, green_v = (((each << 13) + 0x8000) >> 16 for each in (luma, red, blue, green_u, green_v))
    return ColorFactors(luma, red, blue, green_u, green_v, offset)


@cache
def table_factors(matrix: int, *, full_range: bool) -> ColorFactors:
    """Factors for the formula of libswscale's tables: see `torch_conversion`. DecodeError as above.

    The factor of luma and the offset are multiples of 1/65536, the others of 1/65536 of a level of luma.
    """
    luma, *others, offset = _scaled(matrix, full_range=full_range)
    red, blue, green_u, green_v = (_divided((each << 16) + 0x8000, luma) for each in others)
    # Where black lies in the table of luma. At limited range libswscale's number is 1.8 levels too dark.
    index = 384 if full_range else 326
    offset = luma * index - (384 << 16) - (offset << 16) + 0x8000
    return ColorFactors(luma, red, blue, green_u, green_v, offset)


@cache
def range_factors(limits: tuple[int, int], *, full_range: bool) -> RangeFactors:
    """What brings samples to full range, from a range with these `limits` unless that is full."""
    if full_range:
        return _SAME_RANGE
    low, high = limits
    # Samples have 7 bits more than levels.
    factor = -(-((255 << 21) // (high - low)) >> 7)
    return RangeFactors(factor, (255 << 21) - (high << 7) * factor + (1 << 13))


def _scaled(matrix: int, *, full_range: bool) -> tuple[int, int, int, int, int, int]:
    """The factors of luma, red, blue and green (U, V), times 65536, and the level of black."""
    if matrix not in _COEFFICIENTS:
        raise DecodeError(
            f"frames with the matrix coefficients {matrix}, which are not converted: {sorted(_COEFFICIENTS)} are"
        )
    red, blue, green_u, green_v = _COEFFICIENTS[matrix]
    if not full_range:
        return (255 << 16) // 219, red, blue, -green_u, -green_v, 16
    red, blue, green_u, green_v = (_divided(each * 224, 255) for each in (red, blue, -green_u, -green_v))
    return 1 << 16, red, blue, green_u, green_v, 0


def _divided(number: int, by: int) -> int:
    """Rounded towards zero, as C does it."""
    return number // by if number >= 0 else -(-number // by)
