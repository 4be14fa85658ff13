"""The readers that benchmarks on a GPU compare, and their frames/s. All give RGB of the video's size on the device."""

from __future__ import annotations

import importlib
import math
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from gpu_driver import require_gpu, use_primary_context
from gpu_torchcodec import decoders_of_torchcodec, reason_of
from torch.utils.dlpack import from_dlpack

import shortgop

Requests = list[tuple[int, list[int]]]
"""Clips of equal length: the number of a video, and numbers of frames in it, ascending and each once."""
Draw = Callable[[random.Random], Requests]
Answer = Callable[[Requests], Iterable[torch.Tensor]]
"""Gives the frames of each clip: uint8, (frames, 3, height, width)."""
_COMPARED_CLIPS = 6
NOT_MEASURED, DIFFERENCE = "not measured", "mean difference"
_ReadClip = Callable[[int, list[int]], torch.Tensor]


def random_clips(rng: random.Random, lengths: Sequence[int], count: int, frames: int, stride: int) -> Requests:
    """Clips from random starts in random videos, of which the lengths are given."""
    span = (frames - 1) * stride + 1
    rows = [rng.randrange(len(lengths)) for _ in range(count)]
    starts = [rng.randrange(lengths[row] - span + 1) for row in rows]
    return [(row, list(range(start, start + span, stride))) for row, start in zip(rows, starts, strict=True)]


def a_frame_of_all(rng: random.Random, lengths: Sequence[int]) -> Requests:
    """The same random frame of all videos."""
    frame = rng.randrange(min(lengths))
    return [(row, [frame]) for row in range(len(lengths))]


def ours(dataset: Path, **options: Any) -> Answer:
    opened = shortgop.open(dataset, **options)
    return lambda requests: opened.get_clips(requests).data


def ours_at_once(dataset: Path, count: int, **options: Any) -> Answer:
    """So many readers of ours, each of which answers its part of the requests in a thread of its own, as the loaders of
    several jobs do."""
    readers, pool = [ours(dataset, **options) for _ in range(count)], ThreadPoolExecutor(count)

    def answer(requests: Requests) -> Iterable[torch.Tensor]:
        parts = [requests[number::count] for number in range(count)]
        answers = pool.map(lambda read, part: read(part) if part else (), readers, parts)
        by_part = [iter(each) for each in answers]
        return [next(by_part[number % count]) for number in range(len(requests))]

    return answer


def torchcodec(files: Sequence[Path], device: str, threads: int) -> Answer:
    """Each thread keeps a decoder open for each file."""
    decoder_type = decoders_of_torchcodec().VideoDecoder
    return _on_threads(lambda: _torchcodec_in_thread(decoder_type, files, device), device, threads)


def _torchcodec_in_thread(decoder_type: Any, files: Sequence[Path], device: str) -> _ReadClip:
    opened: dict[int, Any] = {}

    def read(video: int, frames: list[int]) -> torch.Tensor:
        if video not in opened:
            opened[video] = decoder_type(str(files[video]), device=device)
            # Without NVDEC it decodes on the CPU, and says so here alone.
            if on_cpu := getattr(opened[video], "cpu_fallback", False):
                raise RuntimeError(f"it decodes on the CPU: {on_cpu}")
        found: torch.Tensor = opened[video].get_frames_at(frames).data
        return found

    return read


def pynvvideocodec(files: Sequence[Path], threads: int) -> Answer:
    """Each thread keeps a decoder open for each file. Its frames lie in memory that it uses again, so they are copied
    into a batch, as a loader has to."""
    library: Any = importlib.import_module("PyNvVideoCodec")
    return _on_threads(lambda: _pynvvideocodec_in_thread(library, files), "cuda", threads)


def _pynvvideocodec_in_thread(library: Any, files: Sequence[Path]) -> _ReadClip:
    opened: dict[int, Any] = {}

    def read(video: int, frames: list[int]) -> torch.Tensor:
        if video not in opened:
            planar_rgb = library.OutputColorType.RGBP
            opened[video] = library.SimpleDecoder(str(files[video]), gpu_id=0, output_color_type=planar_rgb)
        found = torch.stack([from_dlpack(frame) for frame in opened[video].get_batch_frames_by_index(frames)])
        # NVIDIA's samples expect planes below each other, (3 * height, width), and (3, height, width) as well.
        return found.reshape(len(found), 3, -1, found.shape[-1])

    return read


def _on_threads(open_in_thread: Callable[[], _ReadClip], device: str, threads: int) -> Answer:
    """Each thread opens a file at the first request for it: all files of all threads would take more time than the
    first way to ask has, and our readers would lose theirs."""
    own, pool = threading.local(), ThreadPoolExecutor(threads)

    def read(request: tuple[int, list[int]]) -> torch.Tensor:
        if not hasattr(own, "read"):
            if device == "cuda":
                # A new thread has no context. TorchCodec 0.16.0 makes one current itself; another release may not.
                use_primary_context(require_gpu())
            own.read = open_in_thread()
        found: torch.Tensor = own.read(*request)
        return found

    return lambda requests: list(pool.map(read, requests))


