"""How the page writes numbers, sizes, times and names."""

from __future__ import annotations

import math
import time

from ..prep.picture_quality import Quality
from ..wording import counted, plain

_MOST_CHARACTERS = 300
_STEPS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def whole(number: float) -> str:
    """1234567 as 1,234,567."""
    return f"{round(number):,}"


def how_many(number: int, noun: str) -> str:
    """The number with its noun: "1 video", "12,345 videos"."""
    return counted(number, noun, grouped=True)


def num_bytes(count: float) -> str:
    """Three digits and a unit, in powers of 1000."""
    for step, unit in _STEPS:
        if abs(count) >= step:
            return f"{three_digits(count / step)} {unit}"
    return f"{whole(count)} B"


def three_digits(value: float) -> str:
    """A number that needs no more precision: 1,234, 123, 12.3, 1.23, 0.012."""
    size = abs(value)
    if size >= 99.95 or value == 0:
        return whole(value)
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}" if size >= 0.095 else f"{value:.2g}"


def quality(found: Quality) -> str:
    """PSNR and SSIM of luma: "PSNR 41.3 dB, SSIM 0.9812"."""
    psnr = "infinite" if math.isinf(found.psnr_db) else f"{found.psnr_db:.1f} dB"
    return f"PSNR {psnr}, SSIM {found.ssim:.4f}"


def moment(seconds: float) -> str:
    """A time in seconds since 1970, to the second, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def name(text: str, most_characters: int = _MOST_CHARACTERS) -> str:
    """Text that comes from files: what is not printable is shown as an escape, and long text is cut in the middle."""
    shown = plain(text)
    if len(shown) <= most_characters:
        return shown
    half = most_characters // 2
    return f"{shown[:half]} … {shown[-half:]}"
