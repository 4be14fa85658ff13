"""Files cut out of others without encoding them anew, as `ffmpeg -ss ... -c copy` does: what plays is kept."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import imageio_ffmpeg
import pytest

import shortgop
from datasets import make_dataset
from synthetic import constant_rate_pts, frame_to_rgb, make_video, read_number

RATE, KHZ = Fraction(30), Fraction(1, 90000)
# Their frames refer to some before the keyframe at which the cut begins, or tell the decoder to forget such frames.
OPEN_GOP = {"libx264": {"x264-params": "open-gop=1:keyint=24:bframes=3"}}
OPEN_GOP["libx265"] = {"x265-params": "log-level=error:open-gop=1:keyint=24:bframes=3:pools=none:frame-threads=1"}


def played(path: Path) -> list[int]:
    """The numbers of the frames that libavcodec puts out."""
    with av.open(path) as container:
        return [read_number(frame_to_rgb(frame)) for frame in container.decode(video=0)]


CUTS = [
    *(("libx264", None, "v.ts", "1", suffix) for suffix in (".ts", ".mp4", ".mkv")),
    *(("libx264", "b-pyramid=none", "v.mp4", second, suffix) for second in ("1", "2.4") for suffix in (".mp4", ".mkv")),
    *(("libx265", None, "v.mp4", "1.07", suffix) for suffix in (".ts", ".mp4", ".mkv")),
]


@pytest.mark.first_case_short
@pytest.mark.parametrize(("codec", "pyramid", "name", "second", "suffix"), CUTS)
def test_all_frames_that_play_are_there(
    codec: str, pyramid: str | None, name: str, second: str, suffix: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"codec": codec, "options": dict(OPEN_GOP[codec]), "gop": 24, "b_frames": 3}
    options["options"] |= {} if pyramid is None else {"x264-params": f"{OPEN_GOP[codec]['x264-params']}:{pyramid}"}
    full = make_video(tmp_path / name, pts=constant_rate_pts(RATE, 120, KHZ), timebase=KHZ, **options)
    cut = tmp_path / f"cut{suffix}"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-ss", second, "-i", str(full.path), "-c", "copy"]
    subprocess.run([*ffmpeg, str(cut)], check=True)
    expected = played(cut)
    assert expected[-1] == 119
    assert expected == list(range(expected[0], 120))
    assert len(expected) >= 48
    assert make_dataset([cut], tmp_path / "dataset").failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]] == expected


@pytest.mark.first_case_short
@pytest.mark.parametrize(("codec", "suffix"), [("libx264", ".mkv"), ("libx265", ".ts")])
def test_stretches_count_from_the_first_frame_that_plays(codec: str, suffix: str, tmp_path: Path) -> None:
    """Those before it that no decoder shows, as they refer to frames before the cut, were counted: a stretch began
    three frames early."""
    steady = {name: f"{value}:b-adapt=0:scenecut=0" for name, value in OPEN_GOP[codec].items()}
    options: dict[str, Any] = {"codec": codec, "options": steady, "gop": 24, "b_frames": 3}
    full = make_video(tmp_path / "v.mkv", pts=constant_rate_pts(RATE, 120, KHZ), timebase=KHZ, **options)
    cut = tmp_path / f"cut{suffix}"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(full.path), "-ss", "0.6", "-c", "copy"]
    subprocess.run([*ffmpeg, str(cut)], check=True)
    expected = played(cut)
    with av.open(cut) as container:
        assert sum(packet.size > 0 for packet in container.demux(video=0)) > len(expected)
    (tmp_path / "list.csv").write_text(f"id,path,start,end\none,{cut.name},1,1.5\n")
    report = shortgop.prepare(tmp_path / "list.csv", tmp_path / "cuts", cuts="start,end", runner="inline")
    assert report.failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "cuts")["one"]] == expected[30:45]
