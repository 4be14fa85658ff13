"""Video that a file has and that FFmpeg leaves out without a word."""

from __future__ import annotations

import re
import shlex
import shutil
import struct
import subprocess
import tracemalloc
from pathlib import Path

import pytest

import shortgop
from odd_pictures import RATE, X264, encode_pictures, ffmpeg, numbered
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.mp4 import boxes
from shortgop.prep.kept_frames.scan import scan
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.containers.mp4_fragments import Fragment, unread_fragments, unread_of
from shortgop.prep.probing.containers.next_file import chain_of
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

FRAMES, GOP = 30, 10
H264 = (*X264, "-g", str(GOP), "-sc_threshold", "0", "-pix_fmt", "yuv420p")
TONE = ("-f", "lavfi", "-i", "sine=d=1")
FRAGMENTED = ("-movflags", "+frag_keyframe+empty_moov+default_base_moof", "-f", "mp4", "-")


@pytest.fixture(scope="module")
def plain_mp4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode_pictures(tmp_path_factory.mktemp("unread") / "x.mp4", numbered(range(FRAMES)), *H264)


@pytest.fixture(scope="module")
def fragments(plain_mp4: Path) -> list[bytes]:
    """The beginning of a fragmented MP4, and its three fragments."""
    data = ffmpeg("-i", plain_mp4, "-c", "copy", *FRAGMENTED)
    starts = [box.start for box in boxes(data) if box.type == b"moof"]
    end = next(box.start for box in boxes(data) if box.type == b"mfra")
    return [data[start:stop] for start, stop in zip([0, *starts], [*starts, end], strict=True)]


def prepared(source: Path, data: bytes, *, salvage: bool = False) -> tuple[Report, list[int]]:
    source.write_bytes(data)
    out = source.parent / f"dataset-{salvage}"
    report = prepare([str(source)], DiskStorage(out), Profile(), where=Where("inline"), policy=SourcePolicy(salvage))
    return report, [] if report.failures else [read_number(frame) for frame in shortgop.open(out)[0]]


def reason_of(report: Report) -> str:
    (failure,) = report.failures
    return failure.reason


def taken_apart(source: Path, reason: str) -> list[bytes]:
    """The files that the commands in a message make of a source."""
    for command in re.findall("`(.*?)`", reason):
        subprocess.run(command.replace("FILE", shlex.quote(source.name)), shell=True, check=True, cwd=source.parent)
    return [part.read_bytes() for part in sorted(source.parent.glob("OUT*"))]


def test_an_index_that_is_written_twice_is_no_other_mp4(plain_mp4: Path, tmp_path: Path) -> None:
    """In case the first one is lost. A file with another index may have other frames."""
    data = plain_mp4.read_bytes()
    moov = next(box for box in boxes(data) if box.type == b"moov")
    again = data[moov.start : moov.stop]
    report, shown = prepared(tmp_path / "x.mp4", data + again)
    assert report.failures == ()
    assert shown == list(range(FRAMES))
    report, _ = prepared(tmp_path / "y.mp4", data + again[:-1] + bytes([again[-1] ^ 1]))
    assert "another MP4 follows in it" in reason_of(report)


def test_mp4s_that_were_joined_byte_by_byte_are_not_half_left_out_in_silence(plain_mp4: Path, tmp_path: Path) -> None:
    data = plain_mp4.read_bytes()
    source = tmp_path / "x.mp4"
    report, _ = prepared(source, data + data)
    reason = reason_of(report)
    assert (
        "x.mp4 is damaged: all of the 30 frames that are found decode, but others may be missing (another MP4 follows "
        "in it, and FFmpeg reads the first one only; give both by themselves: OUT1.mp4 of"
    ) in reason
    assert reason.endswith("--salvage prepares those that are found")
    assert taken_apart(source, reason) == [data, data]
    _, shown = prepared(tmp_path / "x.mp4", data + data, salvage=True)
    assert shown == list(range(FRAMES))


@pytest.mark.parametrize("name", ["x.mp4 (1)", "x", "x.mp4&v=2"])
def test_commands_take_a_file_apart_that_browsers_and_servers_called_oddly(
    name: str, plain_mp4: Path, tmp_path: Path
) -> None:
    """Shells did not take the names of the parts."""
    data = plain_mp4.read_bytes()
    report, _ = prepared(tmp_path / name, data + data)
    assert taken_apart(tmp_path / name, reason_of(report)) == [data, data]


