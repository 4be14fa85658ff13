"""The GOPs of a sample dataset, decoded packet by packet as the reader does it, on the CPU or a GPU, as the context
decodes."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from av.packet import Packet
from av.video.frame import VideoFrame
from check_record import Record, Skipped
from differences import difference
from gpu_samples import ENCODERS, FIRST_NUMBERS, MADE, make_samples

import shortgop
from shortgop.errors import ToolError
from shortgop.manifests.mp4 import sample_bounds
from shortgop.manifests.records import CodecConfig, Pattern
from shortgop.readers.dataset import reader_of
from shortgop.readers.decoders.pyav import open_context
from shortgop.readers.decoders.pyav_cuda import surface_of
from shortgop.readers.gops import GopStore
from shortgop.readers.plan import VideoGops, needed_samples, plan_frames, reorder_depth
from shortgop.storage.disk import DiskStorage
from synthetic import read_number


@dataclass(frozen=True)
class Gop:
    """A GOP of a dataset. Frame k of it shows the number `first_number` + k."""

    video: str
    config: CodecConfig
    pattern: Pattern
    data: bytes
    first_number: int


@dataclass(frozen=True, eq=False)
class Planes:
    """The planes of a picture: Y is (height, width), the chroma (height / 2, width / 2, 2)."""

    y: torch.Tensor
    uv: torch.Tensor

    def equal(self, other: Planes) -> bool:
        return torch.equal(self.y.cpu(), other.y.cpu()) and torch.equal(self.uv.cpu(), other.uv.cpu())

    def difference(self, other: Planes) -> str:
        return f"Y: {difference(self.y, other.y)}. Chroma: {difference(self.uv, other.uv)}"


def samples(record: Record, codec: str) -> Path:
    """The sample dataset of this codec. They are made where they did not come along; Skipped where that cannot be."""
    if not (record.samples / MADE).exists():
        try:
            make_samples(record.samples)
        except (ImportError, ToolError) as error:
            raise Skipped(f"there are no samples, and none can be made: {error}") from error
    return record.samples / codec


def gops_of(dataset: Path) -> list[Gop]:
    """All GOPs of a dataset, in the order of its videos."""
    opened = shortgop.open(dataset)
    manifest = reader_of(opened).manifest
    plan = plan_frames(VideoGops.of(manifest), [(row, range(len(video))) for row, video in enumerate(opened)])
    store = GopStore(DiskStorage(dataset), manifest)
    reads = store.reads(plan.gops, max_parts=len(plan.gops))
    with store.fetching(reads) as fetch:
        return [
            Gop(
                opened.ids[gop.video],
                manifest.config(int(manifest.videos.config[gop.video])),
                manifest.pattern(int(manifest.gops.pattern[gop.gop])),
                bytes(data),
                FIRST_NUMBERS * gop.video + gop.first_frame,
            )
            for read in reads
            for gop, data in fetch(read)
        ]


def decoded(codec: Any, gop: Gop, frames: Sequence[int]) -> Iterator[tuple[int, VideoFrame]]:
    """Decode these frames of a GOP from the packets that they need: the number in the GOP, and the frame."""
    bounds, wanted = sample_bounds(gop.data), set(frames)
    codec.reorder_depth = reorder_depth(gop.pattern)
    for sample in needed_samples(gop.pattern, frames):
        packet = Packet(gop.data[bounds[sample] : bounds[sample + 1]])
        packet.pts = gop.pattern.frames[sample]
        yield from _wanted(codec.decode(packet), wanted)
    yield from _wanted(codec.decode(None), wanted)
    codec.flush_buffers()
    if wanted:
        raise RuntimeError(f"{gop.video}: frames {sorted(wanted)} of the GOP from {gop.first_number} do not come out")


def _wanted(frames: Sequence[VideoFrame], wanted: set[int]) -> Iterator[tuple[int, VideoFrame]]:
    for frame in frames:
        if frame.pts is not None and frame.pts in wanted:
            wanted.remove(frame.pts)
            yield frame.pts, frame


def cpu_planes(frame: VideoFrame) -> Planes:
    """The planes of a frame in memory, yuv420p."""
    if frame.format.name != "yuv420p":
        raise RuntimeError(f"a frame is {frame.format.name}, and not yuv420p")
    y, u, v = (
        np.frombuffer(cast("Any", plane), np.uint8).reshape(plane.height, -1)[:, : plane.width]
        for plane in frame.planes
    )
    return Planes(torch.from_numpy(y.copy()), torch.from_numpy(np.stack([u, v], axis=-1)))


def cuda_planes(frame: VideoFrame) -> Planes:
    """The planes of a frame in the memory of a GPU, NV12. They keep the frame's memory, without a copy."""
    surface = surface_of(frame)
    return Planes(surface.y, surface.uv)


def cpu_pictures(gops: Sequence[Gop]) -> list[list[Planes]]:
    """Every picture of every GOP, decoded on the CPU."""
    contexts = {gop.config: open_context(gop.config) for gop in gops}
    return [
        [planes for _, planes in sorted(_all_planes(contexts[gop.config], gop, cpu_planes), key=lambda each: each[0])]
        for gop in gops
    ]


def _all_planes(codec: Any, gop: Gop, planes: Callable[[VideoFrame], Planes]) -> Iterator[tuple[int, Planes]]:
    for number, frame in decoded(codec, gop, range(len(gop.pattern))):
        yield number, planes(frame)


def check_pictures(
    codec: Any,
    gop: Gop,
    expected: Sequence[Planes],
    frames: Sequence[int],
    planes: Callable[[VideoFrame], Planes] = cuda_planes,
) -> int:
    """Decode these frames of a GOP: each shows its number and equals the CPU's picture. Returns how many there are."""
    for number, frame in decoded(codec, gop, frames):
        check_planes(gop, number, planes(frame), expected[number])
    return len(frames)


def shown_number(picture: Any) -> int | str:
    """The number that a picture shows; where it shows none, that it does not."""
    try:
        return read_number(picture)
    except AssertionError as error:
        return f"no number ({error})"


def wrong_picture(gop: Gop, number: int, found: Planes, expected: Planes) -> str:
    """What is wrong with this picture of a GOP; empty where it shows its number and equals the CPU's."""
    shown = shown_number(found.y)
    if shown == gop.first_number + number and found.equal(expected):
        return ""
    what = "differs from the CPU's" if shown == gop.first_number + number else f"shows {shown}"
    return f"frame {gop.first_number + number} {what}. {found.difference(expected)}"


def check_planes(gop: Gop, number: int, found: Planes, expected: Planes) -> None:
    """RuntimeError unless this picture of a GOP shows its number and equals the CPU's."""
    if wrong := wrong_picture(gop, number, found, expected):
        raise RuntimeError(f"{gop.video}: {wrong}")


def check_each_codec(check: Callable[[str], None]) -> None:
    """Call it for the samples of each codec, also where it fails for one. RuntimeError says for which, and why."""
    errors: dict[str, Exception] = {}
    for codec in ENCODERS:
        try:
            check(codec)
        except Skipped:
            raise
        except Exception as error:  # noqa: BLE001  # the other codec may be right, which tells where to look
            traceback.print_exc()
            errors[codec] = error
    if errors:
        texts = [f"{codec}: {type(error).__name__}: {error}" for codec, error in errors.items()]
        raise RuntimeError("; ".join(texts)) from next(iter(errors.values()))
