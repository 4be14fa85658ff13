"""Writes a contact sheet: frames side by side in one picture."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import torch

from ..arguments import integer
from ..errors import UsageError
from ..wording import counted
from .picture_files import check_picture_file, write_picture

_GAP_PIXELS = 2
_GAP_LEVEL = 255  # white


def write_sheet(
    frames: torch.Tensor,
    path: Path,
    *,
    columns: int | None = None,
    overwrite: bool = False,
    sources: Iterable[str] = (),
) -> None:
    """Write frames as one picture, from left to right and top to bottom. The suffix decides the format.

    `frames` is uint8 RGB, (frames, height, width, 3), with at least one frame. Without `columns` the grid is about as
    wide as high, counted in frames. UsageError when `path` must not be written, as in `write_picture`; OutputError when
    it cannot be written. After an error the file is as it was before.
    """
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != torch.uint8 or len(frames) == 0:
        raise UsageError(
            f"a sheet is made of uint8 (frames, height, width, 3), not {frames.dtype} {tuple(frames.shape)}"
        )
    count, height, width, _ = frames.shape
    check_sheet(count, height, width, path, columns=columns, overwrite=overwrite, sources=sources)
    write_picture(_sheet(frames, columns).numpy(), path, overwrite=overwrite, sources=sources)


def check_sheet(
    count: int,
    height: int,
    width: int,
    path: Path,
    *,
    columns: int | None = None,
    overwrite: bool = False,
    sources: Iterable[str] = (),
) -> None:
    """Raise the errors that `write_sheet` would raise for `count` frames of this size, before they are read."""
    lines, columns = _grid(count, columns)
    size = (lines * (height + _GAP_PIXELS), columns * (width + _GAP_PIXELS))
    check_picture_file(
        path, size, overwrite=overwrite, sources=sources, what=f"{counted(count, 'frame')} of {width}x{height}"
    )


def _grid(count: int, columns: int | None) -> tuple[int, int]:
    """Lines and columns of the grid."""
    columns = math.ceil(math.sqrt(count)) if columns is None else integer(columns, "columns")
    if columns < 1:
        raise UsageError(f"columns is {columns}; it is how many frames are side by side, 1 or more")
    return math.ceil(count / columns), columns


def _sheet(frames: torch.Tensor, columns: int | None) -> torch.Tensor:
    """All frames in one picture, (height, width, 3), with gaps between them."""
    count, height, width, _ = frames.shape
    lines, columns = _grid(count, columns)
    cell_height, cell_width = height + _GAP_PIXELS, width + _GAP_PIXELS
    size = (lines * cell_height - _GAP_PIXELS, columns * cell_width - _GAP_PIXELS, 3)
    sheet = torch.full(size, _GAP_LEVEL, dtype=torch.uint8, device="cpu")
    for index, frame in enumerate(frames):
        top, left = index // columns * cell_height, index % columns * cell_width
        sheet[top : top + height, left : left + width] = frame
    return sheet
