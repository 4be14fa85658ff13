"""Videos that lack many frames of their sources are named when a job ends."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from datasets import current_manifest, make_dataset
from odd_pictures import encode_pictures, numbered
from shortgop.cli import app
from shortgop.manifests.lacking import Lacking, lacking_frames
from shortgop.manifests.tables import Manifest
from synthetic import SyntheticVideo, constant_rate_pts, make_video

MS = Fraction(1, 1000)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("videos")
    for name, frames in (("a.mp4", 98), ("b.mp4", 10)):
        make_video(folder / name, pts=constant_rate_pts(Fraction(30), frames), timebase=Fraction(1, 30))
    make_dataset([folder], folder / "dataset")
    return current_manifest(folder / "dataset")


@pytest.mark.parametrize(
    ("dropped", "shown"),
    [((0, 0), ()), ((-1, -1), ()), ((1, 1), ()), ((2, 2), (("b.mp4", 2),)), ((3, 0), (("a.mp4", 3),))],
)
def test_more_than_one_frame_and_more_than_one_in_fifty(
    dropped: tuple[int, int], shown: tuple[tuple[str, int], ...], manifest: Manifest
) -> None:
    videos = replace(manifest.videos, dropped=np.array(dropped, dtype=np.int64))
    assert lacking_frames(replace(manifest, videos=videos)) == Lacking(len(shown), shown)


@pytest.fixture
def in_pairs(tmp_path: Path) -> SyntheticVideo:
    """Of 40 frames, 8 come a millisecond after the one before."""
    pts = sorted([*range(0, 32 * 40, 40), *(number * 160 + 1 for number in range(8))])
    return make_video(tmp_path / "pairs.mkv", pts=pts, timebase=MS)


def said_of(source: Path, *options: str) -> str:
    """What `shortgop prep` prints."""
    out = str(source.parent / f"dataset {options}")
    done = CliRunner().invoke(app, ["prep", str(source), "--out", out, "--runner", "inline", *options])
    assert done.exit_code == 0
    return " ".join(done.output.split())


def test_a_job_says_which_videos_lack_frames_and_how_many(in_pairs: SyntheticVideo) -> None:
    said = said_of(in_pairs.path)
    assert "1 video of the dataset lacks many frames of the source" in said
    assert "wrong times or nearly coincide: pairs.mkv (8 frames); `shortgop info`" in said
    # At another rate that is what was asked for.
    assert "lack" not in said_of(in_pairs.path, "--fps", "5")


def test_frames_of_a_broadcast_before_its_first_keyframe_are_not_called_damaged(tmp_path: Path) -> None:
    """Recordings of broadcasts begin anywhere: it was said that frames were damaged or had wrong times."""
    coded = ("-c:v", "libx264", "-preset", "ultrafast", "-g", "20", "-bf", "0")
    whole = encode_pictures(tmp_path / "whole.ts", numbered(range(40)), *coded, "-pix_fmt", "yuv420p").read_bytes()
    (tmp_path / "x.ts").write_bytes(whole[len(whole) // 4 // 188 * 188 :])
    said = said_of(tmp_path / "x.ts")
    assert re.search(r"lacks many frames of the source, which refer to frames that were cut off, .*: x\.ts \(\d+", said)
