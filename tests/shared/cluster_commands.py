"""Commands on clusters: small sources, `shortgop prep` as a user runs it, and what became of it."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import shortgop
from ray_heads import BIN
from synthetic import constant_rate_pts, make_video, read_number

_VIDEOS = 3
_FRAMES = 20


def make_clips(folder: Path) -> None:
    """Make a folder with three short sources."""
    folder.mkdir()
    for number in range(_VIDEOS):
        make_video(
            folder / f"{number}.mp4", pts=constant_rate_pts(Fraction(30), _FRAMES),
            timebase=Fraction(1, 30), first_number=1000 * number,
        )  # fmt: skip


def prep(
    folder: Path, environment: dict[str, str], *arguments: str, sources: Sequence[str] = ("clips",)
) -> subprocess.CompletedProcess[str]:
    """Run `shortgop prep` in a folder, by default on the sources in `clips`."""
    command = [str(BIN / "shortgop"), "prep", *sources, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def assert_whole(dataset: Path) -> None:
    """The dataset is that of the three sources, with all of their frames."""
    videos = shortgop.open(dataset)
    for number, video in enumerate(videos):
        last = _FRAMES - 1
        assert [read_number(picture) for picture in video.get_frames_at([0, last]).data] == [
            1000 * number, 1000 * number + last,
        ]  # fmt: skip
    assert len(videos) == _VIDEOS
    assert not (dataset / ".tmp").exists()


def endpoint(address: str) -> str:
    """What a node of Ray says of its metrics."""
    text: str = urllib.request.urlopen(f"http://{address}/metrics", timeout=60).read().decode()
    return text
