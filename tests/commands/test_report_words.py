"""The parts of a report that are arithmetic: history in stretches, kinds of failures, frames of a clip, words."""

from __future__ import annotations

import dataclasses
import json
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_manifests import failure, video
from shortgop.errors import CorruptDataError
from shortgop.jobs.progress.job_history import MAX_STRETCHES, TimeStretch, with_stretch
from shortgop.jobs.progress.job_status import STATUS_KEY, JobStatus, read_status
from shortgop.jobs.progress.status_board import StatusBoard
from shortgop.jobs.progress.tally import Progress
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.tables import empty
from shortgop.reporting.clip_pictures import FRAMES, frames_of_clip, size_shown
from shortgop.reporting.content_summary import contents_of
from shortgop.reporting.failure_groups import kind_of_reason
from shortgop.reporting.page_charts import nice_ticks, percent, throughput_chart
from shortgop.reporting.page_markup import Html, tag, text
from shortgop.reporting.page_plan import Dataset, verdict_of
from shortgop.reporting.page_words import how_many, name
from shortgop.storage.disk import DiskStorage
from shortgop.wording import byte_size, duration, three_digits


def stretch(start: float, seconds: float, frames: int = 10, failed: int = 0) -> TimeStretch:
    return TimeStretch(start, start + seconds, seconds, frames, 1, failed, 100, 50)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 1000), st.integers(0, 1000)), max_size=60))
def test_history_is_bounded_in_order_and_its_sums_are_exact(steps: list[tuple[int, int, int]]) -> None:
    history: tuple[TimeStretch, ...] = ()
    now = 0
    for idle, seconds, frames in steps:
        history = with_stretch(history, stretch(now + idle, seconds, frames), max_stretches=8)
        now += idle + seconds
    assert len(history) == min(8, len(steps))
    assert sum(each.frames for each in history) == sum(frames for *_, frames in steps)
    assert sum(each.seconds for each in history) == sum(seconds for _, seconds, _ in steps)
    assert all(before.stop <= after.start for before, after in zip(history, history[1:], strict=False))


