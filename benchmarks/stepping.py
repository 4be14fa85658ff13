"""Frame after frame of a video, each by a request of its own, beside chunks and decoders that read in order:
python benchmarks/stepping.py

`make bench` leaves it out: the figures in docs/performance.md and docs/design/readers.md come from it. Each way reads
each video from its first frame to its last, in turn with the others, and converts every frame it reads to RGB. What is
given is processor time on one thread, the least of the rounds: other work on the machine counts for less in it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import av
import footage
import torch
from torchcodec.decoders import VideoDecoder  # type: ignore[attr-defined]

import shortgop
from shortgop.comparison.accesses import Request

# Frames of a request, and the stride between all frames.
WAYS = ((16, 1), (4, 1), (2, 1), (1, 1), (1, 2), (1, 3), (1, 4))


def steps(length: int, video: int, frames: int, stride: int) -> list[Request]:
    """Requests that go through a video from its start."""
    last = (frames - 1) * stride
    return [
        ((video, tuple(range(start, start + last + 1, stride))),) for start in range(0, length - last, frames * stride)
    ]


def requested(dataset: shortgop.Dataset, requests: Sequence[Request]) -> Callable[[], int]:
    """Read these; returns how many frames that was."""
    return lambda: sum(dataset.get_clips(request).data.shape[1] * len(request) for request in requests)


def in_order_by_pyav(path: Path) -> int:
    """All frames of a file, by PyAV."""
    count = 0
    with av.open(path) as container:
        container.streams.video[0].thread_type = "NONE"
        for frame in container.decode(video=0):
            torch.from_numpy(frame.to_ndarray(format="rgb24", threads=1))
            count += 1
    return count


def in_order_by_torchcodec(path: Path) -> int:
    """All frames of a file, one call of TorchCodec each."""
    decoder: Any = VideoDecoder(str(path), num_ffmpeg_threads=1)
    for number in range(len(decoder)):
        decoder.get_frame_at(number)
    return len(decoder)


def ways_of(path: Path) -> Mapping[str, Callable[[], int]]:
    """All that is compared, by its name."""
    dataset, files = shortgop.open(path), footage.make_exported(path)
    lengths = [len(video) for video in dataset]
    ways = {}
    for frames, stride in WAYS:
        asked = [each for video, length in enumerate(lengths) for each in steps(length, video, frames, stride)]
        ways[f"requests of {frames}, stride {stride}"] = requested(dataset, asked)
    shortest = range(min(lengths))
    side_by_side: list[Request] = [((video, (frame,)),) for frame in shortest for video in range(len(lengths))]
    batches: list[Request] = [tuple((video, (frame,)) for video in range(len(lengths))) for frame in shortest]
    ways[f"requests of 1, {len(lengths)} videos in turn"] = requested(dataset, side_by_side)
    ways[f"requests of 1 of each of {len(lengths)} videos"] = requested(dataset, batches)
    ways["PyAV, in order"] = lambda: sum(map(in_order_by_pyav, files))
    ways["TorchCodec, frame after frame"] = lambda: sum(map(in_order_by_torchcodec, files))
    return ways


def main() -> None:
    """Measure all ways, with the default profile and with others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--height", type=int, default=256)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sources = footage.make_sources("clips", 4, options.height, 15)
    for profile in ((), ("--profile", "small"), ("--codec", "av1")):
        name = " ".join(profile) or "the default profile"
        ways = ways_of(footage.make_dataset(sources, "source", *profile, name="".join(profile)))
        least = dict.fromkeys(ways, float("inf"))
        for _ in range(options.rounds):
            for way, read in ways.items():
                started = time.process_time()
                count = read()
                least[way] = min(least[way], (time.process_time() - started) / count)
        first = next(iter(least.values()))
        for way, seconds in least.items():
            print(f"{name}: {way}: {seconds * 1e3:.3f} ms a frame, {seconds / first:.2f}", flush=True)


if __name__ == "__main__":
    main()
