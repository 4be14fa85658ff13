"""Scenario 7: the reader against its floor, what libavcodec alone takes for the same packets and one conversion.

The floor gets the packets that the plan says are needed, cut out of memory beforehand, feeds them to a decoder that is
open already, as the reader opens its own, and converts each wanted frame once, to the same planar RGB, with one
reformatter of PyAV's. Nothing is looked up, read, checked or copied into a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import footage
import torch
from av.packet import Packet
from av.video.reformatter import Interpolation, VideoReformatter
from results import OURS, Case
from scenarios import DATASET, measured

import shortgop
from shortgop.comparison.accesses import Access, Request, draw
from shortgop.comparison.tasks import our_task
from shortgop.comparison.timing import Task
from shortgop.manifests.layout import open_current
from shortgop.manifests.mp4 import sample_bounds
from shortgop.manifests.tables import Manifest
from shortgop.readers.convert.swscale import BILINEAR
from shortgop.readers.dataset import Dataset
from shortgop.readers.decoders.pyav import open_context
from shortgop.readers.gops import GopStore
from shortgop.readers.plan import VideoGops, needed_samples, plan_frames, reorder_depth

FLOOR = "libavcodec alone"
ACCESSES = {"16 frames, stride 4": Access(16, 4), "16 frames, stride 1": Access(16), "single frame": Access(1)}
BATCH = 32
# The ratio is close to one, so that it takes many requests. Plans of all are made beforehand: memory bounds them.
_REQUESTS = {16: 300, 1: 1000}


@dataclass(frozen=True)
class GopPackets:
    """Packets to send, with the frame of the GOP that each shows, and the frames that are wanted."""

    packets: tuple[tuple[bytes, int], ...]
    wanted: frozenset[int]
    reorder_depth: int
    config: int


def packets_of(dataset: Path, manifest: Manifest, request: Request) -> Iterator[GopPackets]:
    """The packets that a request needs, GOP by GOP."""
    store, layout = GopStore(dataset, manifest), VideoGops.of(manifest)
    for read in store.reads(plan_frames(layout, request).gops, max_parts=1):
        for gop, data in store.fetch(read):
            pattern = manifest.pattern(int(manifest.gops.pattern[gop.gop]))
            bounds = sample_bounds(data)
            samples = needed_samples(pattern, gop.frames)
            yield GopPackets(
                tuple((bytes(data[bounds[n] : bounds[n + 1]]), pattern.frames[n]) for n in samples),
                frozenset(gop.frames),
                reorder_depth(pattern),
                int(manifest.videos.config[gop.video]),
            )


def floor_task(dataset: Path, requests: Sequence[Request]) -> Task:
    """Decodes and converts what each request wants."""
    _, manifest = open_current(dataset)
    plans = [tuple(packets_of(dataset, manifest, request)) for request in requests]
    codecs: list[Any] = [open_context(manifest.config(number)) for number in range(len(manifest.configs))]
    reformatter = VideoReformatter()

    def take(frames: Sequence[Any], wanted: frozenset[int]) -> int:
        taken = [frame for frame in frames if frame.pts in wanted]
        for frame in taken:
            reformatter.reformat(frame, format="gbrp", interpolation=Interpolation(BILINEAR), threads=1)
        return len(taken)

    def task(number: int) -> None:
        for gop in plans[number]:
            codec = codecs[gop.config]
            codec.reorder_depth = gop.reorder_depth
            left = len(gop.wanted)
            for data, pts in gop.packets:
                packet = Packet(cast("Any", data))
                packet.pts = pts
                left -= take(codec.decode(packet), gop.wanted)
            if left:
                left -= take(codec.decode(None), gop.wanted)
            codec.flush_buffers()
            if left:
                raise AssertionError(f"{left} frames did not come out")

    return task


def _into(dataset: Dataset, requests: Sequence[Request], out: torch.Tensor) -> Task:
    """Every request into the same memory, as a loader does that reuses its batches."""
    return lambda number: dataset.get_clips(requests[number], out=out)


def against_the_floor(videos: int, seconds: int, seconds_per_case: float, note: Callable[[str], object]) -> list[Case]:
    """7. The reader and its floor in turn, one thread each; then clips on one thread and on two."""
    sources = footage.make_sources("clips", videos, 256, seconds)
    dataset = footage.make_dataset(sources, "source")
    opened, cases = shortgop.open(dataset), []
    lengths, numbers = [len(video) for video in opened], range(len(opened))
    for name, access in ACCESSES.items():
        note(f"7. {name}")
        asked = draw(lengths, access, _REQUESTS[access.frames], seed=7)
        out = torch.empty(opened.get_clips(asked[0]).data.shape, dtype=torch.uint8)
        tasks: dict[tuple[str, str], Task] = {
            (FLOOR, DATASET): floor_task(dataset, asked),
            ("shortgop, out=", DATASET): _into(opened, asked, out),
            (OURS, DATASET): our_task(opened, numbers, asked),
        }
        rows = measured(tasks, {}, requests=len(asked), seconds=seconds_per_case)
        cases.append(Case(7, "The reader against libavcodec alone, 256p", name, rows))
    for batch in (1, BATCH):
        name = "one clip" if batch == 1 else f"a batch of {batch}"
        note(f"7. {name} on threads")
        asked = draw(lengths, Access(16, 4, batch), _REQUESTS[16], seed=7)
        tasks = {
            (f"{OURS}, {threads}", DATASET): our_task(shortgop.open(dataset, threads=count_threads), numbers, asked)
            for threads, count_threads in (("2 threads", 2), ("1 thread", 1))
        }
        rows = measured(tasks, {}, requests=len(asked), seconds=seconds_per_case)
        cases.append(Case(7, "Clips of 16 frames, stride 4, 256p, on threads", name, rows))
    return cases
