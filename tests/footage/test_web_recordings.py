"""Files as browsers record them, as meetings are recorded, and as programs that download videos cut them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import pytest

import shortgop
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import make_video, read_number

SIZE, RATE = (96, 64), 30
# Matroska's name, the encoder, and the suffix under which FFmpeg writes it raw.
CODECS = {
    "V_VP8": (("-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8"), "ivf"),
    "V_VP9": (("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-lag-in-frames", "0"), "ivf"),
    "V_MPEG4/ISO/AVC": ((*X264, "-x264-params", "repeat-headers=1"), "h264"),
}


def job(source: Path, dataset: Path, **policy: object) -> Report:
    where = Where(runner="inline")
    return prepare([str(source)], DiskStorage(dataset), Profile(), where=where, policy=SourcePolicy(**policy))  # type: ignore[arg-type]


def shown(dataset: Path) -> tuple[shortgop.Video, list[int]]:
    video = shortgop.open(dataset)[0]
    return video, [read_number(frame) for frame in video]


def recorded(folder: Path, codec: str, numbers: range, begin_ms: int = 0) -> bytes:
    """What a browser records of a camera: a frame every 33 ms, more or less, and a keyframe every 30 frames."""
    options, suffix = CODECS[codec]
    raw = encode_pictures(folder / f"x.{suffix}", numbered(numbers, SIZE), *options, "-g", "30", "-pix_fmt", "yuv420p")
    with av.open(raw) as container:
        packets = [(packet.is_keyframe, bytes(packet)) for packet in container.demux(video=0) if packet.size]
    times = [begin_ms + round(number * 1000 / RATE) + (0, 0, -9, 9, 0, 0)[number % 6] for number in range(len(packets))]
    return browser_recording(codec, SIZE, [Block(ms, *packet) for ms, packet in zip(times, packets, strict=True)])


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_browser_records_is_prepared(codec: str, tmp_path: Path) -> None:
    """Its sound begins before the picture, and of H.264 the headers are in the frames alone."""
    source = tmp_path / "x.webm"
    source.write_bytes(recorded(tmp_path, codec, range(45), begin_ms=350))
    assert job(source, tmp_path / "dataset").failures == ()
    video, numbers = shown(tmp_path / "dataset")
    assert numbers == list(range(45))
    assert round(video.metadata.fps) == RATE
    assert video.changes.given_up == ("audio dropped",)


def test_recordings_of_a_browser_that_were_joined_continue_with_salvage(tmp_path: Path) -> None:
    """The segments of both are of unknown length, and the times of the second begin anew. That it goes on longer than
    the first is no sign that stretches changed places: frames come at any intervals."""
    source = tmp_path / "x.webm"
    source.write_bytes(recorded(tmp_path, "V_VP9", range(45)) + recorded(tmp_path, "V_VP9", range(45, 100)))
    (failure,) = job(source, tmp_path / "refused").failures
    assert "its timestamps jump back by 1." in failure.reason
    assert "--salvage" in failure.reason
    assert job(source, tmp_path / "dataset", salvage=True).failures == ()
    video, numbers = shown(tmp_path / "dataset")
    assert numbers == list(range(100))
    assert video.changes.salvaged == ()


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_parts_that_were_cut_out_between_keyframes_are_joined_at_their_rate(suffix: str, tmp_path: Path) -> None:
    """As yt-dlp leaves out sponsors (`--sponsorblock-remove`): FFmpeg copies each part from the keyframe before it on,
    and gives all frames before its beginning one time, so that players show none of them."""
    coded = (*X264, "-g", "30", "-sc_threshold", "0", "-pix_fmt", "yuv420p")
    whole = encode_pictures(tmp_path / "whole.mp4", numbered(range(300)), *coded)
    script = tmp_path / "parts.ffconcat"
    script.write_text(f"ffconcat version 1.0\nfile {whole.name}\noutpoint 3.35\nfile {whole.name}\ninpoint 5.71\n")
    source = tmp_path / f"x.{suffix}"
    ffmpeg("-f", "concat", "-safe", "0", "-i", script, "-c", "copy", source)
    assert job(source, tmp_path / "dataset").failures == ()
    video, numbers = shown(tmp_path / "dataset")
    assert video.metadata.fps == RATE
    # At the join one of the two that are due may be seen, or one of those before the second part.
    assert numbers[:100] == [*range(100)]
    assert numbers[-128:] == [*range(172, 300)]
    assert len(numbers) == 229
    assert video.changes.dropped == 101 + 150 - len(numbers)


@pytest.mark.first_case_short
@pytest.mark.parametrize("gaps", ["fail", "keep"])
def test_a_meeting_in_which_nothing_moves_for_minutes(gaps: str, tmp_path: Path) -> None:
    """Recorders write a frame only where something changes. The reason names what keeps the time."""
    numbers = [*range(50), *range(1550, 1600)]
    source = make_video(tmp_path / "x.mp4", pts=numbers, timebase=Fraction(1, 25), b_frames=0).path
    report = job(source, tmp_path / "dataset", gaps=gaps)
    if gaps == "fail":
        assert "--gaps keep shows the frame before a gap until its end" in report.failures[0].reason
        return
    video, found = shown(tmp_path / "dataset")
    assert video.metadata.fps == 25
    assert found == [*range(50), *[49] * 1500, *range(50, 100)]


# A writer of WebM as browsers record it: neither a duration nor an index, and no element says how long it is.
_UNKNOWN_SIZE = b"\x01" + b"\xff" * 7
# Opus, 20 ms of silence.
_SILENCE, _SILENCE_MS = b"\xf8\xff\xfe", 20
_SOUND, _PICTURES = 1, 2


@dataclass(frozen=True)
class Block:
    """A frame, when it is shown, and whether it is a keyframe."""

    ms: int
    is_keyframe: bool
    data: bytes


def browser_recording(codec: str, size: tuple[int, int], blocks: Sequence[Block]) -> bytes:
    """A recording of sound, which begins at 0, and pictures; `codec` is Matroska's name for it."""
    opus = b"OpusHead\x01\x01\x38\x01\x80\xbb\0\0\0\0\0"
    sound = _element(0xE1, _element(0xB5, struct.pack(">d", 48000)) + _element(0x9F, b"\x01"))
    width, height = (side.to_bytes(2) for side in size)
    pictures = _element(0xE0, _element(0xB0, width) + _element(0xBA, height))
    tracks = _track(_SOUND, 2, "A_OPUS", _element(0x63A2, opus) + sound) + _track(_PICTURES, 1, codec, pictures)
    info = _element(0x2AD7B1, (1_000_000).to_bytes(3)) + _element(0x4D80, b"Chrome") + _element(0x5741, b"Chrome")
    head = _element(0x4282, b"webm") + _element(0x4287, b"\x04") + _element(0x4285, b"\x02")
    out = _element(0x1A45DFA3, head) + b"\x18\x53\x80\x67" + _UNKNOWN_SIZE
    out += _element(0x1549A966, info) + _element(0x1654AE6B, tracks)
    silences = [Block(ms, True, _SILENCE) for ms in range(0, blocks[-1].ms, _SILENCE_MS)]
    found = sorted(
        [(each.ms, _PICTURES, each) for each in blocks] + [(each.ms, _SOUND, each) for each in silences],
        key=lambda one: one[:2],
    )
    begin = None
    for ms, track, block in found:
        if begin is None or (track == _PICTURES and block.is_keyframe):
            begin = ms
            out += b"\x1f\x43\xb6\x75" + _UNKNOWN_SIZE + _element(0xE7, ms.to_bytes(4))
        flags = 0x80 if block.is_keyframe else 0
        out += _element(0xA3, struct.pack(">BhB", 0x80 | track, ms - begin, flags) + block.data)
    return out


def _track(number: int, kind: int, codec: str, more: bytes) -> bytes:
    numbers = _element(0xD7, bytes([number])) + _element(0x73C5, bytes([number])) + _element(0x83, bytes([kind]))
    return _element(0xAE, numbers + _element(0x86, codec.encode()) + more)


def _element(kind: int, content: bytes) -> bytes:
    """RFC 8794, 4 to 6, with a size of eight bytes."""
    return kind.to_bytes((kind.bit_length() + 7) // 8) + (1 << 56 | len(content)).to_bytes(8) + content
