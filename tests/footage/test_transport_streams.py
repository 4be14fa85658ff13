"""Transport streams as broadcasts, cameras and discs write them: nothing of them is refused that is all there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shortgop
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop.prep.probing.containers.programs import frames_meanwhile
from shortgop.prep.probing.containers.transport_packets import _longest_steps, ends_in_mid_packet
from transport_files import PID, packets_in, pes_starts, prepared, written

FRAMES, GOP = 40, 10
B_FRAMES = ("-bf", "3", "-g", str(GOP), "-pix_fmt", "yuv420p", "-x264-params", "scenecut=0:b-pyramid=normal:b-adapt=0")
NULL_PACKET = bytes([0x47, 0x1F, 0xFF, 0x10]) + b"\xff" * 184


@pytest.fixture(scope="module")
def transport_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("transport") / "x.ts"
    return encode_pictures(path, numbered(range(FRAMES)), *X264, *B_FRAMES, rate=25)


@pytest.fixture
def packets(transport_file: Path) -> list[bytearray]:
    data = transport_file.read_bytes()
    return packets_in(data)


def payload_at(packet: bytearray) -> int:
    return 5 + packet[4] if packet[3] & 0x20 else 4


def state_lengths(packets: list[bytearray], stated: Callable[[int, int], int]) -> None:
    """Write a length into each PES header: `stated` of the number of its frame and of the right length."""
    starts = pes_starts(packets)
    for frame, (start, stop) in enumerate(zip(starts, [*starts[1:], len(packets)], strict=True)):
        mine = [each for each in packets[start:stop] if int.from_bytes(each[1:3]) & 0x1FFF == PID and each[3] & 0x10]
        right = sum(188 - payload_at(packet) for packet in mine) - 6
        at = payload_at(packets[start]) + 4
        packets[start][at : at + 2] = stated(frame, right).to_bytes(2)


@pytest.mark.parametrize("error", [-10, 10])
def test_wrong_lengths_are_no_damage_where_nothing_is_missing(
    error: int, packets: list[bytearray], tmp_path: Path
) -> None:
    """FFmpeg calls each of these frames incomplete."""
    state_lengths(packets, lambda _, length: length + error)
    report, shown = prepared(written(tmp_path / "x.ts", packets))
    assert report.failures == ()
    assert shown == list(range(FRAMES))


def test_a_frame_too_long_for_its_length_is_no_damage(tmp_path: Path) -> None:
    """A length has 16 bits; some programs write the low ones of a longer frame, and should write 0."""
    noise = np.random.default_rng(0).integers(0, 255, (320, 480, 3), np.uint8)
    pictures = [noise.copy() for _ in range(3)]
    for picture, number in zip(pictures, numbered(range(3), (480, 320)), strict=True):
        picture[32:288, 48:432] = number[32:288, 48:432]
    whole = encode_pictures(tmp_path / "whole.ts", pictures, *X264, "-crf", "1", "-pix_fmt", "yuv420p").read_bytes()
    packets = [bytearray(whole[at : at + 188]) for at in range(0, len(whole), 188)]
    lengths: list[int] = []

    def low_bits(_: int, length: int) -> int:
        lengths.append(length)
        return length % 65536

    state_lengths(packets, low_bits)
    assert max(lengths) > 65535
    report, shown = prepared(written(tmp_path / "x.ts", packets))
    assert report.failures == ()
    assert shown == [0, 1, 2]


def test_what_is_missing_is_found_by_the_counters_where_lengths_are_wrong(
    packets: list[bytearray], tmp_path: Path
) -> None:
    state_lengths(packets, lambda _, length: length + 10)
    del packets[pes_starts(packets)[14] + 1]
    source = written(tmp_path / "x.ts", packets)
    report, _ = prepared(source)
    assert "(a packet is incomplete); --salvage prepares the others" in report.failures[0].reason
    _, shown = prepared(source, salvage=True)
    assert shown[:10] + shown[20:] == [*range(10), *range(20, FRAMES)]
    assert len(set(shown[10:20])) < 10


def test_one_wrong_length_among_right_ones_is_damage(packets: list[bytearray], tmp_path: Path) -> None:
    """Sixteen lost packets leave no other trace: the counters have four bits."""
    state_lengths(packets, lambda frame, length: length + 10 * (frame == 14))
    report, _ = prepared(written(tmp_path / "x.ts", packets))
    assert "(a packet is incomplete); --salvage prepares the others" in report.failures[0].reason


def test_repeated_packets_are_called_that(packets: list[bytearray], tmp_path: Path) -> None:
    """They are allowed, but FFmpeg takes each of them for new data."""
    repeated = [copy for number, packet in enumerate(packets) for copy in [packet] * (1 + (number % 7 == 0))]
    report, _ = prepared(written(tmp_path / "x.ts", repeated))
    assert "its transport packets are repeated, and FFmpeg reads each of them as new data" in report.failures[0].reason
    assert report.failures[0].reason.endswith(
        "remove the repeats, with a program for broadcasts, and give what it writes"
    )


def discontinuity(packets: list[bytearray]) -> list[bytes]:
    """Another recording with its own counters begins at a keyframe, and says so."""
    start = pes_starts(packets)[2 * GOP]
    packets[start][5] |= 0x80
    for packet in packets[start:]:
        if int.from_bytes(packet[1:3]) & 0x1FFF == PID:
            packet[3] = packet[3] & 0xF0 | packet[3] + 5 & 0x0F
    return [bytes(packet) for packet in packets]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("null packets", lambda packets: [part for packet in packets for part in (packet, NULL_PACKET)]),
        ("Blu-ray", lambda packets: [n.to_bytes(4) + packet for n, packet in enumerate(packets)]),
        ("checksums", lambda packets: [packet + bytes(16) for packet in packets]),
        ("a discontinuity", discontinuity),
    ],
)
def test_other_transport_streams_are_prepared(
    kind: str, change: Callable[[list[bytearray]], list[bytes]], packets: list[bytearray], tmp_path: Path
) -> None:
    report, shown = prepared(written(tmp_path / f"{kind}.ts", change(packets)))
    assert report.failures == ()
    assert shown == list(range(FRAMES))


def test_times_that_begin_anew_after_26_hours_go_on(transport_file: Path, tmp_path: Path) -> None:
    """A pts has 33 bits."""
    ffmpeg("-i", transport_file, "-c", "copy", "-muxdelay", "0", "-output_ts_offset", "95442.8", tmp_path / "x.ts")
    report, shown = prepared(tmp_path / "x.ts")
    assert report.failures == ()
    assert shown == list(range(FRAMES))


def test_a_recording_cut_at_both_ends_has_no_frame_that_stands_in_for_another(
    packets: list[bytearray], tmp_path: Path
) -> None:
    """B-frames that are missing at its beginning hid that others are missing at its end."""
    starts = pes_starts(packets)
    report, shown = prepared(written(tmp_path / "x.ts", packets[starts[4] : starts[33]]))
    assert report.failures == ()
    # Frames 32 and 34 are there, but not 31 and 33.
    assert shown == list(range(GOP, 31))


def test_a_transport_stream_that_begins_in_mid_packet_is_not_taken_for_another_format(tmp_path: Path) -> None:
    """Where it begins with the parameter sets, FFmpeg takes it for the raw stream that is in it, and all of it for
    damaged."""
    interlaced = ("-flags", "+ildct+ilme", "-x264-params", "interlaced=1:tff=1:scenecut=0:b-adapt=0")
    whole = tmp_path / "whole.ts"
    encode_pictures(whole, numbered(range(FRAMES), (192, 128)), *X264, *B_FRAMES, *interlaced, rate=25)
    data = whole.read_bytes()
    report, shown = prepared(written(tmp_path / "x.ts", [data[data.index(b"\0\0\0\1\x67") :]]))
    assert report.failures == ()
    assert shown == list(range(GOP, FRAMES))


def test_a_video_that_goes_on_in_another_stream_is_not_half_left_out_in_silence(
    transport_file: Path, tmp_path: Path
) -> None:
    other = encode_pictures(tmp_path / "other.ts", numbered(range(500, 500 + FRAMES)), *X264, *B_FRAMES, rate=25)
    moved = ("-c", "copy", "-output_ts_offset", "1.6", "-mpegts_start_pid", "0x200", "-mpegts_pmt_start_pid", "0x1010")
    ffmpeg("-i", other, *moved, tmp_path / "moved.ts")
    source = written(tmp_path / "x.ts", [transport_file.read_bytes(), (tmp_path / "moved.ts").read_bytes()])
    report, _ = prepared(source)
    assert "40 of its 80 frames are lost" in report.failures[0].reason
    assert "its tables list another stream (PID)" in report.failures[0].reason
    report, shown = prepared(source, salvage=True)
    assert shown == list(range(FRAMES))
    assert shortgop.open(tmp_path / "dataset-True")[0].changes.dropped == FRAMES


def test_a_video_that_goes_on_in_a_stream_that_no_table_lists_is_not_half_left_out_in_silence(
    transport_file: Path, tmp_path: Path
) -> None:
    moved = ("-c", "copy", "-output_ts_offset", "1.6", "-mpegts_start_pid", "0x200")
    ffmpeg("-i", transport_file, *moved, tmp_path / "moved.ts")
    later = packets_in((tmp_path / "moved.ts").read_bytes())
    untold = [packet for packet in later if int.from_bytes(packet[1:3]) & 0x1FFF == 0x200]
    report, _ = prepared(written(tmp_path / "x.ts", [transport_file.read_bytes(), *untold]))
    assert "its video goes on in another stream (PID)" in report.failures[0].reason


def test_two_programs_are_two_videos_of_which_one_is_prepared(transport_file: Path, tmp_path: Path) -> None:
    streams = ("-map", "0", "-map", "1", "-c", "copy", "-program", "title=a:st=0", "-program", "title=b:st=1")
    ffmpeg("-i", transport_file, "-i", transport_file, *streams, tmp_path / "x.ts")
    report, shown = prepared(tmp_path / "x.ts")
    assert report.failures == ()
    assert shown == list(range(FRAMES))
    assert frames_meanwhile(str(tmp_path / "x.ts"), PID) == 0


@pytest.mark.parametrize("size", [188, 192, 204])
def test_a_last_packet_that_is_cut_off_is_noticed_in_any_layout(
    size: int, packets: list[bytearray], tmp_path: Path
) -> None:
    parts = [bytes(4 * (size == 192)) + packet + bytes(16 * (size == 204)) for packet in packets]
    assert not ends_in_mid_packet(str(written(tmp_path / "whole.ts", parts)), PID)
    cut = written(tmp_path / "cut.ts", parts[: pes_starts(packets)[20] + 1])
    assert ends_in_mid_packet(str(cut), PID)


@pytest.mark.parametrize(
    ("steps", "even"),
    [
        ([3600] * 100, 4500),
        ([3003, 3004] * 100, 3754.375),
        # A frame that is missing at the higher rate leaves a step as long as the usual one.
        ([3600] * 1200 + [1800] * 790, 0),
        ([3600] * 80 + [7200] * 20, 0),
    ],
)
def test_a_rate_is_constant_where_few_steps_are_shorter_or_longer(steps: list[int], even: float) -> None:
    assert _longest_steps(np.cumsum([0, *steps]))[0] == even
