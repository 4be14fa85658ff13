"""Damage at the beginning of a file is damage, and no cut: what lies before and behind it is there."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import av
import pytest

from shortgop import open as open_dataset
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

FRAMES, GOP = 36, 12
KINDS = [
    ("x.mp4", "libx264"), ("x.mkv", "libx264"), ("x.flv", "libx264"), ("x.mp4", "libx265"), ("x.mkv", "libx265"),
    ("x.mp4", "mpeg4"), ("x.avi", "mpeg4"), ("x.webm", "libvpx-vp9"),
]  # fmt: skip

PLACES = [range(1, 2), range(1), range(2, 3), range(2), range(GOP)]
# That noise in the first frame of VP9 was a keyframe, nothing says.
CASES = [
    (*kind, noise, numbers)
    for kind in KINDS for noise in (False, True) for numbers in PLACES
    if not (noise and kind[1] == "libvpx-vp9" and numbers.start == 0)
]  # fmt: skip


def damaged(folder: Path, name: str, codec: str, numbers: range, *, noise: bool = False) -> Path:
    """A video whose packets with these numbers have zeros or noise in place of what they had."""
    timebase = Fraction(1, 1000) if name.endswith(("mkv", "webm", "flv")) else Fraction(1, 25)
    pts, b_frames = constant_rate_pts(Fraction(25), FRAMES, timebase), 0 if name.endswith(("avi", "webm")) else 2
    source = make_video(folder / name, pts=pts, timebase=timebase, codec=codec, gop=GOP, b_frames=b_frames).path
    with av.open(source) as container:
        packets = [bytes(packet) for packet in container.demux(video=0)]
    data = source.read_bytes()
    for number in numbers:
        size = len(packets[number])
        assert data.count(packets[number]) == 1
        data = data.replace(packets[number], random.Random(1).randbytes(size) if noise else bytes(size))
    source.write_bytes(data)
    return source


def job(source: Path, *, salvage: bool) -> Report:
    out, policy = DiskStorage(source.parent / f"dataset {salvage}"), SourcePolicy(salvage)
    return prepare([str(source)], out, Profile(gop_frames=4), policy=policy, where=Where("inline"))


@pytest.mark.first_case_short
@pytest.mark.parametrize(("name", "codec", "noise", "numbers"), CASES, ids=str)
def test_damage_in_the_first_group_of_pictures_is_no_cut(
    name: str, codec: str, noise: bool, numbers: range, tmp_path: Path
) -> None:
    source = damaged(tmp_path, name, codec, numbers, noise=noise)
    (failure,) = job(source, salvage=False).failures
    assert "--salvage prepares the others" in failure.reason
    assert job(source, salvage=True).failures == ()
    shown = [read_number(frame) for frame in open_dataset(tmp_path / "dataset True")[0]]
    assert shown[-GOP:] == list(range(FRAMES - GOP, FRAMES))
    assert [number for number in shown if number >= 2 * GOP] == shown[-GOP:]


@pytest.mark.parametrize("number", [GOP, FRAMES - 2])
def test_damage_elsewhere_is_no_cut_either(number: int, tmp_path: Path) -> None:
    source = damaged(tmp_path, "x.mp4", "libx264", range(number, number + 1))
    (failure,) = job(source, salvage=False).failures
    assert "--salvage prepares the others" in failure.reason


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_frames_that_a_demuxer_skips_while_it_opens_a_file_are_not_lost_in_silence(
    codec: str, number: int, tmp_path: Path
) -> None:
    """The demuxer of Matroska goes on at the next cluster. FFmpeg reads the first packets while it opens a file, and
    says of them what is damaged then."""
    pts = constant_rate_pts(Fraction(25), FRAMES, Fraction(1, 1000))
    source = make_video(tmp_path / "x.mkv", pts=pts, timebase=Fraction(1, 1000), codec=codec, gop=GOP).path
    with av.open(source) as container:
        # Its position is that of the element around it.
        at = [packet.pos or 0 for packet in container.demux(video=0)][number]
    data = bytearray(source.read_bytes())
    data[at : at + 100] = bytes(100)
    source.write_bytes(data)
    (failure,) = job(source, salvage=False).failures
    assert "invalid as first byte of an EBML number" in failure.reason
    assert job(source, salvage=True).failures == ()
    (video,) = open_dataset(tmp_path / "dataset True")
    marked = {frame for first, stop in video.changes.salvaged for frame in range(first, stop)}
    shown = [read_number(frame) for frame in video]
    # The first frame that is whole may not be the first one.
    numbers = [first - shown[0] for first in shown]
    assert [at for at, number in enumerate(numbers) if number != at] == sorted(marked)
    assert shown[-GOP:] == list(range(FRAMES - GOP, FRAMES))
