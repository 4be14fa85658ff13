"""Motion JPEG as web cameras send it, with lines between its pictures, and as raw streams; whole, cut and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

import shortgop
from odd_pictures import encode_pictures, ffmpeg, numbered
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.lacking import GUESSED_RATE
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.headers.motion_jpeg import first_wrong_part
from shortgop.prep.probing.headers.picture_ends import PictureEnds
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

FRAMES = 12
BOUNDARY = b"--boundarydonotcross"
HTTP = b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=boundarydonotcross\r\n\r\n"
START = b"\xff\xd8\xff"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("jpeg") / "x.mjpeg"
    encode_pictures(path, numbered(range(FRAMES)), "-c:v", "mjpeg", "-q:v", "2", "-pix_fmt", "yuvj420p")
    return [START + part for part in path.read_bytes().split(START)[1:]]


def multipart(pictures: list[bytes], *, states_lengths: bool = True, line_end: bytes = b"\r\n") -> bytes:
    out = b""
    for picture in pictures:
        lengths = b"Content-Length: %d" % len(picture) + line_end if states_lengths else b""
        out += BOUNDARY + line_end + b"Content-Type: image/jpeg" + line_end + lengths + line_end + picture + line_end
    return out


def prepared(source: Path, data: bytes, *, salvage: bool = False) -> tuple[Report, shortgop.Video | None]:
    source.write_bytes(data)
    out, policy = source.parent / f"dataset-{salvage}", SourcePolicy(salvage)
    report = prepare([str(source)], DiskStorage(out), Profile(), where=Where("inline"), policy=policy)
    return report, None if report.failures else shortgop.open(out)[0]


def shown(video: shortgop.Video | None) -> list[int]:
    assert video is not None
    return [read_number(frame) for frame in video]


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("states_lengths", "line_end", "head", "tail"),
    [
        (True, b"\r\n", b"", b""),
        (True, b"\r\n", b"", BOUNDARY + b"\r\n"),
        (True, b"\r\n", b"\r\n", BOUNDARY + b"--\r\n"),
        (True, b"\r\n", HTTP, BOUNDARY + b"\r\nContent-Type: image/jpeg\r\nContent-Len"),
        (False, b"\r\n", b"", b""),
        (False, b"\n", b"", BOUNDARY + b"\n"),
    ],
    ids=["lengths", "a boundary at the end", "an end", "in mid-line", "no lengths", "other ends of lines"],
)
def test_what_a_web_camera_sends_is_prepared_wherever_it_ends_between_pictures(
    states_lengths: bool, line_end: bytes, head: bytes, tail: bytes, pictures: list[bytes], tmp_path: Path
) -> None:
    data = multipart(pictures, states_lengths=states_lengths, line_end=line_end)
    report, video = prepared(tmp_path / "x.mjpg", head + data + tail)
    assert video is not None, report.failures
    assert shown(video) == list(range(FRAMES))
    assert video.changes.dropped == 0
    assert GUESSED_RATE in video.changes.given_up


def test_what_ffmpeg_writes_as_a_web_camera_is_prepared(pictures: list[bytes], tmp_path: Path) -> None:
    data = ffmpeg("-f", "mjpeg", "-i", "-", "-c", "copy", "-f", "mpjpeg", "-", stdin=b"".join(pictures))
    assert shown(prepared(tmp_path / "x.mjpg", data)[1]) == list(range(FRAMES))


@pytest.mark.first_case_short
@pytest.mark.parametrize("kind", ["lengths", "no lengths", "raw"])
@pytest.mark.parametrize("behind", [b"", bytes(5000)], ids=["the end", "zeros"])
@pytest.mark.parametrize("missing_bytes", [3, 900])
def test_a_last_picture_that_is_cut_off_is_left_out_and_counted(
    missing_bytes: int, behind: bytes, kind: str, pictures: list[bytes], tmp_path: Path
) -> None:
    """FFmpeg shows what there is of it, above grey or other colours."""
    data = b"".join(pictures) if kind == "raw" else multipart(pictures, states_lengths=kind == "lengths")
    report, video = prepared(tmp_path / "x.mjpg", data[:-missing_bytes] + behind)
    assert video is not None, report.failures
    assert shown(video) == list(range(FRAMES - 1))
    assert (video.changes.dropped, video.changes.salvaged) == (1, ())


def test_cameras_that_never_write_the_end_of_a_picture_lose_none(pictures: list[bytes], tmp_path: Path) -> None:
    data = multipart([picture[:-2] for picture in pictures], states_lengths=False)
    assert shown(prepared(tmp_path / "x.mjpg", data)[1]) == list(range(FRAMES))


def test_where_bytes_are_missing_no_picture_is_put_together_of_two(pictures: list[bytes], tmp_path: Path) -> None:
    data = multipart(pictures)
    first, second = data.index(pictures[5]) + 700, data.index(pictures[6]) + 700
    source = tmp_path / "x.mjpg"
    report, _ = prepared(source, data[:first] + data[second:])
    assert "there is a break between its parts, at byte" in report.failures[0].reason
    _, video = prepared(source, data[:first] + data[second:], salvage=True)
    numbers = shown(video)
    assert video is not None
    ((start, stop),) = video.changes.salvaged
    assert numbers == [*range(start), *[start - 1] * (stop - start), *range(stop + 1, FRAMES)]
    assert start in (4, 5)
    assert stop in (6, 7)


def test_a_raw_stream_goes_on_behind_a_damaged_picture_with_salvage(pictures: list[bytes], tmp_path: Path) -> None:
    cut = [*pictures[:5], pictures[5][: len(pictures[5]) // 2], *pictures[6:]]
    report, _ = prepared(tmp_path / "x.mjpeg", b"".join(cut))
    assert "1 of its 12 frames is lost" in report.failures[0].reason
    _, video = prepared(tmp_path / "x.mjpeg", b"".join(cut), salvage=True)
    assert shown(video) == [0, 1, 2, 3, 4, 4, *range(6, FRAMES)]
    assert video is not None
    assert video.changes.salvaged == ((5, 6),)


def test_lengths_that_are_mostly_wrong_say_nothing(pictures: list[bytes], tmp_path: Path) -> None:
    source = tmp_path / "x.mjpg"
    data = multipart(pictures)
    for count, is_wrong in ((1, True), (FRAMES, False)):
        wrong = data
        for picture in pictures[:count]:
            length = b"Content-Length: %d" % len(picture)
            wrong = wrong.replace(length + b"\r", length[:-1] + b"\r", 1)
        source.write_bytes(wrong)
        assert (first_wrong_part(str(source)) is not None) == is_wrong


def test_a_picture_within_the_headers_is_not_the_end_of_one(pictures: list[bytes]) -> None:
    small = pictures[0]
    exif = START + b"\xe1" + (len(small) + 2).to_bytes(2) + small + pictures[1][2:]
    ends = PictureEnds("mjpeg")
    for picture, is_missing in ((exif, False), (exif[:-300], True), (exif, False)):
        ends.see(picture)
        assert ends.is_missing == is_missing
