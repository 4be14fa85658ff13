"""Sources that are cut or damaged: what is taken as it is, what --salvage takes, and that no frame is a wrong one."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import imageio_ffmpeg
import pytest

import shortgop
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.operations.summary import VideoSummary, summarize
from shortgop.prep.options import SourcePolicy
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number

FRAMES, GOP = 60, 12
OPEN_GOP = {"preset": "veryfast", "x264-params": "open-gop=1:b-adapt=0:scenecut=0"}
# Their packets say when each frame is shown, so that prep goes on behind the damage.
TIMED = [
    ("x.mp4", "libx264"), ("x.mkv", "libx264"), ("x.ts", "libx264"), ("x.mkv", "libx265"),
    ("x.ts", "libx265"), ("x.ts", "mpeg2video"), ("x.mp4", "mpeg4"), ("x.webm", "libvpx-vp9"),
]  # fmt: skip
# Of these it takes what comes before the damage: times are counted there, and FLV's demuxer reads no further.
UNTIMED = [("x.avi", "mpeg4"), ("x.avi", "libx264"), ("x.mpg", "mpeg2video"), ("x.flv", "libx264")]


@dataclass(frozen=True)
class Prepared:
    """A dataset of one video. `numbers` are those its frames show, `expected` those that its timeline calls for."""

    numbers: list[int]
    expected: list[int]
    salvaged: set[int]
    summary: VideoSummary


def video(folder: Path, name: str, codec: str = "libx264", *, frames: int = FRAMES, **how: Any) -> SyntheticVideo:
    folder.mkdir(exist_ok=True)
    pts = constant_rate_pts(Fraction(25), frames)
    return make_video(folder / name, pts=pts, timebase=Fraction(1, 25), codec=codec, gop=GOP, **how)


def job(source: Path, dataset: Path, *, salvage: bool) -> Report:
    profile = Profile(gop_frames=4, preset="ultrafast")
    return prepare([str(source)], DiskStorage(dataset), profile, policy=SourcePolicy(salvage), where=Where("inline"))


def prepared(source: Path, whole: SyntheticVideo, *, salvage: bool) -> Prepared:
    dataset = source.parent / "dataset"
    report = job(source, dataset, salvage=salvage)
    assert [failure.reason for failure in report.failures] == []
    (found,) = shortgop.open(dataset)
    pts = found.source_pts(range(len(found))).tolist()
    return Prepared(
        numbers=[read_number(frame) for frame in found.get_frames_in_range(0, len(found)).data],
        # An AVI's packets have no pts, and what is said of the whole file's is a guess.
        expected=list(range(len(pts))) if source.suffix == ".avi" else [whole.pts.index(each) for each in pts],
        salvaged={frame for first, stop in found.changes.salvaged for frame in range(first, stop)},
        summary=summarize(DiskStorage(dataset)).videos[0],
    )


def reason(source: Path, *, salvage: bool = False) -> str:
    (failure,) = job(source, source.parent / f"refused {salvage}", salvage=salvage).failures
    assert str(source) in failure.reason
    return failure.reason


def packets_of(path: Path) -> list[tuple[int, int]]:
    with av.open(path) as container:
        return [
            (packet.pos, packet.pos + packet.size)
            for packet in container.demux(video=0)
            if packet.size and packet.pos is not None
        ]


def damaged(whole: SyntheticVideo, target: Path) -> Path:
    """Overwrite what lies from the third to the fourth packet of the third GOP on."""
    packets = packets_of(whole.path)
    data = bytearray(whole.path.read_bytes())
    hit = slice(len(data) // 2, len(data) // 2 + 1500)
    if len(packets) == FRAMES:
        hit = slice(packets[2 * GOP + 3][0], packets[2 * GOP + 4][1])
    data[hit] = random.Random(1).randbytes(hit.stop - hit.start)
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(data)
    return target


@pytest.mark.first_case_short
@pytest.mark.parametrize(("name", "codec"), TIMED)
def test_a_damaged_frame_loses_its_gop_and_no_more_with_salvage(name: str, codec: str, tmp_path: Path) -> None:
    whole = video(tmp_path / "whole", name, codec)
    source = damaged(whole, tmp_path / "bad" / name)
    assert "--salvage prepares the others" in reason(source)

    found = prepared(source, whole, salvage=True)
    assert found.numbers == found.expected
    # Frames that stand in for lost ones show one from before, and are marked; all others are where they belong.
    assert found.salvaged
    assert len(found.numbers) == FRAMES
    for frame, number in enumerate(found.numbers):
        assert number < frame if frame in found.salvaged else number == frame
    assert found.summary.salvaged == len(found.salvaged) <= 2 * GOP
    assert found.numbers[-10:] == list(range(FRAMES - 10, FRAMES))


@pytest.mark.first_case_short
@pytest.mark.parametrize(("name", "codec"), UNTIMED)
def test_a_source_whose_times_are_counted_is_salvaged_up_to_the_damage(name: str, codec: str, tmp_path: Path) -> None:
    whole = video(tmp_path / "whole", name, codec)
    source = damaged(whole, tmp_path / "bad" / name)
    assert "--salvage prepares the others" in reason(source)
    found = prepared(source, whole, salvage=True)
    assert found.numbers == list(range(len(found.numbers)))
    assert GOP - 3 <= len(found.numbers) <= 3 * GOP
    assert not found.salvaged


def test_the_reason_says_where_the_damage_is_and_how_much_of_it(tmp_path: Path) -> None:
    whole = video(tmp_path / "whole", "x.mp4")
    said = reason(damaged(whole, tmp_path / "bad" / "x.mp4"))
    assert "of its 60 frames are lost or refer to lost ones, the first of them at" in said
    assert "0.960 s" in said or "1.0" in said


@pytest.mark.first_case_short
@pytest.mark.parametrize("seed", range(24))
def test_a_transport_stream_cut_anywhere_is_a_shorter_one(seed: int, tmp_path: Path) -> None:
    whole = (
        video(tmp_path / "whole", "x.ts", audio_start=Fraction(0)) if seed % 2 else video(tmp_path / "whole", "x.ts")
    )
    data = whole.path.read_bytes()
    rng = random.Random(seed)
    at = rng.randrange(len(data) // 4, len(data) * 3 // 4)
    if seed % 3 == 0:
        at -= at % 188
    source = tmp_path / "bad" / "x.ts"
    source.parent.mkdir()
    source.write_bytes(data[:at] if seed < 16 else data[at:])
    found = prepared(source, whole, salvage=False)
    assert found.numbers == found.expected
    assert found.numbers == list(range(found.numbers[0], found.numbers[-1] + 1))
    assert not found.salvaged


CUT_ENDS = [
    ("x.mkv", "libx264", {}), ("x.webm", "libvpx-vp9", {}), ("x.flv", "libx264", {}), ("x.avi", "mpeg4", {}),
    ("x.avi", "libx264", {}), ("x.mpg", "mpeg2video", {}), ("x.ts", "libx265", {}), ("x.ts", "mpeg2video", {}),
    ("x.ts", "libx264", {"options": OPEN_GOP}),
    ("x.mp4", "libx264", {"container_options": {"movflags": "frag_keyframe+empty_moov"}}),
]  # fmt: skip


@pytest.mark.first_case_short
@pytest.mark.parametrize("part", [0.37, 0.6])
@pytest.mark.parametrize(("name", "codec", "how"), CUT_ENDS)
def test_a_file_cut_at_its_end_is_a_shorter_one(
    name: str, codec: str, how: dict[str, Any], part: float, tmp_path: Path
) -> None:
    whole = video(tmp_path / "whole", name, codec, **how)
    source = tmp_path / "bad" / name
    source.parent.mkdir()
    data = whole.path.read_bytes()
    source.write_bytes(data[: int(len(data) * part)])
    found = prepared(source, whole, salvage=False)
    assert found.numbers == found.expected == list(range(len(found.numbers)))
    assert len(found.numbers) >= FRAMES * part - GOP - 4
    assert not found.salvaged


@pytest.mark.parametrize(("name", "codec"), [("x.ts", "libx264"), ("x.ts", "libx265"), ("x.ts", "mpeg2video")])
def test_a_file_cut_in_mid_gop_starts_at_the_first_frame_that_decodes_without_what_is_missing(
    name: str, codec: str, tmp_path: Path
) -> None:
    whole = video(tmp_path / "whole", name, codec)
    source = tmp_path / "bad" / name
    source.parent.mkdir()
    source.write_bytes(whole.path.read_bytes()[packets_of(whole.path)[5][0] :])
    found = prepared(source, whole, salvage=False)
    assert found.numbers == found.expected == list(range(GOP, FRAMES))


@pytest.mark.first_case_short
@pytest.mark.parametrize("seed", range(4))
def test_an_incomplete_last_picture_of_hevc_is_not_shown_though_its_decoder_makes_one_of_it(
    seed: int, tmp_path: Path
) -> None:
    whole = video(tmp_path / "whole", "x.ts", "libx265", size=(192, 128))
    data = whole.path.read_bytes()
    # Three TS packets before the end of a picture, so that much of it is there.
    at = (packets_of(whole.path)[20 + 4 * seed][0] // 188 - 3) * 188
    source = tmp_path / "bad" / "x.ts"
    source.parent.mkdir()
    source.write_bytes(data[:at])
    found = prepared(source, whole, salvage=False)
    assert found.numbers == found.expected == list(range(len(found.numbers)))


def test_an_mp4_whose_index_calls_for_more_than_there_is_keeps_what_is_there_with_salvage(tmp_path: Path) -> None:
    whole = video(tmp_path / "whole", "x.mp4", container_options={"movflags": "faststart"})
    source = tmp_path / "bad" / "x.mp4"
    source.parent.mkdir()
    source.write_bytes(whole.path.read_bytes()[: whole.path.stat().st_size // 2])
    assert "--salvage" in reason(source)
    found = prepared(source, whole, salvage=True)
    assert found.numbers == found.expected == list(range(len(found.numbers)))
    assert len(found.numbers) > FRAMES // 4


def test_an_mp4_without_its_moov_cannot_be_salvaged_and_says_so(tmp_path: Path) -> None:
    whole = video(tmp_path, "x.mp4")
    data = whole.path.read_bytes()[: whole.path.stat().st_size // 2]
    cut = tmp_path / "cut.mp4"
    # Older cameras write no ftyp before their frames.
    for begin in (0, data.index(b"mdat") - 4):
        cut.write_bytes(data[begin:])
        for salvage in (False, True):
            assert "without its moov box" in reason(cut, salvage=salvage)


def test_frames_missing_between_others_are_noticed_where_the_decoder_notices_nothing(tmp_path: Path) -> None:
    whole = video(tmp_path / "whole", "x.flv")
    packets = packets_of(whole.path)
    data = whole.path.read_bytes()
    source = tmp_path / "bad" / "x.flv"
    source.parent.mkdir()
    # The first P frame of the third GOP, cut out with the tag that holds it.
    source.write_bytes(data[: packets[2 * GOP + 1][0]] + data[packets[2 * GOP + 2][0] :])
    assert "--salvage" in reason(source)
    found = prepared(source, whole, salvage=True)
    assert found.numbers == found.expected
    assert found.salvaged


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("seconds", "suffix"), [(2, "mkv"), (7, "mkv"), (2, "webm"), (2, "mp4"), (2, "avi"), (2, "flv")]
)
def test_a_slow_file_whose_last_frame_lasts_long_is_not_damaged(seconds: int, suffix: str, tmp_path: Path) -> None:
    codec = {"webm": "libvpx-vp9", "avi": "mpeg4"}.get(suffix, "libx264")
    timebase = Fraction(1, 1000) if suffix != "avi" else Fraction(seconds)
    pts = constant_rate_pts(Fraction(1, seconds), 8, timebase)
    slow = make_video(tmp_path / f"x.{suffix}", pts=pts, timebase=timebase, codec=codec)
    found = prepared(slow.path, slow, salvage=False)
    assert found.numbers == list(range(8))


def test_a_matroska_header_that_promises_more_does_not_refuse_the_file(tmp_path: Path) -> None:
    whole = video(tmp_path, "x.mkv", audio_start=Fraction(0))
    data = whole.path.read_bytes()
    at = data.index(b"DURATION")
    longer = tmp_path / "bad" / "x.mkv"
    longer.parent.mkdir()
    longer.write_bytes(data[:at] + data[at:].replace(b"00:00:0", b"00:01:0"))
    assert prepared(longer, whole, salvage=False).numbers == list(range(FRAMES))


def show_earlier(data: bytearray, packet: av.Packet[Any], *, frames: int) -> None:
    """Let a packet of a transport stream say that its frame is shown earlier, but decoded when it was."""
    assert packet.pos is not None
    assert packet.pts is not None
    at = data.index(b"\0\0\1", packet.pos) + 9
    pts = packet.pts - frames * 3600
    # ISO/IEC 13818-1, 2.4.3.7: 3, 15 and 15 bits, each with a marker bit behind them.
    data[at] = data[at] & 0xF0 | pts >> 29 & 0xE | 1
    data[at + 1 : at + 3] = ((pts >> 15 & 0x7FFF) << 1 | 1).to_bytes(2)
    data[at + 3 : at + 5] = ((pts & 0x7FFF) << 1 | 1).to_bytes(2)


def in_decode_order(path: Path) -> tuple[list[av.Packet[Any]], list[int], list[int]]:
    """The packets of a video, the numbers of the keyframes, and how long after its decoding each frame is shown."""
    with av.open(path) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    keys = [number for number, packet in enumerate(packets) if packet.is_keyframe]
    return packets, keys, [(packet.pts or 0) - (packet.dts or 0) for packet in packets]


def with_a_wrong_time_and_a_missing_frame(whole: SyntheticVideo, target: Path) -> int:
    """In the second GOP a frame is missing, and another one has the time of an earlier one. In the fourth GOP the first
    B-frame after the second P-frame is missing. Returns the number of the first P-frame there, which is sound."""
    data = bytearray(whole.path.read_bytes())
    packets, keys, delays = in_decode_order(whole.path)
    p_frames = [number for number, delay in enumerate(delays) if delay > 3 * 3600 and number not in keys]
    show_earlier(data, packets[next(n for n in p_frames if n > keys[1] + 2)], frames=2)
    first, second, *_ = [number for number in p_frames if number > keys[3]]
    for lost in (second + 1, keys[1] + 1):
        del data[packets[lost].pos or 0 : packets[lost + 1].pos]
    target.parent.mkdir()
    target.write_bytes(data)
    return whole.pts.index(packets[first].pts or 0)


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_times_that_a_decoder_guesses_behind_damage_cost_no_frame(codec: str, tmp_path: Path) -> None:
    """After a time that falls, libavcodec guesses times from those of decoding, which are wrong at a lost B-frame."""
    whole = video(tmp_path / "whole", "x.ts", codec, frames=84, b_frames=3)
    source = tmp_path / "bad" / "x.ts"
    sound = with_a_wrong_time_and_a_missing_frame(whole, source)
    found = prepared(source, whole, salvage=True)
    assert found.numbers == found.expected
    assert len(found.numbers) == 84
    for frame, number in enumerate(found.numbers):
        assert number < frame if frame in found.salvaged else number == frame
    assert {*range(24, 30), sound, *range(74, 84)} <= set(found.numbers)
    assert found.summary.salvaged == len(found.salvaged)


@pytest.mark.first_case_short
@pytest.mark.parametrize("b_frames", [0, 3])
@pytest.mark.parametrize("frames", [2, -5, 40, -30])
def test_a_wrong_time_far_from_damage_costs_few_frames(frames: int, b_frames: int, tmp_path: Path) -> None:
    """A frame of the second GOP is missing, one of the fifth has a wrong time. It had cost all behind the damage."""
    whole = video(tmp_path / "whole", "x.ts", frames=160, b_frames=b_frames)
    data = bytearray(whole.path.read_bytes())
    packets, keys, delays = in_decode_order(whole.path)
    least = max(delays[keys[4] + 1 : keys[5]])
    show_earlier(data, packets[next(n for n in range(keys[4] + 3, keys[5]) if delays[n] == least)], frames=frames)
    del data[packets[keys[1] + 2].pos or 0 : packets[keys[1] + 3].pos]
    source = tmp_path / "bad" / "x.ts"
    source.parent.mkdir()
    source.write_bytes(data)
    found = prepared(source, whole, salvage=True)
    assert len(found.numbers) == 160
    for frame, number in enumerate(found.numbers):
        assert number < frame if frame in found.salvaged else number == frame
    assert len([frame for frame in found.salvaged if frame >= 24]) <= 3


def test_stretches_do_not_lose_frames_to_times_that_a_decoder_guesses_either(tmp_path: Path) -> None:
    whole = video(tmp_path / "whole", "x.ts", frames=84, b_frames=3)
    sound = with_a_wrong_time_and_a_missing_frame(whole, tmp_path / "bad" / "x.ts")
    listed = tmp_path / "bad" / "list.csv"
    listed.write_text("path,start,end\nx.ts,1,3.2\nx.ts,3,3.36\n")
    report = prepare(
        [str(listed)], DiskStorage(tmp_path / "dataset"), Profile(gop_frames=4, preset="ultrafast"),
        policy=SourcePolicy(salvage=True), where=Where("inline"), importing=Importing(cuts=("start", "end")),
    )  # fmt: skip
    assert report.failures == ()
    one, other = shortgop.open(tmp_path / "dataset")
    salvaged = {25 + frame for first, stop in one.changes.salvaged for frame in range(first, stop)}
    numbers = [read_number(frame) for frame in one]
    assert len(numbers) == 55
    assert sound in numbers
    for due, number in enumerate(numbers, 25):
        assert number < due if due in salvaged else number == due
    assert [read_number(frame) for frame in other] == list(range(75, 84))


def is_first_corrupt(path: Path) -> bool:
    """Whether the decoder says that the first frame is corrupt."""
    with av.open(path) as container:
        container.streams.video[0].codec_context.thread_count = 1
        return next(container.decode(video=0)).is_corrupt


@pytest.mark.first_case_short
@pytest.mark.parametrize("name", ["x.avi", "x.264"])
def test_frames_behind_a_damaged_start_are_there_where_times_are_counted(name: str, tmp_path: Path) -> None:
    """The decoder puts out the damaged frame, and says that it is corrupt."""
    whole = video(tmp_path / "whole", "x.mkv", b_frames=3)
    source = tmp_path / "bad" / name
    source.parent.mkdir()
    copy = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(whole.path), "-c", "copy"]
    subprocess.run([*copy, "-bsf:v", "h264_mp4toannexb", str(source)], check=True)
    whole_data, (first, stop) = source.read_bytes(), packets_of(source)[0]
    middle = (first + stop) // 2
    for seed in range(40):
        noise = random.Random(seed).randbytes(stop - middle)
        source.write_bytes(whole_data[:middle] + noise + whole_data[stop:])
        # Some noise decodes to something.
        if is_first_corrupt(source):
            break
    assert "--salvage prepares the others" in reason(source)
    report = job(source, tmp_path / "dataset", salvage=True)
    assert [failure.reason for failure in report.failures] == []
    numbers = [read_number(frame) for frame in shortgop.open(tmp_path / "dataset")[0]]
    assert numbers == list(range(GOP, GOP + len(numbers)))
    assert len(numbers) == FRAMES - GOP
