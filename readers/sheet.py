"""Frames side by side in one picture: a contact sheet."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from uuid import uuid4

import av
import torch
from av.codec.context import CodecContext

from ..manifests.commits import discarding, flush, writing
from ..manifests.errors import OutputError, UsageError

_GAP_PIXELS = 2
_GAP_LEVEL = 255  # white
_MAX_SIDE_PIXELS = 32_000


def write_sheet(frames: torch.Tensor, path: Path, *, columns: int | None = None) -> None:
    """Write frames as a PNG, row by row from the top left, replacing the file if there is one.

    `frames` is uint8 RGB, (frames, height, width, 3), with at least one frame; without `columns` there are about as
    many as rows. OutputError when `path` cannot be written; then it is as it was before.
    """
    if path.is_dir() or not path.name:
        raise OutputError(f"{path} is a folder; give the name of a PNG file", file=str(path))
    data = _png(_sheet(frames, columns))
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:12]}")
    with writing(path), discarding(temporary):
        temporary.write_bytes(data)
        flush(temporary)
        temporary.replace(path)


def _sheet(frames: torch.Tensor, columns: int | None) -> torch.Tensor:
    """One picture (height, width, 3) of all frames, with thin gaps between them."""
    if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != torch.uint8 or len(frames) == 0:
        raise UsageError(
            f"a sheet is made of uint8 (frames, height, width, 3), not {frames.dtype} {tuple(frames.shape)}"
        )
    count, height, width, _ = frames.shape
    columns = columns or math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    cell_height, cell_width = height + _GAP_PIXELS, width + _GAP_PIXELS
    if max(rows * cell_height, columns * cell_width) > _MAX_SIDE_PIXELS:
        raise UsageError(f"{count} frames of {width}x{height} make a sheet too large for a picture; ask for fewer")
    sheet = torch.full(
        (rows * cell_height - _GAP_PIXELS, columns * cell_width - _GAP_PIXELS, 3), _GAP_LEVEL, dtype=torch.uint8
    )
    for index, frame in enumerate(frames):
        top, left = index // columns * cell_height, index % columns * cell_width
        sheet[top : top + height, left : left + width] = frame
    return sheet


def _png(picture: torch.Tensor) -> bytes:
    """`picture` is uint8 RGB, (height, width, 3)."""
    encoder: Any = CodecContext.create("png", "w")
    encoder.height, encoder.width = picture.shape[:2]
    encoder.pix_fmt = "rgb24"
    frame = av.VideoFrame.from_ndarray(picture.numpy(), format="rgb24")
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
