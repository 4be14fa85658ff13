"""Reads frames at random for the demo: how long that takes, and whether they are the right ones."""

from __future__ import annotations

import bisect
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import torch

import shortgop

FRAMES_AT_A_TIME = 64

Read = Callable[[str, list[float]], torch.Tensor]  # a video's id and ascending seconds -> uint8, NCHW
Request = tuple[str, list[float]]


@dataclass(frozen=True)
class Yardstick:
    """What shortgop is compared with. `read` opens a file and takes frames out of it, on one thread."""

    name: str
    read: Callable[[Path, list[float]], torch.Tensor]
    remark: str = ""


@dataclass(frozen=True)
class Speed:
    """How long a read takes, and how many times as long as another reader's that is, in each round."""

    median_ms: float
    ratios: tuple[float, ...]

    def slower(self) -> str:
        """The ratio with its extremes; nothing for the reader that the others are compared with."""
        if set(self.ratios) == {1.0}:
            return ""
        texts = [f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:.0f}" for ratio in sorted(self.ratios)]
        return f"{texts[len(texts) // 2]} ({texts[0]}-{texts[-1]})"


def find_yardstick() -> Yardstick:
    """TorchCodec, or PyAV where TorchCodec does not load."""
    try:
        from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).partition(". ")[0]
        return Yardstick("PyAV", read_with_pyav, f"TorchCodec does not load, so PyAV stands in for it: {reason}")

    def read(path: Path, seconds: list[float]) -> torch.Tensor:
        decoder = VideoDecoder(str(path), seek_mode="exact", num_ffmpeg_threads=1)
        frames: torch.Tensor = decoder.get_frames_played_at(seconds).data
        return frames

    return Yardstick("TorchCodec", read)


def read_with_pyav(path: Path, seconds: list[float]) -> torch.Tensor:
    """Seek to the keyframe before the first moment, and decode on to the last."""
    with av.open(path) as container:
        container.streams.video[0].codec_context.thread_count = 1
        container.seek(int(seconds[0] * av.time_base))
        frames = list(itertools.takewhile(lambda frame: frame.time <= seconds[-1], container.decode(video=0)))
    times = [frame.time for frame in frames]
    played = [frames[bisect.bisect_right(times, second) - 1] for second in seconds]
    pictures = [torch.from_numpy(frame.to_ndarray(format="rgb24", threads=1)) for frame in played]
    return torch.stack(pictures).permute(0, 3, 1, 2)


def requests(dataset: shortgop.Dataset, count: int, *, frames: int, stride: int) -> list[Request]:
    """Random clips of random videos, by the middles of their frames: every reader then finds the same pictures."""
    rng = np.random.default_rng(0)
    asked = []
    for _ in range(count):
        video = dataset[int(rng.integers(len(dataset)))]
        fps = video.metadata.average_fps
        # Not from the last second: a source ends a little before or after its video.
        first = int(rng.integers(len(video) - stride * frames - math.ceil(fps)))
        asked.append((video.id, [(first + stride * i + 0.5) / fps for i in range(frames)]))
    return asked


def measure(readers: Sequence[Read], asked: Sequence[Request], *, rounds: int) -> list[Speed]:
    """Let the readers do each read in turn, on one thread, and compare them with the first."""
    torch.set_num_threads(1)
    for read in readers:
        read(*asked[0])
    took = np.zeros((len(readers), len(asked)))
    for i, request in enumerate(asked):
        for k in range(len(readers)):
            reader = (i + k) % len(readers)
            start = time.perf_counter()
            readers[reader](*request)
            took[reader, i] = time.perf_counter() - start
    of_rounds = np.median(took.reshape(len(readers), rounds, -1), axis=2)
    medians = np.median(took, axis=1)
    return [
        Speed(1000 * float(middle), tuple(ratios.tolist()))
        for middle, ratios in zip(medians, of_rounds / of_rounds[0], strict=True)
    ]


def identical_frames(dataset: shortgop.Dataset, yardstick: Yardstick, exported: Path) -> tuple[int, int]:
    """How many frames are the same as from the exported files, and of how many."""
    same = total = 0
    for video in dataset:
        fps = video.metadata.average_fps
        for first in range(0, len(video), FRAMES_AT_A_TIME):
            indices = range(first, min(first + FRAMES_AT_A_TIME, len(video)))
            expected = yardstick.read(exported / f"{video.id}.mp4", [(i + 0.5) / fps for i in indices])
            same += int((video.get_frames_at(indices).data == expected).flatten(1).all(1).sum())
            total += len(indices)
    return same, total
