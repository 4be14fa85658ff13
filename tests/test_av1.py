"""What shortgop reads of AV1, beside what FFmpeg's own reader of its headers says."""

from __future__ import annotations

import contextlib
import re
import subprocess
from fractions import Fraction
from pathlib import Path

import imageio_ffmpeg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodes import ENCODERS, FRAME_TICKS, encode
from shortgop.errors import CorruptDataError
from shortgop.manifests.av1 import obus, read_frame_header, read_sequence_header, sequence_header_of, temporal_unit_kind
from shortgop.manifests.gop_check import check_gop
from shortgop.manifests.mp4 import parse_init
from shortgop.manifests.records import Pattern

SEQUENCE_HEADER, FRAME_HEADER, FRAME = 1, 3, 6
STREAMS = {
    "in order": ENCODERS["av1"],
    "flat": ("-c:v", "libsvtav1", "-preset", "8", "-svtav1-params", "lp=1:pred-struct=1:hierarchical-levels=0"),
    "hidden frames": ("-c:v", "libsvtav1", "-preset", "8", "-svtav1-params", "lp=1"),
    "screen content": ("-c:v", "libsvtav1", "-preset", "8", "-svtav1-params", "lp=1:pred-struct=1:scm=1"),
    "libaom": ("-c:v", "libaom-av1", "-cpu-used", "8", "-lag-in-frames", "0", "-usage", "realtime"),
    "libaom, resilient": (
        *("-c:v", "libaom-av1", "-cpu-used", "8", "-lag-in-frames", "0", "-usage", "realtime"),
        *("-aom-params", "error-resilient=1"),
    ),
    "libaom, in tiles": ("-c:v", "libaom-av1", "-cpu-used", "8", "-tile-columns", "1", "-usage", "realtime"),
}


def stream_of(options: tuple[str, ...] | list[str], path: Path) -> tuple[bytes, str]:
    """A stream of OBUs by this encoder, and what FFmpeg reads in its headers."""
    path = path / "stream.obu"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-nostdin", "-hide_banner"]
    options = [option.format(gop=8, levels=3) for option in options]
    source = ("-f", "lavfi", "-i", "testsrc2=size=192x128:rate=30", "-frames:v", "20", "-pix_fmt", "yuv420p")
    subprocess.run([*ffmpeg, "-v", "error", *source, *options, "-g", "8", path], check=True, capture_output=True)
    trace = [*ffmpeg, "-i", path, "-c", "copy", "-bsf:v", "trace_headers", "-f", "null", "-"]
    return path.read_bytes(), subprocess.run(trace, check=True, capture_output=True, text=True).stderr


@pytest.mark.parametrize("options", STREAMS.values(), ids=STREAMS)
def test_headers_are_read_as_ffmpeg_reads_them(options: tuple[str, ...], tmp_path: Path) -> None:
    stream, trace = stream_of(options, tmp_path)
    expected = []
    # Each header begins with whether it shows a frame that was decoded before.
    for text in re.split(r"show_existing_frame ", trace)[1:]:
        values = {name: int(value) for name, value in re.findall(r"\b(\w+) +[01]+ = (\d+)", text)}
        if not re.match(r"\s*1 = 1", text):
            expected.append(
                (values["frame_type"] == 0, bool(values["show_frame"]), values.get("refresh_frame_flags", 255) != 0)
            )
    found, sequence = [], None
    for obu in obus(stream, 0, len(stream)):
        payload = stream[obu.body : obu.stop]
        if obu.type == SEQUENCE_HEADER:
            sequence = read_sequence_header(payload)
        elif obu.type in {FRAME, FRAME_HEADER} and not payload[0] & 0x80:
            assert sequence is not None
            header = read_frame_header(payload, sequence)
            found.append((header.is_key, header.is_shown, header.is_referenced))
    assert len(found) >= 20
    assert found == expected


def test_every_second_frame_of_a_gop_is_referred_to_by_no_other() -> None:
    init, fragments = encode("av1", frames=20, gop=8)
    config = parse_init(init).config
    for number, num_frames in enumerate((8, 8, 4)):
        _, pattern = check_gop(
            fragments[number],
            config=config,
            num_frames=num_frames,
            decode_ticks=number * 8 * FRAME_TICKS,
            media_time_ticks=0,
            frame_ticks=FRAME_TICKS,
        )
        assert pattern == Pattern(tuple(range(num_frames)), tuple(each % 2 == 0 for each in range(num_frames)))


def test_temporal_units_of_several_frames_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """SVT-AV1 decodes frames ahead of those that refer to them, where it is not told otherwise."""
    monkeypatch.setitem(ENCODERS, "av1 out of order", [*ENCODERS["av1"][:-1], "lp=1"])
    init, fragments = encode("av1 out of order", frames=16)
    with pytest.raises(CorruptDataError, match=r"a temporal unit has \d frames; it has to have one, which is shown"):
        check_gop(
            fragments[0],
            config=parse_init(init).config,
            num_frames=8,
            decode_ticks=0,
            media_time_ticks=0,
            frame_ticks=int(FRAME_TICKS * Fraction(1)),
        )


def test_a_key_frame_needs_its_sequence_header() -> None:
    """A decoder that begins with this GOP has no other."""
    init, fragments = encode("av1")
    sequence = sequence_header_of(parse_init(init).extradata)
    data = fragments[0][fragments[0].index(b"mdat") + 4 :]
    units = list(obus(data, 0, len(data)))
    key = next(number for number, unit in enumerate(units) if unit.type in {FRAME, FRAME_HEADER})
    assert [unit.type for unit in units[:key]] == [SEQUENCE_HEADER]
    assert temporal_unit_kind(data, 0, units[key].stop, sequence) == (True, True)
    with pytest.raises(CorruptDataError, match="a key frame comes without the sequence header"):
        temporal_unit_kind(data, units[0].stop, units[key].stop, sequence)


@pytest.mark.parametrize("damage", [b"\x80", b"\x0a\xff\xff\xff\x7f", b"\x0a\xff"], ids=bytes.hex)
def test_units_that_do_not_fit_are_refused(damage: bytes) -> None:
    with pytest.raises(CorruptDataError, match="that AV1 forbids|does not fit its temporal unit"):
        list(obus(damage, 0, len(damage)))


@given(noise=st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    sequence = sequence_header_of(parse_init(encode("av1")[0]).extradata)
    for read in (
        lambda: temporal_unit_kind(noise, 0, len(noise), sequence),
        lambda: sequence_header_of(noise),
        lambda: read_sequence_header(noise),
    ):
        with contextlib.suppress(CorruptDataError):
            read()
