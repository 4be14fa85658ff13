"""Stretches of files as videos of their own: the frames are those of the file, and the file is decoded once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import imageio_ffmpeg
import pytest
from typer.testing import CliRunner, Result

import shortgop
from cut_sources import CUTS, KHZ, RATE, SOURCES, cut, make, numbers, write_list
from dataset_paths import shard_path
from datasets import make_dataset, rows_of
from shortgop.cli import app
from shortgop.errors import UsageError
from shortgop.jobs.finding.importing import Importing, importing_of
from shortgop.jobs.prepare import Where, prepare, repair
from shortgop.jobs.sources.look import look_at
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.summary import summarize
from shortgop.manifests.operations.verify import damaged_videos, verify
from shortgop.prep.options import Options, SourcePolicy
from shortgop.prep.profile import Profile, changed_profile
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.prep.timing.stretch import Stretch
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from synthetic import SyntheticVideo, make_video, variable_rate_pts


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


# First and last stretch, some that meet, some that overlap, far ones, a single frame.
STRETCHES = {
    "0,1": range(30), "1,2": range(30, 60), "2.5,3.1": range(75, 93), "3.0,4": range(90, 120), "9,9.5": range(270, 285),
    "0.068,0.1": range(2, 3), "9.9,": range(297, 300), ",0.2": range(6),
}  # fmt: skip


@pytest.mark.first_case_short
@pytest.mark.parametrize("name", SOURCES)
def test_the_frames_of_a_stretch_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    source = make(tmp_path / name, **SOURCES[name])
    make_dataset([source.path], tmp_path / "whole")
    whole = shortgop.open(tmp_path / "whole")[0]
    lines = [f"{name},{times},{number}" for number, times in enumerate(STRETCHES)]
    assert cut(write_list(tmp_path, *lines, header="path,start,end,id"), tmp_path / "cuts").failures == ()
    dataset = shortgop.open(tmp_path / "cuts")
    assert len(dataset) == len(STRETCHES)
    for video, frames in zip(dataset, STRETCHES.values(), strict=True):
        assert numbers(video) == list(frames)
        # The pts in the file, as the whole file's video has them.
        assert video.source_pts(range(len(video))).tolist() == whole.source_pts(list(frames)).tolist()
        assert video.metadata.fps == whole.metadata.fps


def test_a_stretch_of_a_variable_rate_keeps_its_times(tmp_path: Path) -> None:
    source = make_video(tmp_path / "v.mp4", pts=variable_rate_pts(3, 300, KHZ), timebase=KHZ, gop=20)
    stretches = [(0, 4), (3, 9), (4, 8)]
    cut(write_list(tmp_path, *(f"v.mp4,{start},{end}" for start, end in stretches)), tmp_path / "cuts")
    seconds = [float(pts * KHZ) for pts in source.pts]
    for video, (start, end) in zip(shortgop.open(tmp_path / "cuts"), stretches, strict=True):
        shown, fps = numbers(video), float(video.metadata.fps)
        assert len(video) == pytest.approx((end - start) * fps, abs=1)
        assert [source.pts[number] for number in shown] == video.source_pts(range(len(video))).tolist()
        for tick, number in enumerate(shown[1:], 1):
            at = max(start, seconds[shown[0]]) + tick / fps
            # No frame is shown more than half a tick early, nor for a tick after the next one was due.
            assert seconds[number] <= at + 0.5 / fps + 1e-9
            assert number == 299 or seconds[number + 1] > at - 1 / fps


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that has a line for each start of an ffmpeg that encodes: its arguments."""
    log, wrapper = tmp_path / "starts", tmp_path / "ffmpeg"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *frag_keyframe*) echo "$*" >> {log};; esac\n'
        f'exec "{imageio_ffmpeg.get_ffmpeg_exe()}" "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(wrapper))
    find_ffmpeg.cache_clear()
    yield log
    find_ffmpeg.cache_clear()


def test_several_rows_are_cut_from_one_file_while_it_is_decoded_once(tmp_path: Path, log: Path) -> None:
    """A file with one keyframe: there is nowhere to seek to, so that each stretch alone would decode all before it."""
    make(tmp_path / "long.mp4", gop=1000)
    listed = write_list(tmp_path, *(f"long.mp4,{second},{second + 1}" for second in range(10)))
    report = cut(listed, tmp_path / "cuts")
    assert (report.videos_added, report.failures) == (10, ())
    assert len(log.read_text().splitlines()) == 1


