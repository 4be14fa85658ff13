"""Calls libswscale: converts a decoder's planes into memory of the caller, with a crop and a new size in one pass.

PyAV's converter makes a new frame, which then has to be copied into the batch: clips of 456x256 took 1.17 to 1.33 times
as long that way, and crops that are resized 1.10 times (docs/design/readers.md). The functions are those of the library
that PyAV itself uses, found through PyAV's extension module. Where they are not found, `library` returns None.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import av.video.reformatter

from ...errors import DecodeError
from ..frame_format import Interpolation

# libavutil's names of pixel formats. The planes of GBRP are green, blue and red, in this order.
YUV420P, YUV444P, GREY, RGB24, GBRP = "yuv420p", "yuv444p", "gray", "rgb24", "gbrp"
# The matrix coefficients of ISO/IEC 23091-2 that libswscale knows. It treats 2, unspecified, as BT.601.
MATRICES = frozenset({1, 2, 4, 5, 6, 7, 9})

# From libswscale/swscale.h.
BILINEAR, BICUBIC = 2, 4
FULL_CHROMA, ACCURATE_ROUNDING = 0x2000, 0x40000

# SWS_BICUBIC's B and C: the cubic filter of Keys with a = -0.5, as in PIL and torchvision. libswscale's own C is 0.6.
_KEYS = (ctypes.c_double * 2)(0, 0.5)

_Pointers = ctypes.c_void_p * 4
_Strides = ctypes.c_int * 4
_NEUTRAL = (0, 1 << 16, 1 << 16)  # brightness, contrast, saturation


@cache
def library() -> Any:
    """libswscale's functions with their types declared; None where they are not found."""
    # The dynamic linker finds a name in a library and in the libraries that it was linked with.
    pointer, number = ctypes.c_void_p, ctypes.c_int
    try:
        found = ctypes.CDLL(av.video.reformatter.__file__)
        for name, result, arguments in (
            ("sws_getContext", pointer, [number] * 7 + [pointer] * 3),
            ("sws_freeContext", None, [pointer]),
            ("sws_getCoefficients", pointer, [number]),
            ("sws_setColorspaceDetails", number, [pointer, pointer, number, pointer] + [number] * 4),
            ("av_get_pix_fmt", number, [ctypes.c_char_p]),
            ("sws_scale", number, [pointer, _Pointers, _Strides, number, number, _Pointers, _Strides]),
        ):
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return found


class Scaler:
    """Converts pictures of one size and colour from 8-bit 4:2:0 to `target_format`, and to another size.

    Belongs to one thread. libswscale's vector code may write past the end of a line, or leave out its last pixels:
    `tiling` chooses sizes and memory with which it does neither.
    """

    def __init__(
        self,
        source: tuple[int, int],
        target: tuple[int, int],
        *,
        matrix: int,
        full_range: bool,
        target_format: str,
        interpolation: Interpolation,
    ) -> None:
        """Sizes are (height, width). DecodeError when libswscale refuses the conversion."""
        self._library = found = library()
        self._height = source[0]
        formats = [found.av_get_pix_fmt(name.encode()) for name in (YUV420P, target_format)]
        flags, parameters = BILINEAR, None
        if source != target:
            if interpolation == "bicubic":
                flags, parameters = BICUBIC, _KEYS
            flags |= FULL_CHROMA | ACCURATE_ROUNDING
        self._context: int | None = found.sws_getContext(
            source[1], source[0], formats[0], target[1], target[0], formats[1], flags, None, None, parameters
        )
        if not self._context:
            raise DecodeError(f"libswscale does not convert {source} to {target}")
        table = found.sws_getCoefficients(matrix)
        # RGB always has full range, and so have YCbCr and grey here. Planes that stay planes keep their range.
        ranges = (int(full_range), int(full_range or target_format != YUV420P))
        found.sws_setColorspaceDetails(self._context, table, ranges[0], table, ranges[1], *_NEUTRAL)
        # Kept between frames. Setting strides anew for each frame as well made a conversion take 1.1 times as long.
        self._from: Any = _Pointers()
        self._from_strides: Any = _Strides()
        self._to: Any = _Pointers()
        self._to_strides: Any = _Strides()

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._library.sws_freeContext(self._context)

    def set_strides(self, strides: Sequence[int], to_strides: Sequence[int]) -> None:
        """The bytes from line to line, in each of the three planes of frames and in those of the results."""
        self._from_strides[:3] = strides
        self._to_strides[: len(to_strides)] = to_strides

    def convert(self, y: int, u: int, v: int, to: int, starts: Sequence[int]) -> None:
        """Convert a frame whose planes are at these addresses. The planes of the result begin at `starts` from `to`."""
        planes, results = self._from, self._to
        planes[0], planes[1], planes[2] = y, u, v
        for number, start in enumerate(starts):
            results[number] = to + start
        lines = self._library.sws_scale(
            self._context, planes, self._from_strides, 0, self._height, results, self._to_strides
        )
        if lines <= 0:
            raise DecodeError("libswscale does not convert a frame")