def test_stretches_of_a_long_job_are_about_as_long_as_each_other() -> None:
    history: tuple[TimeStretch, ...] = ()
    for second in range(5000):
        history = with_stretch(history, stretch(second, 1))
    assert len(history) == MAX_STRETCHES
    seconds = [each.seconds for each in history[:-1]]
    assert max(seconds) <= 2.5 * 5000 / MAX_STRETCHES
    assert sum(each.frames for each in history) == 50_000


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_board_notes_what_was_done_second_by_second() -> None:
    clock = Clock()
    board = StatusBoard([], clock, earlier=[stretch(10, 5)])
    for second, frames in enumerate((0, 30, 90, 100), start=1):
        clock.now = 1000.0 + 2 * second
        board.on_update(
            Progress(sources_done=second, sources_failed=second // 3, frames_done=frames, bytes_done=frames)
        )
    clock.now += 0.5
    board.on_update(Progress(sources_done=4, sources_failed=1, frames_done=105, bytes_done=105))
    history = board.status().history
    assert history[0] == stretch(10, 5)
    assert [(each.start, each.stop) for each in history[1:]] == [
        (1000, 1002), (1002, 1004), (1004, 1006), (1006, 1008), (1008, 1008.5),
    ]  # fmt: skip
    assert [each.frames for each in history[1:]] == [0, 30, 60, 10, 5]
    assert [each.failed for each in history[1:]] == [0, 0, 1, 0, 0]


def test_history_is_read_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("status")
    status = JobStatus("host", 7, 0.0, 1.0, history=(stretch(0, 1.5), stretch(2, 3)))
    (folder / STATUS_KEY).write_text(json.dumps(dataclasses.asdict(status)))
    assert read_status(DiskStorage(folder)) == status
    (folder / STATUS_KEY).write_text(json.dumps({**dataclasses.asdict(status), "history": [[1, 2]]}))
    with pytest.raises(CorruptDataError):
        read_status(DiskStorage(folder))


def test_reasons_that_differ_in_names_and_numbers_are_of_one_kind() -> None:
    one = kind_of_reason("/v/a.mp4 has 12 of 3,400 frames at 0:01.5 s in h264", "a.mp4", "/v/a.mp4", "")
    two = kind_of_reason("/v/b c.mp4 has 9 of 77 frames at 12:00 s in h264", "b c.mp4", "/v/b c.mp4")
    assert one == two == "… has … of … frames at … s in h264"
    assert kind_of_reason("x is cut") != kind_of_reason("x is damaged")


@given(st.integers(1, 10_000), st.fractions(Fraction(1, 10), Fraction(240)), st.integers(0, 2**32))
def test_frames_of_a_clip_lie_in_the_video_half_a_second_apart_at_most(count: int, fps: Fraction, seed: int) -> None:
    frames = frames_of_clip(count, fps, np.random.default_rng(seed))
    assert len(frames) == min(FRAMES, count)
    assert frames == sorted(set(frames))
    assert frames[0] >= 0
    assert frames[-1] < count
    steps = np.diff(frames)
    assert (steps <= max(1, round(fps / 2))).all()


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_pictures_keep_their_shape_and_are_small(width: int, height: int) -> None:
    columns, rows = size_shown(width, height)
    assert 2 <= columns <= 240
    assert 2 <= rows <= 180
    assert columns % 2 == rows % 2 == 0
    if min(columns, rows) > 20:
        assert columns / rows == pytest.approx(width / height, rel=0.15)


@given(st.floats(1e-6, 1e12))
def test_ticks_are_few_and_reach_the_largest_value(largest: float) -> None:
    ticks = nice_ticks(largest)
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= 6
    assert ticks[-1] >= largest * (1 - 1e-6)
    assert ticks[-2] < largest


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (byte_size(999), "999 B"), (byte_size(12_345), "12.3 kB"), (byte_size(2.5e12), "2.50 TB"),
        (duration(0), "0 s"), (duration(0.25), "0.25 s"), (duration(59), "59 s"), (duration(61), "1 min 1 s"),
        (duration(3600), "1 h"), (duration(90_061), "1 day 1 h"), (duration(3605), "1 h"),
        (three_digits(0.012), "0.012"), (three_digits(9.996), "10.0"), (three_digits(1234.5), "1,234"),
        (how_many(1, "video"), "1 video"), (how_many(12_345, "video"), "12,345 videos"),
        (percent(0, 3), "0\u00a0%"), (percent(3, 3), "100\u00a0%"), (percent(999_999, 1_000_000), "> 99.9\u00a0%"),
        (percent(994, 1000), "99\u00a0%"), (percent(996, 1000), "99.6\u00a0%"), (percent(1004, 1000), "100\u00a0%"),
        (percent(1, 1_000_000), "< 0.1\u00a0%"), (percent(1, 3), "33\u00a0%"), (percent(1, 30), "3.3\u00a0%"),
        (name("a\x1bb\u202ec"), "a\\x1bb\\u202ec"), (name("x" * 1000, 10), "xxxxx … xxxxx"),
    ],
)  # fmt: skip
def test_words(written: str, expected: str) -> None:
    assert written == expected


@given(st.text())
def test_text_is_never_markup(value: str) -> None:
    made = tag("p", value, title=value)
    assert made.count("<") == made.count(">") == 2
    assert made.count('"') == 2
    assert text(text(value)) == text(value)
    assert tag("p", Html("<b>")) == "<p><b></p>"


def test_breaks_between_jobs_are_left_out_of_the_chart() -> None:
    chart = throughput_chart([stretch(0, 10, 100), stretch(10, 10, 300, failed=2), stretch(90_000, 20, 400)])
    assert "40 s of work (1 break between jobs left out)" in chart
    assert "10.0 frames/s, 1 source finished" in chart
    assert "30.0 frames/s, 1 source finished, 2 failed" in chart
    assert chart.count('class="value"') == 3
    assert chart.count('class="failed"') == 1
    # Frames of a failed source are taken back, and nothing is drawn below the line.
    assert 'height="-' not in throughput_chart([stretch(0, 10, -5)])


def test_a_chart_has_room_for_many_jobs() -> None:
    """As where one runs each night: all breaks together leave most of the width to the work."""
    chart = throughput_chart([stretch(86_400 * number, 60, 100) for number in range(MAX_STRETCHES)])
    widths = [float(width) for width in re.findall(r' width="(.*?)"', chart)]
    assert len(widths) == MAX_STRETCHES
    assert 0.7 * 1000 < sum(widths) < 1000 + MAX_STRETCHES


def found(status: JobStatus | None, videos: int = 1, lost: int = 0) -> Dataset:
    rows = merge([video(f"v{number}") for number in range(videos)]) if videos else empty()
    return Dataset("/d", "000001", 3, {}, contents_of(rows), lost_videos=lost, status=status)


