"""docs/training.md: overlapping windows of whole videos, whose scores are put together by frames."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import shortgop
from documents import ROOT
from training_videos import LENGTHS, make_videos, numbers


def test_every_frame_has_the_score_of_its_windows(tmp_path: Path) -> None:
    """The score of a frame is its number and 1, so that a frame of another place or video would show. A frame that
    stands in counts for nothing: the last video has 9 frames, fewer than a window. Each of two ranks has a part of the
    windows."""
    folder = make_videos(tmp_path / "videos")
    found = re.search(r"```python\n(starts = .*?)```", (ROOT / "docs" / "training.md").read_text(), re.DOTALL)
    assert found is not None
    sums = []
    for rank in range(2):
        names: dict[str, Any] = {
            "shortgop": shortgop, "np": np, "torch": torch, "DataLoader": DataLoader, "world_size": 2, "model": scored,
            "videos": shortgop.open(folder),
        }  # fmt: skip
        exec(found[1].replace("drop_last=False", f"drop_last=False, rank={rank}, world_size=2"), names)
        sums.append((names["scores"], names["times"]))
    # Starts of the video of 40 frames: 0, 8, 16 and 24; of that of 25: 0, 8 and 9.
    assert [start for _, start in names["starts"]] == [0, 8, 16, 24, 0, 8, 9, 0]
    scores, times = (sum(parts) for parts in zip(*sums, strict=True))
    assert times.tolist() == [1] * 8 + [2] * 24 + [1] * 8 + [1] * 8 + [2] + [3] * 7 + [2] * 8 + [1] + [1] * 9
    shown = [1000 * video + frame for video, count in enumerate(LENGTHS) for frame in range(count)]
    assert (scores / times).tolist() == [number + 1 for number in shown]


def scored(frames: torch.Tensor) -> torch.Tensor:
    return torch.tensor([[number + 1.0 for number in numbers(clip)] for clip in frames])
