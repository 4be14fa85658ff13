"""Video that a file has and that FFmpeg leaves out without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

import shortgop
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.mp4 import boxes
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

FRAMES, GOP = 30, 10
H264 = (*X264, "-g", str(GOP), "-sc_threshold", "0", "-pix_fmt", "yuv420p")


@pytest.fixture(scope="module")
def plain_mp4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode_pictures(tmp_path_factory.mktemp("unread") / "x.mp4", numbered(range(FRAMES)), *H264)


@pytest.fixture(scope="module")
def fragments(plain_mp4: Path) -> list[bytes]:
    """The beginning of a fragmented MP4, and its three fragments."""
    flags = ("-movflags", "+frag_keyframe+empty_moov+default_base_moof", "-f", "mp4", "-")
    data = ffmpeg("-i", plain_mp4, "-c", "copy", *flags)
    starts = [box.start for box in boxes(data) if box.type == b"moof"]
    end = next(box.start for box in boxes(data) if box.type == b"mfra")
    return [data[start:stop] for start, stop in zip([0, *starts], [*starts, end], strict=True)]


def prepared(source: Path, data: bytes, *, salvage: bool = False) -> tuple[Report, list[int]]:
    source.write_bytes(data)
    out = source.parent / f"dataset-{salvage}"
    report = prepare([str(source)], DiskStorage(out), Profile(), where=Where("inline"), policy=SourcePolicy(salvage))
    return report, [] if report.failures else [read_number(frame) for frame in shortgop.open(out)[0]]


def test_mp4s_that_were_joined_byte_by_byte_are_not_half_left_out_in_silence(plain_mp4: Path, tmp_path: Path) -> None:
    data = plain_mp4.read_bytes()
    report, _ = prepared(tmp_path / "x.mp4", data + data)
    assert report.failures[0].reason.endswith(
        "x.mp4 is damaged: all of the 30 frames that are found decode, but others may be missing (another MP4 follows "
        "in it, and FFmpeg reads the first one only; give each in a file of its own); --salvage prepares those that "
        "are found"
    )
    _, shown = prepared(tmp_path / "x.mp4", data + data, salvage=True)
    assert shown == list(range(FRAMES))


def test_a_beginning_before_each_fragment_is_no_other_mp4(fragments: list[bytes], tmp_path: Path) -> None:
    head, *parts = fragments
    report, shown = prepared(tmp_path / "x.mp4", b"".join(head + part for part in parts))
    assert report.failures == ()
    assert shown == list(range(FRAMES))


def test_a_fragment_that_the_file_has_twice_is_shown_once(fragments: list[bytes], tmp_path: Path) -> None:
    head, first, second, third = fragments
    report, shown = prepared(tmp_path / "x.mp4", head + first + second + second + third)
    assert report.failures == ()
    assert shown == list(range(FRAMES))


def test_a_fragment_behind_a_later_one_is_not_left_out_in_silence(fragments: list[bytes], tmp_path: Path) -> None:
    head, first, second, third = fragments
    report, _ = prepared(tmp_path / "x.mp4", head + first + third + second)
    assert "a fragment has earlier times than the one before, and FFmpeg leaves it out" in report.failures[0].reason
    _, shown = prepared(tmp_path / "x.mp4", head + first + third + second, salvage=True)
    # The last frame before the fragment that is left out is in doubt as well.
    assert shown == [*range(10), *[9] * 10, *range(20, 29)]
