"""Datasets in AV1: every frame is the right one, and what no wanted frame needs is not decoded."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

import shortgop
from datasets import current_manifest, make_dataset, rows_of
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.prep.tools.capability_trials import try_encoder
from synthetic import constant_rate_pts, make_video, read_number


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two videos of 100 and of 37 frames, in GOPs of 16, at other rates and sizes."""
    folder = tmp_path_factory.mktemp("av1")
    for name, frames, rate, size in (("a.mp4", 100, Fraction(30000, 1001), (96, 64)), ("b.mp4", 37, 25, (162, 98))):
        make_video(folder / name, pts=constant_rate_pts(Fraction(rate), frames), timebase=1 / Fraction(rate), size=size)
    make_dataset([folder / "a.mp4", folder / "b.mp4"], folder / "dataset", codec="av1", segment_seconds=Fraction(1))
    return folder / "dataset"


def test_every_frame_shows_its_number_in_any_order(dataset: Path) -> None:
    videos = shortgop.open(dataset)
    for video, frames in ((videos["a.mp4"], 100), (videos["b.mp4"], 37)):
        order = [(7 * number + 3) % frames for number in range(frames)]
        shown = video.get_frames_at(order).data
        assert [read_number(frame) for frame in shown] == order
        assert all(torch.equal(video[number], shown[place]) for place, number in list(enumerate(order))[::9])


def test_only_the_packets_are_sent_that_a_frame_needs(dataset: Path) -> None:
    """To frame 10 of a GOP these are those of the frames 0, 1, 5 and 9, which have hidden ones, and its own."""
    assert [frame for frame, used in enumerate(current_manifest(dataset).pattern(0).referenced) if used] == [
        0,
        1,
        5,
        9,
        13,
    ]
    videos = shortgop.open(dataset)
    before = videos.stats().packets_decoded
    assert read_number(videos["a.mp4"][16 + 10]) == 26
    assert videos.stats().packets_decoded - before == 5


def test_a_trial_says_what_svt_av1_says_is_wrong_and_nothing_else() -> None:
    """It would describe all its settings too."""
    path = find_ffmpeg().path
    assert try_encoder(path, "libsvtav1", "8", 1).works
    refused = try_encoder(path, "libsvtav1", "77", 1)
    assert not refused.works
    assert "77" in refused.detail


@pytest.mark.first_case_short
@pytest.mark.parametrize("options", [{}, {"fastdecode": False}, {"b_frames": 0}, {"preset": "12"}], ids=str)
def test_the_same_source_gives_the_same_bytes(options: dict[str, Any], dataset: Path, tmp_path: Path) -> None:
    """A job that goes on after an interruption relies on it."""
    for name in ("one", "other"):
        make_dataset([dataset.parent / "a.mp4"], tmp_path / name, codec="av1", **options)
    one, other = (rows_of(tmp_path / name) for name in ("one", "other"))
    assert one == other


def test_without_unreferenced_frames_all_frames_are_referred_to(dataset: Path, tmp_path: Path) -> None:
    make_dataset([dataset.parent / "b.mp4"], tmp_path / "flat", codec="av1", b_frames=0)
    assert all(current_manifest(tmp_path / "flat").pattern(0).referenced)