JOINED = {
    "ivf": ("-c:v", "libvpx"),
    "wmv": ("-c:v", "wmv2", "-q:v", "3", "-f", "asf"),
    "wtv": ("-c:v", "mpeg2video", "-q:v", "3"),
    "swf": ("-c:v", "flv1", "-q:v", "3"),
    "apng": ("-f", "apng"),
    "flv": H264,
    "nut": H264,
    "y4m": ("-pix_fmt", "yuv420p"),
}


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", JOINED)
def test_a_file_that_was_joined_behind_another_is_not_left_out_in_silence(suffix: str, tmp_path: Path) -> None:
    """Of these FFmpeg reads the first one only. The commands in the message take both apart."""
    files = [
        encode_pictures(tmp_path / f"{first}.{suffix}", numbered(range(first, first + FRAMES)), *JOINED[suffix])
        for first in (0, FRAMES)
    ]
    source = tmp_path / f"x.{suffix}"
    report, _ = prepared(source, b"".join(file.read_bytes() for file in files))
    reason = reason_of(report)
    assert "all of the 30 frames that are found decode, but others may be missing (another file follows in it" in reason
    assert taken_apart(source, reason) == [file.read_bytes() for file in files]
    _, shown = prepared(source, source.read_bytes(), salvage=True)
    assert shown == list(range(FRAMES))


OTHERS = {
    "ts": H264, "avi": H264, "mkv": H264, "mp4": H264, "flv": H264, "mpg": ("-c:v", "mpeg2video"),
    "vob": ("-f", "vob"), "wmv": ("-c:v", "wmv2", "-f", "asf"), "ogv": ("-c:v", "libtheora"),
    "mxf": ("-c:v", "mpeg2video"), "m2ts": (*H264, "-f", "mpegts", "-mpegts_m2ts_mode", "1"),
    "nut": H264, "ivf": JOINED["ivf"], "y4m": JOINED["y4m"], "rm": ("-c:v", "rv20", "-pix_fmt", "yuv420p"),
    "wtv": JOINED["wtv"], "264": H264, "aud": (*H264, "-bsf:v", "h264_metadata=aud=insert", "-f", "h264"),
    "hevc": ("-c:v", "libx265", "-x265-params", "log-level=error"), "m1v": ("-c:v", "mpeg1video", "-f", "mpeg1video"),
    "m2v": ("-c:v", "mpeg2video", "-f", "mpeg2video"), "dv": ("-s", "720x576", "-r", "25", "-pix_fmt", "yuv420p"),
}  # fmt: skip


@pytest.mark.first_case_short
@pytest.mark.parametrize("suffix", ["mp4", "avi", "mkv", "flv"])
def test_a_file_of_another_kind_behind_one_is_not_left_out_in_silence(suffix: str, tmp_path: Path) -> None:
    one = encode_pictures(tmp_path / f"one.{suffix}", numbered(range(FRAMES)), *OTHERS[suffix])
    for other in sorted({*OTHERS} - {suffix}):
        two = encode_pictures(tmp_path / f"two.{other}", numbered(range(FRAMES, 2 * FRAMES)), *OTHERS[other])
        source = tmp_path / f"{other}.{suffix}"
        report, _ = prepared(source, one.read_bytes() + two.read_bytes())
        assert f"(another file follows in it from byte {one.stat().st_size} on" in reason_of(report), other


LEFT_OUT = {"m4v": ("-c:v", "mpeg4", "-f", "m4v"), "gif": ("-f", "gif")}


@pytest.mark.first_case_short
@pytest.mark.parametrize("other", LEFT_OUT)
def test_kinds_that_are_not_looked_for_behind_a_file_are_left_out(other: str, plain_mp4: Path, tmp_path: Path) -> None:
    """docs/footage.md says of which kinds this holds."""
    two = encode_pictures(tmp_path / f"two.{other}", numbered(range(FRAMES, 2 * FRAMES)), *LEFT_OUT[other])
    _, shown = prepared(tmp_path / "x.mp4", plain_mp4.read_bytes() + two.read_bytes())
    assert shown == list(range(FRAMES))


def test_a_video_in_ogg_behind_the_page_of_its_sound_is_not_left_out_in_silence(tmp_path: Path) -> None:
    one = encode_pictures(tmp_path / "one.avi", numbered(range(FRAMES)), *OTHERS["avi"])
    picture = encode_pictures(tmp_path / "picture.ogv", numbered(range(FRAMES)), *OTHERS["ogv"])
    sound_first = ("-map", "1", "-map", "0", "-c:v", "copy", "-c:a", "libopus", "-f", "ogg", "-")
    two = ffmpeg("-i", picture, *TONE, *sound_first)
    assert two.index(b"OpusHead") < two.index(b"\x80theora")
    report, _ = prepared(tmp_path / "x.avi", one.read_bytes() + two)
    assert f"(another file follows in it from byte {one.stat().st_size} on" in reason_of(report)


