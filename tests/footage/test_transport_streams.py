"""Transport streams as broadcasts, cameras and discs write them: nothing of them is refused that is all there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

import shortgop
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.containers.programs import frames_meanwhile
from shortgop.prep.probing.containers.transport_packets import ends_in_mid_packet
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

FRAMES, GOP, PID = 40, 10, 256
B_FRAMES = ("-bf", "3", "-g", str(GOP), "-pix_fmt", "yuv420p", "-x264-params", "scenecut=0:b-pyramid=normal:b-adapt=0")
MPEG2 = ("-c:v", "mpeg2video", "-q:v", "2", "-bf", "2", "-g", "20", "-flags", "cgop", "-sc_threshold", "1000000000")
NULL_PACKET = bytes([0x47, 0x1F, 0xFF, 0x10]) + b"\xff" * 184


@pytest.fixture(scope="module")
def transport_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("transport") / "x.ts"
    return encode_pictures(path, numbered(range(FRAMES)), *X264, *B_FRAMES, rate=25)


@pytest.fixture
def packets(transport_file: Path) -> list[bytearray]:
    data = transport_file.read_bytes()
    return [bytearray(data[at : at + 188]) for at in range(0, len(data), 188)]


def prepared(source: Path, *, salvage: bool = False) -> tuple[Report, list[int]]:
    """What the job says of a source, and the numbers that its frames show."""
    out = source.parent / f"dataset-{salvage}"
    report = prepare([str(source)], DiskStorage(out), Profile(), where=Where("inline"), policy=SourcePolicy(salvage))
    return report, [] if report.failures else [read_number(frame) for frame in shortgop.open(out)[0]]


def written(path: Path, parts: Iterable[bytes | bytearray]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(parts))
    return path


def payload_at(packet: bytearray) -> int:
    return 5 + packet[4] if packet[3] & 0x20 else 4


def pes_starts(packets: list[bytearray]) -> list[int]:
    """The numbers of the packets with which a frame begins."""
    return [
        number
        for number, packet in enumerate(packets)
        if packet[1] & 0x40 and int.from_bytes(packet[1:3]) & 0x1FFF == PID
    ]


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


def test_two_programs_are_two_videos_of_which_one_is_prepared(transport_file: Path, tmp_path: Path) -> None:
    streams = ("-map", "0", "-map", "1", "-c", "copy", "-program", "title=a:st=0", "-program", "title=b:st=1")
    ffmpeg("-i", transport_file, "-i", transport_file, *streams, tmp_path / "x.ts")
    report, shown = prepared(tmp_path / "x.ts")
    assert report.failures == ()
    assert shown == list(range(FRAMES))
    assert frames_meanwhile(str(tmp_path / "x.ts"), PID) == 0


def segments(folder: Path, *coded: str) -> list[bytes]:
    """A stream of five segments of 20 frames, as for HLS, each of which was written as a file of its own."""
    whole = encode_pictures(folder / "whole.mp4", numbered(range(100)), *coded, "-pix_fmt", "yuv420p", rate=25)
    sound = ("-f", "lavfi", "-i", "sine=d=4", "-c:a", "aac")
    cut = ("-f", "segment", "-segment_time", "0.8", "-segment_format", "mpegts", folder / "%d.ts")
    ffmpeg("-i", whole, *sound, "-c:v", "copy", *cut)
    parts = [(folder / f"{number}.ts").read_bytes() for number in range(5)]
    assert all(len(part) % 188 == 0 for part in parts)
    return parts


@pytest.mark.parametrize(
    "coded",
    [
        (*X264, "-bf", "3", "-g", "20", "-sc_threshold", "0"),
        ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error:keyint=20:open-gop=0:scenecut=0"),
        MPEG2,
    ],
    ids=["h264", "hevc", "mpeg2"],
)
def test_segments_whose_counters_begin_anew_are_joined_without_a_loss(coded: tuple[str, ...], tmp_path: Path) -> None:
    """FFmpeg calls the last frames of each segment incomplete."""
    report, shown = prepared(written(tmp_path / "x.ts", segments(tmp_path, *coded)))
    assert report.failures == ()
    assert shown == list(range(100))


def playlist(folder: Path, parts: Iterable[bytes]) -> Path:
    """An HLS playlist of these segments."""
    names = [written(folder / f"{number}.ts", [part]).name for number, part in enumerate(parts)]
    lines = ["#EXTM3U", "#EXT-X-TARGETDURATION:1", *(f"#EXTINF:0.8,\n{name}" for name in names), "#EXT-X-ENDLIST\n"]
    return written(folder / "x.m3u8", ["\n".join(lines).encode()])


@pytest.mark.parametrize("coded", [(*X264, "-bf", "3", "-g", "20", "-sc_threshold", "0"), MPEG2], ids=["h264", "mpeg2"])
def test_segments_of_a_playlist_whose_counters_begin_anew_have_no_loss(coded: tuple[str, ...], tmp_path: Path) -> None:
    """As those of many servers do. What a segment lacks is noticed all the same."""
    parts = segments(tmp_path, *coded)
    report, shown = prepared(playlist(tmp_path / "whole", parts))
    assert report.failures == ()
    assert shown == list(range(100))
    middle = len(parts[1]) // 376 * 188
    parts[1] = parts[1][:middle] + parts[1][middle + 188 :]
    report, _ = prepared(playlist(tmp_path / "lacking", parts))
    assert "--salvage prepares" in report.failures[0].reason


@pytest.mark.parametrize("coded", [(*X264, "-bf", "3", "-g", "20", "-sc_threshold", "0"), MPEG2], ids=["h264", "mpeg2"])
def test_segments_of_which_the_first_begins_in_mid_gop_are_joined_without_a_loss(
    coded: tuple[str, ...], tmp_path: Path
) -> None:
    """As a recording of a live stream does. The last frames of all other segments were said to be lost."""
    parts = segments(tmp_path, *coded)
    packets = [parts[0][at : at + 188] for at in range(0, len(parts[0]), 188)]
    # The packets with which a frame begins: those of the video have PID 256.
    begins = [n for n, packet in enumerate(packets) if packet[1] & 0x5F == 0x41 and packet[2] == 0]
    parts[0] = b"".join([*packets[:3], *packets[begins[len(begins) // 2] :]])
    for source in (playlist(tmp_path / "listed", parts), written(tmp_path / "joined" / "x.ts", parts)):
        report, shown = prepared(source)
        assert report.failures == ()
        assert shown[-80:] == list(range(20, 100))


def test_losses_after_which_the_counters_are_the_same_are_no_joins_of_segments(tmp_path: Path) -> None:
    """In one recording of a variable rate. Both frames were said to be there, as the counters were the same twice."""
    whole = encode_pictures(
        tmp_path / "whole.mp4", numbered(range(600)), *X264, "-bf", "0", "-g", "6", "-sc_threshold", "0", rate=25
    )
    # Each fifth frame lasts for two, so that where one is lost the next comes no later than others.
    every_fifth_lasts = "setts=ts=(N+floor((N+2)/5))*512"
    ffmpeg("-i", whole, "-c", "copy", "-bsf:v", every_fifth_lasts, tmp_path / "x.ts")
    data = (tmp_path / "x.ts").read_bytes()
    packets = [data[at : at + 188] for at in range(0, len(data), 188)]
    of_video = [n for n, packet in enumerate(packets) if packet[1] & 0x1F == 1 and packet[2] == 0]
    begins = [n for n in of_video if packets[n][1] & 0x40]
    losses: dict[tuple[int, int], list[range]] = {}
    for frame in range(5, len(begins) - 1, 6):
        first, behind = begins[frame : frame + 2]
        tables = [n for n in range(first, behind) if packets[n][1] & 0x1F == 0 and packets[n][2] == 0]
        is_noticed = len([n for n in of_video if first <= n < behind]) % 16 > 0
        if frame % 5 in (0, 4) and tables and is_noticed:
            counters = packets[tables[-1]][3] & 15, packets[behind][3] & 15
            losses.setdefault(counters, []).append(range(first, tables[0]))
    lost = {n for each in next(each for each in losses.values() if len(each) > 1)[:2] for n in each}
    report, _ = prepared(written(tmp_path / "lacking.ts", [p for n, p in enumerate(packets) if n not in lost]))
    assert "--salvage prepares" in report.failures[0].reason


def test_what_ffmpeg_says_of_a_segment_that_begins_in_mid_gop_is_not_printed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a few segments, dozens of lines were: without the headers before it, no frame decodes."""
    parts = segments(tmp_path, *X264, "-bf", "3", "-g", "20", "-sc_threshold", "0")
    parts[0] = parts[0][: 3 * 188] + parts[0][len(parts[0]) // 376 * 188 :]
    report, shown = prepared(playlist(tmp_path / "cut", parts), salvage=True)
    assert report.failures == ()
    assert shown[0] == 20
    assert [record.message for record in caplog.records if record.name.startswith("libav")] == []


def test_parts_of_a_playlist_that_begin_anew_go_on_with_salvage(tmp_path: Path) -> None:
    """As around advertisements in it: times and counters begin anew. No frame is lost beside them."""
    coded = (*X264, "-bf", "2", "-g", "20", "-sc_threshold", "0")
    numbers = range(40), range(40, 70)
    parts = [encode_pictures(tmp_path / "x.ts", numbered(each), *coded).read_bytes() for each in numbers]
    source = playlist(tmp_path / "joined", parts)
    report, _ = prepared(source)
    assert "its timestamps jump back" in report.failures[0].reason
    report, shown = prepared(source, salvage=True)
    assert report.failures == ()
    assert shown == list(range(70))


@pytest.mark.first_case_short
@pytest.mark.parametrize("lengths", [(40, 60), (20, 20, 20)], ids=str)
@pytest.mark.parametrize("b_frames", [0, 2])
def test_segments_that_share_a_frame_are_joined_without_a_loss(
    b_frames: int, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    """As dashcams write loops: the last frame of a file is also the first of the next one, at the same time. It was put
    half an interval later, so that several of them gave a short file another rate."""
    coded = (*X264, "-bf", str(b_frames), "-g", "20", "-sc_threshold", "0", "-pix_fmt", "yuv420p")
    parts, first = [], 0
    for length in lengths:
        shared = max(0, first - 1)
        part = encode_pictures(
            tmp_path / f"{first}.ts",
            numbered(range(shared, first + length)),
            *coded,
            *("-output_ts_offset", str(1 + shared / 30)),
        )
        parts.append(part.read_bytes())
        first += length
    report, shown = prepared(written(tmp_path / "x.ts", parts))
    assert report.failures == ()
    assert shown == list(range(first))
    (video,) = shortgop.open(tmp_path / "dataset-False")
    assert video.metadata.fps == 30
    assert video.changes.dropped == len(lengths) - 1
    assert video.changes.given_up == ()


def test_what_joined_segments_lack_is_noticed(tmp_path: Path) -> None:
    """Also where counters and tables alone would not tell, as between segments."""
    parts = segments(tmp_path, *X264, "-g", "20", "-sc_threshold", "0")
    packets = [bytearray(parts[1][at : at + 188]) for at in range(0, len(parts[1]), 188)]
    starts = pes_starts(packets)
    without_its_last_frame = b"".join(
        packet
        for number, packet in enumerate(packets)
        if number < starts[-1] or int.from_bytes(packet[1:3]) & 0x1FFF != PID
    )
    mine = [number for number, packet in enumerate(packets) if int.from_bytes(packet[1:3]) & 0x1FFF == PID]
    without_an_end = b"".join(packet for number, packet in enumerate(packets) if number != mine[-1])
    for number, lacking in enumerate(
        (
            [parts[0], *parts[2:]],
            [parts[0], without_its_last_frame, *parts[2:]],
            [parts[0], without_an_end, *parts[2:]],
        )
    ):
        report, _ = prepared(written(tmp_path / f"{number}" / "x.ts", lacking))
        assert "--salvage prepares" in report.failures[0].reason, number


@pytest.mark.parametrize("coded", [(*X264, "-bf", "2", "-g", "20", "-sc_threshold", "0"), MPEG2], ids=["h264", "mpeg2"])
def test_beside_segments_that_are_missing_no_frame_is_lost(coded: tuple[str, ...], tmp_path: Path) -> None:
    """As where a program did not get them. FFmpeg calls the last frames before them incomplete."""
    parts = segments(tmp_path, *coded)
    source = written(tmp_path / "x.ts", [parts[0], *parts[2:]])
    report, _ = prepared(source)
    assert "frames are missing between two segments of the stream" in report.failures[0].reason
    _, shown = prepared(source, salvage=True)
    # A segment of MPEG-2 has a frame more or less.
    missing = set(range(100)) - set(shown)
    assert len(missing) in range(18, 23)
    assert shown == [min(missing) - 1 if number in missing else number for number in range(100)]
    assert max(missing) - min(missing) == len(missing) - 1


@pytest.mark.parametrize("size", [188, 192, 204])
def test_a_last_packet_that_is_cut_off_is_noticed_in_any_layout(
    size: int, packets: list[bytearray], tmp_path: Path
) -> None:
    parts = [bytes(4 * (size == 192)) + packet + bytes(16 * (size == 204)) for packet in packets]
    assert not ends_in_mid_packet(str(written(tmp_path / "whole.ts", parts)), PID)
    cut = written(tmp_path / "cut.ts", parts[: pes_starts(packets)[20] + 1])
    assert ends_in_mid_packet(str(cut), PID)
