"""Makes small videos for the examples, in which a dot circles clockwise or counterclockwise, and prepares a dataset.

A single frame does not show the direction.
"""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

SIDE, FRAMES, RATE = 64, 64, 16  # pixels, frames, frames per second


def make_dataset(folder: Path, count: int, seed: int = 0) -> Path:
    """Write `count` videos and a source list with their labels, and prepare them. Returns the dataset's folder."""
    rng = np.random.default_rng(seed)
    lines = []
    for number in range(count):
        path = folder / f"{number:03}.mp4"
        clockwise = number % 2
        write_video(path, clockwise=bool(clockwise), phase=rng.uniform(0, 2 * np.pi), radius=rng.uniform(14, 22))
        lines.append({"path": str(path), "id": path.stem, "label": clockwise})
    source_list = folder / "videos.jsonl"
    source_list.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    dataset = folder / "dataset"
    command = [*("-m", "shortgop", "prep", str(source_list), "--out", str(dataset), "--runner", "inline")]
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return dataset


def write_video(path: Path, *, clockwise: bool, phase: float, radius: float) -> None:
    """Write a video of a white dot on a dark ground, with one turn in 16 frames."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"preset": "veryfast", "crf": "20"})
        stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, "yuv420p"
        stream.codec_context.time_base = Fraction(1, RATE)
        for index in range(FRAMES):
            angle = phase + (1 if clockwise else -1) * index * 2 * np.pi / 16
            y, x = SIDE / 2 + radius * np.sin(angle), SIDE / 2 + radius * np.cos(angle)
            dot = (rows - y) ** 2 + (columns - x) ** 2 < 36
            picture = np.where(dot[:, :, None], 230, 30).astype(np.uint8).repeat(3, axis=2)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture))
            frame.pts, frame.time_base = index, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
