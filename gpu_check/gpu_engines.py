"""How busy the reader keeps NVDEC's engines: its packets/s beside those of files that are decoded from start to end."""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from av.packet import Packet
from bench_footage import CLIPS, HEVC_BY_GOP, LONG, footage_of, repeated
from bench_readers import NOT_MEASURED, Draw, random_clips, share
from check_record import OutOfTime, Record
from gpu_decoding import Contexts, cuda_contexts, ready, threaded_rate
from gpu_driver import require_gpu, use_primary_context
from sample_gops import Gop, gops_of

import shortgop
from shortgop.manifests.mp4 import sample_bounds
from shortgop.readers.dataset import Dataset, reader_of
from shortgop.readers.plan import reorder_depth

_VIDEOS, _REPEATS = 4, 4
# How many readers decode at once, and on how many threads for each engine.
_WAYS = ((1, 1), (1, 2), (1, 4), (2, 2), (4, 1))


class Rates(NamedTuple):
    """Each second. A request decodes a packet once for all frames that need it, so where requests are large and videos
    few there are more frames than packets, and the packets say what decoders did."""

    frames: float
    packets: float


def speed(record: Record) -> None:
    """Packets/s of H.264 at 256p and 720p, and of HEVC at 1600x900."""
    ready()
    driver = require_gpu()

    def contexts() -> Contexts:
        use_primary_context(driver)
        return cuda_contexts()

    kinds, lacking = (CLIPS, LONG, HEVC_BY_GOP[12]), list[str]()
    for number, name in enumerate(kinds):
        deadline = share(record.measure_until, len(kinds) - number)
        for what, figures in use_of_engines(footage_of(record, name), "cuda", contexts, deadline=deadline):
            record.figure(f"{name}, {what}", figures)
            lacking += [f"{name}, {way}" for way in figures] if what == NOT_MEASURED else []
    if lacking:
        raise OutOfTime(f"there was no time to measure {'; '.join(lacking)}")


def use_of_engines(
    dataset: Path,
    device: str,
    contexts: Callable[[], Contexts],
    *,
    seconds: float = 0.7,
    rounds: int = 3,
    deadline: float = math.inf,
) -> Iterator[tuple[str, Any]]:
    """Packets/s of what NVDEC does with a file on each thread, and of the reader, each by how many decode at a time;
    and what part the reader's best is of the engines'. `contexts` is called in each thread.

    What is known comes after each measurement. Where less is left until `deadline` (by time.perf_counter()) than one
    needs, its name comes at the end among what is `NOT_MEASURED`, in place of the part."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "dataset")
        repeated(dataset, folder, [_REPEATS] * _VIDEOS)
        engines, first = engines_of(folder, device), shortgop.open(folder).ids[0]
        gops = [gop for gop in gops_of(folder) if gop.video == first]
        whole, by_reader, at_work = dict[str, int](), dict[str, int](), dict[str, float]()
        lacking, needed = list[str](), 0.0
        for threads in sorted({1, engines, 2 * engines, 4 * engines}):
            name, started = f"{threads} threads", time.perf_counter()
            if started + needed > deadline:
                lacking.append(f"{name} from start to end")
                continue
            whole[name] = round(threaded_rate(lambda: partial(decode_as_stream, contexts(), gops), threads))
            # Each thread decodes all, so twice as many threads need up to twice as long.
            needed = 2 * (time.perf_counter() - started)
            yield "packets/s from start to end", whole
        lengths = [len(video) for video in shortgop.open(folder)]
        draw = partial(random_clips, lengths=lengths, count=8 * engines, frames=16, stride=1)
        for readers, threads_of_engine in _WAYS:
            threads = threads_of_engine * engines
            name = f"{readers} at once, {threads} threads each"
            if time.perf_counter() + rounds * seconds > deadline:
                lacking.append(name)
                continue
            opened = [shortgop.open(folder, device=device, threads=threads, size=(224, 224)) for _ in range(readers)]
            rates = [
                measured_rates(opened, draw, turn, seconds)
                for turn in range(rounds)
                if turn < 2 or time.perf_counter() < deadline
            ]
            # The first round opens decoders.
            by_reader[name] = round(max(rate.packets for rate in rates[1:]))
            at_work[name] = round(sum(each.stats().decoders_per_engine for each in opened), 2)
            yield "packets/s of readers, for clips of 16 frames in a row", by_reader
            yield "decoders at work for each engine", at_work
        if lacking:
            yield NOT_MEASURED, lacking
        else:
            best, most = max(by_reader.values()), max(whole.values())
            yield "the readers' best, as a part of the engines'", round(best / most, 3)


def engines_of(dataset: Path, device: str) -> int:
    """How many engines decode this dataset; 1 on the CPU."""
    return max(1, reader_of(shortgop.open(dataset, device=device)).options.device.engines)


def decode_as_stream(contexts: Contexts, gops: Sequence[Gop]) -> int:
    """Decode GOPs as one stream, without a stop between them. Returns the number of packets."""
    codec, start, frames = contexts.of(gops[0].config), 0, 0
    codec.reorder_depth = max(reorder_depth(gop.pattern) for gop in gops)
    for gop in gops:
        bounds = sample_bounds(gop.data)
        for sample, frame in enumerate(gop.pattern.frames):
            packet = Packet(gop.data[bounds[sample] : bounds[sample + 1]])
            packet.pts = start + frame
            frames += len(codec.decode(packet))
        start += len(gop.pattern)
    frames += len(codec.decode(None))
    codec.flush_buffers()
    if frames != start:
        raise RuntimeError(f"{frames} frames come of {start} packets")
    return start


def measured_rates(datasets: Sequence[Dataset], draw: Draw, seed: int, seconds: float) -> Rates:
    """What these readers give together while each answers requests for so long, in a thread of its own."""
    before = [dataset.stats().packets_decoded for dataset in datasets]
    started = time.perf_counter()

    def answer(number: int) -> int:
        rng, count = random.Random(f"{seed} {number}"), 0  # noqa: S311  # no secrets
        # One request at the least, also where this thread starts late.
        while not count or time.perf_counter() - started < seconds:
            requests = draw(rng)
            datasets[number].get_clips(requests)
            count += sum(len(frames) for _, frames in requests)
        return count

    with ThreadPoolExecutor(len(datasets)) as pool:
        frames = sum(pool.map(answer, range(len(datasets))))
    if datasets[0].device.type == "cuda":
        torch.cuda.synchronize()
    taken = time.perf_counter() - started
    packets = sum(dataset.stats().packets_decoded for dataset in datasets) - sum(before)
    return Rates(frames / taken, packets / taken)
