"""Reads frames for the demo: finds the library that shortgop is compared with, and compares frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

import shortgop
from shortgop.comparison.files import VideoFile
from shortgop.comparison.peers import Read, load

FRAMES_AT_A_TIME = 64


@dataclass(frozen=True)
class Yardstick:
    """What shortgop is compared with. `read` opens a file and takes frames out of it, on one thread."""

    name: str
    read: Read
    remark: str = ""


def find_yardstick() -> Yardstick:
    """TorchCodec, or PyAV where TorchCodec does not load."""
    readers, missing = load(["torchcodec", "pyav"])
    if "torchcodec" in readers:
        return Yardstick("TorchCodec", readers["torchcodec"])
    reason = missing["torchcodec"].partition(". ")[0]
    return Yardstick("PyAV", readers["pyav"], f"TorchCodec does not load, so PyAV stands in for it: {reason}")


def identical_frames(dataset: shortgop.Dataset, yardstick: Yardstick, exported: Sequence[VideoFile]) -> tuple[int, int]:
    """How many frames are the same as from the exported files, and of how many."""
    same = total = 0
    for video, file in zip(dataset, exported, strict=True):
        for first in range(0, len(video), FRAMES_AT_A_TIME):
            indices = range(first, min(first + FRAMES_AT_A_TIME, len(video)))
            expected = torch.as_tensor(yardstick.read(file, indices))
            if expected.shape[-1] == 3:
                expected = expected.permute(0, 3, 1, 2)
            same += int((video.get_frames_at(indices).data == expected).flatten(1).all(1).sum())
            total += len(indices)
    return same, total
