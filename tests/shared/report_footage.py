"""A dataset for tests of its report: videos with labels, failures, and names that would be markup."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

from datasets import make_dataset
from synthetic import constant_rate_pts, make_video

HOSTILE = """<script>alert(1)</script>"><img src=x onerror='alert(2)'>&amp; \x1b[31m \u202e]]>-->"""
EVIL_ID = "evil/<b>&\"'</title><script>fetch('http://example.com')</script>.mp4"
RATE = Fraction(30)


def make_footage(root: Path) -> Path:
    """Make a dataset of three videos with labels, and of two failures, by a job with a list."""
    sizes = {"a.mp4": (128, 96), "b.mkv": (128, 96), "c.mp4": (96, 128)}
    for number, (name, size) in enumerate(sizes.items()):
        timebase = Fraction(1, 1000) if name.endswith("mkv") else 1 / RATE
        pts = constant_rate_pts(RATE, 70, timebase)
        make_video(root / name, pts=pts, timebase=timebase, size=size, first_number=1000 * number)
    for name in ("broken1.mp4", "broken2.mp4"):
        (root / name).write_text("not a video")
    lines = [
        {"path": "a.mp4", "id": EVIL_ID, "label": HOSTILE},
        {"path": "b.mkv", HOSTILE: 3},
        {"path": "c.mp4", "label": "plain"},
        {"path": "broken1.mp4", "id": HOSTILE},
        {"path": "broken2.mp4"},
    ]
    (root / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    report = make_dataset([root / "list.jsonl"], root / "dataset", gop_frames=8, segment_seconds=Fraction(1))
    assert (report.videos_added, len(report.failures)) == (3, 2)
    return root / "dataset"
