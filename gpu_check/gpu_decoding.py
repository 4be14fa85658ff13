"""NVDEC through PyAV: a codec context with a CUDA device, fed packet by packet, as the reader feeds its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from busy_gpu import long_kernel
from check_record import Record, Skipped, measure_each
from gpu_driver import preload_video_libraries, require_gpu, use_primary_context
from gpu_environment import why_not_torch
from gpu_memory import Growth
from gpu_samples import ENCODERS
from libav_log import logged, logged_in_full
from sample_gops import (
    Gop,
    Planes,
    check_each_codec,
    check_pictures,
    cpu_pictures,
    cpu_planes,
    cuda_planes,
    decoded,
    gops_of,
    samples,
)

import shortgop
from shortgop.manifests.records import CodecConfig
from shortgop.readers.decoders.pyav import open_context
from shortgop.readers.decoders.pyav_cuda import CURRENT_CONTEXT, open_cuda_context

OTHERS = {"primary_ctx=1": {"primary_ctx": "1"}, "a context of its own": {"primary_ctx": "0"}}
# Clips for the figures of speed: as those of the README.
CLIP_FRAMES, CLIP_STRIDE = 16, 4
SPEED_VIDEOS = {"a.mp4": "640x360", "d.mp4": "456x256"}
_THREADS = 16
_SOAK_GOPS = 1000
_SEED = 0


def ready() -> None:
    """Torch's context is made, and current in this thread; Skipped without a GPU, or where torch says that it has none.
    An error of CUDA's is none of these."""
    driver = require_gpu()
    if not torch.cuda.is_available():
        raise Skipped(why_not_torch())
    torch.zeros(1, device="cuda")
    preload_video_libraries()
    use_primary_context(driver)


class Contexts:
    """A context for each codec configuration, of one thread."""

    def __init__(self, open_one: Callable[[CodecConfig], Any]) -> None:
        self._open, self._opened = open_one, dict[CodecConfig, Any]()

    def of(self, config: CodecConfig) -> Any:
        if config not in self._opened:
            self._opened[config] = self._open(config)
        return self._opened[config]

    def forget(self, config: CodecConfig) -> None:
        """Open another one when this is asked for again."""
        self._opened.pop(config, None)


def cuda_contexts() -> Contexts:
    return Contexts(lambda config: open_cuda_context(config, 0, CURRENT_CONTEXT))


def torch_context(record: Record) -> None:
    """Whether a decoder that takes torch's context gives right CUDA frames; what opening it and a GOP cost."""
    ready()

    def check(codec_name: str) -> None:
        gop = gops_of(samples(record, codec_name))[0]
        expected = cpu_pictures([gop])[0]
        try:
            record.figure(codec_name, _first_gops(gop, expected, CURRENT_CONTEXT))
        except RuntimeError:
            record.figure(f"{codec_name}, all that libavcodec logs", logged_in_full(partial(_decode_one, gop)))
            raise

    check_each_codec(check)


def other_contexts(record: Record) -> None:
    """What the other options for contexts give. No part of shortgop needs them to work."""
    ready()
    gop = gops_of(samples(record, "h264"))[0]
    expected = cpu_pictures([gop])[0]
    for name, options in OTHERS.items():
        try:
            record.figure(name, _first_gops(gop, expected, options))
        except Exception as error:  # noqa: BLE001  # which one it is, is what is asked
            record.figure(name, f"{type(error).__name__}: {error}")


