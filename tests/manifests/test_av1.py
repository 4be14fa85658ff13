"""What shortgop reads of AV1, beside what FFmpeg's own reader of its headers says."""

from __future__ import annotations

import contextlib
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import imageio_ffmpeg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodes import AV1_FLAT, AV1_PYRAMID, FRAME_TICKS, encode
from shortgop.errors import CorruptDataError
from shortgop.manifests.av1 import obus, read_frame_header, read_sequence_header, sequence_header_of, temporal_unit_kind
from shortgop.manifests.gop_check import check_gop
from shortgop.manifests.mp4 import parse_init, sample_bounds
from shortgop.manifests.records import Pattern
from shortgop.manifests.unit_kinds import access_unit_kinds, referenced_stops

SVT = ("-c:v", "libsvtav1", "-preset", "8", "-svtav1-params")
SEQUENCE_HEADER, FRAME_HEADER, FRAME = 1, 3, 6
GOP = 16
BEFORE_KEY_FRAMES = ("-bsf:v", "dump_extra=freq=keyframe")
STREAMS = {
    "a pyramid": (*SVT, AV1_PYRAMID),
    "flat": (*SVT, AV1_FLAT),
    "in order": (*SVT, "lp=1:pred-struct=1:hierarchical-levels=3"),
    "screen content": (*SVT, "lp=1:scm=1"),
    "libaom": ("-c:v", "libaom-av1", "-cpu-used", "8", "-lag-in-frames", "0", "-usage", "realtime"),
    "libaom, resilient": (
        *("-c:v", "libaom-av1", "-cpu-used", "8", "-lag-in-frames", "0", "-usage", "realtime"),
        *("-aom-params", "error-resilient=1"),
    ),
    "libaom, in tiles": ("-c:v", "libaom-av1", "-cpu-used", "8", "-tile-columns", "1", "-usage", "realtime"),
}


def stream_of(options: tuple[str, ...], path: Path) -> tuple[bytes, str]:
    """A stream of OBUs by this encoder, and what FFmpeg reads in its headers."""
    path = path / "stream.obu"
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-nostdin", "-hide_banner"]
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
        if re.match(r"\s*1 = 1", text):
            expected.append((False, True, False))
        else:
            # A key frame that is shown refreshes all without saying so.
            refreshed = values.get("refresh_frame_flags", 255) != 0
            expected.append((values["frame_type"] == 0, bool(values["show_frame"]), refreshed))
    found, sequence = [], None
    for obu in obus(stream, 0, len(stream)):
        payload = stream[obu.body : obu.stop]
        if obu.type == SEQUENCE_HEADER:
            sequence = read_sequence_header(payload)
        elif obu.type in {FRAME, FRAME_HEADER}:
            assert sequence is not None
            header = read_frame_header(payload, sequence)
            found.append((header.is_key, header.is_shown, header.is_referenced))
    assert len(found) >= 20
    assert found == expected


def checked(init: bytes, fragment: bytes, number: int, num_frames: int = GOP) -> Pattern:
    ticks = number * GOP * FRAME_TICKS
    plan: dict[str, int] = {"decode_ticks": ticks, "media_time_ticks": 0, "frame_ticks": FRAME_TICKS}
    return check_gop(fragment, config=parse_init(init).config, num_frames=num_frames, **plan)[1]


def test_few_temporal_units_have_frames_that_others_refer_to() -> None:
    """Unit 1 has frames 8, 4 and 2 before its own, 5 has 6, and so on. The others have a frame that no other refers to,
    or the header that shows a hidden one."""
    init, fragments = encode("av1", frames=2 * GOP + 4, gop=GOP)
    for number in range(2):
        pattern = checked(init, fragments[number], number)
        assert pattern.frames == tuple(range(GOP))
        assert [frame for frame, used in enumerate(pattern.referenced) if used] == [0, 1, 5, 9, 13]
    assert checked(init, fragments[2], 2, 4).referenced[0]