def opened(readers: Mapping[str, Callable[[], Answer]]) -> tuple[dict[str, Answer], dict[str, str]]:
    """Those that open, and why others do not."""
    answers: dict[str, Answer] = {}
    failed: dict[str, str] = {}
    for name, open_reader in readers.items():
        with _failures(failed, name):
            answers[name] = open_reader()
    return answers, failed


def comparing(
    answers: Mapping[str, Answer],
    expected: Answer,
    draw: Draw,
    *,
    seconds: float,
    rounds: int = 4,
    deadline: float = math.inf,
) -> Iterator[dict[str, dict[str, Any]]]:
    """For each reader its frames/s, the median over rounds in which all take turns, each for so many seconds; and by
    how many levels its frames differ from `expected` in the mean. For one that fails, why.

    In a round all get the same random requests. Before that each opens its decoders and compiles kernels, which is not
    counted. That takes as long as it takes: where less is left until `deadline` (by time.perf_counter()) than those
    before it need for their rounds, a reader is left out.

    What is known comes after each reader's first requests and after each round: a library that crashes or hangs takes
    the process with it.
    """
    differences: dict[str, float] = {}
    failed: dict[str, str] = {}
    left_out: set[str] = set()
    rates: dict[str, list[float]] = {name: [] for name in answers}
    uncounted: dict[str, float] = {}

    def known_now() -> dict[str, dict[str, Any]]:
        return {
            name: {NOT_MEASURED: "there was no time for it"}
            if name in left_out
            else _found(failed.get(name), rates[name], differences.get(name), uncounted.get(name))
            for name in answers
        }

    first = draw(random.Random(-1))[:_COMPARED_CLIPS]  # noqa: S311  # no secrets
    known = expected(first)
    for name, answer in answers.items():
        if time.perf_counter() + (rounds - 1) * seconds * (1 + len(differences)) > deadline:
            left_out.add(name)
        else:
            with _failures(failed, name):
                difference = _mean_difference(answer(first), known)
                uncounted[name] = _frames_per_second(answer, draw, 0, seconds)
                differences[name] = difference
        yield known_now()
    for turn in range(1, rounds):
        for name in differences:
            # Where requests take longer than they should, the rate of the first ones is all that is told.
            if name not in failed and time.perf_counter() < deadline:
                with _failures(failed, name):
                    rates[name].append(_frames_per_second(answers[name], draw, turn, seconds))
        yield known_now()


def _found(
    failed: str | None, rates: Sequence[float], difference: float | None, uncounted: float | None
) -> dict[str, Any]:
    if failed is not None:
        return {"failed": failed}
    if not rates and uncounted is not None:
        why = f"its first requests came at {round(uncounted)} frames/s, and no round of all ended"
        return {NOT_MEASURED: why, DIFFERENCE: difference}
    if not rates:
        return {NOT_MEASURED: "it was not asked yet, or did not end"}
    return {"frames/s": round(median(rates)), DIFFERENCE: difference}


def share(deadline: float, parts: int) -> float:
    """The deadline of the first of so many parts that share the time until `deadline`."""
    now = time.perf_counter()
    return now + (deadline - now) / parts


@contextmanager
def _failures(failed: dict[str, str], name: str) -> Iterator[None]:
    """Takes an error of a reader down, so that the others go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # of any library
        traceback.print_exc()
        failed[name] = f"{type(error).__name__}: {reason_of(error)}"


def _mean_difference(found: Iterable[torch.Tensor], expected: Iterable[torch.Tensor]) -> float:
    """Levels of 255 between the same frames: 0 where all are equal. RuntimeError for other shapes."""
    total = values = 0
    for clip, known in zip(found, expected, strict=True):
        if clip.shape != known.shape:
            raise RuntimeError(f"frames are {tuple(clip.shape)}, and not {tuple(known.shape)}")
        total += int((clip.cpu().short() - known.cpu().short()).abs().sum())
        values += clip.numel()
    # Not rounded to so many decimals: a level in a single pixel of many would be 0.
    return float(f"{total / values:.3g}")


def _frames_per_second(answer: Answer, draw: Draw, turn: int, seconds: float) -> float:
    rng, frames = random.Random(turn), 0  # noqa: S311  # no secrets
    started = time.perf_counter()
    # One request at the least, however long it takes.
    while not frames or time.perf_counter() - started < seconds:
        requests = draw(rng)
        answer(requests)
        frames += sum(len(numbers) for _, numbers in requests)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return frames / (time.perf_counter() - started)


def peers(files: Sequence[Path], device: str, threads: Sequence[int]) -> dict[str, Callable[[], Answer]]:
    """The other libraries, on each number of threads."""
    found: dict[str, Callable[[], Answer]] = {}
    for count in threads:
        found[f"TorchCodec, {count} threads"] = partial(torchcodec, files, device, count)
        found[f"PyNvVideoCodec, {count} threads"] = partial(pynvvideocodec, files, count)
    return found
