"""What tests of loaders and trainers share: a small dataset, the draws of a loop, and examples of docs/trainers.md."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import shortgop
from datasets import make_dataset
from synthetic import constant_rate_pts, make_video

PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"
CLIPS = "RandomClips(2, clips_per_video=16)"


def clips_of_one_frame(root: Path) -> shortgop.ClipDataset:
    """50 clips of one frame each."""
    make_video(root / "a.mp4", pts=constant_rate_pts(Fraction(30), 50), timebase=Fraction(1, 30))
    make_dataset([root / "a.mp4"], root / "dataset", gop_frames=8)
    return shortgop.ClipDataset(root / "dataset", shortgop.AllClips(1), size=(16, 16))


def draws(loader: Any) -> list[list[int]]:
    """The draws of each batch of a pass."""
    return [batch["draw"].tolist() for batch in loader]


def example(start: str) -> str:
    """The block of docs/trainers.md that starts so, with its sizes made small."""
    block = re.search(rf"```python\n({re.escape(start)}.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    text = block[1]
    for old, new in (("256", "8"), ("(224, 224)", "(16, 16)"), ("RandomClips(16, stride=4)", CLIPS)):
        text = text.replace(old, new)
    return text