def test_each_frame_refers_to_those_before_it_where_none_is_left_out() -> None:
    init, fragments = encode("av1", frames=GOP, gop=GOP, b_frames=0)
    assert checked(init, fragments[0], 0) == Pattern(tuple(range(GOP)), (True,) * GOP)


def test_a_sequence_header_that_is_put_before_key_frames_once_more_does_no_harm() -> None:
    """As prep has it put there for NVENC, which leaves it out."""
    (plain, bare), (same, twice) = (encode("av1", frames=GOP, gop=GOP, more=more) for more in ((), BEFORE_KEY_FRAMES))
    assert parse_init(plain).config == parse_init(same).config
    assert len(twice[0]) > len(bare[0])
    assert checked(same, twice[0], 0) == checked(plain, bare[0], 0)


def test_of_a_temporal_unit_only_what_others_refer_to_is_kept() -> None:
    """Unit 1 shows frame 1 behind three hidden ones; of unit 2, which shows a hidden one, nothing is left."""
    init, fragments = encode("av1", frames=GOP, gop=GOP)
    config, data, bounds = parse_init(init), fragments[0], sample_bounds(fragments[0])
    stop_of = referenced_stops("av1", config.extradata)
    assert stop_of is not None
    kept = [stop_of(data, start, stop) - start for start, stop in pairwise(bounds)]
    whole = [stop - start for start, stop in pairwise(bounds)]
    assert kept[0] == whole[0]
    assert 0 < kept[1] < whole[1]
    assert kept[2] == kept[3] == 0
    types = [obu.type for obu in obus(data, bounds[1], bounds[2])]
    assert [obu.type for obu in obus(data, bounds[1], bounds[1] + kept[1])] == types[:-1] == [FRAME] * 3


def test_a_unit_that_shows_no_frame_or_several_is_refused() -> None:
    init, fragments = encode("av1", frames=GOP, gop=GOP)
    config, data, bounds = parse_init(init), fragments[0], sample_bounds(fragments[0])
    kind_of = access_unit_kinds("av1", config.extradata)
    for start, stop in ((bounds[1], list(obus(data, bounds[1], bounds[2]))[-1].start), (bounds[1], bounds[3])):
        with pytest.raises(CorruptDataError, match="does not show one frame, the last that it has"):
            kind_of(data, start, stop)


def test_a_key_frame_needs_its_sequence_header() -> None:
    """A decoder that begins with this GOP has no other."""
    init, fragments = encode("av1")
    sequence = sequence_header_of(parse_init(init).extradata)
    data = fragments[0][fragments[0].index(b"mdat") + 4 :]
    units = list(obus(data, 0, len(data)))
    key = next(number for number, unit in enumerate(units) if unit.type in {FRAME, FRAME_HEADER})
    assert [unit.type for unit in units[:key]] == [SEQUENCE_HEADER]
    assert temporal_unit_kind(data, 0, units[key].stop, sequence) == (True, True)
    with pytest.raises(CorruptDataError, match="a key frame is hidden, or comes without the sequence header"):
        temporal_unit_kind(data, units[0].stop, units[key].stop, sequence)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (b"\x80", "that AV1 forbids"),
        (b"\x0a\xff\xff\xff\x7f", "an OBU of 268435455 bytes at byte 0 does not fit its temporal unit"),
        (b"\x0a\xff", "the size of an OBU at byte 0 does not end"),
        (b"\x0a\x80", "the size of an OBU at byte 0 does not end"),
        (b"\x0a\x00\x0a", "the size of an OBU at byte 2 does not end"),
        (b"\x0a" + 8 * b"\x80" + b"\x00", "the size of an OBU at byte 0 does not end"),
        (b"\x0e", "the size of an OBU at byte 0 does not end"),
        (b"\x0c", "does not fit its temporal unit"),
    ],
)
def test_units_that_do_not_fit_are_refused(damage: bytes, said: str) -> None:
    with pytest.raises(CorruptDataError, match=said):
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
