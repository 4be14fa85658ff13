"""Files as cameras, recorders and phones write them."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import pytest

import shortgop
from cut_sources import cut, write_list
from datasets import make_dataset
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop.cli.job_reports import print_report
from shortgop.cli.printing import PlainConsole
from shortgop.jobs.outcome import Report
from shortgop.manifests.lacking import CUT_OFF, GUESSED_RATE
from shortgop.manifests.mp4 import boxes
from synthetic import read_number

FRAMES = 30
PLAIN_HEVC = ("-c:v", "libx265", "-x265-params", "log-level=error:keyint=10:bframes=0:repeat-headers=1:info=0")


def report_of(source: Path) -> Report:
    return make_dataset([source], source.parent / f"{source.name} dataset")


def video_of(source: Path) -> shortgop.Video:
    assert report_of(source).failures == ()
    return shortgop.open(source.parent / f"{source.name} dataset")[0]


def shown(video: shortgop.Video) -> list[int]:
    return [read_number(frame) for frame in video]


def said_of(report: Report) -> str:
    console = PlainConsole(width=1000)
    with console.capture() as said:
        print_report(report, "dataset", console, console)
    return said.get()


def test_a_raw_stream_without_a_rate_is_told(tmp_path: Path) -> None:
    """Many cameras write raw H.264 that does not say how fast it is. FFmpeg takes all such streams for 25 frames/s."""
    source = encode_pictures(tmp_path / "x.h264", numbered(range(FRAMES)), "-c:v", "libopenh264", "-b:v", "1M", rate=15)
    report = report_of(source)
    assert report.guessed_rates == ("x.h264",)
    assert "may be too slow or too fast" in said_of(report)
    assert "`ffmpeg -r RATE -i FILE -c copy OUT.mp4`" in said_of(report)
    video = video_of(source)
    assert shown(video) == list(range(FRAMES))
    assert video.changes.given_up == (GUESSED_RATE,)
    ffmpeg("-r", "15", "-i", source, "-c", "copy", tmp_path / "OUT.mp4")
    right = video_of(tmp_path / "OUT.mp4")
    assert right.metadata.fps == 15
    assert shown(right) == list(range(FRAMES))
    assert right.changes.given_up == ()


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("name", "coded", "is_told"),
    [
        ("x.h264", X264, False),
        ("x.hevc", PLAIN_HEVC, False),
        ("x.m2v", ("-c:v", "mpeg2video"), False),
        ("x.mjpeg", ("-c:v", "mjpeg", "-q:v", "2"), True),
        ("x.obu", ("-c:v", "libaom-av1", "-cpu-used", "8"), True),
        ("x.ivf", ("-c:v", "libaom-av1", "-cpu-used", "8"), False),
    ],
)
def test_raw_streams_with_a_rate_are_not_told(name: str, coded: tuple[str, ...], is_told: bool, tmp_path: Path) -> None:
    source = encode_pictures(tmp_path / name, numbered(range(FRAMES)), *coded, "-pix_fmt", "yuv420p", rate=30)
    video = video_of(source)
    assert shown(video) == list(range(FRAMES))
    assert (GUESSED_RATE in video.changes.given_up) == is_told
    assert video.metadata.fps == (25 if is_told else 30)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_parameter_sets_in_samples_of_their_own_are_no_frames(codec: str, suffix: str, tmp_path: Path) -> None:
    """Recorders of cameras write what they receive, and parameter sets come in packets of their own."""
    coded = (*X264, "-g", "10") if codec == "h264" else PLAIN_HEVC
    stream = encode_pictures(tmp_path / "x.ts", numbered(range(FRAMES)), *coded, "-pix_fmt", "yuv420p")
    source = tmp_path / f"x.{suffix}"
    with av.open(stream) as container, av.open(source, "w") as out:
        copy = out.add_stream_from_template(container.streams.video[0])
        for number, packet in enumerate(packet for packet in container.demux(video=0) if packet.size):
            data = bytes(packet)
            picture = re.search(
                rb"\x00\x00\x00?\x01" + (rb"[\x65\x41]" if codec == "h264" else rb"[\x00\x02\x26\x28\x2a]"), data
            )
            assert picture is not None
            has_sets = (b"\0\0\1\x67" if codec == "h264" else b"\0\0\1\x42") in data
            parts = [data[: picture.start()], data[picture.start() :]] if has_sets else [data]
            for part in parts:
                sample = av.Packet(part)
                sample.stream, sample.time_base, sample.is_keyframe = copy, Fraction(1, 90000), packet.is_keyframe
                sample.pts = sample.dts = 3000 * number + (len(parts) > 1 and part is parts[1])
                out.mux(sample)
    video = video_of(source)
    assert shown(video) == list(range(FRAMES))
    assert video.changes.dropped == 0


def reason_against(source: Path) -> str:
    (failure,) = report_of(source).failures
    return failure.reason


@pytest.mark.first_case_short
@pytest.mark.parametrize("name", ["MVIMG_1.jpg", "PXL_1.MP.jpg", "x.heic"])
def test_a_motion_photo_is_called_that_with_the_command_that_cuts_the_video_out(name: str, tmp_path: Path) -> None:
    """Phones write the picture first and a video of its own behind it."""
    suffix = "avif" if name.endswith("heic") else "jpg"
    coded = ("-c:v", "libaom-av1", "-still-picture", "1", "-cpu-used", "8") if suffix == "avif" else ("-q:v", "2")
    picture = encode_pictures(tmp_path / f"still.{suffix}", numbered([999]), *coded, "-frames:v", "1", "-update", "1")
    film = encode_pictures(tmp_path / "film.mp4", numbered(range(FRAMES)), *X264, "-pix_fmt", "yuv420p").read_bytes()
    behind = len(film).to_bytes(4) + b"mpvd" + film if suffix == "avif" else b"MotionPhoto_Data" + film + b"SEFT"
    source = tmp_path / name
    source.write_bytes(picture.read_bytes() + behind)
    reason = reason_against(source)
    assert "is a photo with a video behind it (a motion photo); give OUT.mp4 of `tail" in reason
    (command,) = re.findall("`(.*)`", reason)
    subprocess.run(command.replace("FILE", name), shell=True, check=True, cwd=tmp_path)
    assert shown(video_of(tmp_path / "OUT.mp4")) == list(range(FRAMES))
    assert "is a still picture" in reason_against(picture)


def test_a_picture_that_ffmpeg_does_not_open_is_called_a_picture(tmp_path: Path) -> None:
    """Such as one of which each layer is a piece of its own (AVIF). It was called an MP4 that lost its index."""
    coded = ("-c:v", "libaom-av1", "-still-picture", "1", "-cpu-used", "8")
    still = encode_pictures(tmp_path / "still.avif", numbered([7]), *coded, "-frames:v", "1").read_bytes()
    # What lies where, in pieces (ISO/IEC 14496-12, 8.11.3): the number of the item's pieces says that there are two.
    pieces = still.index(b"iloc") + 4 + 4 + 2 + 2 + 2 + 2
    assert still[pieces : pieces + 2] == b"\0\1"
    (tmp_path / "x.avif").write_bytes(still[:pieces] + b"\0\2" + still[pieces + 2 :])
    assert reason_against(tmp_path / "x.avif").endswith("it is a still picture (AVIF, HEIF), not a video")


def test_a_recording_that_lost_its_index_is_no_picture_though_it_has_a_box_like_one(tmp_path: Path) -> None:
    """As cameras of some makers write it, behind the pictures. It can be repaired."""
    boxes = ((b"ftyp", b"XAVC\0\0\0\0XAVC"), (b"mdat", bytes(99)), (b"meta", bytes(4)))
    file = tmp_path / "x.mp4"
    file.write_bytes(b"".join((8 + len(body)).to_bytes(4) + kind + body for kind, body in boxes))
    assert "its index is cut off" in reason_against(file)


def test_two_pictures_one_behind_the_other_are_no_motion_photo(tmp_path: Path) -> None:
    """The command cut out the other picture."""
    coded = ("-c:v", "libaom-av1", "-still-picture", "1", "-cpu-used", "8")
    still = encode_pictures(tmp_path / "still.avif", numbered([7]), *coded, "-frames:v", "1").read_bytes()
    (tmp_path / "x.avif").write_bytes(still + still)
    assert "is a still picture, not a video" in reason_against(tmp_path / "x.avif")


def test_a_recording_that_ends_within_its_index_is_called_that(tmp_path: Path) -> None:
    """Such as after a loss of power. Within its last tables FFmpeg found some of the frames, and said nothing."""
    picture = encode_pictures(tmp_path / "film.mp4", numbered(range(FRAMES)), *X264, "-pix_fmt", "yuv420p")
    sound = ("-f", "lavfi", "-i", "sine=d=1", "-c:a", "aac")
    ffmpeg("-i", picture, *sound, "-c:v", "copy", tmp_path / "x.mp4")
    whole = (tmp_path / "x.mp4").read_bytes()
    moov = next(box for box in boxes(whole) if box.type == b"moov")
    _, film, tone, *_ = boxes(whole, moov.body, moov.stop)
    assert (film.type, tone.type) == (b"trak", b"trak")
    source = tmp_path / "cut.mp4"
    for length in (moov.body, moov.body + 40, film.start + 300, film.stop - 200, film.stop - 8, film.stop - 1):
        source.write_bytes(whole[:length])
        assert "its index is cut off (the MP4 ends within its moov box)" in reason_against(source), length
    for number, length in enumerate((film.stop, tone.start + 100, tone.stop)):
        source = tmp_path / f"whole{number}.mp4"
        source.write_bytes(whole[:length])
        assert shown(video_of(source)) == list(range(FRAMES))


@pytest.mark.first_case_short
@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_recording_in_fragments_that_ends_within_the_index_of_the_last_one_keeps_the_others(
    part: float, tmp_path: Path
) -> None:
    """FFmpeg looks at the indexes of all fragments first, and did not open such a recording at all."""
    coded = (*X264, "-g", "10", "-sc_threshold", "0", "-pix_fmt", "yuv420p")
    fragments = ("-movflags", "+frag_keyframe+empty_moov+default_base_moof")
    whole = encode_pictures(tmp_path / "whole.mp4", numbered(range(FRAMES)), *coded, *fragments).read_bytes()
    last = [box for box in boxes(whole) if box.type == b"moof"][2]
    source = tmp_path / "x.mp4"
    source.write_bytes(whole[: last.start + int(part * (last.stop - last.start))])
    video = video_of(source)
    assert shown(video) == list(range(20))
    assert video.changes.given_up == (CUT_OFF,)
    cuts = write_list(tmp_path, "x.mp4,0.1,0.4", "x.mp4,0.4,0.6")
    assert cut(cuts, tmp_path / "cuts").failures == ()
    assert [shown(each) for each in shortgop.open(tmp_path / "cuts")] == [list(range(3, 12)), list(range(12, 18))]


def chunks_of(data: bytes, start: int, stop: int) -> Iterator[tuple[bytes, bytes]]:
    """The kind and the content of each chunk of an AVI."""
    while start + 8 <= stop:
        kind, length = struct.unpack_from("<4sI", data, start)
        yield kind, data[start + 8 : start + 8 + length]
        start += 8 + length + length % 2


def avi_without_index(path: Path, *, between: bytes = b"", fills_up: bool = True) -> Path:
    """Motion JPEG in AVI, with other chunks `between` its frames, or with chunks that are not filled up."""
    coded = ("-c:v", "mjpeg", "-q:v", "2", "-pix_fmt", "yuvj420p")
    whole = encode_pictures(path, numbered(range(FRAMES)), *coded).read_bytes()
    out = whole[:12]
    for kind, content in chunks_of(whole, 12, len(whole)):
        if content[:4] == b"movi":
            frames = [frame.rstrip(b"\0") for _, frame in chunks_of(content, 4, len(content))]
            assert any(len(frame) % 2 for frame in frames)
            filled = [frame + b"\0" * (fills_up * len(frame) % 2) for frame in frames]
            heads = (struct.pack("<4sI", b"00dc", len(frame)) for frame in frames)
            movi = b"movi" + b"".join(head + each + between for head, each in zip(heads, filled, strict=True))
            out += struct.pack("<4sI", kind, len(movi)) + movi + b"\0" * (len(movi) % 2)
        elif kind != b"idx1":
            out += struct.pack("<4sI", kind, len(content)) + content + b"\0" * (len(content) % 2)
    path.write_bytes(out)
    return path


@pytest.mark.first_case_short
@pytest.mark.parametrize("kind", [b"gps0", b"gsen", b"SLLT"])
def test_chunks_of_places_between_the_frames_of_an_avi_are_no_damage(kind: bytes, tmp_path: Path) -> None:
    place = struct.pack("<4sI", kind, 24) + b"$GPRMC,080001,A,4717.11,"
    video = video_of(avi_without_index(tmp_path / "x.avi", between=2 * place))
    assert shown(video) == list(range(FRAMES))


def test_chunks_of_an_avi_that_are_not_filled_up_are_no_damage(tmp_path: Path) -> None:
    video = video_of(avi_without_index(tmp_path / "x.avi", fills_up=False))
    assert shown(video) == list(range(FRAMES))


def test_a_damaged_name_of_a_frame_is_no_other_chunk(tmp_path: Path) -> None:
    source = avi_without_index(tmp_path / "x.avi")
    data = bytearray(source.read_bytes())
    at = [match.start() for match in re.finditer(b"00dc", data)][9]
    data[at] ^= 0x40
    source.write_bytes(data)
    assert "there is a break between its parts, at byte" in reason_against(source)
