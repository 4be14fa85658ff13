"""Recordings that were joined byte by byte: refused, or continued one after the other with --salvage."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import shortgop
from odd_pictures import encode_pictures, numbered
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.kept_frames.joins import Join, Joined, continued_times, joins_of
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.recordings import recordings
from shortgop.prep.profile import Profile
from shortgop.prep.running.frame_report import NO_PTS
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

MS = Fraction(1, 1000)
RATE, FRAMES, GOP = Fraction(25), 50, 12


def recording(folder: Path, first: int, codec: str = "libx264", **how: object) -> bytes:
    """A transport stream of FRAMES frames that show the numbers from `first` on."""
    path = folder / f"{first}.ts"
    options = {"b_frames": 2, "gop": GOP, "codec": codec} | how
    pts = constant_rate_pts(RATE, FRAMES)
    return make_video(path, pts=pts, timebase=1 / RATE, first_number=first, **options).path.read_bytes()  # type: ignore[arg-type]


def joined(folder: Path, *parts: bytes) -> Path:
    source = folder / "joined.ts"
    source.write_bytes(b"".join(parts))
    return source


def job(source: Path, dataset: Path, *, salvage: bool) -> Report:
    policy = SourcePolicy(salvage)
    return prepare([str(source)], DiskStorage(dataset), Profile(gop_frames=4), where=Where("inline"), policy=policy)


def salvaged(source: Path, dataset: Path) -> tuple[shortgop.Video, list[int], list[bool]]:
    """The video, the numbers it shows, and which of its frames stand in for others."""
    assert [failure.reason for failure in job(source, dataset, salvage=True).failures] == []
    (video,) = shortgop.open(dataset)
    numbers = [read_number(frame) for frame in video]
    stands_in = {frame for first, stop in video.changes.salvaged for frame in range(first, stop)}
    return video, numbers, [frame in stands_in for frame in range(len(numbers))]


def test_recordings_that_were_joined_are_not_half_left_out_in_silence(tmp_path: Path) -> None:
    source = joined(tmp_path, recording(tmp_path, 0), recording(tmp_path, 200))
    (failure,) = job(source, tmp_path / "dataset", salvage=False).failures
    assert "--salvage" in failure.reason


@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg2video"])
def test_each_of_the_recordings_that_were_joined_continues_after_the_one_before(codec: str, tmp_path: Path) -> None:
    source = joined(tmp_path, *(recording(tmp_path, first, codec) for first in (0, 200, 400)))
    video, numbers, stands_in = salvaged(source, tmp_path / "dataset")
    assert video.metadata.fps == RATE
    # Behind a join each number is where it would be if the recordings had been one.
    whole = [first + frame for first in (0, 200, 400) for frame in range(FRAMES)]
    assert len(numbers) == len(whole)
    assert [pair for pair, is_lost in zip(zip(numbers, whole, strict=True), stands_in, strict=True) if not is_lost] == [
        (number, number) for number, is_lost in zip(whole, stands_in, strict=True) if not is_lost
    ]
    # At most the last packets before a join look incomplete.
    assert video.changes.dropped == sum(stands_in) <= 12
    seconds = video.source_seconds(range(len(video))).numpy()
    shown = np.array([not is_lost for is_lost in stands_in])
    assert (seconds - seconds[0])[shown] == pytest.approx(np.arange(len(whole))[shown] / 25, abs=1e-4)


@pytest.mark.first_case_short
@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg2video"])
def test_recordings_that_lack_an_end_and_a_beginning_are_continued_with_what_is_left_of_them(
    codec: str, tmp_path: Path
) -> None:
    parts = [recording(tmp_path, first, codec, size=(192, 128)) for first in (0, 200, 400)]
    source = joined(tmp_path, parts[0][: len(parts[0]) * 3 // 4], parts[1][188 * 60 :], parts[2])
    video, numbers, stands_in = salvaged(source, tmp_path / "dataset")
    sound = [number for number, is_lost in zip(numbers, stands_in, strict=True) if not is_lost]
    # All in order, none twice, and each at the distance from the others of its recording that it had.
    assert sound == sorted(set(sound))
    assert {number // 200 for number in sound} == {0, 1, 2}
    places = {
        number: frame for frame, (number, is_lost) in enumerate(zip(numbers, stands_in, strict=True)) if not is_lost
    }
    for first in (0, 200, 400):
        assert len({places[number] - number for number in sound if number // 200 == first // 200}) == 1
    assert sound[-FRAMES + GOP :] == list(range(400 + GOP, 400 + FRAMES))
    assert video.changes.dropped


@pytest.mark.parametrize("coded", [("-c:v", "libtheora", "-q:v", "8"), ("-c:v", "libvpx", "-f", "ogg")])
def test_ogg_that_was_joined_continues_without_a_loss(coded: tuple[str, ...], tmp_path: Path) -> None:
    """FFmpeg gives the headers of the second one as packets, which were taken for damaged frames."""
    parts = [
        encode_pictures(tmp_path / f"{first}.ogv", numbered(range(first, first + FRAMES)), *coded, rate=25)
        for first in (0, FRAMES)
    ]
    source = joined(tmp_path, *(part.read_bytes() for part in parts)).rename(tmp_path / "joined.ogv")
    (failure,) = job(source, tmp_path / "strict", salvage=False).failures
    assert "its timestamps jump back" in failure.reason
    video, numbers, stands_in = salvaged(source, tmp_path / "dataset")
    assert numbers == list(range(2 * FRAMES))
    assert not any(stands_in)
    assert video.changes.dropped == 0


def test_a_join_that_nothing_else_tells_of_is_continued_as_well(tmp_path: Path) -> None:
    """Continuity counters that go on, as a tool writes them that only appends packets."""
    one, two = recording(tmp_path, 0), bytearray(recording(tmp_path, 200))
    counters = {pid_of(one, at): one[at + 3] & 15 for at in range(0, len(one), 188)}
    for at in range(0, len(two), 188):
        pid = pid_of(two, at)
        counters[pid] = (counters[pid] + (two[at + 3] >> 4 & 1)) & 15
        two[at + 3] = two[at + 3] & 0xF0 | counters[pid]
    source = joined(tmp_path, one, bytes(two))
    (failure,) = job(source, tmp_path / "strict", salvage=False).failures
    assert "give --salvage, with which each recording" in failure.reason
    video, numbers, stands_in = salvaged(source, tmp_path / "dataset")
    assert numbers == [*range(FRAMES), *range(200, 200 + FRAMES)]
    assert not any(stands_in)
    assert video.changes.dropped == 0


def pid_of(data: bytes | bytearray, at: int) -> int:
    return int.from_bytes(data[at + 1 : at + 3]) & 0x1FFF


def test_a_single_wrong_time_begins_no_recording() -> None:
    times: list[int | None] = [40 * number for number in range(100)]
    for wrong in (20, 50, 80):
        for time in (0, 9_000, None):
            changed = [*times[:wrong], time, *times[wrong + 1 :]]
            assert recordings(changed, MS) == [0]
    assert recordings([*times, *times[:3]], MS) == [0, 100]


def test_a_pause_within_a_recording_stays_one() -> None:
    times = np.array([*range(0, 4000, 40), *range(60_000, 64_000, 40)])
    assert recordings([*times, *times], MS) == [0, 200]
    assert continued_times(np.array([*times, *times]), MS).tolist() == [*times, *times + 64_000]


@given(st.integers(0, 30), st.integers(1, 60), st.integers(1, 60), st.integers(10, 60))
@example(1, 23, 4, 10)
def test_stretches_that_changed_places_are_no_recordings(before: int, first: int, second: int, after: int) -> None:
    stretches = (range(before), range(first), range(second), range(after))
    starts = np.cumsum([0, *map(len, stretches)])
    one, two, three, four = (
        [40 * (start + each) for each in stretch] for start, stretch in zip(starts[:4].tolist(), stretches, strict=True)
    )
    assert recordings([*one, *three, *two, *four], MS) == [0]


@given(st.lists(st.integers(3, 60), min_size=1, max_size=6), st.integers(0, 10**9), st.integers(1, 200))
def test_times_of_recordings_that_start_anew_become_one_row_of_equal_steps(
    lengths: list[int], start: int, step: int
) -> None:
    stated = np.concatenate([start + step * np.arange(length) for length in lengths])
    pts = continued_times(stated, MS)
    assert pts.tolist() == (start + step * np.arange(len(stated))).tolist()
    joins = joins_of(stated, pts)
    frames = np.arange(len(stated))
    moved = stated + sum(join.units * np.clip(frames - join.frame + 1, 0, join.count) for join in joins)
    assert moved.tolist() == pts.tolist()
    assert len(joins) == len(lengths) - 1


def test_frames_that_decoders_disagree_about_have_no_time() -> None:
    joined_times = Joined(np.array([0, 40, 80, 0, 40, 80]), np.array([0, 40, 80, 120, 160, 200]))
    assert joined_times.of(np.array([0, 40, 80, 0, 40, 80])).tolist() == [0, 40, 80, 120, 160, 200]
    assert joined_times.of(np.array([0, 40, 0, 40, 80])).tolist() == [0, 40, 120, 160, 200]
    assert joined_times.of(np.array([0, 40, 70, 0, 40, 80])).tolist() == [0, 40, NO_PTS, 120, 160, 200]
    assert joined_times.of(np.array([5])).tolist() == [NO_PTS]
    assert joins_of(np.array([0, 40, 0]), np.array([0, 40, 80])) == (Join(2, 80),)
