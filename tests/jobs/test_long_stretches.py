"""Long stretches of files, in sections: a stretch that takes minutes is encoded by several workers, as a whole file is,
and shows the frames that it shows when it is encoded at once."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shortgop
from datasets import current_manifest, rows_of
from far_sections import assert_same
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import verify
from shortgop.prep.options import DEFAULT_POLICY, SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.section_plan import expected_seconds
from shortgop.storage.disk import DiskStorage
from store_helpers import put
from sweep import sample
from synthetic import constant_rate_pts, make_video, read_number, variable_rate_pts

pytestmark = pytest.mark.long

RATE = Fraction(30)
KHZ, MS = Fraction(1, 90000), Fraction(1, 1000)
PROFILE = Profile(segment_seconds=Fraction(1, 4), gop_frames=8)
CUTS = Importing(cuts=("start", "end"))
IN_MS = {"pts": constant_rate_pts(RATE, 360, MS, start=2000), "timebase": MS}
# A stretch of 7.5 s is encoded in about three sections, one of 1 s at once.
PIXELS = 96 * 64
SECONDS = expected_seconds(225, PIXELS, 225, PIXELS) / 3
WHOLE = 1e9

OPEN_GOP = {"x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
SOURCES: dict[str, dict[str, Any]] = {
    "long.mp4": {"gop": 95},
    "open.mp4": {"gop": 20, "b_frames": 3, "options": OPEN_GOP},
    "late.mkv": {"gop": 20, **IN_MS},
    "vp9.webm": {"gop": 20, "codec": "libvpx-vp9", "b_frames": 0, **IN_MS},
    "variable.mp4": {"gop": 15, "b_frames": 2, "pts": variable_rate_pts(3, 360, KHZ), "timebase": KHZ},
}


def make(path: Path, **options: Any) -> list[int]:
    """A source of 12 s, and the pts of its frames."""
    with_times = {"pts": constant_rate_pts(RATE, 360), "timebase": 1 / RATE, **options}
    return list(make_video(path, **with_times).pts)


def cut(
    folder: Path, source: str | Path, out: str, *lines: str, seconds: float, policy: SourcePolicy = DEFAULT_POLICY,
    profile: Profile = PROFILE,
) -> Report:  # fmt: skip
    """Make a dataset of the stretches `start,end` of a source."""
    table = folder / "list.csv"
    table.write_text("\n".join(["id,path,start,end", *(f"{line[:1]},{source}{line[1:]}" for line in lines), ""]))
    return prepare(
        [str(table)], DiskStorage(folder / out), profile, where=Where("inline"), importing=CUTS, policy=policy,
        section_seconds=seconds,
    )  # fmt: skip


def num_shards(dataset: Path) -> int:
    return len(list((dataset / "shards").iterdir()))


def numbers(video: shortgop.Video) -> list[int]:
    return [read_number(frame) for frame in video]


def assert_equal_rows(cut: Path, whole: Path) -> None:
    """All tables agree but for where the bytes are and what they are: the encoder starts anew with each section."""
    one, other = rows_of(cut), rows_of(whole)
    bytes_of = ("bytes of", "shards.", "segments.shard", "segments.offset", "gops.offset", "gops.length", "gops.crc32")
    names = [name for name in other if not name.startswith(bytes_of)]
    assert {name: one[name] for name in names} == {name: other[name] for name in names}
    assert list(verify(DiskStorage(cut), open_current(DiskStorage(cut))[1])) == []
    assert not (cut / "sections").exists()
    assert not (cut / ".tmp").exists()


STRETCHES = ("a,2,9.5", "b,0,1", "c,4.25,12", "d,11,12")


@pytest.mark.parametrize(
    ("name", "fps"),
    sample(
        [("open.mp4", None), ("late.mkv", Fraction(24)), ("variable.mp4", Fraction(24))],
        more=[
            ("open.mp4", Fraction(24)), ("late.mkv", None), ("variable.mp4", None), ("long.mp4", None),
            ("long.mp4", Fraction(24)), ("vp9.webm", None), ("vp9.webm", Fraction(24)),
        ],
    ),
)  # fmt: skip
def test_each_tick_of_a_long_stretch_shows_the_frame_that_it_shows_without_cuts(
    name: str, fps: Fraction | None, tmp_path: Path
) -> None:
    pts = make(tmp_path / name, **SOURCES[name])
    stretches = STRETCHES if not name.startswith("variable") else ("a,2,9.5", "b,0,1", "c,4.25,11")
    for out, seconds in (("cut", SECONDS / 2), ("whole", WHOLE)):
        policy, profile = SourcePolicy(gaps="keep"), replace(PROFILE, fps=fps)
        report = cut(tmp_path, name, out, *stretches, seconds=seconds, policy=policy, profile=profile)
        assert report.failures == ()
    # A long one in two sections or more.
    assert num_shards(tmp_path / "cut") >= 4 > num_shards(tmp_path / "whole")
    assert_equal_rows(tmp_path / "cut", tmp_path / "whole")
    timeline = current_manifest(tmp_path / "whole").timeline
    assert timeline is not None
    shown = [number for video in shortgop.open(tmp_path / "cut") for number in numbers(video)]
    assert shown == [pts.index(each) for each in timeline.pts.tolist()]


@pytest.mark.parametrize("gaps", ["close", "keep"])
def test_gaps_in_a_long_stretch(gaps: Any, tmp_path: Path) -> None:
    pts = [number * 33 for number in [*range(120), *range(200, 320), *range(420, 500)]]
    make_video(tmp_path / "v.mkv", pts=pts, timebase=MS, gop=7)
    policy = SourcePolicy(gaps=gaps, max_gap_seconds=Fraction(2))
    for out, seconds in (("cut", SECONDS / 2), ("whole", WHOLE)):
        assert cut(tmp_path, "v.mkv", out, "a,3,15", seconds=seconds, policy=policy).failures == ()
    assert num_shards(tmp_path / "cut") >= 3
    assert_equal_rows(tmp_path / "cut", tmp_path / "whole")
    assert numbers(shortgop.open(tmp_path / "cut")["a"]) == numbers(shortgop.open(tmp_path / "whole")["a"])


@pytest.mark.parametrize(
    ("name", "stretch", "seconds"), [("open.mp4", "a,2,9.5", SECONDS), ("variable.mp4", "a,2,11", SECONDS / 2)]
)
def test_of_a_file_in_a_store_the_sections_are_those_of_the_same_file_on_a_disk(
    name: str, stretch: str, seconds: float, s3_url: str, tmp_path: Path
) -> None:
    pts = make(tmp_path / "v.mp4", **SOURCES[name])
    put(f"{s3_url}/v.mp4", tmp_path / "v.mp4")
    for out, given in (("in_store", f"{s3_url}/v.mp4"), ("on_disk", tmp_path / "v.mp4")):
        policy = SourcePolicy(gaps="keep")
        assert cut(tmp_path, given, out, stretch, seconds=seconds, policy=policy).failures == ()
    assert num_shards(tmp_path / "in_store") == num_shards(tmp_path / "on_disk") >= 2
    assert_same(tmp_path / "in_store", tmp_path / "on_disk")
    timeline = current_manifest(tmp_path / "in_store").timeline
    assert timeline is not None
    assert numbers(shortgop.open(tmp_path / "in_store")[0]) == [pts.index(each) for each in timeline.pts.tolist()]


def test_a_long_stretch_that_cannot_be_made_fails_with_the_reason_that_a_short_one_has(tmp_path: Path) -> None:
    """A gap in it, and an end behind the end of the file. Others are made."""
    pts = [number * 33 for number in [*range(120), *range(500, 740)]]
    make_video(tmp_path / "v.mkv", pts=pts, timebase=MS, gop=7)
    for out, seconds in (("cut", SECONDS), ("whole", WHOLE)):
        report = cut(tmp_path, "v.mkv", out, "a,1,18", "b,17,24", "c,17,90", seconds=seconds)
        reasons = {each.id: each.reason for each in report.failures}
        assert sorted(reasons) == ["a", "c"]
        assert "1 gap of more than" in reasons["a"]
        assert "ends after the end of" in reasons["c"]
        assert len(shortgop.open(tmp_path / out)["b"]) == 212


def test_in_a_container_that_cannot_be_seeked_a_long_stretch_stays_whole(tmp_path: Path) -> None:
    make(tmp_path / "v.ts", pts=constant_rate_pts(RATE, 360, KHZ, start=180000), timebase=KHZ, gop=20)
    assert cut(tmp_path, "v.ts", "cut", "a,2,9.5", seconds=0.01).failures == ()
    assert num_shards(tmp_path / "cut") == 1
    assert numbers(shortgop.open(tmp_path / "cut")["a"]) == list(range(60, 285))
