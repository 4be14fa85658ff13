"""Recordings of cameras in a network, whose packets state when they arrived: several at once, and then a pause."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

import shortgop
from odd_pictures import h264_packets, timed
from packets_at import packets_at
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.bursts import without_bursts
from shortgop.prep.probing.holes import off_beat
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import make_video, read_number, variable_rate_pts

MS = Fraction(1, 1000)
FRAMES, INTERVAL = 150, 40
RATES = (Fraction(25), Fraction(30))
TOLD = "frames arrived in bursts: evenly spaced"


def bursts(size: int, apart: int, count: int = FRAMES) -> list[int]:
    """Times of frames that come `size` at once, `apart` ms from each to the next."""
    return [frame // size * size * INTERVAL + frame % size * apart for frame in range(count)]


def held_back(pauses: list[tuple[int, int]], count: int = FRAMES) -> list[int]:
    """Times of frames of which those that are taken in a pause, [from, to) in ms, arrive at its end."""
    times: list[int] = []
    for frame in range(count):
        time = next((stop for start, stop in pauses if start <= frame * INTERVAL < stop), frame * INTERVAL)
        times.append(max(time, times[-1] + 1) if times else time)
    return times


def evened(times: list[int]) -> list[int]:
    found: list[int] = without_bursts(np.array(times), MS, RATES).tolist()
    return found


@pytest.mark.parametrize("size", [2, 3, 5, 25])
@pytest.mark.parametrize("apart", [0, 1, 7])
def test_frames_that_always_come_together_are_evenly_spaced(size: int, apart: int) -> None:
    if size * apart > INTERVAL:
        # They are not as close together as to have come at once.
        return
    found = np.array(evened(bursts(size, apart, 24 * size)))
    assert (np.diff(found) == INTERVAL).all()
    # Late ones move, and the last one of each burst stays.
    assert found[size - 1] == (size - 1) * apart


@pytest.mark.parametrize(
    "pauses", [[(1000, 1230)], [(0, 2000)], [(0, 1000), (2000, 2100), (2200, 3200)], [(4000, 5500)]], ids=str
)
def test_frames_that_a_network_held_back_have_the_times_at_which_they_were_taken(pauses: list[tuple[int, int]]) -> None:
    found = np.array(evened(held_back(pauses)))
    truth = np.arange(FRAMES) * INTERVAL
    assert np.abs(found - truth).max() <= INTERVAL // 4 + 40


@pytest.mark.parametrize("milliseconds", [5, 15, 25])
def test_frames_that_each_come_late_by_another_time_have_the_times_at_which_they_were_taken(milliseconds: int) -> None:
    """Up to a fifth of them were left out, and the others shown at 100 frames/s or more."""
    rng = np.random.default_rng(milliseconds)
    truth = np.arange(2000) * INTERVAL
    arrived = np.maximum.accumulate(np.round(truth + rng.exponential(milliseconds, len(truth)))).astype(np.int64)
    found = without_bursts(arrived, MS, RATES)
    # Nothing behind the last ones tells how late they are.
    assert np.abs(found - truth)[:-8].max() <= INTERVAL
    assert np.mean(np.abs(found - truth) <= 2) > 0.95


# How long after the one before each of the first frames arrives, in ms: with waits, as a connection that has just begun
# makes them, or at very different distances; and what ffmpeg wrote at the start of a recording by the clock.
CONNECTED = {
    "waits": [0, 0, 0, 25, 0, 0, 0, 0, 0, 0, 20, *[0] * 20],
    "a slow link": [9, 1, 4, 2, 12, 1, 3, 6, 1, 2, 5, 4, 1, 8, 2, 0, 3, 7, 1, 2],
    "recorded": [0, 1, 33, 0, 0, 0, 34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8],
}


@pytest.mark.parametrize("milliseconds", [0, 1, 4])
@pytest.mark.parametrize("begin", CONNECTED)
def test_frames_since_the_last_keyframe_arrive_at_the_start_as_a_network_brings_them(
    begin: str, milliseconds: int
) -> None:
    """They stayed where they were, so that a recording of 30 frames/s was shown at up to 240, each frame several
    times."""
    at_start = np.cumsum([0, *CONNECTED[begin]])
    for late in (20, 35):
        others = at_start[-1] + late + np.arange(FRAMES) * INTERVAL
        jitter = np.random.default_rng(late).exponential(milliseconds, FRAMES) if milliseconds else np.zeros(FRAMES)
        arrived = np.concatenate([at_start, np.round(others + jitter)]).astype(np.int64)
        found = without_bursts(arrived, MS, RATES)
        truth = others[0] + (np.arange(len(arrived)) - len(at_start)) * INTERVAL
        # Nothing behind the last ones tells how late they are.
        assert np.abs(found - truth)[:-8].max() <= 4


@pytest.mark.parametrize("begin", [[*[0] * 14], CONNECTED["waits"]], ids=["at once", "with waits"])
def test_a_last_frame_that_the_end_of_a_stream_releases_is_not_taken_for_the_one_that_comes_in_time(
    begin: list[int],
) -> None:
    """A program that waits for the next frame to know where one ends gives the last one with the end of the stream.
    The frames that came at once at the start were left out."""
    at_start = np.cumsum([0, *begin])
    others = at_start[-1] + 35 + np.arange(FRAMES) * INTERVAL
    arrived = np.concatenate([at_start, others, others[-1:] + 2])
    found = without_bursts(arrived, MS, RATES)
    assert np.abs(np.diff(found) - INTERVAL).max() <= 5
    assert found[-2:].tolist() == [others[-1], others[-1] + INTERVAL]


@pytest.mark.parametrize(
    "steps",
    [
        [*[40] * 50, 240, *[0] * 5, *[40] * 40, 80, 0],
        [*[*[40] * 20, 200, 0, 0, 0, 0] * 5, *[40] * 20, 80, 1],
        [*[0] * 20, *[40] * 60, 80, 0],
    ],
    ids=["a pause before", "several pauses before", "all at once at the start"],
)
def test_the_last_two_frames_that_were_held_back_together_are_even_as_well(steps: list[int]) -> None:
    """The last one was taken for a frame that the end of the stream releases, so both were late by the pause."""
    taken = np.diff(evened([0, *np.cumsum(steps)]))
    assert np.abs(taken - INTERVAL).max() <= 1


@pytest.mark.parametrize("seed", range(20))
def test_rates_that_vary_stay_as_they_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for steps in (
        rng.choice([16, 17, 33, 50, 1, 300], 300),
        rng.integers(10, 60, 300),
        np.maximum(1, rng.exponential(40, 300)).astype(np.int64),
        np.diff(variable_rate_pts(seed, 300, MS)),
    ):
        times = np.cumsum(steps)
        assert without_bursts(times, MS, RATES) is times


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("interval", "frames"), [(17, 4), (17, 8), (8, 8)])
def test_a_phone_that_slows_down_after_a_few_frames_recorded_them_so(interval: int, frames: int, seed: int) -> None:
    """Where the light fails, at distances that are never quite the same. As if these had arrived at once, they were put
    as far apart as the later ones."""
    later = np.random.default_rng(seed).normal(67, 3, 200)
    times = np.round(np.cumsum([0, *[interval] * frames, *later])).astype(np.int64)
    assert without_bursts(times, MS, RATES) is times


def screen(rate: float, jitter: float, rng: np.random.Generator) -> np.typing.NDArray[np.int64]:
    """Times of what is on a screen that shows `rate` pictures in a second, now and then fewer, and then 30: each was
    stamped some milliseconds early or late."""
    steps = [*rng.choice([1, 1, 1, 1, 1, 1, 1, 1, 1, 2], 40) * 1000 / rate, *[1000 / 30] * 120]
    times = np.cumsum(steps) + rng.normal(0, jitter, len(steps))
    return np.round(np.maximum.accumulate(times)).astype(np.int64)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("rate", "jitter"), [(144, 1), (144, 2), (144, 3), (165, 2), (165, 3), (240, 1), (240, 2)])
def test_a_fast_screen_that_slows_down_stays_as_it_is(rate: float, jitter: float, seed: int) -> None:
    """As if a network had brought its first pictures, they were put as far apart as the later ones: up to nine of ten
    such recordings were altered."""
    times = screen(rate, jitter, np.random.default_rng(seed))
    assert without_bursts(times, MS, RATES) is times


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("least", "most"), [(150, 250), (200, 330)])
def test_a_game_whose_menu_has_no_cap_stays_as_it_is(least: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    menu = rng.gamma(3, 1, 40) / 3 * 1000 / rng.uniform(least, most)
    times = np.round(np.cumsum([0, *menu, *rng.normal(1000 / 30, 1, 120)])).astype(np.int64)
    assert without_bursts(times, MS, RATES) is times


@pytest.mark.parametrize(
    "steps", [[5, 1, 7, 2, 6, 1, 120], [3, 9, 1, 12, 2, 5, 1, 7, 40, 40, 40]], ids=["one frame", "three frames"]
)
def test_a_few_frames_behind_fast_ones_tell_of_no_camera(steps: list[int]) -> None:
    times = np.cumsum([0, *steps])
    assert without_bursts(times, MS, RATES) is times


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("frames", [2, 3, 6])
@pytest.mark.parametrize("pause", [1000, 2000])
def test_frames_that_a_camera_takes_now_and_then_stay_where_they_are(seed: int, frames: int, pause: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.concatenate([event * pause + np.cumsum(rng.normal(33, 3, frames)) for event in range(40)])
    times = np.round(times).astype(np.int64)
    assert without_bursts(times, MS, RATES) is times


@pytest.mark.parametrize(
    "steps",
    [
        [16, 17, 16, 33, 500, 1, 3000] * 30,
        [33] * 100 + [4] * 50 + [33] * 100,
        [4] * 100 + [33] * 100,
        [1000] * 20 + [2] + [1000] * 20 + [1] + [1000],
        [40, 40, 2, 38] * 20,
        [40] * 200,
        [33, 1967] * 20,
        [33, 34, 33, 400] * 20,
        [8, 8, 9, 175] * 40,
        [33] * 6 + [67] * 24,
        [8] * 6 + [33] * 24,
        [4, 4, 8, 4, 5, 4, 8, 4, 8, 4] * 3 + [33] * 40,
        [1, 33, 33, 33, 33],
        [33, 1, 33, 66, 33],
        [128, *[4, 5, 4, 4, 4, 4] * 12],
        [500, *[16, 17, 17] * 33],
    ],
    ids=[
        "a screen",
        "a part in slow motion",
        "slow motion first",
        "slides",
        "frames that come twice",
        "plain",
        "two frames now and then",
        "four frames now and then",
        "four of 120 frames/s now and then",
        "it gets dark",
        "a moment in slow motion first",
        "slow motion that lacks frames first",
        "a pair at the start",
        "a pair in a few frames",
        "240 frames/s behind a pause",
        "60 frames/s behind a pause",
    ],
)
def test_other_times_stay_as_they_are(steps: list[int]) -> None:
    times = np.cumsum([0, *steps])
    assert without_bursts(times, MS, RATES) is times


@pytest.mark.parametrize("seed", range(5))
def test_steps_of_a_few_units_of_a_coarse_timebase_tell_of_no_bursts(seed: int) -> None:
    """MOV counts time in 600ths of a second: one unit is almost half an interval of 240 frames/s."""
    times = np.cumsum(np.random.default_rng(seed).integers(1, 6, 60))
    assert without_bursts(times, Fraction(1, 600), RATES) is times


def prepared(source: Path, *, salvage: bool = False) -> shortgop.Video:
    out = source.parent / f"{source.name} {salvage}"
    report = prepare(
        [str(source)], DiskStorage(out), Profile(), policy=SourcePolicy(salvage=salvage), where=Where("inline")
    )
    assert report.failures == ()
    return shortgop.open(out)[0]


@pytest.mark.parametrize(
    ("name", "times", "b_frames"),
    [
        ("x.mkv", bursts(5, 1), 0),
        ("x.mp4", bursts(6, 1), 2),
        ("x.ts", bursts(3, 1), 0),
        ("x.mkv", held_back([(0, 1000), (3000, 3400)]), 0),
        ("x.mp4", [*np.cumsum([0, *np.maximum(1, CONNECTED["recorded"])]), *range(120, 120 + 132 * 40, 40)], 0),
    ],
)
def test_each_frame_has_a_tick_of_its_own(name: str, times: list[int], b_frames: int, tmp_path: Path) -> None:
    """In bursts they were shown at 1000 frames/s, most for one tick; or all but one of a burst were left out."""
    make_video(tmp_path / name, pts=times, timebase=MS, b_frames=b_frames, gop=25)
    video = prepared(tmp_path / name)
    assert [read_number(frame) for frame in video] == list(range(FRAMES))
    assert video.metadata.fps == 25
    assert TOLD in video.changes.given_up
    assert (video.changes.dropped, video.changes.repeated) == (0, 0)


def test_a_fast_screen_is_shown_as_long_as_it_was_recorded(tmp_path: Path) -> None:
    """Its first 40 pictures, of a sixth of a second, were shown for 1.3 s."""
    steps = np.diff(screen(240, 2, np.random.default_rng(2)))
    times = [0, *np.cumsum(np.maximum(1, steps)).tolist()]
    make_video(tmp_path / "x.mkv", pts=times, timebase=MS, b_frames=0, gop=25)
    video = prepared(tmp_path / "x.mkv")
    assert TOLD not in video.changes.given_up
    assert abs(len(video) / video.metadata.fps - Fraction(times[-1], 1000)) < Fraction(1, 10)


@pytest.mark.parametrize("suffix", ["mkv", "flv"])
def test_frames_of_a_burst_may_have_the_same_time(suffix: str, tmp_path: Path) -> None:
    source = packets_at(tmp_path / f"x.{suffix}", bursts(5, 0), h264_packets(tmp_path / "p.ts", range(FRAMES)), MS)
    video = prepared(source)
    assert [read_number(frame) for frame in video] == list(range(FRAMES))
    assert video.metadata.fps == 25


@pytest.mark.parametrize(
    "times",
    [
        [0, 1, 2, 3, 4, 5, 45, 86, 125, 166],
        [*range(40), *range(79, 300, 40)],
        [0, 40, 80, 200, 201, 202, 240, 280, 320],
    ],
    ids=["ten frames", "most at once", "some held back"],
)
def test_each_frame_of_a_short_clip_has_a_tick_of_its_own(times: list[int], tmp_path: Path) -> None:
    """Up to all that came at once but one were left out."""
    make_video(tmp_path / "x.mkv", pts=times, timebase=MS, b_frames=0, gop=25)
    video = prepared(tmp_path / "x.mkv")
    assert [read_number(frame) for frame in video] == list(range(len(times)))
    assert TOLD in video.changes.given_up


def test_stretches_of_bursts_show_what_the_whole_shows(tmp_path: Path) -> None:
    make_video(tmp_path / "x.mkv", pts=bursts(5, 1), timebase=MS, b_frames=0, gop=25)
    cuts = [(0, 1), (1, 2), (2.4, 5)]
    lines = [{"path": "x.mkv", "id": f"{start}", "start": start, "end": end} for start, end in cuts]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    listed, out = tmp_path / "list.jsonl", tmp_path / "dataset"
    assert shortgop.prepare(listed, out, cuts="start,end", runner="inline").failures == ()
    dataset = shortgop.open(tmp_path / "dataset")
    for start, end in cuts:
        video = dataset[f"{start}"]
        shown = [read_number(frame) for frame in video]
        assert shown == list(range(round(start * 25), round(end * 25)))


def test_bursts_that_lack_their_beginning_or_a_packet_are_even_as_well(tmp_path: Path) -> None:
    make_video(tmp_path / "whole.ts", pts=bursts(5, 1), timebase=MS, b_frames=0, gop=25)
    whole = (tmp_path / "whole.ts").read_bytes()
    (tmp_path / "cut.ts").write_bytes(whole[len(whole) // 3 // 188 * 188 :])
    video = prepared(tmp_path / "cut.ts")
    shown = [read_number(frame) for frame in video]
    assert shown == list(range(shown[0], FRAMES))
    assert video.metadata.fps == 25
    place = len(whole) // 2 // 188 * 188
    (tmp_path / "hole.ts").write_bytes(whole[:place] + whole[place + 188 * 3 :])
    video = prepared(tmp_path / "hole.ts", salvage=True)
    assert len(video) == FRAMES
    assert video.metadata.fps == 25
    shown = [read_number(frame) for frame in video]
    first, stop = video.changes.salvaged[0]
    assert shown == [number if not first <= number < stop else first - 1 for number in range(FRAMES)]


@pytest.mark.parametrize("units", [1000, 90000])
@pytest.mark.parametrize("fps", [24, Fraction(24000, 1001), 25, Fraction(30000, 1001), 30, 60, 240])
def test_times_of_lost_frames_are_right_where_sound_ones_are_even(fps: Fraction, units: int) -> None:
    """Also far from sound frames, in whole milliseconds, of which no even number is an interval."""
    times = [round(number * units / fps) for number in range(3000)]
    for lost, is_certain in ((range(20, 30), True), (range(100, 250), True), (range(50, 2900), units > 1000)):
        sound = [time for number, time in enumerate(times) if number not in lost]
        right = [times[number] for number in lost]
        wrong = times[lost[3]] + round(units / fps / 2)
        assert off_beat(sound, right) == set()
        assert off_beat(sound, sorted([*right, wrong])) == ({wrong} if is_certain else set())


@pytest.mark.parametrize("fps", [60, Fraction(30000, 1001)])
def test_a_lost_gop_in_milliseconds_leaves_the_rate(fps: Fraction, tmp_path: Path) -> None:
    source = make_video(tmp_path / "x.mkv", pts=range(240), timebase=1 / Fraction(fps), gop=80).path
    with av.open(source) as container:
        packet = [bytes(each) for each in container.demux(video=0) if each.size][83]
    data = source.read_bytes()
    source.write_bytes(data.replace(packet, b"\xff" * 6 + packet[6:], 1))
    video = prepared(source, salvage=True)
    assert video.metadata.fps == fps
    assert len(video) == 240
    marked = {frame for first, stop in video.changes.salvaged for frame in range(first, stop)}
    assert len(marked) > 70
    assert [read_number(video[frame]) for frame in range(240) if frame not in marked] == [
        frame for frame in range(240) if frame not in marked
    ]


def test_wrong_times_of_damaged_frames_tell_of_no_bursts(tmp_path: Path) -> None:
    """Frames of 25 in a second, some of which are missing, and two damaged ones with wrong times. As if these had come
    late, sound ones were shown at the times of others; and the rate was that of the wrong times."""
    packets = dict(h264_packets(tmp_path / "x.ts", range(32), "-g", "8"))
    sound = [(40 * number, data) for number, data in packets.items() if number not in (4, 5, 7, 15)]
    damaged = [(time, packets[5][:20] + bytes([0x55]) * 80) for time in (344, 416)]
    written = [(time, time, data) for time, data in sorted(sound + damaged)]
    video = prepared(timed(tmp_path / "x.ts", tmp_path / "x.mkv", written, MS), salvage=True)
    assert video.metadata.fps == 25
    assert video.changes.given_up == ()
    shown = [read_number(frame) for frame in video]
    marked = {frame for first, stop in video.changes.salvaged for frame in range(first, stop)}
    assert [number for frame, number in enumerate(shown) if frame not in marked] == [*range(3), *range(16, 32)]
    assert marked == {*range(3, 16)}
