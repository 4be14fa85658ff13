"""Recordings joined byte by byte, and parts of playlists, whose beginnings say otherwise how pictures are decoded.
FFmpeg decodes all by the first beginning, and of H.264 without CABAC no decoder notices that the pictures are wrong."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import shortgop
from odd_pictures import encode_pictures, ffmpeg, numbered
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.mp4 import boxes
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.containers.searching import found_behind
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

HALF, GOP, TIMESCALE = 30, 15, 30000
BASELINE = ("-c:v", "libx264", "-preset", "veryfast", "-profile:v", "baseline", "-pix_fmt", "yuv420p", "-g", str(GOP))
ONE, OTHER = ("-x264-params", "qp=22:scenecut=0"), ("-x264-params", "qp=34:scenecut=0")
FRAGMENTS = ("-movflags", "+frag_keyframe+empty_moov+default_base_moof")


def report_of(source: Path, *, salvage: bool = False) -> Report:
    out, policy = DiskStorage(source.parent / f"{source.name} dataset"), SourcePolicy(salvage=salvage)
    return prepare([str(source)], out, Profile(), where=Where("inline"), policy=policy)


def shown(source: Path) -> list[int]:
    assert report_of(source).failures == ()
    return [read_number(frame) for frame in shortgop.open(source.parent / f"{source.name} dataset")[0]]


def parts(path: Path, numbers: range, coded: Sequence[str], timescale: int = TIMESCALE) -> list[bytes]:
    """The beginning and the fragments of a recording, which has the times of a later part of one."""
    coded = (*BASELINE, *coded, *FRAGMENTS, "-video_track_timescale", str(timescale))
    data = bytearray(encode_pictures(path, numbered(numbers), *coded).read_bytes())
    for number, match in enumerate(re.finditer(b"mfhd", bytes(data))):
        struct.pack_into(">I", data, match.end() + 4, numbers[0] // GOP + number + 1)
        begin = (numbers[0] + number * GOP) * timescale // 30
        struct.pack_into(">Q", data, data.index(b"tfdt", match.end()) + 8, begin)
    starts = [box.start for box in boxes(bytes(data)) if box.type == b"moof"]
    end = next((box.start for box in boxes(bytes(data)) if box.type == b"mfra"), len(data))
    return [bytes(data[start:stop]) for start, stop in zip([0, *starts], [*starts, end], strict=True)]


def two_of(folder: Path, suffix: str, second: Sequence[str], timescale: int = TIMESCALE) -> Path:
    source = folder / f"x.{suffix}"
    numbers = range(HALF), range(HALF, 2 * HALF)
    if suffix == "mp4":
        first = parts(folder / "1.mp4", numbers[0], ONE)
        source.write_bytes(b"".join([*first, *parts(folder / "2.mp4", numbers[1], second, timescale)]))
    else:
        files = [
            encode_pictures(folder / f"{number}.{suffix}", numbered(each), *BASELINE, *coded)
            for number, each, coded in zip((1, 2), numbers, (ONE, second), strict=True)
        ]
        source.write_bytes(b"".join(file.read_bytes() for file in files))
    return source


@pytest.mark.first_case_short
@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_recording_with_other_parameters_is_not_decoded_by_those_of_the_first(
    suffix: str, salvage: bool, tmp_path: Path
) -> None:
    """It is refused with the commands that take the two apart."""
    source = two_of(tmp_path, suffix, OTHER)
    (failure,) = report_of(source, salvage=salvage).failures
    assert "another recording from byte" in failure.reason
    for number, command in enumerate(re.findall("`(.*?)`", failure.reason)):
        subprocess.run(command.replace("FILE", source.name), shell=True, check=True, cwd=tmp_path)
        numbers = range(number * HALF, (number + 1) * HALF)
        assert shown(tmp_path / f"OUT{number + 1}.{suffix}") == [*numbers]


def test_a_recording_with_the_same_parameters_goes_on(tmp_path: Path) -> None:
    assert shown(two_of(tmp_path, "mp4", ONE)) == [*range(2 * HALF)]


@pytest.mark.parametrize("second", [ONE, OTHER])
def test_a_recording_whose_times_go_on_is_not_decoded_by_other_parameters_either(
    second: Sequence[str], tmp_path: Path
) -> None:
    """Files as FFmpeg's segments are, each with the times of a part of one recording."""
    data = b""
    for number, coded in enumerate((ONE, second)):
        numbers = range(number * HALF, (number + 1) * HALF)
        options = (*BASELINE, *coded, "-output_ts_offset", str(number * HALF / 30))
        data += encode_pictures(tmp_path / f"{number}.mkv", numbered(numbers), *options).read_bytes()
    source = tmp_path / "x.mkv"
    source.write_bytes(data)
    if second == ONE:
        assert shown(source) == [*range(2 * HALF)]
        return
    (failure,) = report_of(source).failures
    assert "another recording from byte" in failure.reason