def _first_gops(gop: Gop, expected: Sequence[Planes], options: dict[str, str]) -> str:
    """Decode a GOP with a new context: how long that takes, three times, and whether the pictures are right.

    RuntimeError with what libavcodec logged, where it fails.
    """
    free_bytes = torch.cuda.mem_get_info()[0]
    texts: list[str] = []
    try:
        with logged() as texts:
            moments = [time.perf_counter()]
            codec = open_cuda_context(gop.config, 0, options)
            moments.append(time.perf_counter())
            for _ in range(3):
                for _ in decoded(codec, gop, every_frame(len(expected))):
                    pass
                torch.cuda.synchronize()
                moments.append(time.perf_counter())
            taken = (free_bytes - torch.cuda.mem_get_info()[0]) / 1e6
            check_pictures(codec, gop, expected, every_frame(len(expected)))
    except Exception as error:
        said = "; ".join(texts) or "nothing was logged"
        raise RuntimeError(f"{type(error).__name__}: {error} ({said})") from error
    opening, *gops = (f"{1e3 * (after - before):.1f}" for before, after in pairwise(moments))
    return f"right; {opening} ms to open, {', '.join(gops)} ms for three GOPs, {taken:.0f} MB of the GPU"


def _decode_one(gop: Gop) -> None:
    for _ in decoded(open_cuda_context(gop.config, 0, CURRENT_CONTEXT), gop, [0]):
        pass


def every_frame(frames: int) -> Sequence[int]:
    return range(frames)


def every_fourth(frames: int) -> Sequence[int]:
    return range(0, frames, 4)


def fresh_threads(record: Record) -> None:
    """Eight threads, each with contexts of its own: all pictures are right."""
    ready()
    driver = require_gpu()
    gops = gops_of(samples(record, "h264"))
    expected = cpu_pictures(gops)

    def read_all(seed: int) -> int:
        use_primary_context(driver)
        order = list(range(len(gops)))
        random.Random(seed).shuffle(order)  # noqa: S311  # no secrets
        contexts = cuda_contexts()
        return sum(
            check_pictures(contexts.of(gops[each].config), gops[each], expected[each], every_frame(len(expected[each])))
            for each in order
        )

    with ThreadPoolExecutor(8) as pool:
        record.figure("pictures equal to the CPU's, 8 threads", sum(pool.map(read_all, range(8))))


def no_context(record: Record) -> None:
    """What decoding gives in a thread without a current CUDA context. The reader's threads always have one, so even a
    crash is only a finding."""
    ready()
    gops = gops_of(samples(record, "h264"))
    expected = cpu_pictures(gops[:1])

    def without_context() -> str:
        try:
            check_pictures(cuda_contexts().of(gops[0].config), gops[0], expected[0], [0])
        except Exception as error:  # noqa: BLE001  # which one it is, is what is asked
            return f"{type(error).__name__}: {error}"
        return "works"

    with ThreadPoolExecutor(1) as pool:
        record.figure("in a thread without a current context", pool.submit(without_context).result())


def busy_streams(record: Record) -> None:
    """Pictures that are copied behind a long kernel are right, though their frames were dropped at once."""
    ready()
    gops = gops_of(samples(record, "h264"))
    expected = cpu_pictures(gops)
    contexts = cuda_contexts()
    wrong = 0
    for _ in range(5):
        kept: list[tuple[torch.Tensor, Planes]] = []
        for gop, pictures in zip(gops, expected, strict=True):
            long_kernel()
            for number, frame in decoded(contexts.of(gop.config), gop, every_frame(len(gop.pattern))):
                # libavcodec writes on the legacy stream, which is torch's default one.
                kept.append((cuda_planes(frame).y.clone(), pictures[number]))
                del frame
        torch.cuda.synchronize()
        wrong += sum(not torch.equal(found.cpu(), picture.y) for found, picture in kept)
        record.figure("pictures behind a busy stream", len(kept))
    record.figure("wrong ones", wrong)
    if wrong:
        raise RuntimeError(f"{wrong} pictures differ from the CPU's: their memory was written again too early")


