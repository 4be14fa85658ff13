"""NVDEC through libnvcuvid itself, through the source that the reader uses where SHORTGOP_NVDEC=nvcuvid."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

import torch
from busy_gpu import long_kernel
from check_record import Record, measure_each
from gpu_decoding import SPEED_VIDEOS, Clip, decoding_of, ready, speed_clips, threaded_rate
from gpu_driver import require_gpu
from gpu_memory import Growth
from gpu_samples import ENCODERS
from picture_verdicts import Verdicts
from sample_gops import Gop, Planes, check_each_codec, cpu_pictures, gops_of, samples

from shortgop.readers.decoders.base import GopRequest
from shortgop.readers.decoders.nvcuvid_source import DecoderKind, NvcuvidSource
from shortgop.readers.decoders.surface_source import Pictures, SurfaceSource
from shortgop.readers.gpu.nvcuvid import load_nvcuvid
from shortgop.readers.gpu.stream_order import Gpu, gop_order
from shortgop.readers.gpu.torch_memory import TorchMemory
from shortgop.readers.gpu.torch_streams import TorchGpu
from shortgop.readers.plan import Place

_SEED = 0
_SOAK_GOPS = 1000

_Way = Callable[[Sequence[Clip]], Callable[[], int]]


class Sources:
    """An open source for each kind of decoder, of one thread."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._memory = gpu, TorchMemory(torch.device("cuda", 0))
        self._library = load_nvcuvid()
        self._opened: dict[DecoderKind, NvcuvidSource] = {}

    def in_order(self) -> AbstractContextManager[None]:
        """Around the decoding of GOPs: the work of this thread goes to the decoders' stream."""
        return gop_order(self._gpu)

    def of(self, gop: Gop) -> NvcuvidSource:
        kind = DecoderKind.of(gop.config)
        if kind not in self._opened:
            self._opened[kind] = NvcuvidSource(gop.config, self._library, self._memory)
        return self._opened[kind]

    def forget(self, gop: Gop) -> None:
        """Open another one when this is asked for again: after an error it is of no use."""
        self._opened.pop(DecoderKind.of(gop.config), None)


def new_gpu() -> Gpu:
    """The device with a stream of its own for decoders."""
    return TorchGpu(torch.device("cuda", 0), own_stream=True)


def decode_with(source: SurfaceSource, gop: Gop, frames: Sequence[int], take: Callable[[int, Planes], None]) -> None:
    """Decode these frames of a GOP; `take` has each frame's number and planes, and uses them on the current stream."""
    wanted = tuple(sorted(frames))
    places = tuple((Place(0, slot, 0),) for slot in range(len(wanted)))

    def convert(pictures: Pictures) -> None:
        for surface, ((_, slot, _),) in pictures:
            take(wanted[slot], Planes(surface.y, surface.uv))

    source.decode(GopRequest(gop.config, gop.pattern, gop.data, wanted, places, []), convert)


def look_at(
    source: SurfaceSource, gop: Gop, expected: Sequence[Planes], frames: Sequence[int], verdicts: Verdicts
) -> None:
    """Decode these frames of a GOP, and have each looked at."""
    found: dict[int, Planes] = {}

    def take(frame: int, planes: Planes) -> None:
        verdicts.lies(gop, planes)
        # Copied, as a conversion does: the surface is the decoder's again afterwards.
        found[frame] = Planes(planes.y.clone(), planes.uv.clone())

    decode_with(source, gop, frames, take)
    for frame, planes in found.items():
        verdicts.look(gop, frame, planes, expected[frame])


def all_pictures(record: Record) -> None:
    """Every picture of every sample shows its number and equals the CPU's: in any order of GOPs and so of sizes, with
    any left out, and behind a long kernel."""
    ready()
    rng = random.Random(_SEED)  # noqa: S311  # no secrets

    def check(codec_name: str) -> None:
        gops = gops_of(samples(record, codec_name))
        expected = cpu_pictures(gops)
        sources, verdicts = Sources(new_gpu()), Verdicts(record, codec_name)
        for behind, where in ((False, ""), (True, " behind a long kernel")):
            for what, step, first in (
                *(("all", 1, 0), ("every fourth", 4, 0)),
                *(("every fourth from the fourth", 4, 3), ("one", 16, 5)),
            ):
                for number in rng.sample(range(len(gops)), len(gops)):
                    gop = gops[number]
                    frames = range(min(first, len(gop.pattern) - 1), len(gop.pattern), step)
                    if verdicts.is_hopeless(gop):
                        continue
                    with sources.in_order(), verdicts.request(gop, frames, what + where):
                        if behind:
                            long_kernel()
                        try:
                            look_at(sources.of(gop), gop, expected[number], frames, verdicts)
                        except Exception:
                            sources.forget(gop)
                            raise
        verdicts.end()

    check_each_codec(check)


