"""The pixels of clips: as the dataset was opened, or as outputs have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..manifests.ragged import Array
from .clips import Clip
from .opened import OpenedDataset
from .outputs import Outputs, paint_black
from .rows import Rows
from .transforms import Read


def read_clips(
    opened: OpenedDataset, outputs: Outputs | None, clips: Sequence[Clip], rows: Rows | None, *, black: bool
) -> dict[str, Read]:
    """What is read of these clips, by the names that items have for it: each entry is (clips, ...).

    With `rows`, frames are read into these. With `black`, frames that stand in for others are painted black. The one
    place that asks for pixels.
    """
    if outputs is not None:
        return _read_outputs(opened, outputs, clips, rows, black=black)
    videos, wanted = _videos_and_frames(clips)
    if rows is None:
        numbers = opened.numbers_of(videos).tolist()
        batch = opened.dataset.get_clips(list(zip(numbers, wanted, strict=True)))
        frames: Read = batch.data
        pts_seconds = batch.pts_seconds
    else:
        pts_seconds = opened.read_into(videos, wanted, None, rows)
        frames = rows.views("frames")
    chosen, full_range = opened.format_of(videos)
    for place, mask in _to_be_black(clips) if black else ():
        paint_black(frames[place], chosen.pixels, chosen.layout, mask, full_range=full_range[place])
    return {"frames": frames, "pts_seconds": pts_seconds}


def _read_outputs(
    opened: OpenedDataset, outputs: Outputs, clips: Sequence[Clip], rows: Rows | None, *, black: bool
) -> dict[str, Read]:
    if not clips:
        return {name: torch.empty(0) for name in outputs.named}
    videos, wanted = _videos_and_frames(clips)
    views = outputs.views([clip.draw for clip in clips], *opened.sizes_and_ids(videos))
    requests = outputs.requests(views, len(clips[0].frames))
    read: dict[str, Read]
    if rows is None:
        tensors, pts_seconds = opened.read(videos, wanted, list(requests.values()))
        read = dict(zip(requests, tensors, strict=True))
    else:
        pts_seconds = opened.read_into(videos, wanted, requests, rows)
        read = {name: rows.views(name) for name in requests}
    for place, mask in _to_be_black(clips) if black else ():
        for name, request in requests.items():
            of_output = mask if request.positions is None else mask[list(request.positions)]
            paint_black(read[name][place], request.pixels, request.layout, of_output)
    return {**read, "pts_seconds": pts_seconds, **views.columns()}


def _videos_and_frames(clips: Sequence[Clip]) -> tuple[list[int], list[list[int]]]:
    return [clip.video for clip in clips], [clip.frames.tolist() for clip in clips]


def _to_be_black(clips: Sequence[Clip]) -> Iterator[tuple[int, Array]]:
    """The clips with frames to be painted black, by their places, and their masks."""
    for place, clip in enumerate(clips):
        if clip.mask is not None and not clip.mask.all():
            yield place, clip.mask