def held_frames(record: Record) -> None:
    """Frames that are kept stay as they are while others are decoded, and do not keep the decoder from going on."""
    ready()
    gops = gops_of(samples(record, "h264"))
    expected = cpu_pictures(gops)
    contexts = cuda_contexts()
    kept = []
    for gop, pictures in zip(gops, expected, strict=True):
        for number, frame in decoded(contexts.of(gop.config), gop, every_frame(len(gop.pattern))):
            kept.append((cuda_planes(frame), pictures[number]))
        record.figure("frames kept", len(kept))
    wrong = sum(not found.equal(picture) for found, picture in kept)
    if wrong:
        raise RuntimeError(f"{wrong} of {len(kept)} kept frames were written again")


def damaged_gop(record: Record) -> None:
    """A damaged GOP between good ones: whether it is an error, and whether the next GOP decodes on a new context."""
    ready()
    gops = [gop for gop in gops_of(samples(record, "h264")) if len(gop.pattern) > 8][:3]
    expected = cpu_pictures(gops)
    contexts = cuda_contexts()
    check_pictures(contexts.of(gops[0].config), gops[0], expected[0], every_frame(len(expected[0])))
    data = bytearray(gops[1].data)
    middle = len(data) // 2
    data[middle : middle + 200] = bytes(200)
    damaged = Gop(gops[1].video, gops[1].config, gops[1].pattern, bytes(data), gops[1].first_number)
    try:
        count = check_pictures(contexts.of(damaged.config), damaged, expected[1], every_frame(len(expected[1])))
        record.figure("damaged GOP", f"no error, and {count} pictures equal to those of the intact one")
    except Exception as error:  # noqa: BLE001  # which one it is, is what is asked
        record.figure("damaged GOP", f"{type(error).__name__}: {error}")
    check_pictures(cuda_contexts().of(gops[2].config), gops[2], expected[2], every_frame(len(expected[2])))


def soak(record: Record) -> None:
    """Up to a thousand GOPs, with the memory of the GPU and of the process in between."""
    ready()
    gops = gops_of(samples(record, "h264")) + gops_of(samples(record, "hevc"))
    contexts = cuda_contexts()
    growth = Growth(record)
    started = time.perf_counter()
    for number in growth.rounds(_SOAK_GOPS):
        gop = gops[number % len(gops)]
        for _, frame in decoded(contexts.of(gop.config), gop, every_fourth(len(gop.pattern))):
            cuda_planes(frame)
        if number % 100 == 99:
            growth.look()
            record.figure("memory after each 100 GOPs, MB: GPU, process", growth.megabytes())
            record.figure("ms for a GOP", round((time.perf_counter() - started) / (number + 1) * 1e3, 2))
    growth.check()


def speed(record: Record) -> None:
    """Frames/s of clips of 16 frames, 4 apart: of NVDEC, of the CPU, and of our reader on the CPU, which alone converts
    them to RGB. All on one thread, and NVDEC on 16 too: nvcuvid-speed has more of that, where libnvcuvid works."""
    ready()
    todo: dict[str, Callable[[], dict[str, float]]] = {
        f"{codec_name} {size}, 1 thread": partial(_rates, record, codec_name, video)
        for codec_name in ENCODERS
        for video, size in SPEED_VIDEOS.items()
    }
    video, size = next(iter(SPEED_VIDEOS.items()))
    todo |= {
        f"{codec_name} {size}, {_THREADS} threads": partial(_rate_of_threads, record, codec_name, video)
        for codec_name in ENCODERS
    }
    measure_each(record, todo)


def _rates(record: Record, codec_name: str, video: str) -> dict[str, float]:
    dataset = samples(record, codec_name)
    clips = speed_clips(record, codec_name, video)
    ways = {
        "NVDEC": partial(_rate, clips, cuda_contexts(), cuda_planes),
        "CPU": partial(_rate, clips, Contexts(open_context), cpu_planes),
        "our reader to RGB, CPU": partial(_reader_rate, dataset, video, len(clips)),
    }
    # The first round opens decoders and does not count.
    rounds = [{name: way() for name, way in ways.items()} for _ in range(4)][1:]
    return {f"frames/s, {name}": round(median(each[name] for each in rounds)) for name in ways}