HUFFYUV, MPEG4 = ("-c:v", "huffyuv"), ("-c:v", "mpeg4", "-q:v", "3", "-bf", "0")
TONE = ("-f", "lavfi", "-i", "sine=r=8000:d=1")


def avi(path: Path, first: int, coded: Sequence[str], *, rate: int = 30, size: tuple[int, int] = (96, 64)) -> Path:
    return encode_pictures(path, numbered(range(first, first + HALF), size), *coded, rate=rate)


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("coded", "other", "rate"),
    [
        # FFmpeg shows it two and a half times as fast.
        (MPEG4, MPEG4, 12),
        # Its pictures were noise, without a word.
        (HUFFYUV, (*HUFFYUV, "-pred", "median", "-pix_fmt", "yuv422p"), 30),
    ],
)
def test_an_avi_of_another_rate_or_format_is_not_read_by_the_header_of_the_first(
    coded: Sequence[str], other: Sequence[str], rate: int, tmp_path: Path
) -> None:
    one, two = avi(tmp_path / "1.avi", 0, coded), avi(tmp_path / "2.avi", HALF, other, rate=rate)
    source = tmp_path / "x.avi"
    source.write_bytes(one.read_bytes() + two.read_bytes())
    (failure,) = report_of(source).failures
    assert f"another recording from byte {one.stat().st_size} on" in failure.reason
    for command in re.findall("`(.*?)`", failure.reason):
        subprocess.run(command.replace("FILE", source.name), shell=True, check=True, cwd=tmp_path)
    assert shown(tmp_path / "OUT2.avi") == [*range(HALF, 2 * HALF)]


def test_an_avi_whose_sound_comes_first_is_not_read_as_the_sound_of_one_whose_picture_does(tmp_path: Path) -> None:
    parts = []
    for first, order in ((0, ("0", "1")), (HALF, ("1", "0"))):
        picture, both = avi(tmp_path / "picture.avi", first, MPEG4), tmp_path / f"{first}.avi"
        copied = [word for stream in order for word in ("-map", stream)]
        ffmpeg("-i", picture, *TONE, *copied, "-c:v", "copy", "-c:a", "pcm_s16le", both)
        parts.append(both.read_bytes())
    source = tmp_path / "x.avi"
    source.write_bytes(b"".join(parts))
    (failure,) = report_of(source).failures
    assert "another recording from byte" in failure.reason


def test_an_avi_that_is_read_as_the_first_one_goes_on(tmp_path: Path) -> None:
    """Frames of MPEG-4 say themselves how large they are, and sound behind the picture changes nothing."""
    one, two = avi(tmp_path / "1.avi", 0, MPEG4), avi(tmp_path / "2.avi", HALF, MPEG4, size=(128, 96))
    source, both = tmp_path / "x.avi", tmp_path / "both.avi"
    ffmpeg("-i", two, *TONE, "-map", "0", "-map", "1", "-c:v", "copy", "-c:a", "pcm_s16le", both)
    source.write_bytes(one.read_bytes() + both.read_bytes())
    assert shown(source) == [*range(2 * HALF)]


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("suffix", "coded"),
    [
        # FFmpeg shows the frames of both at once, at twice their rate.
        ("gxf", ("-c:v", "mpeg2video", "-q:v", "3", "-s", "720x576")),
        ("rm", ("-c:v", "rv10", "-q:v", "5", "-g", "1")),
    ],
)
def test_a_recording_whose_times_begin_anew_is_not_put_between_the_frames_of_the_first(
    suffix: str, coded: Sequence[str], tmp_path: Path
) -> None:
    parts = [
        encode_pictures(
            tmp_path / f"{first}.{suffix}", numbered(range(first, first + HALF), (176, 144)), *coded, rate=25
        )
        for first in (0, HALF)
    ]
    source = tmp_path / f"x.{suffix}"
    source.write_bytes(b"".join(part.read_bytes() for part in parts))
    (failure,) = report_of(source).failures
    assert f"another recording from byte {parts[0].stat().st_size} on, whose times begin anew" in failure.reason
    for number, command in enumerate(re.findall("`(.*?)`", failure.reason)):
        subprocess.run(command.replace("FILE", source.name), shell=True, check=True, cwd=tmp_path)
        assert shown(tmp_path / f"OUT{number + 1}.{suffix}") == [*range(number * HALF, (number + 1) * HALF)]


