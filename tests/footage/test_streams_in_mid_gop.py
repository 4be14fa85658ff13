"""Streams that begin in the middle of a GOP, or with an open one: all frames that decode are there, in order."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import imageio_ffmpeg
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from datasets import make_dataset
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.profile import Profile
from shortgop.prep.timing.mended_times import evened
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
_FRAMES, _GOP = 96, 24
_OPEN = "open-gop=1:keyint=24:bframes=3:scenecut=0"
# For each codec: what encodes it, the name of FFmpeg's raw format, and a filter that gives each keyframe its headers.
CODECS: dict[str, tuple[dict[str, Any], str, str]] = {
    "libx264": ({"b_frames": 3, "options": {"x264-params": _OPEN}}, "h264", "h264_mp4toannexb,dump_extra"),
    "libx265": (
        {"b_frames": 3, "options": {"x265-params": f"log-level=error:pools=none:frame-threads=1:{_OPEN}"}},
        "hevc",
        "hevc_mp4toannexb,dump_extra",
    ),
    "mpeg2video": ({"b_frames": 2}, "mpeg2video", "dump_extra"),
    "mpeg4": ({}, "m4v", "dump_extra"),
}
BEGINS = [
    *(("libx264", suffix, before) for suffix in (".264", ".mpg", ".avi") for before in (0, 7)),
    *(("libx265", ".265", before) for before in (0, 7)),
    *(("mpeg2video", suffix, before) for suffix in (".m2v", ".mpg", ".avi") for before in (0, 7)),
    *(("mpeg4", suffix, 7) for suffix in (".m4v", ".mpg", ".avi")),
]


def ffmpeg(*arguments: object) -> None:
    subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-v", "quiet", *map(str, arguments)], check=True)


def in_mid_gop(folder: Path, codec: str, suffix: str, packets_before: int) -> Path:
    """A stream that has this many packets before its first keyframe, which is the second of a whole one."""
    options, raw_format, headers = CODECS[codec]
    timebase = 1 / RATE
    whole = make_video(
        folder / ("whole.mkv" if codec.startswith("lib") else "whole.ts"),
        pts=constant_rate_pts(RATE, _FRAMES, timebase), timebase=timebase, codec=codec, gop=_GOP, **options,
    )  # fmt: skip
    with av.open(whole.path) as container:
        keys = [packet.is_keyframe for packet in container.demux(video=0) if packet.size]
    second_keyframe = [number for number, is_key in enumerate(keys) if is_key][1]
    stream = folder / f"stream.{raw_format}"
    dropped = f"noise=drop='lt(n,{second_keyframe - packets_before})'"
    ffmpeg("-i", whole.path, "-c", "copy", "-bsf:v", f"{dropped},{headers}", "-f", raw_format, stream)
    cut = folder / f"cut{suffix}"
    if suffix == ".mpg":
        ffmpeg("-i", whole.path, "-c", "copy", "-bsf:v", f"{dropped},{headers}", "-f", "vob", cut)
    elif suffix == ".avi":
        ffmpeg("-i", stream, "-c", "copy", cut)
    else:
        stream.rename(cut)
    return cut


@pytest.mark.first_case_short
@pytest.mark.parametrize(("codec", "suffix", "packets_before"), BEGINS)
def test_all_frames_from_the_first_keyframe_on_are_there(
    codec: str, suffix: str, packets_before: int, tmp_path: Path
) -> None:
    cut = in_mid_gop(tmp_path, codec, suffix, packets_before)
    report = make_dataset([cut], tmp_path / "dataset")
    assert report.failures == ()
    numbers = [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]]
    assert numbers == list(range(numbers[0], _FRAMES))
    # The second keyframe comes at the 24th frame, or the encoder puts it earlier.
    assert 0 < numbers[0] <= _GOP


@pytest.mark.first_case_short
@pytest.mark.parametrize(("codec", "suffix", "packets_before"), BEGINS)
def test_stretches_begin_where_they_do_in_the_whole_video(
    codec: str, suffix: str, packets_before: int, tmp_path: Path
) -> None:
    cut = in_mid_gop(tmp_path, codec, suffix, packets_before)
    listed = tmp_path / "list.csv"
    listed.write_text(f"path,start,end\n{cut.name},0,1\n{cut.name},1.2,2\n{cut.name},0,\n")
    report = prepare(
        [str(listed)], DiskStorage(tmp_path / "dataset"), Profile(), where=Where("inline"),
        importing=Importing(cuts=("start", "end")),
    )  # fmt: skip
    assert report.failures == ()
    dataset = shortgop.open(tmp_path / "dataset")
    begin, middle, whole = (
        [read_number(frame) for frame in dataset[f"{cut.name}@{stretch}"]] for stretch in ("0-1", "1.2-2", "0-")
    )
    assert whole == list(range(whole[0], _FRAMES))
    assert 0 < whole[0] <= _GOP
    assert begin == whole[:25]
    assert middle == whole[30:50]


@pytest.mark.first_case_short
@pytest.mark.parametrize("packets_before", [3, 7, 11])
def test_small_frames_before_the_first_time_that_is_stated_are_directly_before_those_behind_it(
    packets_before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several share a packet of the program stream, and the first frame that has a time is one that does not decode.
    FFmpeg counts those up to the next time from 0, so that one of them was shown for a second."""
    (options, *others) = CODECS["libx264"]
    small = {**options, "options": {**options["options"], "crf": "18"}}
    monkeypatch.setitem(CODECS, "libx264", (small, *others))
    cut = in_mid_gop(tmp_path, "libx264", ".mpg", packets_before)
    listed = tmp_path / "list.csv"
    listed.write_text(f"path,start,end,id\n{cut.name},,,whole\n{cut.name},0.4,1.2,stretch\n")
    for source, cuts in ((cut, None), (listed, "start,end")):
        assert shortgop.prepare(source, tmp_path / "dataset", cuts=cuts, runner="inline").failures == ()
    dataset = shortgop.open(tmp_path / "dataset")
    whole = list(range(_GOP, _FRAMES))
    assert [read_number(frame) for frame in dataset[cut.name]] == whole
    assert [read_number(frame) for frame in dataset["whole"]] == whole
    assert [read_number(frame) for frame in dataset["stretch"]] == whole[10:30]


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_b_frames_at_the_end_of_an_avi_whose_header_counts_empty_chunks_are_there(suffix: str, tmp_path: Path) -> None:
    """Matroska's milliseconds make AVI have many empty chunks, which its header counts."""
    timebase = Fraction(1, 1000) if suffix == ".mkv" else Fraction(1, 600)
    pts = constant_rate_pts(RATE, 60, timebase)
    whole = make_video(tmp_path / f"v{suffix}", pts=pts, timebase=timebase, codec="libx264", gop=12, b_frames=2)
    ffmpeg("-i", whole.path, "-c", "copy", "-bsf:v", "h264_mp4toannexb", tmp_path / "v.avi")
    assert make_dataset([tmp_path / "v.avi"], tmp_path / "dataset").failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]] == list(range(60))


