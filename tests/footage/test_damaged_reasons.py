"""What the reason says where no frames of a damaged source can be encoded."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path

import av
import imageio_ffmpeg
import pytest

from broken import corrupted_payload
from odd_pictures import encode_pictures, numbered
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video

# Fails where it encodes a file of this name, and does all else as the real one.
FAILING = """#!/bin/sh
case "$*" in
*broken.mkv*libx264*) echo "[vf#0:0 @ 0x1] Error reinitializing filters!" >&2; exit 187;;
esac
exec "{real}" "$@"
"""


def test_where_ffmpeg_fails_on_the_sound_frames_the_reason_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was hidden behind frames that are not shown as planned."""
    plain = encode_pictures(tmp_path / "x.mkv", numbered(range(30)), "-c:v", "mpeg2video", "-g", "10", "-q:v", "2")
    source = corrupted_payload(plain, tmp_path / "broken.mkv")
    failing = tmp_path / "ffmpeg"
    failing.write_text(FAILING.format(real=imageio_ffmpeg.get_ffmpeg_exe()))
    failing.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(failing))
    find_ffmpeg.cache_clear()
    try:
        out, policy = DiskStorage(tmp_path / "dataset"), SourcePolicy(salvage=True)
        (failure,) = prepare([str(source)], out, Profile(), policy=policy, where=Where("inline")).failures
    finally:
        find_ffmpeg.cache_clear()
    assert "broken.mkv is damaged (" in failure.reason
    assert failure.reason.endswith(
        "the frames that are left as planned (from 0.000 s on; ffmpeg failed: Error reinitializing "
        "filters!); remux or re-encode the file first, or give another copy of it"
    )


def test_damage_that_leaves_only_frames_that_an_edit_hides_is_called_that(tmp_path: Path) -> None:
    """H.264 of an AVI, with the times of decoding, that was cut while it was copied to MP4."""
    pts = constant_rate_pts(Fraction(25), 40)
    video = make_video(tmp_path / "v.mp4", pts=pts, timebase=Fraction(1, 25), b_frames=1)
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error"]
    copied, cut = tmp_path / "v.avi", tmp_path / "cut.mp4"
    subprocess.run([*ffmpeg, "-i", video.path, "-c", "copy", "-bsf:v", "h264_mp4toannexb", copied], check=True)
    subprocess.run([*ffmpeg, "-ss", "0.5", "-i", copied, "-c", "copy", cut], check=True)
    with av.open(cut) as container:
        at, size = [(packet.pos or 0, packet.size) for packet in container.demux(video=0)][6]
    data = bytearray(cut.read_bytes())
    data[at : at + size] = bytes(size)
    cut.write_bytes(data)
    out, policy = DiskStorage(tmp_path / "dataset"), SourcePolicy(salvage=True)
    (failure,) = prepare([str(cut)], out, Profile(), policy=policy, where=Where("inline")).failures
    assert failure.reason == (
        f"{cut} is damaged: not one of the frames that its edits show is certain to decode as it was encoded; copy or "
        "download it again"
    )
