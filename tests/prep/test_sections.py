"""Long sources in sections: each tick shows the frame that it shows without cuts, and nothing else of a dataset
differs but where the bytes lie."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

import shortgop
from datasets import current_manifest, rows_of
from odd_pictures import (
    encode_pictures,
    ffmpeg,
    joined_h264,
    numbered,
    remuxed,
    with_clean_aperture,
    with_pixel_crop,
)
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.jobs.progress.tally import OnProgress, Progress, ignore
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import verify
from shortgop.prep.options import DEFAULT_POLICY, Options, SourcePolicy
from shortgop.prep.profile import Profile, changed_profile
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.prep.section_plan import expected_seconds
from shortgop.prep.section_survey import survey
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number, variable_rate_pts

RATE = Fraction(30)
KHZ = Fraction(1, 90000)
MS = Fraction(1, 1000)
OPEN_GOP = {"x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
OPEN_GOP_HEVC = {"x265-params": "log-level=error:open-gop=1:b-adapt=0:scenecut=0:pools=none:frame-threads=1"}
BT2020, PQ = 9, 16  # H.273
PROFILE = Profile(segment_seconds=Fraction(1, 4), gop_frames=8)


def prepared(
    source: SyntheticVideo,
    out: Path,
    profile: Profile = PROFILE,
    *,
    seconds: float,
    policy: SourcePolicy = DEFAULT_POLICY,
    on_update: OnProgress = ignore,
) -> Report:
    return prepare(
        [str(source.path)], DiskStorage(out), profile, where=Where("inline"), policy=policy, section_seconds=seconds,
        on_update=on_update,
    )  # fmt: skip


def cut_and_whole(
    source: SyntheticVideo,
    folder: Path,
    profile: Profile = PROFILE,
    policy: SourcePolicy = DEFAULT_POLICY,
    *,
    sections: int = 3,
) -> tuple[Path, Path]:
    """Two datasets of the source, encoded in about so many sections and whole."""
    pixels = source.width * source.height
    seconds = 1e9
    for name in ("whole", "cut"):
        report = prepared(source, folder / name, profile, seconds=seconds, policy=policy)
        assert (report.videos_added, report.failures) == (1, ())
        seconds = expected_seconds(source.num_frames, pixels, report.frames_added, pixels) / sections
    return folder / "cut", folder / "whole"


def num_shards(dataset: Path) -> int:
    return len(list((dataset / "shards").iterdir()))


def numbers(dataset: Path) -> list[int]:
    """The numbers that the frames of the only video show."""
    video = shortgop.open(dataset)[0]
    return [read_number(frame) for frame in video.get_frames_at(range(len(video))).data]


def assert_same_video(source: SyntheticVideo, cut: Path, whole: Path) -> None:
    """Row for row: all tables agree but for where the bytes are and what they are. The encoder starts anew with each
    section, so the bytes may differ."""
    one, other = rows_of(cut), rows_of(whole)
    bytes_of = ("bytes of", "shards.", "segments.shard", "segments.offset", "gops.offset", "gops.length", "gops.crc32")
    names = [name for name in other if not name.startswith(bytes_of)]
    assert {name: one[name] for name in names} == {name: other[name] for name in names}
    timeline = current_manifest(whole).timeline
    assert timeline is not None
    shown = [source.pts.index(pts) for pts in timeline.pts.tolist()]
    assert numbers(cut) == [source.first_number + number for number in shown]
    assert list(verify(DiskStorage(cut), open_current(DiskStorage(cut))[1])) == []
    assert not (cut / "sections").exists()
    assert not (cut / ".tmp").exists()


def make(path: Path, frames: int = 300, **options: Any) -> SyntheticVideo:
    """30 frames a second, from 2 s on where the container can begin there."""
    timebase = {".mkv": MS, ".webm": MS, ".flv": MS, ".ts": KHZ}.get(path.suffix, 1 / RATE)
    pts = constant_rate_pts(RATE, frames, timebase, start=0 if path.suffix == ".avi" else round(2 / timebase))
    return make_video(path, pts=pts, timebase=timebase, **options)


SOURCES: dict[str, dict[str, Any]] = {
    "long.mp4": {"gop": 95},
    "short.mp4": {"gop": 20, "b_frames": 3},
    "open.mp4": {"gop": 20, "b_frames": 3, "options": OPEN_GOP},
    "late.mkv": {"gop": 20},
    "open.mkv": {"gop": 20, "b_frames": 3, "codec": "libx265", "options": OPEN_GOP_HEVC},
    "vp9.webm": {"gop": 20, "codec": "libvpx-vp9", "b_frames": 0},
    "mpeg4.avi": {"gop": 20, "codec": "mpeg4", "b_frames": 0},
    "sound.mp4": {"gop": 20, "audio_start": Fraction(0)},
    "sound.mkv": {"gop": 20, "audio_start": Fraction(1)},
    "flash.flv": {"gop": 20},
}


@pytest.mark.first_case_short
@pytest.mark.parametrize("name", SOURCES)
def test_each_tick_shows_the_frame_that_it_shows_without_cuts(name: str, tmp_path: Path) -> None:
    source = make(tmp_path / name, **SOURCES[name])
    cut, whole = cut_and_whole(source, tmp_path)
    assert num_shards(cut) == 3
    assert_same_video(source, cut, whole)


@pytest.mark.first_case_short
@pytest.mark.parametrize("codec", ["hevc", "av1"])
def test_sections_in_other_codecs_are_put_together_too(codec: str, tmp_path: Path) -> None:
    source = make(tmp_path / "v.mp4", gop=20)
    profile = changed_profile(None, {"codec": codec, "segment_seconds": Fraction(1, 4), "gop_frames": 8})
    cut, whole = cut_and_whole(source, tmp_path, profile)
    assert num_shards(cut) == 3
    assert_same_video(source, cut, whole)


# Sources whose pictures go through filters, and what is told of each.
FILTERED: dict[str, tuple[str, dict[str, Any]]] = {
    "fields": ("deinterlaced", {"options": {"x264-params": "b-adapt=0:scenecut=0:tff=1"}}),
    "HDR": (
        "tone-mapped",
        {
            "codec": "libx265", "pix_fmt": "yuv420p10le", "colorspace": BT2020, "color_primaries": BT2020,
            "color_trc": PQ, "options": {"crf": "4"},
        },
    ),
}  # fmt: skip


@pytest.mark.first_case_short
@pytest.mark.parametrize("kind", FILTERED)
def test_where_sections_meet_the_filters_give_the_pictures_that_they_give_without_cuts(
    kind: str, tmp_path: Path
) -> None:
    """bwdif looks at the frames before and after each one: also at those that belong to the section before."""
    told, options = FILTERED[kind]
    source = make(tmp_path / "v.mp4", gop=20, **options)
    cut, whole = cut_and_whole(source, tmp_path, dataclasses.replace(PROFILE, crf=1))
    assert num_shards(cut) == 3
    assert_same_video(source, cut, whole)
    one, other = (shortgop.open(dataset)[0] for dataset in (cut, whole))
    assert told in " ".join(one.changes.given_up)
    for frames in zip(one.get_frames_at(range(300)).data, other.get_frames_at(range(300)).data, strict=True):
        assert int((frames[0].int() - frames[1].int()).abs().max()) < 40


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("seed", "fps"), [(0, None), (1, Fraction(7)), (2, Fraction(60)), (3, None), (4, Fraction(24)), (5, Fraction(5))]
)
def test_variable_rates_and_other_rates(seed: int, fps: Fraction | None, tmp_path: Path) -> None:
    """Frames that are dropped or repeated where sections meet."""
    name, timebase = ("v.mkv", MS) if seed % 4 else ("v.mp4", KHZ)
    pts = variable_rate_pts(seed, 240, timebase, start=round(seed / timebase))
    source = make_video(tmp_path / name, pts=pts, timebase=timebase, gop=10 + seed, b_frames=seed % 4)
    profile = dataclasses.replace(PROFILE, fps=fps, gop_frames=1 if fps and fps < 10 else 8)
    cut, whole = cut_and_whole(source, tmp_path, profile, SourcePolicy(gaps="keep"), sections=6)
    assert num_shards(cut) >= 2
    assert_same_video(source, cut, whole)


def test_where_reading_starts_a_keyframe_earlier_the_frames_are_the_same(tmp_path: Path) -> None:
    """An MP4 of a variable rate, whose first frame is decoded longer before its time than its other keyframes."""
    pts = variable_rate_pts(3, 360, KHZ)
    source = make_video(tmp_path / "v.mp4", pts=pts, timebase=KHZ, gop=15, b_frames=2)
    with av.open(source.path) as container:
        (stream,) = container.streams.video
        container.seek(pts[150], stream=stream)
        assert next(container.demux(stream)).pts == pts[135]
    cut, whole = cut_and_whole(source, tmp_path, policy=SourcePolicy(gaps="keep"), sections=6)
    assert num_shards(cut) >= 2
    assert_same_video(source, cut, whole)


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which each ffmpeg that prep runs leaves its own report."""
    folder = tmp_path / "reports"
    folder.mkdir()
    program = tmp_path / "ffmpeg"
    program.write_text(f'#!/bin/sh\nFFREPORT="file={folder}/$$.log:level=40" exec "{find_ffmpeg().path}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(program))
    find_ffmpeg.cache_clear()
    yield folder
    find_ffmpeg.cache_clear()


@pytest.mark.long
def test_all_sections_together_decode_little_more_than_the_frames_of_the_source(reports: Path, tmp_path: Path) -> None:
    """Of a local file whose keyframes are 250 frames apart: reading begins at the keyframe before a section, and ends
    soon behind the section."""
    source = make(tmp_path / "v.mp4", 1500, gop=250, b_frames=3)

    def decoded(sections: int) -> list[int]:
        for old in reports.iterdir():
            old.unlink()
        pixels = source.width * source.height
        seconds = expected_seconds(1500, pixels, 1500, pixels) / sections
        assert prepared(source, tmp_path / str(sections), seconds=seconds).frames_added == 1500
        logs = [each.read_text() for each in reports.iterdir()]
        found = [re.findall(r"(\d+) frames decoded", text) for text in logs if f"from 'file:{source.path}'" in text]
        return [int(count) for (count,) in found]

    assert decoded(1) == [1500]
    counts = decoded(5)
    assert len(counts) >= 4
    assert 1500 <= sum(counts) <= 1.1 * 1500


@pytest.mark.first_case_short
@pytest.mark.parametrize("gaps", ["close", "keep"])
def test_gaps(gaps: Any, tmp_path: Path) -> None:
    pts = [*range(120), *range(200, 320), *range(420, 500)]
    source = make_video(tmp_path / "v.mkv", pts=[number * 33 for number in pts], timebase=MS, gop=7)
    cut, whole = cut_and_whole(
        source, tmp_path, policy=SourcePolicy(gaps=gaps, max_gap_seconds=Fraction(2)), sections=6
    )
    assert num_shards(cut) >= 3
    assert_same_video(source, cut, whole)


def test_a_film_that_changes_between_two_sections_is_prepared_by_the_next_job(tmp_path: Path) -> None:
    """Also if its frames have the same times: it must not show some of each file under the name of the first."""
    source = make(tmp_path / "film.mp4", gop=20)
    make(tmp_path / "new.mp4", gop=20, first_number=500)
    expected = expected_seconds(300, 96 * 64, 300, 96 * 64)
    is_cut = False

    def arrive(progress: Progress) -> None:
        nonlocal is_cut
        sections = list((tmp_path / "out" / "sections").glob("*"))
        is_cut = is_cut or len(sections) > 0
        if is_cut and (tmp_path / "new.mp4").exists():
            (tmp_path / "new.mp4").rename(tmp_path / "film.mp4")

    first = prepared(source, tmp_path / "out", seconds=expected / 3, on_update=arrive)
    ((video_id, reason),) = [(failure.id, failure.reason) for failure in first.failures]
    assert (video_id, is_cut, first.videos_added) == ("film.mp4", True, 0)
    assert "film.mp4 was changed after the job had looked at it; run the same command again" in reason
    assert prepared(source, tmp_path / "out", seconds=expected / 3).videos_added == 1
    assert numbers(tmp_path / "out") == list(range(500, 800))


def test_a_container_without_an_index_stays_whole(tmp_path: Path) -> None:
    source = make(tmp_path / "stream.ts", gop=20)
    cut, whole = cut_and_whole(source, tmp_path)
    assert num_shards(cut) == 1
    assert_same_video(source, cut, whole)


def test_a_container_that_cannot_be_seeked_exactly_is_found_out_and_stays_whole(tmp_path: Path) -> None:
    """A Matroska file in whose index each time is that of the keyframe before."""
    source = make(tmp_path / "v.mkv", 600, gop=20, b_frames=0)
    data = source.path.read_bytes()
    cues = data.rindex(b"\x1c\x53\xbb\x6b")
    times = re.findall(rb"\xb3\x82(..)", data[cues:], re.DOTALL)
    earlier = iter([times[0], *times[:-1]])
    wrong = re.sub(rb"\xb3\x82..", lambda _: b"\xb3\x82" + next(earlier), data[cues:], flags=re.DOTALL)
    source.path.write_bytes(data[:cues] + wrong)
    cut, whole = cut_and_whole(source, tmp_path)
    assert num_shards(cut) == 1
    assert_same_video(source, cut, whole)


@pytest.mark.first_case_short
@pytest.mark.parametrize("frames", [range(60, 200), range(104, 110), range(208, 416)])
def test_pictures_that_change_stay_whole(frames: range, tmp_path: Path) -> None:
    """Also where they change at a cut, so that no section has pictures of two sizes."""
    parts = [range(frames.start), frames, range(frames.stop, 420)]
    stream = joined_h264(
        tmp_path, [(part, size, ()) for part, size in zip(parts, ((96, 64), (128, 96), (96, 64)), strict=True)]
    )
    joined = remuxed(stream, tmp_path / "v.mkv")
    for name, seconds in (("cut", 0.01), ("whole", 1e9)):
        prepare([str(joined)], DiskStorage(tmp_path / name), PROFILE, where=Where("inline"), section_seconds=seconds)
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    assert numbers(tmp_path / "cut") == list(range(420))


OPTIONS = Options(PROFILE, section_seconds=0.01)


def shown_source(folder: Path, codec: str) -> Path:
    coded = ("-c:v", codec, "-q:v", "2", "-bf", "0", "-g", "24")
    return encode_pictures(folder / "shown.mp4", numbered(range(400)), *coded, rate=25)


def key_of(file: Path) -> str:
    return survey(str(file), OPTIONS, find_ffmpeg().path).key


SHOWN_OTHERWISE: dict[str, tuple[str, list[tuple[str, ...]], list[tuple[str, ...]]]] = {
    # These begin at one keyframe, before the time at which players begin.
    "beginning": ("mp4", [("-ss", "1.3"), ("-ss", "1.5")], [(), ()]),
    "rotation": ("mp4", [(), ("-display_rotation", "180")], [(), ()]),
    # A mirrored picture is turned by 180 degrees, too.
    "mirroring": ("mp4", [("-display_rotation", "180"), ("-display_hflip",)], [(), ()]),
    "colours": ("mkv", [(), ()], [(), ("-color_primaries", "bt2020")]),
    "range": ("mkv", [(), ()], [("-color_range", "tv"), ("-color_range", "pc")]),
    "stream": ("mkv", [(), ()], [
        ("-map", "0", "-map", "0", "-disposition:v:0", "default", "-disposition:v:1", "0"),
        ("-map", "0", "-map", "0", "-disposition:v:0", "0", "-disposition:v:1", "default"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("part", SHOWN_OTHERWISE)
def test_sections_of_a_file_that_is_shown_otherwise_are_not_used_for_it(part: str, tmp_path: Path) -> None:
    """Sections that a killed job left are found by this key. The fingerprint of a long file may stay the same where its
    header was changed in place."""
    suffix, *options = SHOWN_OTHERWISE[part]
    # MPEG-2 states its range itself.
    source = shown_source(tmp_path, "mpeg4" if part == "range" else "mpeg2video")
    file = tmp_path / f"x.{suffix}"
    keys = []
    for of_input, of_output in [*zip(*options, strict=True)] * 2:
        ffmpeg(*of_input, "-i", source, "-c", "copy", *of_output, file)
        keys.append(key_of(file))
    assert keys[0] != keys[1]
    assert keys[:2] == keys[2:]


def test_sections_of_a_file_that_is_cropped_otherwise_are_not_used_for_it(tmp_path: Path) -> None:
    cropped, file = tmp_path / "cropped.mp4", tmp_path / "x.mkv"
    source = shown_source(tmp_path, "mpeg2video")
    cropped.write_bytes(with_clean_aperture(source.read_bytes(), 88, 56))
    ffmpeg("-i", cropped, "-c", "copy", file)
    data = file.read_bytes()
    keys = []
    for left in (2, 6, 2):
        file.write_bytes(with_pixel_crop(data, left, 8 - left, 4, 4))
        keys.append(key_of(file))
    assert keys[0] == keys[2] != keys[1]
