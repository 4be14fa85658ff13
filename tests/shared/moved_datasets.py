"""A small dataset for tests of what moves and brings back videos, and what such tests look at."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import shortgop
from datasets import make_dataset
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.verify import verify
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
FRAMES = 20
NAMES = ("a.mp4", "b.mp4", "c.mp4", "d.mp4")
# The label and the first number of each video of `make_original`.
CONTENT = {"a.mp4": (3, 0), "b.mp4": ("x", 100)}


def make_sources(folder: Path) -> Path:
    """Four videos, whose frames show the numbers from 0, 100, 200 and 300 on, and a file that is none."""
    for number, name in enumerate(NAMES):
        pts = constant_rate_pts(RATE, FRAMES)
        make_video(folder / name, pts=pts, timebase=1 / RATE, first_number=100 * number)
    (folder / "broken.mp4").write_text("not a video")
    return folder


def make_original(videos: Path, path: Path) -> Path:
    """Two jobs, so two shards; labels, a video that was dropped, and a source that failed."""
    make_dataset([videos / "a.mp4", videos / "broken.mp4"], path)
    make_dataset([videos / "b.mp4", videos / "c.mp4"], path)
    annotate(DiskStorage(path), {"a.mp4": {"label": 3}, "b.mp4": {"label": "x"}})
    drop(DiskStorage(path), ["c.mp4"])
    return path


def numbers_of(place: Storage) -> dict[str, tuple[Any, int]]:
    """The label of each video, and the number that its first frame shows; all frames are looked at."""
    found = {}
    for video in shortgop.open(place.url):
        numbers = [read_number(picture) for picture in video[:]]
        assert numbers == list(range(numbers[0], numbers[0] + FRAMES))
        found[video.id] = video.attributes.get("label"), numbers[0]
    return found


def current(place: Storage) -> str:
    return str(open_current(place)[0].snapshot)


def is_whole(place: Storage) -> bool:
    root, manifest = open_current(place)
    return list(verify(place, manifest, snapshot=root.snapshot)) == []
