"""Reading for long: memory and descriptors stay where they were after a while.

`SHORTGOP_SOAK_CLIPS=100000 SHORTGOP_SOAK_VIDEOS=2000 pytest tests/readers/test_soak.py -s` runs the long one.
"""

from __future__ import annotations

import gc
import os
import random
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from datasets import copied_shards, make_dataset
from left_open import open_files
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

CLIPS = int(os.environ.get("SHORTGOP_SOAK_CLIPS", "3000"))
VIDEOS = int(os.environ.get("SHORTGOP_SOAK_VIDEOS", "200"))
# Open files of the store, decoders of each thread, and what Python and torch have open themselves.
MAX_MORE_DESCRIPTORS = 64 + 8
MAX_GROWTH = 0.02


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many videos, which are copies of a few, each few in a shard of their own."""
    root = tmp_path_factory.mktemp("soak")
    sizes = [(64, 48), (98, 66), (48, 64), (80, 60)]
    for number, size in enumerate(sizes):
        pts = constant_rate_pts(Fraction(30), 40)
        make_video(root / f"{number}.mp4", pts=pts, timebase=Fraction(1, 30), size=size)
    make_dataset(sorted(root.glob("*.mp4")), root / "few", gop_frames=16)
    copied_shards(root / "few", root / "many", -(-VIDEOS // len(sizes)))
    return root / "many"


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is looked up in /proc")
def test_nothing_grows(folder: Path) -> None:
    dataset = shortgop.open(folder, threads=2)
    assert len(dataset) >= VIDEOS
    rng = random.Random(0)
    before = len(open_files())
    most_files, levels = 0, []
    for clip in range(CLIPS):
        video = rng.randrange(len(dataset))
        if clip % 2:
            dataset.get_clips([(video, rng.choices(range(40), k=4))] * 2)
        else:
            dataset[video].get_frames_at(rng.choices(range(40), k=4))
        if clip % max(1, CLIPS // 100) == 0:
            most_files = max(most_files, len(open_files()) - before)
        if clip in {min(1000, CLIPS // 3), CLIPS - 1}:
            levels.append(resident_bytes())
    stats = dataset.stats()
    print(f"\n{CLIPS} requests: resident {levels}, {most_files} more descriptors, {stats}")
    assert most_files <= MAX_MORE_DESCRIPTORS
    assert levels[1] <= levels[0] * (1 + MAX_GROWTH)
