"""The pixels of clips: as the dataset was opened, or as outputs have them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

import torch

from ...errors import UsageError
from ...manifests.ragged import Array
from ...readers.convert.copies import array_of
from ...readers.frame_format import PixelFormat
from ..which_clips.clips import Clip
from .named_outputs import Outputs, Views
from .opened import OpenedDataset
from .rows import Rows
from .transforms import Read


def read_clips(
    opened: OpenedDataset,
    outputs: Outputs | None,
    clips: Sequence[Clip],
    rows: Rows | None,
    *,
    num_clips: int,
    black: bool,
    several: bool = False,
) -> dict[str, Read]:
    """What is read of these clips, of `num_clips` of the dataset, by the names that items have for it: each entry is
    (clips, ...).

    With `rows`, frames are read into these. With `black`, frames that stand in for others are painted black. With
    `several`, clips may differ in the size and the number of their frames, and an entry may be a list. The one place
    that asks for pixels.
    """
    if rows is not None:
        _check_as_long(opened, clips)
    if outputs is not None:
        return _read_outputs(opened, outputs, clips, rows, num_clips=num_clips, black=black, several=several)
    videos, wanted = _videos_and_frames(clips)
    if rows is None:
        groups = _alike(opened, videos, wanted) if several else [list(range(len(clips)))]
        frames, pts_seconds = _read_groups(opened, videos, wanted, groups)
    else:
        pts_seconds = opened.read_into(videos, wanted, None, rows)
        frames = rows.views("frames")
    chosen, full_range = opened.format_of(videos)
    for place, mask in _to_be_black(clips) if black else ():
        paint_black(frames[place], chosen.pixels, chosen.layout, mask, full_range=full_range[place])
    return {"frames": frames, "pts_seconds": pts_seconds}


def paint_black(clip: torch.Tensor, pixels: PixelFormat, layout: str, mask: Array, *, full_range: bool = True) -> None:
    """Make black the frames of a clip where `mask` is False.

    `layout` is the order of the clip's dimensions, `full_range` that of the planes of yuv420.
    """
    black = torch.tensor(pixels.black(full_range=full_range), dtype=torch.float64, device="cpu").to(clip.dtype)
    order = [layout.index(dimension) for dimension in "TCHW"]
    painted, chroma = black.reshape(-1, 1, 1), slice(clip.shape[order[2]] * 2 // 3, None)
    if clip.device.type != "cpu":
        missing = torch.from_numpy(~mask).to(clip.device)
        clip.permute(order)[missing] = painted.to(clip.device)
        if pixels.color == "yuv420":
            clip.permute(order)[missing, :, chroma] = 128
        return
    # As arrays: torch would use threads, which do not survive a fork.
    frames = array_of(clip).transpose(order)
    frames[~mask] = array_of(painted)
    if pixels.color == "yuv420":
        # Two thirds of the lines are luma.
        frames[~mask, :, chroma] = 128


def _check_as_long(opened: OpenedDataset, clips: Sequence[Clip]) -> None:
    """UsageError where clips that go into rows of one length differ in their number of frames."""
    longest = max(clips, key=lambda clip: len(clip.frames), default=None)
    fewest = min((len(clip.frames) for clip in clips), default=0)
    if longest is not None and len(longest.frames) > fewest:
        name = opened.manifest.videos.id.text(longest.video)
        raise UsageError(
            f"clips have {fewest} to {len(longest.frames)} frames, the most that of video {name!r}, and do not go into "
            "one tensor: the collate_fn of a DataLoader takes several lengths, and so does ClipLoader with "
            "collate={name: list}; shortgop.BucketSampler makes batches of one length each",
            video=name,
        )


def _alike(opened: OpenedDataset, videos: Sequence[int], wanted: Sequence[list[int]]) -> list[list[int]]:
    """The places of clips in groups whose frames have one size and one number each."""
    chosen, _ = opened.format_of(videos)
    one_size = not videos or 0 not in chosen.shape_of_no_frame()
    sizes = [(0, 0)] * len(videos) if one_size else opened.sizes_and_ids(videos)[0]
    return _grouped([(size, len(frames)) for size, frames in zip(sizes, wanted, strict=True)])


def _grouped(kinds: Sequence[Hashable]) -> list[list[int]]:
    """The places of each kind. No clips at all are one group, which is read as such."""
    places: dict[Hashable, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    return list(places.values()) or [[]]


def _read_groups(
    opened: OpenedDataset, videos: Sequence[int], wanted: Sequence[list[int]], groups: Sequence[Sequence[int]]
) -> tuple[Read, Read]:
    """The frames of clips and their times, in the order of the clips; the clips of a group are read together."""
    numbers = opened.numbers_of(videos).tolist()
    read = [opened.dataset.get_clips([(numbers[place], wanted[place]) for place in group]) for group in groups]
    if len(groups) == 1:
        return read[0].data, read[0].pts_seconds
    found = _in_order([{"frames": each.data, "pts_seconds": each.pts_seconds} for each in read], groups)
    return found["frames"], found["pts_seconds"]


def _read_outputs(
    opened: OpenedDataset,
    outputs: Outputs,
    clips: Sequence[Clip],
    rows: Rows | None,
    *,
    num_clips: int,
    black: bool,
    several: bool,
) -> dict[str, Read]:
    if not clips:
        return {name: torch.empty(0, device="cpu") for name in outputs.named}
    videos, counts = [clip.video for clip in clips], [len(clip.frames) for clip in clips]
    draws, passes = [clip.draw for clip in clips], [(clip.draw // num_clips, clip.place) for clip in clips]
    views = outputs.views(draws, passes, *opened.sizes_and_ids(videos), counts)
    groups = [list(range(len(clips)))]
    if rows is None and several:
        sizes = zip(*([each.size for each in made] for made in views.geometries.values()), strict=True)
        groups = _grouped(list(zip(sizes, counts, strict=True)))
    read = [
        _read_alike(opened, outputs, [clips[place] for place in group], views.of(group), rows, black=black)
        for group in groups
    ]
    return {**(read[0] if len(read) == 1 else _in_order(read, groups)), **views.columns()}


def _read_alike(
    opened: OpenedDataset, outputs: Outputs, clips: Sequence[Clip], views: Views, rows: Rows | None, *, black: bool
) -> dict[str, Read]:
    """The outputs of clips that have as many frames, of one size in each output."""
    videos, wanted = _videos_and_frames(clips)
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
    return {**read, "pts_seconds": pts_seconds}


def _in_order(read: Sequence[Mapping[str, Read]], groups: Sequence[Sequence[int]]) -> dict[str, Read]:
    """What was read of groups of clips, in the order of all clips."""
    found: dict[str, dict[int, torch.Tensor]] = {name: {} for name in read[0]}
    for each, group in zip(read, groups, strict=True):
        for name, values in each.items():
            found[name] |= {place: values[row] for row, place in enumerate(group)}
    return {name: [values[place] for place in range(len(values))] for name, values in found.items()}


def _videos_and_frames(clips: Sequence[Clip]) -> tuple[list[int], list[list[int]]]:
    return [clip.video for clip in clips], [clip.frames.tolist() for clip in clips]


def _to_be_black(clips: Sequence[Clip]) -> Iterator[tuple[int, Array]]:
    """The clips with frames to be painted black, by their places, and their masks."""
    for place, clip in enumerate(clips):
        if clip.mask is not None and not clip.mask.all():
            yield place, clip.mask
