"""A dataset for the tests of training: three videos that show their numbers, with columns from a list."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

import shortgop
from datasets import make_dataset
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

# Frames, rate, and what the source list says. Video v shows the numbers from 1000 * v on.
VIDEOS = {
    "a.mp4": (40, Fraction(10), {"label": 0, "weight": 0.5, "kind": "cat"}),
    "b.mp4": (25, Fraction(30), {"label": 1, "weight": 1.5, "kind": "dog"}),
    "c.mp4": (9, Fraction(10), {"label": 1, "weight": 2.0, "kind": "dog"}),
}
RATES = [Fraction(10), Fraction(30), Fraction(10)]
LENGTHS = [40, 25, 9]


def numbers(frames: torch.Tensor) -> list[int]:
    return [read_number(frame) for frame in frames]


def check_item(item: dict[str, Any], clip: Any) -> None:
    """An item shows the frames of its clip: by the numbers in the pictures, and by their times."""
    video = int(item["video"])
    assert video == clip.video
    assert int(item["draw"]) == clip.draw
    assert int(item["start"]) == clip.start
    assert numbers(item["frames"]) == [1000 * video + frame for frame in clip.frames.tolist()]
    assert item["frame_numbers"].tolist() == clip.frames.tolist()
    assert item["pts_seconds"].tolist() == [float(frame / RATES[video]) for frame in clip.frames.tolist()]


def make_videos(root: Path, *, prefix: str = "", first_number: int = 0) -> Path:
    """Make the dataset of these videos below `root`; returns its folder. Ids begin with `prefix`."""
    root.mkdir(exist_ok=True)
    lines = []
    for number, (name, (count, rate, columns)) in enumerate(VIDEOS.items()):
        make_video(
            root / name, pts=constant_rate_pts(rate, count), timebase=1 / rate,
            first_number=first_number + 1000 * number,
        )  # fmt: skip
        lines.append(json.dumps({"path": str(root / name), "id": prefix + name, **columns}))
    (root / "list.jsonl").write_text("\n".join(lines))
    report = make_dataset([root / "list.jsonl"], root / "dataset", gop_frames=8, segment_seconds=Fraction(2))
    assert report.failures == ()
    return root / "dataset"


def damaged_copy(dataset: Path, copy: Path, *, video: int = 0, gop: int = 1) -> Path:
    """A copy of the dataset with a GOP of a video damaged, its second one by default: frames 8 to 15 of a.mp4."""
    shutil.copytree(dataset, copy)
    manifest = open_current(DiskStorage(copy))[1]
    shard = copy / "shards" / manifest.shards.name.text(int(manifest.segments.shard[manifest.first_segments[video]]))
    place = int(manifest.first_gops[video]) + gop
    with shard.open("r+b") as file:
        file.seek(int(manifest.gops.offset[place]) + int(manifest.gops.length[place]) // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    return copy


def read_by(loader: Any, dataset: shortgop.ClipDataset) -> list[int]:
    """Check every item of every batch; returns the draws in the order in which they came."""
    draws = []
    for batch in loader:
        clips = dataset.clip_index.clips(batch["draw"].tolist())
        for place, clip in enumerate(clips):
            check_item({name: batch[name][place] for name in batch}, clip)
        draws += batch["draw"].tolist()
    return draws
