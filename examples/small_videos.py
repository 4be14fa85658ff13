"""Writes small videos for the examples, and prepares a dataset of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

RATE = 16  # frames per second
Picture = NDArray[np.uint8]


def make_dataset(folder: Path, videos: Iterable[tuple[Iterable[Picture], dict[str, Any]]]) -> Path:
    """Write videos and a source list, and prepare them. Returns the dataset's folder.

    A video is its pictures, uint8, (height, width, 3), and its columns in the source list.
    """
    lines = []
    for number, (pictures, columns) in enumerate(videos):
        path = folder / f"{number:03}.mp4"
        write_video(path, pictures)
        lines.append({"path": str(path), "id": path.stem, **columns})
    source_list = folder / "videos.jsonl"
    source_list.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    dataset = folder / "dataset"
    command = [*("-m", "shortgop", "prep", str(source_list), "--out", str(dataset), "--runner", "inline")]
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return dataset


def write_video(path: Path, pictures: Iterable[Picture]) -> None:
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"preset": "veryfast", "crf": "20"})
        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", Fraction(1, RATE)
        for index, picture in enumerate(pictures):
            if not index:
                stream.height, stream.width = picture.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture))
            frame.pts, frame.time_base = index, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