def test_an_avi_whose_first_frame_is_short_has_its_last_one(tmp_path: Path) -> None:
    """FFmpeg begins it later than the other frames call for, by the offset: the last frame was taken for one that may
    belong behind others that were cut off."""
    timebase, rate = Fraction(1, 600), Fraction(25, 2)
    pts = constant_rate_pts(rate, 20, timebase)
    whole = make_video(tmp_path / "v.mov", pts=pts, timebase=timebase, codec="mpeg4", gop=12, b_frames=3)
    offset = ("-itsoffset", "0.033")
    ffmpeg(*offset, "-i", whole.path, "-c", "copy", "-avoid_negative_ts", "disabled", tmp_path / "v.avi")
    assert make_dataset([tmp_path / "v.avi"], tmp_path / "dataset").failures == ()
    video = shortgop.open(tmp_path / "dataset")[0]
    assert [read_number(frame) for frame in video] == list(range(20))
    assert video.metadata.fps == rate


def test_an_avi_that_is_cut_still_loses_its_end(tmp_path: Path) -> None:
    timebase = 1 / RATE
    pts = constant_rate_pts(RATE, 60, timebase)
    whole = make_video(tmp_path / "v.mp4", pts=pts, timebase=timebase, codec="libx264", gop=12, b_frames=2)
    ffmpeg("-i", whole.path, "-c", "copy", "-bsf:v", "h264_mp4toannexb", tmp_path / "v.avi")
    with av.open(tmp_path / "v.avi") as container:
        places = [packet.pos or 0 for packet in container.demux(video=0) if packet.size]
    (tmp_path / "cut.avi").write_bytes((tmp_path / "v.avi").read_bytes()[: places[40] + 20])
    assert make_dataset([tmp_path / "cut.avi"], tmp_path / "dataset").failures == ()
    numbers = [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]]
    assert numbers == list(range(len(numbers)))
    # A frame that comes out at the end of a cut file may belong behind one that was cut off.
    assert 34 <= len(numbers) < 40


@given(
    st.sampled_from([3600, 3003, 3754, 40]),
    st.lists(st.tuples(st.integers(0, 90), st.integers(1, 6), st.integers(-4, 4)), max_size=3),
)
def test_times_that_a_parser_counted_wrongly_are_evened(interval: int, wrong: list[tuple[int, int, int]]) -> None:
    """Some runs of frames have the times of later or earlier ones, so that times fall or hardly rise behind them."""
    right = np.arange(100) * interval
    stated = right.copy()
    for first, count, moved in wrong:
        stated[first + 1 : first + 1 + count] += moved * interval
    found = evened(stated)
    if (np.diff(stated) > 0).all():
        # Nothing says that the frames in between are not late.
        assert (found == stated).all()
    elif len(wrong) == 1:
        assert (found == right).all()
    assert found[0] == 0


@given(st.integers(2, 4000), st.lists(st.integers(0, 100), min_size=2, max_size=60))
def test_times_of_which_none_lies_closer_than_half_an_interval_stay(shortest: int, percents: list[int]) -> None:
    times = np.cumsum([shortest + shortest * percent // 100 for percent in percents])
    assert (evened(times) == times).all()
