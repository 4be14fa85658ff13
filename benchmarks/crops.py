"""What crops, flips and further outputs of ClipDataset cost: each beside a plain one, batch by batch in turn.

`make bench` leaves it out: the figures in docs/design/readers.md come from `python benchmarks/crops.py`, in the
environment that `make` builds. It takes some minutes. Reading runs on one thread, so its processor time is compared:
other work on the machine counts for less in it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import footage
import torch

import shortgop
from shortgop import Output

SIZE = (224, 224)
CENTER = Output(size=SIZE, crop="center")
# The middle of 456x256, which is not resized; and the whole height, which is.
FIXED = Output(size=SIZE, crop=(16, 116, *SIZE))

GREY = Output(size=SIZE, crop="center", color="grey")

# What is measured, and what it is compared with.
PAIRS: Mapping[str, tuple[Mapping[str, Output], Mapping[str, Output]]] = {
    "the same twice (noise)": ({"a": FIXED}, {"a": FIXED}),
    "random crop / fixed crop": ({"a": Output(size=SIZE, crop="random")}, {"a": FIXED}),
    "random-resized crop / centre resized": ({"a": Output(size=SIZE, crop="random-resized")}, {"a": CENTER}),
    "fixed crop, flip 0.5 / fixed crop": ({"a": Output(size=SIZE, crop=FIXED.crop, flip=0.5)}, {"a": FIXED}),
    "fixed crop, CTHW / fixed crop": ({"a": Output(size=SIZE, crop=FIXED.crop, layout="CTHW")}, {"a": FIXED}),
    "fixed crop, float16 / fixed crop": ({"a": Output(size=SIZE, crop=FIXED.crop, dtype=torch.float16)}, {"a": FIXED}),
    "centre bicubic / centre resized": ({"a": replace(CENTER, interpolation="bicubic")}, {"a": CENTER}),
    "centre nearest / centre resized": ({"a": replace(CENTER, interpolation="nearest")}, {"a": CENTER}),
    "grey centre nearest / grey centre resized": ({"a": replace(GREY, interpolation="nearest")}, {"a": GREY}),
    "random-resized nearest / random-resized": (
        {"a": Output(size=SIZE, crop="random-resized", interpolation="nearest")},
        {"a": Output(size=SIZE, crop="random-resized")},
    ),
    "fixed crop and its small copy / fixed crop": (
        {"a": FIXED, "b": Output(size=(112, 112), shared="a")},
        {"a": FIXED},
    ),
}


def batches(dataset: Path, clips: shortgop.RandomClips, size: int, rounds: int, *, name: str) -> list[float]:
    """Ratios of the processor time for each batch, by one set of outputs and by the other, in turn."""
    sets = [shortgop.ClipDataset(dataset, clips, outputs=each) for each in PAIRS[name]]
    ratios = []
    for number in range(rounds + 2):
        draws = [number * size + place for place in range(size)]
        seconds = [0.0, 0.0]
        # The first of the two has colder caches.
        for which in (0, 1) if number % 2 else (1, 0):
            started = time.process_time()
            sets[which].__getitems__(draws)
            seconds[which] = time.process_time() - started
        if number >= 2:
            ratios.append(seconds[0] / seconds[1])
    return ratios


def main() -> None:
    """Measure all pairs for clips and for single frames."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="batches of each kind")
    rounds = parser.parse_args().rounds
    dataset = footage.make_dataset(footage.make_sources("clips", 6, 256, 20), "source")
    kinds = {"8 clips of 16 frames, stride 4": (16, 4, 8), "32 single frames": (1, 1, 32)}
    for kind, (frames, stride, size) in kinds.items():
        clips = shortgop.RandomClips(frames, stride=stride, clips_per_video=1000)
        for name in PAIRS:
            ratios = batches(dataset, clips, size, rounds, name=name)
            quartiles = statistics.quantiles(ratios, n=4)
            print(
                f"{kind}: {name}: {statistics.median(ratios):.3f} ({quartiles[0]:.2f} to {quartiles[2]:.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