PAL, NTSC = ("-s", "720x576", "-pix_fmt", "yuv420p"), ("-s", "720x480", "-pix_fmt", "yuv411p")


def dv(path: Path, numbers: range, system: Sequence[str]) -> bytes:
    rate = ("-r", "25" if system == PAL else "30000/1001")
    raw = b"".join(picture.tobytes() for picture in numbered(numbers, (720, 480)))
    given = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", "720x480", *rate, "-i", "-")
    ffmpeg(*given, "-c:v", "dvvideo", *system, path, stdin=raw)
    return path.read_bytes()


@pytest.mark.first_case_short
@pytest.mark.parametrize(("second", "frames"), [(NTSC, HALF), (PAL, HALF), (NTSC, 1)])
def test_dv_of_another_system_is_not_cut_into_frames_of_the_first(
    second: Sequence[str], frames: int, tmp_path: Path
) -> None:
    """Tapes of both were put into one file; pictures behind the change were torn, without a word."""
    numbers = [range(HALF), range(HALF, HALF + frames)]
    parts = [dv(tmp_path / f"{each[0]}.dv", each, system) for each, system in zip(numbers, (PAL, second), strict=True)]
    source = tmp_path / "x.dv"
    source.write_bytes(b"".join(parts))
    if second == PAL:
        assert shown(source) == [*range(2 * HALF)]
        return
    (failure,) = report_of(source).failures
    assert f"another recording from byte {len(parts[0])} on" in failure.reason
    for number, command in enumerate(re.findall("`(.*?)`", failure.reason)):
        subprocess.run(command.replace("FILE", source.name), shell=True, check=True, cwd=tmp_path)
        assert shown(tmp_path / f"OUT{number + 1}.dv") == [*numbers[number]]


@pytest.mark.parametrize("number", [1, 12, HALF - 1])
def test_a_wrong_bit_in_a_header_of_dv_of_pal_changes_nothing(number: int, tmp_path: Path) -> None:
    """Such a tape was called two recordings."""
    source = tmp_path / "x.dv"
    data = bytearray(dv(source, range(HALF), PAL))
    data[number * 144_000 + 3] ^= 0x80
    source.write_bytes(data)
    assert shown(source) == [*range(HALF)]


def test_a_wrong_bit_in_a_header_of_dv_of_ntsc_does_not_tear_the_frames_behind_it(tmp_path: Path) -> None:
    """FFmpeg skips as much as a frame of PAL is longer, and reads all others from there on."""
    source = tmp_path / "x.dv"
    data = bytearray(dv(source, range(HALF), NTSC))
    data[12 * 120_000 + 3] ^= 0x80
    source.write_bytes(data)
    (failure,) = report_of(source, salvage=True).failures
    assert f"damaged header at byte {12 * 120_000}, which says PAL between frames of NTSC" in failure.reason
    for number, command in enumerate(re.findall("`(.*?)`", failure.reason)):
        subprocess.run(command.replace("FILE", source.name), shell=True, check=True, cwd=tmp_path)
        assert shown(tmp_path / f"OUT{number + 1}.dv") == [[*range(12)], [*range(13, HALF)]][number]


@pytest.mark.first_case_short
@pytest.mark.parametrize("size", [(128, 96), (96, 64)])
def test_a_gif_of_another_size_is_not_drawn_onto_the_canvas_of_the_first(size: tuple[int, int], tmp_path: Path) -> None:
    """One of the same size is read as FFmpeg reads it."""
    one = encode_pictures(tmp_path / "1.gif", numbered(range(HALF)), rate=10).read_bytes()
    two = encode_pictures(tmp_path / "2.gif", numbered(range(HALF, 2 * HALF), size), rate=10).read_bytes()
    source = tmp_path / "x.gif"
    source.write_bytes(one + two)
    if size == (96, 64):
        assert shown(source) == [*range(2 * HALF)]
        return
    (failure,) = report_of(source).failures
    assert f"another recording from byte {len(one)} on" in failure.reason
    for command in re.findall("`(.*?)`", failure.reason):
        subprocess.run(command.replace("FILE", source.name), shell=True, check=True, cwd=tmp_path)
    assert shown(tmp_path / "OUT2.gif") == [*range(HALF, 2 * HALF)]