@pytest.mark.parametrize("suffix", ["mp4", "avi", "mkv", "flv"])
def test_what_is_no_video_behind_a_file_changes_nothing(suffix: str, tmp_path: Path) -> None:
    """Cameras write thumbnails, sound, text, zeros and boxes there, some of which begin as raw H.264 or MPEG-2 do."""
    one = encode_pictures(tmp_path / f"one.{suffix}", numbered(range(FRAMES)), *OTHERS[suffix]).read_bytes()
    photo = encode_pictures(tmp_path / "one.jpg", numbered(range(1)), pix_fmt="rgb24").read_bytes()
    ffmpeg("-i", tmp_path / "one.jpg", "-c:v", "libaom-av1", "-cpu-used", "8", tmp_path / "one.avif")
    avif = (tmp_path / "one.avif").read_bytes()
    assert avif[4:12] == b"ftypavif"
    heif = [avif.replace(b"avif", brand) for brand in (b"heic", b"heix", b"mif1")]
    sound = [ffmpeg(*TONE, "-c:a", "libopus", "-f", "ogg", "-")]
    if suffix != "mp4":
        ffmpeg(*TONE, "-c:a", "aac", tmp_path / "one.m4a")
        sound.append((tmp_path / "one.m4a").read_bytes())
    own = [struct.pack(">I4sQ", 1, kind, 116) + bytes(100) for kind in (b"gdat", b"gMet", b"gnss")]
    own += [struct.pack(">I4s", 435, kind) + bytes(427) for kind in (b"gdat", b"\xa9gps", bytes(4))]
    for number, more in enumerate([photo, avif, *heif, *sound, *own, b"made by a camera\n" * 100, bytes(5000)]):
        report, shown = prepared(tmp_path / f"{number}.{suffix}", one + more)
        assert report.failures == ()
        assert shown == list(range(FRAMES))


@pytest.mark.parametrize("suffix", ["mkv", "webm"])
def test_of_three_matroska_files_that_were_joined_the_last_one_is_not_left_out_in_silence(
    suffix: str, tmp_path: Path
) -> None:
    """FFmpeg reads two of them, also where the times of each go on behind those of the one before."""
    coded = H264 if suffix == "mkv" else ("-c:v", "libvpx", "-g", "10")
    files = []
    for number in range(3):
        options = (*coded, "-output_ts_offset", str(number * FRAMES / RATE))
        numbers = numbered(range(number * FRAMES, (number + 1) * FRAMES))
        files.append(encode_pictures(tmp_path / f"{number}.{suffix}", numbers, *options).read_bytes())
    source = tmp_path / f"x.{suffix}"
    report, shown = prepared(source, b"".join(files[:2]))
    assert shown == list(range(2 * FRAMES))
    shutil.rmtree(tmp_path / "dataset-False")
    report, _ = prepared(source, b"".join(files))
    assert f"another file follows in it from byte {len(files[0] + files[1])} on" in reason_of(report)
    assert taken_apart(source, reason_of(report)) == files
    _, shown = prepared(source, source.read_bytes(), salvage=True)
    assert shown == list(range(2 * FRAMES))


def test_many_files_that_were_joined_are_taken_apart_nine_at_a_time(tmp_path: Path) -> None:
    files = [
        encode_pictures(tmp_path / f"{number}.mkv", numbered([number]), "-c:v", "mpeg4", "-g", "1").read_bytes()
        for number in range(11)
    ]
    source = tmp_path / "x.mkv"
    report, _ = prepared(source, b"".join(files))
    assert "give each by itself: OUT1.mkv of `head -c" in reason_of(report)
    *eight, rest = taken_apart(source, reason_of(report))
    assert [*eight, rest] == [*files[:8], b"".join(files[8:])]


@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_a_file_of_another_shape_between_two_that_were_joined_is_taken_out(suffix: str, tmp_path: Path) -> None:
    """The commands took off the last one only."""
    sizes = [(96, 64), (128, 96), (96, 64)]
    files = [
        encode_pictures(tmp_path / f"{number}.{suffix}", numbered(range(FRAMES), size), *H264).read_bytes()
        for number, size in enumerate(sizes)
    ]
    source = tmp_path / f"x.{suffix}"
    report, _ = prepared(source, b"".join(files))
    assert taken_apart(source, reason_of(report)) == files


