"""Recordings for which more space was reserved than was written, as where power was lost: zeros follow; and HEVC that
ends anywhere, of which decoders make a picture all the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import shortgop
from odd_pictures import X264, encode_pictures, numbered
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.containers.zero_tail import ends_in_zeros, zeros_from
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

FRAMES, GOP, PACKET_BYTES = 30, 10, 188
ZEROS = bytes(200_000)
H264 = (*X264, "-bf", "2", "-g", str(GOP), "-sc_threshold", "0", "-pix_fmt", "yuv420p")
HEVC = ("-c:v", "libx265", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-x265-params")
HEVC_PARAMETERS = f"log-level=none:keyint={GOP}:pools=1:bframes=2"


def hevc(path: Path, more: str = "") -> Path:
    return encode_pictures(path, numbered(range(FRAMES), (192, 128)), *HEVC, HEVC_PARAMETERS + more)


def prepared(source: Path, data: bytes, *, salvage: bool = False) -> tuple[Report, shortgop.Video | None]:
    source.write_bytes(data)
    out, policy = source.parent / f"{source.name} {len(data)} {salvage}", SourcePolicy(salvage)
    report = prepare([str(source)], DiskStorage(out), Profile(), where=Where("inline"), policy=policy)
    return report, None if report.failures else shortgop.open(out)[0]


def shown(source: Path, data: bytes) -> list[int]:
    report, video = prepared(source, data)
    assert video is not None, report.failures
    assert video.changes.salvaged == ()
    return [read_number(frame) for frame in video]


@pytest.mark.first_case_short
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_zeros_behind_a_transport_stream_are_its_end(codec: str, tmp_path: Path) -> None:
    """FFmpeg gives up in the middle of them, and comes to the last frames when it is asked again."""
    source = tmp_path / "x.ts"
    whole = hevc(source) if codec == "hevc" else encode_pictures(source, numbered(range(FRAMES)), *H264)
    data = whole.read_bytes()
    assert shown(source, data + ZEROS) == list(range(FRAMES))
    cut = shown(source, data[: len(data) * 3 // 4 + 50] + ZEROS)
    assert cut == list(range(len(cut)))
    assert len(cut) in range(FRAMES // 2, FRAMES * 3 // 4)


def test_damage_before_the_zeros_behind_a_transport_stream_is_told(tmp_path: Path) -> None:
    """FFmpeg says the same of it as of the zeros: that it finds no packet in so many bytes."""
    source = tmp_path / "x.ts"
    data = encode_pictures(source, numbered(range(FRAMES)), *H264).read_bytes()
    half = len(data) // PACKET_BYTES // 2 * PACKET_BYTES
    report, _ = prepared(source, data[:half] + b"\xff" * 100_000 + data[half:] + ZEROS)
    assert "max resync size reached" in report.failures[0].reason


KINDS = {
    "x.mkv": H264,
    "x.webm": ("-c:v", "libvpx", "-b:v", "1M", "-g", "10"),
    "x.ivf": ("-c:v", "libvpx", "-b:v", "1M", "-g", "10"),
    "x.avi": ("-c:v", "mpeg4", "-q:v", "2", "-bf", "0", "-g", "10"),
    "x.ogv": ("-c:v", "libtheora", "-q:v", "9", "-pix_fmt", "yuv420p"),
    "x.nut": H264,
    "x.mp4": (*H264, "-movflags", "frag_keyframe+empty_moov"),
}


CONTROL = b"\x21\xf9\x04"
"""With what the extension of a GIF begins that lies before a picture."""


def with_zeros(data: bytes, start: int, length: int) -> bytes:
    return data[:start] + bytes(length) + data[start + length :]


@pytest.mark.parametrize(("part", "length"), [(0.3, 300), (0.5, 4096), (0.7, 1)])
def test_zeros_in_the_middle_of_a_gif_are_damage(part: float, length: int, tmp_path: Path) -> None:
    """FFmpeg takes all that lies behind them for a part of the picture in which they begin."""
    source = tmp_path / "x.gif"
    data = encode_pictures(source, numbered(range(FRAMES)), rate=10).read_bytes()
    at = data.index(CONTROL, int(len(data) * part)) if length == 1 else int(len(data) * part)
    broken = data[:at] + b"\0" + data[at:] if length == 1 else with_zeros(data, at, length)
    report, _ = prepared(source, broken)
    assert "--salvage prepares" in report.failures[0].reason


def test_a_gif_that_is_damaged_behind_its_first_picture_is_no_still_picture(tmp_path: Path) -> None:
    source = tmp_path / "x.gif"
    data = encode_pictures(source, numbered(range(FRAMES)), rate=10).read_bytes()
    second = data.index(CONTROL, data.index(CONTROL) + 1)
    report, _ = prepared(source, data[:second] + b"\0" + data[second:])
    assert f"break between its parts, at byte {second}" in report.failures[0].reason


@pytest.mark.first_case_short
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", KINDS)
def test_zeros_behind_what_was_written_are_the_end_of_a_recording(name: str, seed: int, tmp_path: Path) -> None:
    """Where zeros begin within a frame, decoders of VP8 and others make one of it without a message."""
    source = tmp_path / name
    data = encode_pictures(source, numbered(range(FRAMES), (192, 128)), *KINDS[name]).read_bytes()
    if seed == 0:
        assert shown(source, data + ZEROS) == list(range(FRAMES))
    end = random.Random(seed).randrange(len(data) // 2, len(data) * 9 // 10)
    cut = shown(source, data[:end] + bytes(len(data)))
    assert cut == list(range(len(cut)))
    assert FRAMES // 3 <= len(cut) < FRAMES


def test_zeros_behind_a_gif_cost_no_picture(tmp_path: Path) -> None:
    """FFmpeg takes them for a part of the last one, which was left out as one that is cut off."""
    source = tmp_path / "x.gif"
    data = encode_pictures(source, numbered(range(FRAMES)), rate=10).read_bytes()
    assert shown(source, data + ZEROS) == list(range(FRAMES))


def test_zeros_in_the_middle_of_a_transport_stream_are_damage(tmp_path: Path) -> None:
    source = tmp_path / "x.ts"
    data = encode_pictures(source, numbered(range(FRAMES)), *H264).read_bytes()
    middle = len(data) // 2 // 188 * 188
    for behind in (b"", ZEROS):
        report, _ = prepared(source, data[:middle] + ZEROS + data[middle:] + behind)
        assert "--salvage prepares the others" in report.failures[0].reason


@pytest.mark.first_case_short
@pytest.mark.parametrize("seed", range(12))
def test_raw_hevc_that_ends_anywhere_ends_before_the_picture_that_is_cut_off(seed: int, tmp_path: Path) -> None:
    """Its decoder fills the picture with noise or an earlier one, so that it may show another number."""
    source = tmp_path / "x.hevc"
    data = hevc(source, ":slices=3" if seed % 3 else "").read_bytes()
    end = random.Random(seed).randrange(len(data) // 3, len(data) - 10)
    cut = shown(source, data[:end] + ZEROS * (seed % 2))
    assert cut == list(range(len(cut)))
    assert len(cut) > GOP // 2


@pytest.mark.parametrize("more", ["", ":slices=3", ":wpp=1"])
def test_whole_raw_hevc_loses_no_picture(more: str, tmp_path: Path) -> None:
    source = tmp_path / "x.hevc"
    data = hevc(source, more).read_bytes()
    assert shown(source, data) == list(range(FRAMES))
    assert shown(source, data + ZEROS) == list(range(FRAMES))


@pytest.mark.first_case_short
@pytest.mark.parametrize("seed", [6, 7])
@pytest.mark.parametrize("name", ["x.mpg", "x.ts"])
def test_hevc_in_a_stream_that_ends_anywhere_has_all_frames_before_at_their_times(
    name: str, seed: int, tmp_path: Path
) -> None:
    """Program streams state the times of some frames; the parser counted that of the last one wrongly."""
    data = hevc(tmp_path / name, ":slices=3").read_bytes()
    cut = shown(tmp_path / name, data[: random.Random(seed).randrange(len(data) // 3, len(data) - 10)])
    assert cut == list(range(len(cut)))
    assert len(cut) > GOP


def test_hevc_that_ends_where_a_transport_packet_ends_loses_no_frame(tmp_path: Path) -> None:
    """One file in 184 ends so, and looks as if its last frame were cut off."""
    data = bytearray(hevc(tmp_path / "x.ts").read_bytes())
    last = next(
        at for at in range(len(data) - PACKET_BYTES, 0, -PACKET_BYTES) if data[at + 1] & 0x1F == 1 and data[at + 2] == 0
    )
    begin = last + 5 + data[last + 4]
    payload = data[begin : last + PACKET_BYTES]
    # The stuffing becomes zeros behind the frame.
    data[last + 3] &= ~0x20
    data[last + 4 : last + PACKET_BYTES] = payload + bytes(PACKET_BYTES - 4 - len(payload))
    assert shown(tmp_path / "x.ts", bytes(data)) == list(range(FRAMES))


def test_an_mxf_that_broke_off_before_its_index_keeps_the_frames_that_others_refer_to(tmp_path: Path) -> None:
    """Without the index ffmpeg gives their packets no times: they were left out, and those before were shown."""
    source = tmp_path / "x.mxf"
    how = ("-c:v", "mpeg2video", "-q:v", "2", "-bf", "2", "-g", str(GOP), "-sc_threshold", "1000000000")
    data = encode_pictures(source, numbered(range(FRAMES), (192, 128)), *how).read_bytes()
    cut = shown(source, data[: len(data) * 2 // 3])
    assert cut == list(range(len(cut)))
    assert len(cut) > FRAMES // 2


def test_zeros_are_found_at_the_end_alone(tmp_path: Path) -> None:
    file = tmp_path / "x"
    for data, start in ((b"ab" + ZEROS, 2), (ZEROS + b"a", None), (b"a" + bytes(100), None), (ZEROS, 0)):
        file.write_bytes(data)
        assert zeros_from(str(file)) == start
        assert ends_in_zeros(str(file)) == (start is not None)
    file.write_bytes(b"a" * 3_000_000 + bytes(2_500_000))
    assert zeros_from(str(file)) == 3_000_000