def test_the_beginning_of_another_file_is_found_once_wherever_it_lies(tmp_path: Path) -> None:
    """Of a long file a mebibyte is looked at at once."""
    file = tmp_path / "x.gif"
    for place in ((1 << 20) + more for more in range(-12, 3)):
        file.write_bytes(b"GIF89a".ljust(place, b";") + b"GIF89a!" + bytes(1 << 20))
        found = [begin for begin, _ in found_behind(str(file), re.compile(b"(?<=;)GIF89a(!)"))]
        assert found == [place]


def test_a_recording_with_other_units_of_time_is_not_timed_by_those_of_the_first(tmp_path: Path) -> None:
    (failure,) = report_of(two_of(tmp_path, "mp4", ONE, timescale=2 * TIMESCALE)).failures
    assert "another recording from byte" in failure.reason


def playlist(folder: Path, pieces: Sequence[Sequence[bytes]]) -> Path:
    """An HLS playlist of recordings, each of a beginning and fragments."""
    lines = ["#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-TARGETDURATION:1"]
    for which, (beginning, *fragments) in enumerate(pieces):
        (folder / f"init{which}.mp4").write_bytes(beginning)
        lines += ["#EXT-X-DISCONTINUITY", f'#EXT-X-MAP:URI="init{which}.mp4"']
        for number, fragment in enumerate(fragments):
            (folder / f"{which}-{number}.m4s").write_bytes(fragment)
            lines += ["#EXTINF:0.5,", f"{which}-{number}.m4s"]
    source = folder / "x.m3u8"
    source.write_text("\n".join([*lines, "#EXT-X-ENDLIST", ""]))
    return source


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("numbers", "coded", "why"),
    [
        (range(HALF, HALF + GOP), ONE, ""),
        (range(HALF, HALF + GOP), OTHER, "line 11: from here on it has another beginning (#EXT-X-MAP)"),
        # FFmpeg left out such a part, of a single fragment, without a word.
        (range(GOP), ONE, "line 13: from here on it has times that begin anew"),
    ],
)  # fmt: skip
def test_parts_of_a_playlist_that_ffmpeg_reads_as_the_first_are_refused(
    numbers: range, coded: Sequence[str], why: str, tmp_path: Path
) -> None:
    source = playlist(
        tmp_path, [parts(tmp_path / "1.mp4", range(HALF), ONE), parts(tmp_path / "2.mp4", numbers, coded)]
    )
    if not why:
        assert shown(source) == [*range(numbers.stop)]
        return
    (failure,) = report_of(source).failures
    assert why in failure.reason


@pytest.mark.parametrize("has_places", [True, False])
def test_a_playlist_of_ranges_of_one_file_is_prepared(has_places: bool, tmp_path: Path) -> None:
    """Each segment has times of its own, and not those at the beginning of the file. Without a place it lies behind the
    one before, and one may have no times: those behind it are not its own."""
    pieces = parts(tmp_path / "1.mp4", range(HALF), ONE)
    pieces.insert(2, (20).to_bytes(4) + b"stypmsdh" + bytes(4) + b"msdh")
    (tmp_path / "all.mp4").write_bytes(b"".join(pieces))
    starts = [sum(map(len, pieces[:number])) for number in range(len(pieces))]
    assert len(pieces) > 2
    lines = ["#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-TARGETDURATION:1"]
    lines += [f'#EXT-X-MAP:URI="all.mp4",BYTERANGE="{len(pieces[0])}@0"']
    for number, (start, piece) in enumerate(zip(starts[1:], pieces[1:], strict=True)):
        place = f"@{start}" if has_places or not number else ""
        lines += ["#EXTINF:0.5,", f"#EXT-X-BYTERANGE:{len(piece)}{place}", "all.mp4"]
    (tmp_path / "x.m3u8").write_text("\n".join([*lines, "#EXT-X-ENDLIST", ""]))
    assert shown(tmp_path / "x.m3u8") == [*range(HALF)]