def test_zeros_behind_an_ivf_are_no_frames_to_follow(tmp_path: Path) -> None:
    """There may be gigabytes of them, each twelve of which would be an empty frame."""
    source = encode_pictures(tmp_path / "x.ivf", numbered(range(3)), *JOINED["ivf"])
    with source.open("ab") as file:
        file.truncate(source.stat().st_size + (1 << 32))
    assert chain_of(str(source), "ivf").next_begin is None


def test_a_beginning_before_each_fragment_is_no_other_mp4(fragments: list[bytes], tmp_path: Path) -> None:
    head, *parts = fragments
    report, shown = prepared(tmp_path / "x.mp4", b"".join(head + part for part in parts))
    assert report.failures == ()
    assert shown == list(range(FRAMES))


def test_a_fragment_that_the_file_has_twice_is_shown_once(fragments: list[bytes], tmp_path: Path) -> None:
    head, first, second, third = fragments
    report, shown = prepared(tmp_path / "x.mp4", head + first + second + second + third)
    assert report.failures == ()
    assert shown == list(range(FRAMES))


def test_a_fragment_behind_a_later_one_is_not_left_out_in_silence(fragments: list[bytes], tmp_path: Path) -> None:
    head, first, second, third = fragments
    report, _ = prepared(tmp_path / "x.mp4", head + first + third + second)
    assert "a fragment has earlier times than the one before, and FFmpeg leaves it out" in reason_of(report)
    _, shown = prepared(tmp_path / "x.mp4", head + first + third + second, salvage=True)
    assert shown == [*range(10), *[9] * 10, *range(20, 30)]


def test_a_fragment_of_one_frame_at_the_time_of_the_one_before_is_not_left_out_in_silence(
    plain_mp4: Path, tmp_path: Path
) -> None:
    """FFmpeg writes such times where each frame is a fragment, beside sound. Frames were neither shown nor counted."""
    each_frame = ("-movflags", "+frag_every_frame+empty_moov+default_base_moof", "-f", "mp4", "-")
    data = bytearray(ffmpeg("-i", plain_mp4, "-c", "copy", *each_frame))
    times = [match.end() + 4 for match in re.finditer(b"tfdt", data)]
    data[times[15] : times[15] + 8] = data[times[14] : times[14] + 8]
    report, _ = prepared(tmp_path / "x.mp4", bytes(data))
    assert reason_of(report).endswith(
        "1 of its 30 frames is lost or refers to a lost one, at 0.500 s (a fragment has earlier times "
        "than the one before, and FFmpeg leaves it out); --salvage prepares the others"
    )
    _, shown = prepared(tmp_path / "x.mp4", bytes(data), salvage=True)
    assert shown == [*range(15), 14, *range(16, 30)]
    assert shortgop.open(tmp_path / "dataset-True")[0].changes.dropped == 1


def test_fragments_in_the_reverse_order_are_lost_but_the_last_one(fragments: list[bytes], tmp_path: Path) -> None:
    head, first, second, third = fragments
    report, _ = prepared(tmp_path / "x.mp4", head + third + second + first)
    assert "20 of its 30 frames are lost or refer to lost ones, the first of them at 0.000 s" in reason_of(report)
    _, shown = prepared(tmp_path / "x.mp4", head + third + second + first, salvage=True)
    assert shown == list(range(20, 30))


def test_a_missing_fragment_is_no_pause(fragments: list[bytes], tmp_path: Path) -> None:
    head, first, _, third = fragments
    report, _ = prepared(tmp_path / "x.mp4", head + first + third)
    assert reason_of(report).endswith(
        "10 of its 30 frames are lost or refer to lost ones, the first of them at 0.333 s (a fragment is missing by "
        "the numbers of those around it); --salvage prepares the others"
    )
    _, shown = prepared(tmp_path / "x.mp4", head + first + third, salvage=True)
    assert shown == [*range(10), *[9] * 10, *range(20, 30)]
    changes = shortgop.open(tmp_path / "dataset-True")[0].changes
    assert changes.salvaged == ((10, 20),)
    assert changes.dropped == 10


def test_a_pause_between_fragments_is_none_that_is_missing(plain_mp4: Path, tmp_path: Path) -> None:
    later = ("-bsf:v", "setts=ts=TS+if(gte(N\\,10)\\,10*512\\,0)", "-video_track_timescale", str(512 * 30))
    data = ffmpeg("-i", plain_mp4, "-c", "copy", *later, "-movflags", "+frag_keyframe+empty_moov", "-f", "mp4", "-")
    report, shown = prepared(tmp_path / "x.mp4", data)
    assert report.failures == ()
    assert shown == [*range(10), *[9] * 10, *range(10, 30)]


