"""Streams as recorders of live streams write them: segments one behind the other, some of them on a clock of their own,
such as advertisements and what comes behind a lost connection."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from odd_pictures import encode_pictures, ffmpeg, numbered
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.kept_frames.joins import Joined, continued_times
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.recordings import is_joined, on_one_clock, recordings
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import read_number

MS = Fraction(1, 1000)
RATE, PERIOD = 25, 1 << 33
CODECS = {
    "h264": ("-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-g", "20", "-sc_threshold", "0"),
    "hevc": ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error:keyint=20:open-gop=0:pools=1"),
    "mpeg2": ("-c:v", "mpeg2video", "-q:v", "3", "-bf", "2", "-g", "20", "-sc_threshold", "1000000000"),
}
BEFORE, BETWEEN, BEHIND = range(40), range(1000, 1030), range(40, 80)
ALL = [*BEFORE, *BETWEEN, *BEHIND]


def part(folder: Path, numbers: range, start: float, *, size: tuple[int, int] = (96, 64), codec: str = "h264") -> bytes:
    """A transport stream that shows these numbers, whose first frame has about this time in seconds."""
    how = (*CODECS[codec], "-pix_fmt", "yuv420p", "-output_ts_offset", str(start))
    return encode_pictures(folder / "part.ts", numbered(numbers, size), *how, rate=RATE).read_bytes()


def with_discontinuity(data: bytes) -> bytes:
    """The stream, whose first frame says that another clock begins with it."""
    flagged = bytearray(data)
    at = next(at for at in range(0, len(data), 188) if data[at + 1 : at + 3] == b"\x41\x00")
    flagged[at + 5] |= 0x80
    return bytes(flagged)


def written(folder: Path, *parts: bytes) -> Path:
    source = folder / "x.ts"
    source.write_bytes(b"".join(parts))
    return source


def reason(source: Path, **policy: object) -> str:
    return job(source, source.parent / "refused", **policy)[0]


def job(source: Path, dataset: Path, **policy: object) -> tuple[str, Path]:
    where = Where(runner="inline")
    chosen = SourcePolicy(**policy)  # type: ignore[arg-type]
    report = prepare([str(source)], DiskStorage(dataset), Profile(), where=where, policy=chosen)
    return next((failure.reason for failure in report.failures), ""), dataset


def shown(source: Path, **policy: object) -> tuple[shortgop.Video, list[int]]:
    """The video, and the numbers that it shows."""
    why, dataset = job(source, source.parent / "dataset", **policy)
    assert not why
    video = shortgop.open(dataset)[0]
    return video, [read_number(frame) for frame in video]


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("main", "other"),
    [(3600, 0), (3600, 36_000), (90_000, 10), (95_000, 50_000), (95_440, 900)],
    ids=["an hour earlier", "hours later", "a day earlier", "half a day earlier", "where 33 bits end"],
)
@pytest.mark.parametrize("size", [(96, 64), (192, 128)], ids=["same size", "other size"])
def test_a_stream_goes_on_behind_an_advertisement(
    main: float, other: float, size: tuple[int, int], tmp_path: Path
) -> None:
    behind = main + len(BEFORE) / RATE + 3
    parts = [
        part(tmp_path, BEFORE, main), part(tmp_path, BETWEEN, other, size=size), part(tmp_path, BEHIND, behind),
    ]  # fmt: skip
    source = written(tmp_path, *parts)
    assert "give --salvage, with which each recording" in reason(source)
    video, numbers = shown(source, salvage=True)
    assert numbers == ALL
    assert video.metadata.fps == RATE
    assert (video.changes.dropped, video.changes.salvaged) == (0, ())
    seconds = video.source_seconds(range(len(video))).numpy()
    assert seconds - seconds[0] == pytest.approx(np.arange(len(ALL)) / RATE, abs=1e-4)


def test_a_discontinuity_that_is_flagged_changes_nothing(tmp_path: Path) -> None:
    parts = [part(tmp_path, BEFORE, 3600), part(tmp_path, BETWEEN, 0), part(tmp_path, BEHIND, 3603)]
    source = written(tmp_path, parts[0], *map(with_discontinuity, parts[1:]))
    assert "give --salvage, with which each recording" in reason(source)
    assert shown(source, salvage=True)[1] == ALL


def flv_tags(folder: Path, numbers: range, start_ms: int) -> bytes:
    """The tags of an FLV that shows these numbers from this time on, without its header."""
    how = (*CODECS["h264"], "-pix_fmt", "yuv420p")
    data = encode_pictures(folder / "part.flv", numbered(numbers), *how, rate=RATE).read_bytes()
    out, at = bytearray(), 13
    while at < len(data):
        end = at + 11 + int.from_bytes(data[at + 1 : at + 4]) + 4
        tag = bytearray(data[at:end])
        ms = (tag[7] << 24 | int.from_bytes(tag[4:7])) + start_ms
        tag[4:8] = (ms & 0xFFFFFF).to_bytes(3) + bytes([ms >> 24])
        out += tag if tag[0] == 9 else b""
        at = end
    return bytes(out)


@pytest.mark.first_case_short
@pytest.mark.parametrize("other_ms", [0, 36_000_000])
def test_an_flv_of_a_live_stream_goes_on_behind_another_clock(other_ms: int, tmp_path: Path) -> None:
    parts = [flv_tags(tmp_path, BEFORE, 3_600_000), flv_tags(tmp_path, BETWEEN, other_ms)]
    source = tmp_path / "x.flv"
    header = b"FLV\1\1" + (9).to_bytes(4) + bytes(4)
    source.write_bytes(header + b"".join(parts) + flv_tags(tmp_path, BEHIND, 3_603_000))
    assert "give --salvage, with which each recording" in reason(source)
    video, numbers = shown(source, salvage=True)
    assert numbers == ALL
    assert video.metadata.fps == RATE
    assert video.changes.dropped == 0


def test_a_gap_beside_an_advertisement_stays_a_gap(tmp_path: Path) -> None:
    """The stream lost half a minute more than the advertisement lasts."""
    source = written(tmp_path, part(tmp_path, BEFORE, 3600), part(tmp_path, BETWEEN, 0), part(tmp_path, BEHIND, 3640))
    assert "has 1 gap of more than 10 s" in reason(source, salvage=True)
    assert shown(source, salvage=True, gaps="close")[1] == ALL


@pytest.mark.first_case_short
@pytest.mark.parametrize("codec", CODECS)
def test_no_frame_is_lost_where_a_recorder_connected_again_after_a_gap(codec: str, tmp_path: Path) -> None:
    """Counters begin anew, so that FFmpeg calls the last frames before the gap incomplete."""
    source = written(tmp_path, part(tmp_path, BEFORE, 100, codec=codec), part(tmp_path, BEHIND, 7300, codec=codec))
    assert "has 1 gap of more than 10 s in its timestamps, the first one of 7198" in reason(source)
    video, numbers = shown(source, gaps="close")
    assert numbers == [*BEFORE, *BEHIND]
    assert video.changes.dropped == 0


def test_a_recording_between_two_joins_with_damage_is_there(tmp_path: Path) -> None:
    """ffmpeg and PyAV may decode another number of frames where one was cut off."""
    first, second, third = (
        part(tmp_path, numbers, start) for numbers, start in ((BEFORE, 9), (BETWEEN, 9), (BEHIND, 9))
    )
    video, numbers = shown(written(tmp_path, first[: -188 * 5 - 77], second[: -188 * 5 - 50], third), salvage=True)
    assert set(BETWEEN[:20]) <= set(numbers)
    assert numbers == sorted(numbers, key=ALL.index)
    assert video.changes.dropped in range(1, 13)


@pytest.mark.first_case_short
@pytest.mark.parametrize("tables", ["0x1010", "0x1000"], ids=["tables of its own", "the same tables, changed"])
@pytest.mark.parametrize("clock", [0, 101.6], ids=["its own clock", "the same clock"])
def test_of_what_another_stream_shows_meanwhile_all_frames_are_counted(
    clock: float, tables: str, tmp_path: Path
) -> None:
    """The advertisement has a PID of its own. FFmpeg calls the last frames before it incomplete."""
    moved = ("-output_ts_offset", str(clock), "-mpegts_start_pid", "0x200", "-mpegts_pmt_start_pid", tables)
    how = (*CODECS["h264"], "-pix_fmt", "yuv420p", *moved)
    other = encode_pictures(tmp_path / "other.ts", numbered(BETWEEN), *how, rate=RATE).read_bytes()
    behind = part(tmp_path, BEHIND, 100 + (len(BEFORE) + len(BETWEEN)) / RATE)
    source = written(tmp_path, part(tmp_path, BEFORE, 100), other, behind)
    why = reason(source)
    assert f"{len(BETWEEN)} of its {len(ALL)} frames are lost" in why
    assert "its tables list another stream (PID), as for an advertisement" in why
    video, numbers = shown(source, salvage=True)
    first, stop = len(BEFORE), len(BEFORE) + len(BETWEEN)
    assert numbers == [*BEFORE, *[BEFORE[-1]] * len(BETWEEN), *BEHIND]
    assert (video.changes.dropped, video.changes.salvaged) == (len(BETWEEN), ((first, stop),))


def test_two_streams_that_are_there_at_once_are_no_advertisement(tmp_path: Path) -> None:
    """As the two lenses of a camera, also if they are listed in two tables."""
    main, other = (part(tmp_path, numbers, 100) for numbers in (BEFORE, BETWEEN))
    (tmp_path / "main.ts").write_bytes(main)
    (tmp_path / "other.ts").write_bytes(other)
    streams = ("-map", "0", "-map", "1", "-c", "copy", "-copyts")
    for number, programs in enumerate(((), ("-program", "st=0", "-program", "st=1"))):
        source = tmp_path / str(number) / "x.ts"
        source.parent.mkdir()
        ffmpeg("-i", tmp_path / "main.ts", "-i", tmp_path / "other.ts", *streams, *programs, source)
        assert shown(source)[1] == [*BEFORE]


@given(st.integers(3, 60), st.integers(20, 400), st.integers(3, 60), st.integers(0, 9000), st.booleans(), st.booleans())
def test_what_is_on_another_clock_is_put_between_frames_of_this_one(
    before: int, between: int, behind: int, missing_ms: int, is_later: bool, wraps: bool
) -> None:
    main = PERIOD - 1000 if wraps else 5 * 10**6
    one = main + 40 * np.arange(before)
    two = main + (10**7 if is_later else -4 * 10**6) + 40 * np.arange(between)
    three = one[-1] + 40 * between + missing_ms + 40 * np.arange(1, 1 + behind)
    stated = np.concatenate([one, two, three])
    assert is_joined((stated % PERIOD).tolist(), MS, PERIOD)
    times = on_one_clock(stated % PERIOD, PERIOD)
    assert recordings(times.tolist(), MS) == [0, before, before + between]
    assert np.diff(continued_times(times, MS)).tolist() == [40] * (before + between + behind - 1)


@given(st.lists(st.integers(300, 500), min_size=3, max_size=3), st.integers(0, 500))
def test_long_stretches_that_changed_places_are_no_recordings(lengths: list[int], before: int) -> None:
    edges = np.cumsum([0, before, *lengths])
    one, two, three, four = (
        list(range(40 * begin, 40 * end, 40)) for begin, end in zip(edges, edges[1:], strict=False)
    )
    assert recordings([*one, *three, *two, *four], MS) == [0]


def test_a_gap_of_most_of_a_day_is_no_jump_back() -> None:
    """33 bits are 26.5 hours."""
    clock = Fraction(1, 90_000)
    for hours in (1, 14, 22):
        times = np.concatenate([3600 * np.arange(50), (3600 * 50 + hours * 3600 * 90_000) + 3600 * np.arange(50)])
        assert on_one_clock(times, PERIOD).tolist() == times.tolist()
        assert not is_joined(times.tolist(), clock, PERIOD)
        # The other way round FFmpeg moves those that are earlier than the first by a period.
        assert on_one_clock((times[::-1] + PERIOD * (times[::-1] < 10**6)), PERIOD)[-1] == times[0]


def test_times_that_begin_anew_go_on_also_where_they_are_out_of_order() -> None:
    times = PERIOD + np.array([-9000, -3000, -6000, 3000, 0, -1, 9000, 6000])
    assert on_one_clock(times % PERIOD, PERIOD).tolist() == times.tolist()


def test_a_few_wrong_times_far_ahead_begin_no_recording() -> None:
    times = [40 * number for number in range(200)]
    for count in (1, 2):
        wrong = [*times[:90], *(time + 10**7 for time in times[90 : 90 + count]), *times[90 + count :]]
        assert recordings(wrong, MS) == [0]
        assert recordings([*wrong, *times], MS) == [0]


def test_each_of_thousands_of_segments_may_begin_at_0() -> None:
    times = np.tile(40 * np.arange(50), 3000)
    assert len(recordings(times.tolist(), MS)) == 3000
    assert np.diff(continued_times(times, MS)).tolist() == [40] * (len(times) - 1)


def test_a_gap_alone_begins_no_recording() -> None:
    times = [*range(0, 4000, 40), *range(60_000, 64_000, 40)]
    assert recordings(times, MS) == [0]
    assert not is_joined(times, MS, PERIOD)


def test_frames_are_known_on_both_sides_of_others_in_which_decoders_differ() -> None:
    stated = np.array(list(chain.from_iterable(range(0, 4000, 40) for _ in range(3))))
    pts = 40 * np.arange(len(stated))
    there = np.ones(len(stated), dtype=bool)
    there[[98, 99, 100, 197]] = False
    decoded = stated[there]
    decoded[150] += 7
    known = Joined(stated, pts).of(decoded)
    right = pts[there]
    right[150] = known[150]
    assert known.tolist() == right.tolist()
    # Times of FFmpeg may be those of another period.
    assert Joined(stated, pts, PERIOD).of(decoded + PERIOD).tolist() == right.tolist()
