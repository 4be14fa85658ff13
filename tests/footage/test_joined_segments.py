"""Transport streams whose segments were joined, in one file or a playlist: what is there is kept, what is not, told."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import av
import pytest

import shortgop
from odd_pictures import X264, encode_pictures, ffmpeg, numbered
from transport_files import MPEG2, PID, packets_in, pes_starts, prepared, written


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


def playlist(folder: Path, parts: Iterable[bytes], *, in_one: bool = False) -> Path:
    """An HLS playlist of these segments, which are files or, if they are `in_one`, parts of a file."""
    parts = list(parts)
    names = [written(folder / f"{number}.ts", [part]).name for number, part in enumerate(parts)]
    if in_one:
        name = written(folder / "all.ts", [b"what is none of them", *parts]).name
        places = [f"@{len('what is none of them')}", *[""] * (len(parts) - 1)]
        names = [f"#EXT-X-BYTERANGE:{len(part)}{at}\n{name}" for part, at in zip(parts, places, strict=True)]
    lines = ["#EXTM3U", "#EXT-X-TARGETDURATION:1", *(f"#EXTINF:0.8,\n{name}" for name in names), "#EXT-X-ENDLIST\n"]
    return written(folder / "x.m3u8", ["\n".join(lines).encode()])


@pytest.mark.parametrize("in_one", [False, True], ids=["files", "ranges"])
@pytest.mark.parametrize("coded", [(*X264, "-bf", "3", "-g", "20", "-sc_threshold", "0"), MPEG2], ids=["h264", "mpeg2"])
def test_segments_of_a_playlist_whose_counters_begin_anew_have_no_loss(
    coded: tuple[str, ...], in_one: bool, tmp_path: Path
) -> None:
    """As those of many servers do, and ranges of one file. What a segment lacks is noticed all the same."""
    parts = segments(tmp_path, *coded)
    report, shown = prepared(playlist(tmp_path / "whole", parts, in_one=in_one))
    assert report.failures == ()
    assert shown == list(range(100))
    # A playlist that names one, and one that says that nothing is encrypted, are no others.
    listed = playlist(tmp_path / "plain", parts, in_one=in_one)
    listed.write_text(listed.read_text().replace("#EXTINF", "#EXT-X-KEY:METHOD=NONE\n#EXTINF", 1))
    report, shown = prepared(written(listed.with_name("m.m3u8"), [b"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=9\nx.m3u8\n"]))
    assert report.failures == ()
    assert shown == list(range(100))
    middle = len(parts[1]) // 376 * 188
    parts[1] = parts[1][:middle] + parts[1][middle + 188 :]
    report, _ = prepared(playlist(tmp_path / "lacking", parts, in_one=in_one))
    assert "--salvage prepares" in report.failures[0].reason


@pytest.mark.parametrize("coded", [(*X264, "-bf", "3", "-g", "20", "-sc_threshold", "0"), MPEG2], ids=["h264", "mpeg2"])
def test_segments_of_which_the_first_begins_in_mid_gop_are_joined_without_a_loss(
    coded: tuple[str, ...], tmp_path: Path
) -> None:
    """As a recording of a live stream does. The last frames of all other segments were said to be lost."""
    parts = segments(tmp_path, *coded)
    packets = packets_in(parts[0])
    begins = pes_starts(packets)
    parts[0] = b"".join([*packets[:3], *packets[begins[len(begins) // 2] :]])
    for source in (playlist(tmp_path / "listed", parts), written(tmp_path / "joined" / "x.ts", parts)):
        report, shown = prepared(source)
        assert report.failures == ()
        assert shown[-80:] == list(range(20, 100))
    # Of two, counters begin at zero in one only.
    report, shown = prepared(written(tmp_path / "two" / "x.ts", parts[:2]))
    assert report.failures == ()
    assert shown[0] <= 20
    assert shown == list(range(shown[0], shown[0] + len(shown)))
    with av.open(tmp_path / "1.ts") as container:
        assert len(shown) >= sum(packet.size > 0 for packet in container.demux(video=0))


def test_losses_after_which_the_counters_are_the_same_are_no_joins_of_segments(tmp_path: Path) -> None:
    """In one recording of a variable rate. Both frames were said to be there, as the counters were the same twice."""
    short_gops = (*X264, "-bf", "0", "-g", "6", "-sc_threshold", "0")
    whole = encode_pictures(tmp_path / "whole.mp4", numbered(range(600)), *short_gops, rate=25)
    # Each fifth frame lasts for two, so that where one is lost the next comes no later than others.
    ffmpeg("-i", whole, "-c", "copy", "-bsf:v", "setts=ts=(N+floor((N+2)/5))*512", tmp_path / "x.ts")
    packets = packets_in((tmp_path / "x.ts").read_bytes())
    begins, pids = pes_starts(packets), [int.from_bytes(packet[1:3]) & 0x1FFF for packet in packets]
    losses: dict[tuple[int, int], list[range]] = {}
    for frame in range(5, len(begins) - 1, 6):
        first, behind = begins[frame : frame + 2]
        tables = [number for number in range(first, behind) if pids[number] == 0]
        is_noticed = pids[first:behind].count(PID) % 16 > 0
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