def test_of_fragmented_mp4s_that_were_joined_no_frame_is_lost_uncounted(
    fragments: list[bytes], plain_mp4: Path, tmp_path: Path
) -> None:
    """FFmpeg leaves out the first fragment of the second one."""
    later = encode_pictures(tmp_path / "later.mp4", numbered(range(100, 130)), *H264)
    other = ffmpeg("-i", later, "-c", "copy", *FRAGMENTED)
    report, _ = prepared(tmp_path / "x.mp4", b"".join(fragments) + other)
    assert reason_of(report).endswith(
        "10 of its 60 frames are lost or refer to lost ones, the first of them at 1.000 s (another MP4 follows in it, "
        "of which FFmpeg leaves out fragments; give each in a file of its own); --salvage prepares the others"
    )
    _, shown = prepared(tmp_path / "x.mp4", b"".join(fragments) + other, salvage=True)
    assert shown == [*range(30), *[29] * 10, *range(110, 130)]
    report, _ = prepared(tmp_path / "x.mp4", b"".join(fragments) + plain_mp4.read_bytes())
    assert "another MP4 follows in it, and FFmpeg reads the first one only" in reason_of(report)
    report, _ = prepared(tmp_path / "x.mp4", plain_mp4.read_bytes() + b"".join(fragments))
    assert "it is several MP4s that were joined byte by byte; give both by themselves" in reason_of(report)
    assert taken_apart(tmp_path / "x.mp4", reason_of(report)) == [plain_mp4.read_bytes(), b"".join(fragments)]


def test_of_a_short_mp4_and_a_long_one_that_were_joined_the_beginning_of_the_long_one_is_missing(
    fragments: list[bytes], tmp_path: Path
) -> None:
    """Times rise, as if nothing were missing: 10 frames of one, and 20 of the other from its second fragment on."""
    short = encode_pictures(tmp_path / "short.mp4", numbered(range(200, 210)), *H264)
    joined = ffmpeg("-i", short, "-c", "copy", *FRAGMENTED) + b"".join(fragments)
    report, _ = prepared(tmp_path / "x.mp4", joined)
    assert "10 of its 40 frames are lost" in reason_of(report)
    _, shown = prepared(tmp_path / "x.mp4", joined, salvage=True)
    assert shown == [*range(200, 210), *[209] * 10, *range(10, 30)]


def fragment(number: int, first: int, *, position: int = 0) -> Fragment:
    """Ten samples of two ticks."""
    return Fragment(position, number, first, first + 18, first + 20, 10, checksum=number)


@pytest.mark.parametrize(
    ("fragments_of_video", "numbers", "missing"),
    [
        ([fragment(1, 0), fragment(2, 20)], [1, 2], 0),
        ([fragment(1, 0), fragment(2, 80)], [1, 2], 0),
        ([fragment(1, 0), fragment(4, 60)], [1, 4], 20),
        # Those of the sound, which FFmpeg numbers along.
        ([fragment(1, 0), fragment(3, 40)], [1, 2, 3, 4], 0),
        ([fragment(1, 0), fragment(5, 40)], [1, 2, 4, 5, 6], 10),
        # Some programs count by two, or by time, or do not count.
        ([fragment(2, 0), fragment(4, 20), fragment(6, 60), fragment(8, 80)], [2, 4, 6, 8], 0),
        ([fragment(0, 0), fragment(0, 20), fragment(0, 60)], [0, 0, 0], 0),
        # The number alone says nothing.
        ([fragment(1, 0), fragment(9, 20)], [1, 9], 0),
    ],
)
def test_a_fragment_is_missing_where_times_and_numbers_say_so(
    fragments_of_video: list[Fragment], numbers: list[int], missing: int
) -> None:
    found = unread_of(fragments_of_video, numbers)
    assert (found.missing, found.left_out) == (missing, 0)
    assert bool(found.missing_before) == bool(missing)


def test_a_run_that_states_many_samples_takes_no_memory_for_them(fragments: list[bytes], tmp_path: Path) -> None:
    damaged = bytearray(b"".join(fragments[:2]))
    at = damaged.index(b"trun") + 4
    # All samples last as long as usual, and have the usual size.
    struct.pack_into(">II", damaged, at, 0x1, 1 << 28)
    (tmp_path / "x.mp4").write_bytes(bytes(damaged) + fragments[2])
    tracemalloc.start()
    found = unread_fragments(str(tmp_path / "x.mp4"), 1)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.left_out == GOP, "those of the fragment behind it come before the end that it states"
    assert peak_bytes < 1 << 20


def test_a_beginning_without_fragments_has_no_packets(fragments: list[bytes], tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_bytes(fragments[0])
    found = scan(str(tmp_path / "x.mp4"), 0)
    assert (found.packets, found.unread) == ((), 0)
