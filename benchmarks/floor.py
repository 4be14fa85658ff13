"""Scenario 7: the reader against its floor, what libavcodec alone takes for the same packets and one conversion.

The floor has the packets that the plan calls for in memory. It feeds them to a decoder that is open already, with the
reader's settings, and converts each wanted frame once, to the same planar RGB, with one reformatter of PyAV's. It looks
up, reads, checks and copies nothing. A second floor keeps the frames of a request until it has all of them, as every
reader of clips has to. Each frame then has memory of its own, while the first floor writes to the same few pages, which
stay in the processor's caches.
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
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.mp4 import sample_bounds
from shortgop.manifests.tables import Manifest
from shortgop.readers.convert.swscale import BILINEAR
from shortgop.readers.dataset import Dataset
from shortgop.readers.decoders.pyav import open_context
from shortgop.readers.gops import GopStore
from shortgop.readers.plan import VideoGops, needed_samples, plan_frames, reorder_depth
from shortgop.storage.disk import DiskStorage

FLOOR = "libavcodec alone"
FLOOR_KEPT = "libavcodec alone, frames kept"
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
    store, layout = GopStore(DiskStorage(dataset), manifest), VideoGops.of(manifest)
    reads = store.reads(plan_frames(layout, request).gops, max_parts=1)
    with store.fetching(reads) as fetch:
        for gop, data in (each for read in reads for each in fetch(read)):
            pattern = manifest.pattern(int(manifest.gops.pattern[gop.gop]))
            bounds = sample_bounds(data)
            samples = needed_samples(pattern, gop.frames)
            yield GopPackets(
                tuple((bytes(data[bounds[n] : bounds[n + 1]]), pattern.frames[n]) for n in samples),
                frozenset(gop.frames),
                reorder_depth(pattern),
                int(manifest.videos.config[gop.video]),
            )


def floor_task(dataset: Path, requests: Sequence[Request], *, keeps: bool = False) -> Task:
    """Decode and convert the frames of each request; with `keeps`, keep them all until the request ends."""
    _, manifest = open_current(DiskStorage(dataset))
    plans = [tuple(packets_of(dataset, manifest, request)) for request in requests]
    codecs: list[Any] = [open_context(manifest.config(number)) for number in range(len(manifest.configs))]
    reformatter = VideoReformatter()
    kept: list[Any] = []

    def take(frames: Sequence[Any], wanted: frozenset[int]) -> int:
        taken = [frame for frame in frames if frame.pts in wanted]
        for frame in taken:
            converted = reformatter.reformat(frame, format="gbrp", interpolation=Interpolation(BILINEAR), threads=1)
            if keeps:
                kept.append(converted)
        return len(taken)

    def task(number: int) -> None:
        kept.clear()
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


def _into(dataset: Dataset, requests: Sequence[Request]) -> Task:
    """Every request of one clip into the same memory, as a loader does that reuses its batches; one for each size."""
    sizes = [(video.metadata.height, video.metadata.width) for video in dataset]
    frames = len(requests[0][0][1])
    by_size = {size: torch.empty((1, frames, 3, *size), dtype=torch.uint8) for size in set(sizes)}
    outs = [by_size[sizes[video]] for ((video, _frames),) in requests]
    return lambda number: dataset.get_clips(requests[number], out=outs[number])


def against_the_floor(videos: int, seconds: int, seconds_per_case: float, note: Callable[[str], object]) -> list[Case]:
    """7. The reader and its floor in turn, one thread each; then clips on one thread and on two."""
    drawn = footage.make_dataset(footage.make_sources("clips", videos, 256, seconds), "source")
    cases = _one_thread(drawn, group_of("256p"), seconds_per_case, note)
    if footage.sample_folder():
        samples = footage.make_dataset(footage.make_samples(seconds), "source")
        cases += _one_thread(samples, group_of("sample footage of at most 256p"), seconds_per_case, note)
    lengths = [len(video) for video in shortgop.open(drawn)]
    for batch in (1, BATCH):
        name = "one clip" if batch == 1 else f"a batch of {batch}"
        note(f"7. {name} on threads")
        asked = draw(lengths, Access(16, 4, batch), _REQUESTS[16], seed=7)
        tasks = {
            (f"{OURS}, {threads}", DATASET): our_task(shortgop.open(drawn, threads=count), range(len(lengths)), asked)
            for threads, count in (("2 threads", 2), ("1 thread", 1))
        }
        rows = measured(tasks, {}, requests=len(asked), seconds=seconds_per_case)
        cases.append(Case(7, "Clips of 16 frames, stride 4, 256p, on threads", name, rows))
    return cases


def group_of(material: str) -> str:
    """What the table is called."""
    return f"The reader against libavcodec alone, {material}"


def _one_thread(dataset: Path, group: str, seconds_per_case: float, note: Callable[[str], object]) -> list[Case]:
    opened, cases = shortgop.open(dataset), []
    for name, access in ACCESSES.items():
        note(f"7. {group}: {name}")
        asked = draw([len(video) for video in opened], access, _REQUESTS[access.frames], seed=7)
        tasks: dict[tuple[str, str], Task] = {
            (FLOOR, DATASET): floor_task(dataset, asked),
            (FLOOR_KEPT, DATASET): floor_task(dataset, asked, keeps=True),
            ("shortgop, out=", DATASET): _into(opened, asked),
            (OURS, DATASET): our_task(opened, range(len(opened)), asked),
        }
        rows = measured(tasks, {}, requests=len(asked), seconds=seconds_per_case)
        cases.append(Case(7, group, name, rows))
    return cases
