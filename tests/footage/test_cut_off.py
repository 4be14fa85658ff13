"""A file that ends before the end that it states is prepared as a shorter one, and named."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shortgop
from cut_sources import CUTS, cut, write_list
from datasets import make_dataset
from odd_pictures import ffmpeg
from shortgop.cli.job_reports import print_report
from shortgop.cli.printing import PlainConsole
from shortgop.jobs.outcome import Report
from shortgop.manifests.lacking import CUT_OFF
from shortgop.manifests.mp4 import boxes
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.prep.section_survey import survey
from shortgop.prep.timing.stretch import Stretch
from synthetic import constant_rate_pts, make_video, read_number

FRAMES = 48
KINDS: dict[str, dict[str, Any]] = {
    "x.mkv": {},
    "x.webm": {"codec": "libvpx-vp9", "b_frames": 0},
    "fragments.mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov"}},
    "indexed.mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov+dash+global_sidx"}},
    "x.avi": {"codec": "mpeg4", "b_frames": 0},
    "x.wmv": {"codec": "wmv2", "b_frames": 0},
}


def write_video(path: Path, **options: Any) -> bytes:
    timebase = Fraction(1, 1000) if path.suffix in (".mkv", ".webm", ".wmv") else Fraction(1, 30)
    make_video(path, pts=constant_rate_pts(Fraction(30), FRAMES, timebase), timebase=timebase, gop=12, **options)
    return path.read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the folders `whole`, `cut` and `open`: what `open` has was cut off before its length was written,
    as recordings are."""
    folder = tmp_path_factory.mktemp("cut off")
    whole, cut_off, still_open = folder / "whole", folder / "cut", folder / "open"
    for each in (whole, cut_off, still_open):
        each.mkdir()
    for name, options in KINDS.items():
        data = write_video(whole / name, **options)
        (cut_off / name).write_bytes(data[: len(data) * 6 // 10])
    indexed = (whole / "indexed.mp4").read_bytes()
    moofs = [box.start for box in boxes(indexed) if box.type == b"moof"]
    (cut_off / "between fragments.mp4").write_bytes(indexed[: moofs[2]])
    for suffix, kind in (("mkv", "matroska"), ("webm", "webm")):
        streamed = ffmpeg("-i", whole / f"x.{suffix}", "-c", "copy", "-f", kind, "-")
        (still_open / f"x.{suffix}").write_bytes(streamed[: len(streamed) * 6 // 10])
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return make_dataset([folder], folder / "dataset")


@pytest.mark.parametrize("name", [*KINDS, "between fragments.mp4"])
def test_what_a_file_that_is_cut_off_has_is_prepared_and_the_cut_is_told(
    name: str, folder: Path, report: Report
) -> None:
    assert f"cut/{name}" in report.cut_off
    video = shortgop.open(folder / "dataset")[f"cut/{name}"]
    assert CUT_OFF in video.changes.given_up
    numbers = [read_number(frame) for frame in video]
    assert numbers == list(range(len(numbers)))
    assert 12 <= len(numbers) < FRAMES


def test_whole_files_and_recordings_that_broke_off_are_not_told(folder: Path, report: Report) -> None:
    assert report.failures == ()
    assert sorted(report.cut_off) == sorted(f"cut/{path.name}" for path in (folder / "cut").iterdir())
    videos = shortgop.open(folder / "dataset")
    told = [video_id for video_id in videos.ids if CUT_OFF in videos[video_id].changes.given_up]
    assert sorted(told) == sorted(report.cut_off)


def test_a_job_names_the_videos(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    console = PlainConsole(width=200)
    print_report(report, "dataset", console, console)
    said = " ".join(capsys.readouterr().out.split())
    assert "7 videos of the dataset may lack an end, as their sources are shorter than the file's header says" in said
    assert "(cut off, or not wholly copied): cut/between fragments.mp4, cut/fragments.mp4, " in said


def test_a_stretch_of_a_file_that_is_cut_off_lacks_nothing(folder: Path, tmp_path: Path) -> None:
    lines = write_list(tmp_path, f"{folder / 'cut' / 'x.mkv'},0.2,0.4")
    assert cut(lines, tmp_path / "dataset", importing=CUTS).cut_off == ()
    assert len(shortgop.open(tmp_path / "dataset")[0]) == 6


@pytest.mark.parametrize("fps", [None, Fraction(10), Fraction(7)])
@pytest.mark.parametrize("name", ["x.mkv", "between fragments.mp4"])
def test_of_stretches_those_that_go_on_to_where_a_file_was_cut_off_are_told(
    name: str, fps: Fraction | None, folder: Path, tmp_path: Path
) -> None:
    """They lack an end as the whole video does, and it was not said. A lower rate drops their last frame."""
    file = folder / "cut" / name
    lines = write_list(tmp_path, f"{file},0.2,", f"{file},0.2,0.4", f"{file},0.4,0.6")
    report = cut(lines, tmp_path / "dataset", importing=CUTS, profile=Profile(fps=fps))
    videos = shortgop.open(tmp_path / "dataset")
    assert [CUT_OFF in video.changes.given_up for video in videos] == [True, False, False]
    assert report.cut_off == (videos.ids[0],)


@pytest.mark.parametrize("fps", [None, Fraction(15)])
@pytest.mark.parametrize(("end", "is_told"), [(None, True), (Fraction(7, 10), False)])
def test_so_are_those_that_are_cut_into_sections(
    end: Fraction | None, is_told: bool, fps: Fraction | None, folder: Path
) -> None:
    options = Options(Profile(gop_frames=2, segment_seconds=Fraction(1, 8), fps=fps), section_seconds=1e-6)
    stretch = Stretch(Fraction(0), end)
    file = str(folder / "cut" / "between fragments.mp4")
    sections = survey(file, options, find_ffmpeg().path, stretch=stretch).sections
    assert len(sections) > 1
    assert all((CUT_OFF in section.given_up) == is_told for section in sections)


@pytest.mark.first_case_short
@pytest.mark.parametrize("codec", ["mpeg4", "libx264"])
def test_a_recording_in_avi_that_broke_off_shows_no_frame_at_the_time_of_another(codec: str, tmp_path: Path) -> None:
    # AVI has no times. Where a B-frame was cut off, the P-frame that is decoded before it seems to be shown in its
    # place.
    sources = tmp_path / "sources"
    sources.mkdir()
    whole = write_video(tmp_path / "x.avi", codec=codec, b_frames=2 if codec == "libx264" else 0)
    movi = whole.index(b"movi")
    for part in range(3, 9):
        broken_off = bytearray(whole[: movi + (len(whole) - movi) * part // 10])
        # Lengths and counts are written when a recording ends.
        for at, field in ((0, 4), (whole.index(b"avih"), 8 + 16), (whole.index(b"strh"), 8 + 32), (movi, -4)):
            broken_off[at + field : at + field + 4] = bytes(4)
        (sources / f"{part}.avi").write_bytes(broken_off)
    assert make_dataset([sources], tmp_path / "dataset").failures == ()
    for video in shortgop.open(tmp_path / "dataset"):
        numbers = [read_number(frame) for frame in video]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > 5
