"""Three sources with labels in a list, and a dataset of them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from datasets import make_dataset
from shortgop.cli import app
from synthetic import constant_rate_pts, make_video

RATE = Fraction(25)


def make_labelled_videos(root: Path) -> Path:
    """Make three sources of 20 frames, which show 0, 100 and 200 on, and a dataset of them whose labels are text."""
    for number, name in enumerate(("a.mp4", "b.mp4", "c.mp4")):
        make_video(root / name, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=100 * number)
    (root / "old.jsonl").write_text(
        "".join(f'{{"path": "{name}", "label": "3", "split": "train"}}\n' for name in ("a.mp4", "b.mp4", "c.mp4"))
    )
    make_dataset([root / "old.jsonl"], root / "dataset")
    return root


def run(*arguments: object) -> Any:
    """What a command did and printed."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
