"""Stretches of files that are given by numbers of frames: they have just these, at any rate."""

from __future__ import annotations

from pathlib import Path

import pytest

import shortgop
from cut_sources import KHZ, SOURCES, cut, make, numbers, write_list
from datasets import make_dataset
from shortgop.errors import UsageError
from shortgop.jobs.finding.importing import importing_of
from shortgop.prep.options import SourcePolicy
from source_arguments import find_sources
from synthetic import make_video, variable_rate_pts

IN_FRAMES = importing_of("start,end,frames")


@pytest.mark.first_case_short
@pytest.mark.parametrize("name", ["late.mkv", "open.mp4", "h264.avi"])
def test_stretches_in_frames_have_just_these(name: str, tmp_path: Path) -> None:
    source = make(tmp_path / name, **SOURCES[name])
    stretches = {
        "0,30": range(30),
        "30,31": range(30, 31),
        "31,": range(31, 300),
        ",6": range(6),
        "290,300": range(290, 300),
    }
    lines = [f"{name},{bounds},{number}" for number, bounds in enumerate(stretches)]
    listed = write_list(tmp_path, *lines, header="path,start,end,id")
    assert cut(listed, tmp_path / "cuts", importing=IN_FRAMES).failures == ()
    videos = shortgop.open(tmp_path / "cuts")
    assert [numbers(video) for video in videos] == list(map(list, stretches.values()))
    zero = int(videos[0].source_pts([0])[0])
    assert [int(video.source_pts([0])[0]) - zero for video in videos] == [
        source.pts[frames[0]] - source.pts[0] for frames in stretches.values()
    ]


def test_stretches_in_frames_of_a_variable_rate_begin_and_end_with_theirs(tmp_path: Path) -> None:
    make_video(tmp_path / "v.mp4", pts=variable_rate_pts(3, 300, KHZ), timebase=KHZ, gop=20)
    cut(write_list(tmp_path, "v.mp4,100,120", "v.mp4,120,300.0"), tmp_path / "cuts", importing=IN_FRAMES)
    first, second = shortgop.open(tmp_path / "cuts")
    assert (first.id, second.id) == ("v.mp4@f100-120", "v.mp4@f120-300")
    assert (numbers(first)[0], numbers(first)[-1]) == (100, 119)
    assert (numbers(second)[0], numbers(second)[-1]) == (120, 299)


def test_frames_that_the_file_does_not_have_fail_alone(tmp_path: Path) -> None:
    make(tmp_path / "v.mp4")
    listed = write_list(tmp_path, "v.mp4,0,30", "v.mp4,290,301", "v.mp4,300,")
    report = cut(listed, tmp_path / "cuts", importing=IN_FRAMES)
    assert report.videos_added == 1
    reasons = {failure.id: failure.reason for failure in report.failures}
    assert "line 3 of" in reasons["v.mp4@f290-301"]
    assert "f290-301 ends after the last frame of" in reasons["v.mp4@f290-301"]
    assert reasons["v.mp4@f290-301"].endswith("correct it, or leave out its end for the rest of the file")
    assert "f300- starts after the last frame of" in reasons["v.mp4@f300-"]
    assert "which has 300, numbered from 0" in reasons["v.mp4@f300-"]


def test_a_file_that_was_cut_at_its_start_counts_from_its_first_frame(tmp_path: Path) -> None:
    """As players count, and as its whole video does."""
    source = make(tmp_path / "x.ts", gop=10, b_frames=0)
    data = source.path.read_bytes()
    source.path.write_bytes(data[len(data) // 188 // 5 * 188 :])
    make_dataset([source.path], tmp_path / "whole")
    whole = numbers(shortgop.open(tmp_path / "whole")[0])
    report = cut(write_list(tmp_path, "x.ts,0,5", "x.ts,20,"), tmp_path / "cuts", importing=IN_FRAMES)
    assert report.failures == ()
    videos = shortgop.open(tmp_path / "cuts")
    assert [numbers(video) for video in videos] == [whole[:5], whole[20:]]


def test_the_frames_of_a_damaged_file_are_not_counted(tmp_path: Path) -> None:
    """Players leave out others of its frames than prep does."""
    source = make(tmp_path / "x.ts", gop=10, b_frames=0)
    data = source.path.read_bytes()
    lost = len(data) // 188 // 5 * 188
    source.path.write_bytes(data[:lost] + data[lost + 4 * 188 :])
    listed = write_list(tmp_path, "x.ts,0,10")
    report = cut(listed, tmp_path / "cuts", policy=SourcePolicy(salvage=True), importing=IN_FRAMES)
    assert "programs count its frames differently; give this stretch in seconds" in report.failures[0].reason


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("v.mp4,2,2", "line 2 of .* empty stretch, from frame 2 to before frame 2"),
        ("v.mp4,-1,2", "line 2 of .* -1 as its `start`; give the number of a frame, from 0 on"),
        ("v.mp4,1.5,2", r"line 2 of .* 1.5 as its `start`; give the number of a frame"),
        ("v.mp4,1,x", "'x' as its `end`; give the number of a frame"),
    ],
)
def test_a_stretch_in_frames_that_makes_no_sense_is_wrong_usage(line: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        find_sources([str(write_list(tmp_path, line))], importing=IN_FRAMES)
