"""Long sources whose cuts are hard to get right, in sections on a cluster of two machines: every frame of each video
shows the number that it shows without cuts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shortgop
from datasets import current_manifest
from far_sections import PROFILE, RATE, SIX_SECTIONS
from long_sources import assert_undisturbed
from ray_heads import cluster_of
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.operations.verify import verify
from shortgop.prep.options import SourcePolicy
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number, variable_rate_pts

pytestmark = pytest.mark.long

_FRAMES = 300
_KHZ, _MS = Fraction(1, 90000), Fraction(1, 1000)
_OPEN_GOP = {"x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
_OPEN_GOP_HEVC = {"x265-params": "log-level=error:open-gop=1:b-adapt=0:scenecut=0:pools=none:frame-threads=1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with cluster_of({"num_cpus": 1}, {"num_cpus": 1}) as (cluster, _):
        yield cluster


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SyntheticVideo]:
    """Make long GOPs, open GOPs and variable rates, each of which begins some time into its file."""
    folder = tmp_path_factory.mktemp("sources")
    constant, in_ms = (constant_rate_pts(RATE, _FRAMES, each, start=round(2 / each)) for each in (1 / RATE, _MS))
    options: dict[str, dict[str, Any]] = {
        "long.mp4": {"pts": constant, "timebase": 1 / RATE, "gop": 95},
        "open.mp4": {"pts": constant, "timebase": 1 / RATE, "gop": 20, "b_frames": 3, "options": _OPEN_GOP},
        "open.mkv": {
            "pts": in_ms, "timebase": _MS, "gop": 20, "b_frames": 3, "codec": "libx265", "options": _OPEN_GOP_HEVC,
        },
        "rate.mp4": {"pts": variable_rate_pts(3, _FRAMES, _KHZ), "timebase": _KHZ, "gop": 15, "b_frames": 2},
        "rate.mkv": {"pts": variable_rate_pts(1, _FRAMES, _MS, start=1000), "timebase": _MS, "gop": 11, "b_frames": 1},
    }  # fmt: skip
    return {
        name: make_video(folder / name, first_number=1000 * number, **made)
        for number, (name, made) in enumerate(options.items())
    }


def run(sources: dict[str, SyntheticVideo], out: Path, where: Where, seconds: float) -> Report:
    paths = [str(each.path) for each in sources.values()]
    policy = SourcePolicy(gaps="keep")
    return prepare(paths, DiskStorage(out), PROFILE, where=where, policy=policy, section_seconds=seconds)


@dataclass(frozen=True)
class Shown:
    """Of each frame of a video the time of the source's frame that it shows, in the source's unit, and how many shards
    hold the video: each section has one of its own."""

    pts: list[int]
    num_shards: int


def shown_by(dataset: Path) -> dict[str, Shown]:
    """What the videos of a dataset show, by id."""
    manifest = current_manifest(dataset)
    assert manifest.timeline is not None
    found = {}
    for row, video_id in enumerate(manifest.videos.id.texts()):
        frames = slice(*manifest.first_frames[row : row + 2].tolist())
        segments = slice(*manifest.first_segments[row : row + 2].tolist())
        found[video_id] = Shown(
            manifest.timeline.pts[frames].tolist(), len({*manifest.segments.shard[segments].tolist()})
        )
    return found


def test_every_frame_shows_its_number(sources: dict[str, SyntheticVideo], cluster: Any, tmp_path: Path) -> None:
    dataset, plain, whole = tmp_path / "dataset", tmp_path / "plain", tmp_path / "whole"
    report = run(sources, dataset, Where(address=cluster.address), SIX_SECTIONS)
    assert (report.videos_added, report.failures) == (len(sources), ())
    run(sources, plain, Where("inline"), SIX_SECTIONS)
    assert_undisturbed(dataset, plain)
    run(sources, whole, Where("inline"), 1e9)

    assert list(verify(DiskStorage(dataset), current_manifest(dataset))) == []
    cut, uncut = shown_by(dataset), shown_by(whole)
    for video in shortgop.open(dataset):
        source, pts = sources[video.id], uncut[video.id].pts
        assert cut[video.id].pts == pts, video.id
        numbers = [source.first_number + source.pts.index(each) for each in pts]
        assert [read_number(frame) for frame in video.get_frames_at(range(len(video))).data] == numbers, video.id
        assert (cut[video.id].num_shards >= 3, uncut[video.id].num_shards) == (True, 1), video.id