def status_of(state: str, done: int, failed: int, written: float = 100.0) -> JobStatus:
    return JobStatus(
        "host", 7, 0.0, written, state, sources_done=done, sources_total=4, sources_failed=failed,
        frames_done=100, frames_planned=400, recent_frames_per_second=10.0, reason="the disk is full",
    )  # fmt: skip


def second(status: JobStatus) -> JobStatus:
    """The status of a job of whose sources most were done before."""
    return dataclasses.replace(status, sources_there=1000)


@pytest.mark.parametrize(
    ("dataset", "mood", "sentence"),
    [
        (found(status_of("finished", 4, 0)), "good", "The job finished: all 4 sources are in the dataset"),
        (found(second(status_of("finished", 4, 0))), "good", "The job finished: all 1,004 sources are in the dataset"),
        (
            found(second(status_of("finished", 4, 1))),
            "warning",
            "1 of 4 sources failed, 1,000 others were in the dataset",
        ),
        (found(second(status_of("running", 1, 0))), "running", "1 of 4 sources done, 1,000 others were in the dataset"),
        (found(JobStatus("host", 7, 0.0, 1.0, "finished")), "good", "The job finished: nothing was left to do"),
        (found(status_of("finished", 4, 1)), "warning", "The job finished: 1 of 4 sources failed"),
        (found(status_of("finished", 4, 4), 0), "bad", "and the dataset has no video: 4 of 4 sources failed"),
        (found(status_of("ended", 2, 1)), "bad", "The last job ended before it was done"),
        (found(status_of("running", 1, 0)), "running", "1 of 4 sources done, about 30 s left"),
        (
            found(dataclasses.replace(status_of("running", 1, 0), encoding_seconds=5.0)),
            "running",
            "1 of 4 sources done, too early to say",
        ),
        (found(status_of("running", 1, 0, 0.0)), "warning", "has not been heard of for 1 min 40 s"),
        (found(status_of("finished", 4, 0), lost=1), "bad", "1 video cannot be read"),
        (found(None), "unknown", "No job has recorded how it went"),
    ],
)
def test_the_verdict(dataset: Dataset, mood: str, sentence: str) -> None:
    verdict = verdict_of(dataset, now=100.0)
    assert verdict.mood == mood
    assert sentence in verdict.sentence


def test_a_job_that_went_well_says_what_was_there_before_it() -> None:
    details = verdict_of(found(second(status_of("finished", 4, 0))), now=100.0).details
    assert details[0] == "1,000 sources were in the dataset before, and the job prepared 4"


def test_a_job_whose_clock_is_wrong_is_heard_of_by_the_clock_of_the_store() -> None:
    dataset = dataclasses.replace(found(status_of("running", 1, 0)), status_changed=4100.0)
    assert verdict_of(dataset, now=4105.0).mood == "running"
    dead = verdict_of(dataset, now=4300.0)
    assert (dead.mood, dead.sentence) == ("warning", "A job was running, and has not been heard of for 3 min 20 s")
    # A clock that was ahead says nothing of a job that has died.
    ahead = dataclasses.replace(found(status_of("running", 1, 0, 9000.0)), status_changed=4100.0)
    assert "has not been heard of for 3 min 20 s" in verdict_of(ahead, now=4300.0).sentence


def test_what_is_counted_of_a_snapshot() -> None:
    rows = merge([video("a"), video("b", frames=4, codec="hevc"), failure("c", "cut short"), failure("d", "")])
    contents = contents_of(rows)
    assert (contents.num_videos, contents.size.num_frames, contents.size.num_gops) == (2, 14, 4)
    assert [(share.label, share.videos) for share in contents.sizes.most] == [("64 x 48", 2)]
    assert [(share.label, share.videos) for share in contents.rates.most] == [("29.97 (30000/1001)", 2)]
    assert {share.label for share in contents.pipelines.most} == {
        "h264: encoded by of h264",
        "hevc: encoded by of hevc",
    }
    assert [(share.label, share.videos) for share in contents.given_up.most] == [("audio dropped", 2)]
    assert contents.salvaged == (4, 2)
    assert contents.gop_bytes is not None
    assert (contents.gop_bytes.longest, contents.gop_bytes.median) == (1000, 1000)
    assert sum(count for _, _, count in contents.gop_bytes.bars) == 4
    assert (contents.failures.count, contents.failures.groups[0].ids) == (1, ("c",))