def _rate_of_threads(record: Record, codec_name: str, video: str) -> dict[str, float]:
    decoding = partial(decoding_of, speed_clips(record, codec_name, video), require_gpu())
    return {"frames/s, NVDEC": round(threaded_rate(decoding, _THREADS))}


def speed_clips(record: Record, codec_name: str, video: str) -> list[Clip]:
    """Clips of a video of SPEED_VIDEOS, for the figures of speed."""
    return clips_of([gop for gop in gops_of(samples(record, codec_name)) if gop.video == video], count=32)


Clip = list[tuple[Gop, list[int]]]


def clips_of(gops: Sequence[Gop], count: int) -> list[Clip]:
    """Clips of one video from random starts, each as its GOPs with the frames of them."""
    first = gops[0].first_number
    total = sum(len(gop.pattern) for gop in gops)
    span = (CLIP_FRAMES - 1) * CLIP_STRIDE + 1
    rng = random.Random(_SEED)  # noqa: S311  # no secrets
    clips = []
    for _ in range(count):
        start = first + rng.randrange(total - span + 1)
        wanted = set(range(start, start + span, CLIP_STRIDE))
        clip = [
            (gop, [frame for frame in range(len(gop.pattern)) if gop.first_number + frame in wanted]) for gop in gops
        ]
        clips.append([(gop, frames) for gop, frames in clip if frames])
    return clips


def _decode_clips(clips: Sequence[Clip], contexts: Contexts, planes: Callable[[Any], Planes]) -> int:
    count = 0
    for clip in clips:
        for gop, frames in clip:
            for _, frame in decoded(contexts.of(gop.config), gop, frames):
                planes(frame)
                count += 1
    return count


def _rate(clips: Sequence[Clip], contexts: Contexts, planes: Callable[[Any], Planes]) -> float:
    started = time.perf_counter()
    count = _decode_clips(clips, contexts, planes)
    torch.cuda.synchronize()
    if count != len(clips) * CLIP_FRAMES:
        raise RuntimeError(f"{count} frames were decoded, and {len(clips) * CLIP_FRAMES} asked for")
    return count / (time.perf_counter() - started)


def _reader_rate(dataset: Path, video: str, clips: int) -> float:
    opened = shortgop.open(dataset)
    frames = len(opened[video])
    rng = random.Random(_SEED)  # noqa: S311  # no secrets
    starts = [rng.randrange(frames - (CLIP_FRAMES - 1) * CLIP_STRIDE) for _ in range(clips)]
    opened[video].get_frames_at([0])
    started = time.perf_counter()
    for start in starts:
        opened[video].get_frames_at(range(start, start + (CLIP_FRAMES - 1) * CLIP_STRIDE + 1, CLIP_STRIDE))
    return clips * CLIP_FRAMES / (time.perf_counter() - started)


def decoding_of(clips: Sequence[Clip], driver: Any) -> Callable[[], int]:
    """A function that decodes these clips in the calling thread and returns the number of their frames."""
    use_primary_context(driver)
    return partial(_decode_clips, clips, cuda_contexts(), cuda_planes)


def threaded_rate(in_thread: Callable[[], Callable[[], int]], threads: int) -> float:
    """Frames/s where each thread decodes all clips, twice: once to open its decoders, then measured.

    `in_thread` is called in each thread. It returns a function that decodes the clips and returns the number of frames.
    """
    started = list[float]()
    # Noted before any thread goes on. The calling one may run again only when they have decoded much.
    gate = threading.Barrier(threads, lambda: started.append(time.perf_counter()))

    def work() -> int:
        try:
            decode = in_thread()
            decode()
        except BaseException:
            gate.abort()
            raise
        gate.wait(60)
        return decode()

    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(work) for _ in range(threads)]
        errors = [error for each in running if (error := each.exception()) is not None]
        # A thread that failed has broken the gate for the others.
        for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
            raise error
        count = sum(each.result() for each in running)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return count / (time.perf_counter() - started[0])