def soak(record: Record) -> None:
    """Up to a thousand GOPs of all sizes, with the memory of the GPU and of the process in between."""
    ready()
    gops = gops_of(samples(record, "h264")) + gops_of(samples(record, "hevc"))
    sources, growth = Sources(new_gpu()), Growth(record)
    for number in growth.rounds(_SOAK_GOPS):
        gop = gops[number % len(gops)]
        with sources.in_order():
            decode_with(sources.of(gop), gop, range(0, len(gop.pattern), 4), _nothing)
        if number % 100 == 99:
            growth.look()
            record.figure("memory after each 100 GOPs, MB: GPU, process", growth.megabytes())
    growth.check()


def speed(record: Record) -> None:
    """Frames/s of clips of 16 frames, 4 apart, through libnvcuvid and libavcodec in turn, without conversion to RGB.
    And what a decoder costs: a new one, one that is open, and one that was open for another video."""
    ready()
    gpu, driver = new_gpu(), require_gpu()
    ways: dict[str, _Way] = {
        "libnvcuvid": partial(_decoding, gpu=gpu),
        "libavcodec": partial(decoding_of, driver=driver),
    }
    todo: dict[str, Callable[[], dict[str, float]]] = {}
    for codec_name in ENCODERS:
        todo[f"{codec_name}, ms for a GOP"] = partial(_costs_of, record, codec_name, gpu)
        for video, size in SPEED_VIDEOS.items():
            # Each thread decodes all clips, so more of them take longer.
            for threads in (16, 4, 1):
                for name, way in ways.items():
                    measured = partial(_rate, record, codec_name, video, way, threads)
                    todo[f"{codec_name} {size}, {threads} threads, {name}"] = measured
    measure_each(record, todo)


def _costs_of(record: Record, codec_name: str, gpu: Gpu) -> dict[str, float]:
    return _costs(gops_of(samples(record, codec_name)), gpu)


def _rate(record: Record, codec_name: str, video: str, way: _Way, threads: int) -> dict[str, float]:
    return {"frames/s": round(threaded_rate(partial(way, speed_clips(record, codec_name, video)), threads))}


def _costs(gops: Sequence[Gop], gpu: Gpu) -> dict[str, float]:
    """Milliseconds for all frames of a GOP, with a decoder in each state."""
    # The first use of NVDEC in a process costs more than any decoder.
    first = Sources(gpu)
    with first.in_order():
        decode_with(first.of(gops[0]), gops[0], range(len(gops[0].pattern)), _nothing)
    del first
    sources, costs = Sources(gpu), dict[str, float]()
    for state, video in (("new", "b.mp4"), ("open", "b.mp4"), ("open for b.mp4", "c.mp4"), ("open for c.mp4", "b.mp4")):
        gop = next(each for each in gops if each.video == video)
        torch.cuda.synchronize()
        started = time.perf_counter()
        with sources.in_order():
            decode_with(sources.of(gop), gop, range(len(gop.pattern)), _nothing)
        torch.cuda.synchronize()
        costs[f"{video}, {state}"] = round(1e3 * (time.perf_counter() - started), 2)
    return costs


def _decoding(clips: Sequence[Clip], gpu: Gpu) -> Callable[[], int]:
    return partial(_decode_clips, clips, Sources(gpu))


def _decode_clips(clips: Sequence[Clip], sources: Sources) -> int:
    found: list[int] = []
    for clip in clips:
        for gop, frames in clip:
            with sources.in_order():
                decode_with(sources.of(gop), gop, frames, lambda frame, _: found.append(frame))
    return len(found)


def _nothing(_: int, __: Planes) -> None:
    """Take a picture and do not read it."""