@pytest.mark.first_case_short
@pytest.mark.parametrize("name", ["short.mp4", "open.mp4", "open.mkv", "vp9.webm"])
def test_reading_starts_shortly_before_a_stretch_far_behind(name: str, tmp_path: Path, log: Path) -> None:
    make(tmp_path / name, **SOURCES[name])
    assert cut(write_list(tmp_path, f"{name},9.5,10"), tmp_path / "cuts").failures == ()
    # Frame 280 is a keyframe; frame 285 is the first of the stretch. The file starts at 2 s.
    (start,) = log.read_text().splitlines()
    assert re.search(r"-ss 11\.33\d* ", start)


def test_a_container_that_cannot_be_seeked_exactly_is_decoded_from_its_start(tmp_path: Path, log: Path) -> None:
    """A Matroska file in whose index each time is that of the keyframe before."""
    source = make(tmp_path / "v.mkv", gop=20, b_frames=0)
    data = source.path.read_bytes()
    cues = data.rindex(b"\x1c\x53\xbb\x6b")
    times = re.findall(rb"\xb3\x82(..)", data[cues:], re.DOTALL)
    earlier = iter([times[0], *times[:-1]])
    wrong = re.sub(rb"\xb3\x82..", lambda _: b"\xb3\x82" + next(earlier), data[cues:], flags=re.DOTALL)
    source.path.write_bytes(data[:cues] + wrong)
    assert cut(write_list(tmp_path, "v.mkv,8.5,9"), tmp_path / "cuts").failures == ()
    assert numbers(shortgop.open(tmp_path / "cuts")[0]) == list(range(255, 270))
    assert ["-ss" in line for line in log.read_text().splitlines()] == [True, False]


@pytest.mark.first_case_short
@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_each_video_reads_and_verifies_as_if_it_had_been_made_alone(codec: str, tmp_path: Path) -> None:
    make(tmp_path / "long.mp4")
    lines = ["long.mp4,0,1.1", "long.mp4,1.5,3.3", "long.mp4,5,"]
    profile = changed_profile(None, {"codec": codec, "segment_seconds": Fraction(1), "gop_frames": 8})
    cut(write_list(tmp_path, *lines), tmp_path / "cuts", profile)
    assert list(verify(DiskStorage(tmp_path / "cuts"), open_current(DiskStorage(tmp_path / "cuts"))[1])) == []
    dataset = shortgop.open(tmp_path / "cuts")
    assert [numbers(video) for video in dataset] == [list(range(33)), list(range(45, 99)), list(range(150, 300))]
    assert [float(video.metadata.fps) for video in dataset] == [30, 30, 30]


def test_a_lower_rate_takes_the_frames_at_times_after_the_start(tmp_path: Path) -> None:
    make(tmp_path / "v.mp4")
    cut(write_list(tmp_path, "v.mp4,1,3", "v.mp4,4,5"), tmp_path / "cuts", Profile(fps=Fraction(5)))
    assert [numbers(video) for video in shortgop.open(tmp_path / "cuts")] == [
        list(range(30, 90, 6)), list(range(120, 150, 6)),
    ]  # fmt: skip


def test_a_stretch_past_the_end_fails_alone_and_names_its_line(tmp_path: Path) -> None:
    make(tmp_path / "v.mp4")
    report = cut(write_list(tmp_path, "v.mp4,1,2", "v.mp4,9,11", "v.mp4,3,4", "v.mp4,10,12"), tmp_path / "cuts")
    assert report.videos_added == 2
    reasons = {failure.id: failure.reason for failure in report.failures}
    assert "line 3 of" in reasons["v.mp4@9-11"]
    assert "line 5 of" in reasons["v.mp4@10-12"]
    assert all("lasts 10.000 s" in reason for reason in reasons.values())


