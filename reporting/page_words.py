"""How the page writes numbers, sizes, times and names."""

from __future__ import annotations

import math
import time

from ..prep.picture_quality import Quality
from ..wording import counted, plain

_MOST_CHARACTERS = 300


def how_many(number: int, noun: str) -> str:
    """The number with its noun: "1 video", "12,345 videos"."""
    return counted(number, noun, grouped=True)


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
