"""Bars side by side, as a picture. Pillow draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..readers.picture_files import check_picture, write_picture
from .timing import Spread

_WIDTH, _LABEL, _TEXT = 1000, 300, 170
_ROW, _MARGIN, _FONT = 26, 24, 15
_INK, _GREY, _OURS, _OTHERS = (30, 30, 30), (120, 120, 120), (20, 120, 90), (150, 165, 185)
_NO_PILLOW = "--chart needs Pillow: pip install pillow"


@dataclass(frozen=True)
class Bar:
    """One reader: its value with the extremes, and what is written behind it."""

    label: str
    value: Spread
    text: str
    ours: bool = False


@dataclass(frozen=True)
class Group:
    """Bars that share a scale; shorter is better."""

    title: str
    bars: tuple[Bar, ...]


def check_chart(path: Path, *, overwrite: bool, sources: Iterable[str] = ()) -> None:
    """Raise what `write_chart` would, before anything is measured."""
    check_picture(path, (_ROW, _WIDTH), overwrite=overwrite, sources=sources)
    if find_spec("PIL") is None:
        raise UsageError(_NO_PILLOW)


def write_chart(
    groups: Sequence[Group],
    path: Path,
    *,
    title: str,
    note: str,
    overwrite: bool = False,
    sources: Iterable[str] = (),
) -> None:
    """Draw groups below each other into a picture, whose format the suffix of `path` decides; a new file unless told
    to `overwrite`. UsageError where Pillow is missing, and otherwise as `write_picture` raises it.
    """
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise UsageError(_NO_PILLOW) from None
    rows = sum(len(group.bars) + 2 for group in groups) + 2
    picture = Image.new("RGB", (_WIDTH, rows * _ROW + 2 * _MARGIN), "white")
    draw, font, large = ImageDraw.Draw(picture), ImageFont.load_default(_FONT), ImageFont.load_default(_FONT + 4)
    draw.text((_MARGIN, _MARGIN), title, _INK, large)
    y = _MARGIN + 2 * _ROW
    for group in groups:
        draw.text((_MARGIN, y), group.title, _INK, font)
        y += _ROW
        highest = max((bar.value.highest for bar in group.bars), default=1.0)
        scale = (_WIDTH - _LABEL - _TEXT - _MARGIN) / highest
        for bar in group.bars:
            middle, end = y + _ROW // 2, _LABEL + bar.value.median * scale
            draw.text((_LABEL - 10, middle), bar.label, _INK, font, anchor="rm")
            draw.rectangle((_LABEL, y + 4, max(end, _LABEL + 1), y + _ROW - 4), fill=_OURS if bar.ours else _OTHERS)
            draw.line(
                (_LABEL + bar.value.lowest * scale, middle, _LABEL + bar.value.highest * scale, middle), _INK, width=2
            )
            draw.text((_LABEL + bar.value.highest * scale + 8, middle), bar.text, _INK, font, anchor="lm")
            y += _ROW
        y += _ROW
    draw.text((_MARGIN, y - _ROW // 2), note, _GREY, font)
    write_picture(np.asarray(picture), path, overwrite=overwrite, sources=sources)