def test_the_failure_of_a_stretch_is_withdrawn_when_the_list_corrects_it(tmp_path: Path) -> None:
    make(tmp_path / "v.mp4")
    cut(write_list(tmp_path, "v.mp4,1,2", "v.mp4,9,11"), tmp_path / "cuts")
    assert [failure.id for failure in summarize(DiskStorage(tmp_path / "cuts")).failures] == ["v.mp4@9-11"]
    cut(write_list(tmp_path, "v.mp4,1,2", "v.mp4,9,10"), tmp_path / "cuts")
    assert not summarize(DiskStorage(tmp_path / "cuts")).failures
    assert [video.id for video in shortgop.open(tmp_path / "cuts")] == ["v.mp4@1-2", "v.mp4@9-10"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("v.mp4,2,2", "line 2 of .* empty stretch, from 2 s to 2 s"),
        ("v.mp4,3,2", "line 2 of .* empty stretch"),
        ("v.mp4,-1,2", "line 2 of .* -1 as its `start`; times count from"),
        ("v.mp4,-0.5,2", "line 2 of .* -0.5 as its `start`; times count from"),
        ("v.mp4,soon,2", "line 2 of .* 'soon' as its `start`; give a time in seconds"),
        ("v.mp4,0:75,90", "line 2 of .* '0:75' as its `start`; give a time in seconds, such as 12.5, or as 0:00:12.5"),
        ("v.mp4,0,1:60:00", "line 2 of .* '1:60:00' as its `end`; give a time"),
        ("v.mp4,1:00,0:59.5", "line 2 of .* empty stretch, from 60 s to 59.5 s"),
    ],
)
def test_a_stretch_that_makes_no_sense_is_wrong_usage(line: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        find_sources([str(write_list(tmp_path, line))], importing=CUTS)


def test_times_of_a_clock_are_seconds(tmp_path: Path) -> None:
    """As Panda-70M, HD-VILA and EPIC-KITCHENS write them, and players show them."""
    listed = write_list(tmp_path, "v.mp4,0:00:03.200,00:00:07.040", "v.mp4,62:03,1:02:03.5", "v.mp4,1:05,100:00:00")
    parts = [source.part for source in find_sources([str(listed)], importing=CUTS)]
    assert [(part.start, part.end) for part in parts if isinstance(part, Stretch)] == [
        (Fraction("3.2"), Fraction("7.04")), (3723, Fraction("3723.5")), (65, 360_000),
    ]  # fmt: skip


def test_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    listed = write_list(tmp_path, "v.mp4,2,3", header="path,from,to")
    with pytest.raises(UsageError, match=r"line 2 of .* no column 'start', .* its columns are: 'from', 'to'"):
        find_sources([str(listed)], importing=CUTS)
    assert len(find_sources([str(listed)], importing=Importing(cuts=("from", "to")))) == 1
    for wrong in ("start", "start,start", "path,end", "a,b,c", ",end"):
        with pytest.raises(UsageError, match="--cuts is"):
            importing_of(wrong)


def test_cuts_without_a_list_are_wrong_usage(tmp_path: Path) -> None:
    make_video(tmp_path / "v.mp4", pts=range(3), timebase=1 / RATE)
    for argument in (tmp_path, tmp_path / "v.mp4", "s3://bucket/videos/"):
        with pytest.raises(UsageError, match=f"--cuts names columns of a list, start and end, but '{argument}' is no"):
            find_sources([str(argument)], importing=CUTS)
    listed = write_list(tmp_path, "v.mp4,0,0.1")
    assert len(find_sources([str(tmp_path), str(listed.with_name("*.csv"))], importing=CUTS)) == 2


def test_without_the_option_the_columns_are_columns(tmp_path: Path) -> None:
    (source,) = find_sources([str(write_list(tmp_path, "v.mp4,2,3"))])
    assert (source.id, source.part) == ("v.mp4", None)
    assert set(json.loads(source.attributes)) == {"start", "end"}


def test_rows_keep_their_columns_and_may_have_ids(tmp_path: Path) -> None:
    make(tmp_path / "v.mp4")
    listed = write_list(tmp_path, "v.mp4,1,2,a,wave", "v.mp4,2,3,b,jump", header="path,start,end,id,label")
    cut(listed, tmp_path / "cuts")
    dataset = shortgop.open(tmp_path / "cuts")
    assert [video.id for video in dataset] == ["a", "b"]
    assert [video.attributes["label"] for video in dataset] == ["wave", "jump"]
    same = write_list(tmp_path, "v.mp4,1,2,a", "v.mp4,2,3,a", header="path,start,end,id")
    with pytest.raises(UsageError, match="two stretches of a file with the same id 'a'"):
        find_sources([str(same)], importing=CUTS)
    captions = write_list(tmp_path, "v.mp4,1,2,wave", "v.mp4,1,2,jump", header="path,start,end,label")
    said = "'v.mp4' is listed twice from the same start to the same end, with different attributes .* as a list$"
    with pytest.raises(UsageError, match=said):
        find_sources([str(captions)], importing=CUTS)


def test_a_second_job_encodes_nothing_again_and_notices_a_file_that_changed(tmp_path: Path) -> None:
    make(tmp_path / "v.mp4")
    listed = write_list(tmp_path, "v.mp4,1,2", "v.mp4,2,3")
    cut(listed, tmp_path / "cuts")
    listed = write_list(tmp_path, "v.mp4,1,2", "v.mp4,2,3", "v.mp4,5,6")
    os.utime(tmp_path / "v.mp4", (0, 0))
    report = cut(listed, tmp_path / "cuts")
    assert (report.already_there, report.videos_added) == (2, 1)
    make(tmp_path / "v.mp4", first_number=1)
    report = cut(listed, tmp_path / "cuts")
    assert report.videos_added == 0
    assert len(report.failures) == 3
    assert all("has changed" in failure.reason for failure in report.failures)


def test_stretches_that_are_damaged_in_the_dataset_are_made_again(tmp_path: Path) -> None:
    make(tmp_path / "v.mp4")
    listed = write_list(tmp_path, "v.mp4,1,2", "v.mp4,2,3")
    cut(listed, tmp_path / "cuts")
    before = rows_of(tmp_path / "cuts")
    manifest = open_current(DiskStorage(tmp_path / "cuts"))[1]
    shard = shard_path(tmp_path / "cuts", manifest.shards.name.text(0))
    data = bytearray(shard.read_bytes())
    data[-100] ^= 0xFF
    shard.write_bytes(data)
    damaged = damaged_videos(manifest, verify(DiskStorage(tmp_path / "cuts"), manifest))
    assert list(damaged) == ["v.mp4@2-3"]
    repair([str(listed)], DiskStorage(tmp_path / "cuts"), manifest, damaged, importing=CUTS, where=Where("inline"))
    assert [numbers(video) for video in shortgop.open(tmp_path / "cuts")] == [list(range(30, 60)), list(range(60, 90))]
    assert rows_of(tmp_path / "cuts")["videos.identity"] == before["videos.identity"]


def holed(folder: Path) -> SyntheticVideo:
    """60 frames at 25 a second, of which the 31st comes after an hour."""
    pts = [40 * number if number < 30 else 3_600_000 + 40 * (number - 30) for number in range(60)]
    return make_video(folder / "gap.mkv", pts=pts, timebase=Fraction(1, 1000))


def test_only_a_gap_within_a_stretch_concerns_it(tmp_path: Path) -> None:
    holed(tmp_path)
    listed = write_list(tmp_path, "gap.mkv,0,1", "gap.mkv,3600,3601", "gap.mkv,1,3600.4")
    report = cut(listed, tmp_path / "cuts")
    (failure,) = report.failures
    assert failure.id == "gap.mkv@1-3600.4"
    assert "1 gap of more than 10 s" in failure.reason
    dataset = shortgop.open(tmp_path / "cuts")
    assert [numbers(video) for video in dataset] == [list(range(25)), list(range(30, 55))]
    cut(listed, tmp_path / "closed", policy=SourcePolicy(gaps="close"))
    assert numbers(shortgop.open(tmp_path / "closed")["gap.mkv@1-3600.4"]) == list(range(25, 40))


@pytest.mark.parametrize("salvage", [False, True])
def test_a_damaged_file_is_cut_only_with_salvage(salvage: bool, tmp_path: Path) -> None:
    source = make(tmp_path / "x.ts", gop=10, b_frames=0)
    data = source.path.read_bytes()
    lost = len(data) // 188 // 5 * 188
    source.path.write_bytes(data[:lost] + data[lost + 4 * 188 :])
    listed = write_list(tmp_path, "x.ts,0,1", "x.ts,1,4", "x.ts,8,9")
    report = cut(listed, tmp_path / "cuts", policy=SourcePolicy(salvage=salvage))
    if not salvage:
        assert len(report.failures) == 3
        assert all("--salvage" in failure.reason for failure in report.failures)
        return
    assert report.failures == ()
    dataset = shortgop.open(tmp_path / "cuts")
    assert numbers(dataset["x.ts@0-1"]) == list(range(30))
    assert numbers(dataset["x.ts@8-9"]) == list(range(240, 270))
    (first, stop), *_ = dataset["x.ts@1-4"].changes.salvaged
    shown = numbers(dataset["x.ts@1-4"])
    assert shown[:first] == list(range(30, 30 + first))
    assert shown[first:stop] == [30 + first - 1] * (stop - first)
    assert shown[stop:] == list(range(30 + stop, 120))


def test_a_deinterlaced_stretch_is_pixel_for_pixel_that_of_the_file(tmp_path: Path) -> None:
    """The filter looks at neighbouring frames, which must not be those of another stretch."""
    make(tmp_path / "v.mp4", gop=20, options={"x264-params": "b-adapt=0:scenecut=0:tff=1"})
    profile = Profile(crf=1)
    cut(write_list(tmp_path, "v.mp4,1,2", "v.mp4,7,8"), tmp_path / "cuts", profile)
    cut(write_list(tmp_path, "v.mp4,0,"), tmp_path / "whole", profile)
    whole = shortgop.open(tmp_path / "whole")[0]
    assert "deinterlaced" in whole.changes.given_up
    for video, first in zip(shortgop.open(tmp_path / "cuts"), (30, 210), strict=True):
        expected = whole.get_frames_at(list(range(first, first + 30))).data
        apart = (video.get_frames_at(list(range(30))).data.int() - expected.int()).abs()
        assert int(apart.max()) < 40
        assert numbers(video) == list(range(first, first + 30))


def test_a_list_of_many_files_keeps_the_stretches_of_a_file_together(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        make_video(tmp_path / name, pts=range(60), timebase=1 / RATE)
    ids = ["9", "1", "5", "3"]
    names: Sequence[str] = ["a.mp4", "b.mp4", "a.mp4", "b.mp4"]
    lines = [f"{name},{second},{second + 1},{key}" for name, key, second in zip(names, ids, (0, 0, 1, 1), strict=True)]
    cut(write_list(tmp_path, *lines, header="path,start,end,id"), tmp_path / "cuts")
    dataset = shortgop.open(tmp_path / "cuts")
    assert {video.id: numbers(video)[0] for video in dataset} == {"9": 0, "1": 0, "5": 30, "3": 30}


@pytest.mark.first_case_short
@pytest.mark.parametrize("name", ["short.mp4", "open.mp4", "vp9.webm"])
def test_the_stretches_of_a_long_file_are_made_by_several_units(name: str, tmp_path: Path) -> None:
    make(tmp_path / name, **SOURCES[name])
    lines = [f"{name},{second / 2},{second / 2 + 0.5}" for second in range(20)]
    table = write_list(tmp_path, *lines)
    (looked, *_) = look_at(find_sources([str(table)], importing=CUTS), Options(Profile()))
    report = prepare(
        [str(table)], DiskStorage(tmp_path / "cuts"), Profile(), where=Where("inline"), importing=CUTS,
        section_seconds=2 * looked.expected.seconds,
    )  # fmt: skip
    assert report.failures == ()
    # Each unit writes one shard.
    assert len(list((tmp_path / "cuts" / "shards").iterdir())) == 5
    dataset = shortgop.open(tmp_path / "cuts")
    shown = sorted(numbers(video) for video in dataset)
    assert shown == [list(range(first, first + 15)) for first in range(0, 300, 15)]


def test_labels_of_stretches_are_corrected_without_encoding(tmp_path: Path) -> None:
    make(tmp_path / "v.mp4")
    header = "path,start,end,label"
    cut(write_list(tmp_path, "v.mp4,1,2,wave", "v.mp4,2,3,jump", header=header), tmp_path / "cuts")
    report = cut(write_list(tmp_path, "v.mp4,1,2,bow", "v.mp4,2,3,jump", header=header), tmp_path / "cuts")
    assert (report.already_there, report.frames_added) == (2, 0)
    dataset = shortgop.open(tmp_path / "cuts")
    assert [video.attributes["label"] for video in dataset] == ["bow", "jump"]
    assert dataset.columns["start"].tolist() == [1, 2]


def test_a_stretch_with_other_times_takes_the_place_of_the_old_one_on_request(tmp_path: Path) -> None:
    make(tmp_path / "v.mp4")
    header = "path,start,end,id"
    cut(write_list(tmp_path, "v.mp4,1,2,a", "v.mp4,2,3,b", header=header), tmp_path / "cuts")
    listed = write_list(tmp_path, "v.mp4,1,2.5,a", "v.mp4,2,3,b", header=header)
    (failure,) = cut(listed, tmp_path / "cuts").failures
    assert failure.id == "a"
    report = shortgop.prepare(listed, tmp_path / "cuts", cuts="start,end", changed="replace", runner="inline")
    assert report.failures == ()
    assert [numbers(video) for video in shortgop.open(tmp_path / "cuts")] == [list(range(30, 75)), list(range(60, 90))]


def test_the_command_line_cuts_too(tmp_path: Path) -> None:
    make(tmp_path / "v.mp4")
    listed = write_list(tmp_path, "v.mp4,1,2", "v.mp4,2,3")
    out = str(tmp_path / "cuts")
    assert invoke("prep", str(listed), "--cuts", "start,end", "--out", out, "--runner", "inline").exit_code == 0
    assert len(shortgop.open(out)) == 2
    wrong = invoke("prep", str(listed), "--cuts", "start", "--out", out, "--runner", "inline")
    assert wrong.exit_code == 2
    assert "--cuts is 'start'; it takes two names of columns" in wrong.stderr
