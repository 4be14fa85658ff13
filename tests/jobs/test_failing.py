"""Jobs that go wrong: how many failures end one."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import shortgop
from shortgop.cli import app
from shortgop.errors import TooManyFailuresError, UsageError
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.jobs.sources.failing import MaxFailures, is_chance, parse_max_failures
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video


@pytest.mark.parametrize(
    ("text", "limit"),
    [("0", MaxFailures(0)), (7, MaxFailures(7)), ("5%", MaxFailures(percent=Fraction(5))), (None, None),
     ("2.5 %", MaxFailures(percent=Fraction(5, 2)))],
)  # fmt: skip
def test_a_limit_is_a_number_or_a_part(text: str | int | None, limit: MaxFailures | None) -> None:
    assert parse_max_failures(text) == limit


@pytest.mark.parametrize("text", ["", "-1", "5 percent", "101%", "%", "1.5"])
def test_other_limits_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--max-failures is"):
        parse_max_failures(text)


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(0, 100))
def test_a_part_is_one_of_all_sources_of_the_job(failed: int, total: int, percent: int) -> None:
    limit = MaxFailures(percent=Fraction(percent))
    if failed / total > percent / 100 + 1e-9:
        with pytest.raises(TooManyFailuresError, match=f"more than --max-failures {percent}% allows"):
            limit.check(failed, total)
    elif failed / total < percent / 100 - 1e-9:
        limit.check(failed, total)


@pytest.mark.parametrize(
    ("others_lost", "attempts"), [(0, 8), (7, 8), (8, 12), (16, 20), (1000, 24)],
)  # fmt: skip
def test_how_often_a_step_is_tried_whose_machine_is_lost_each_time(others_lost: int, attempts: int) -> None:
    """Eight times, and more often where as many other machines were lost as with it."""
    assert next(lost for lost in itertools.count(1) if not is_chance(lost, lost + others_lost)) == attempts


def corpus(folder: Path, *, good: int, broken: int) -> Path:
    """Files of more than the 250 kB that a unit has at least. Those that are broken come first."""
    folder.mkdir()
    for number in range(broken):
        (folder / f"a{number}.mp4").write_bytes(b"not a video" * 30_000)
    for number in range(good):
        make_video(
            folder / f"b{number}.mp4", pts=constant_rate_pts(Fraction(30), 60), timebase=Fraction(1, 30),
            size=(320, 256), options={"qp": "1", "preset": "ultrafast"},
        )  # fmt: skip
    return folder


def run(sources: Path, dataset: Path, limit: str) -> Report:
    failures = parse_max_failures(limit)
    return prepare([str(sources)], DiskStorage(dataset), Profile(), where=Where("inline"), max_failures=failures)


def test_a_job_ends_when_more_sources_failed_than_allowed_and_keeps_what_is_finished(tmp_path: Path) -> None:
    sources = corpus(tmp_path / "sources", good=2, broken=2)
    with pytest.raises(TooManyFailuresError, match=r"2 of 4 sources failed, more than --max-failures 1 allows"):
        run(sources, tmp_path / "dataset", "1")
    dataset = shortgop.open(tmp_path / "dataset")
    assert [failure.id for failure in dataset.failures] == ["a0.mp4", "a1.mp4"]
    # What takes longest comes first: the good ones, before the stubs.
    assert len(dataset) == 2
    # The same command goes on where more is allowed.
    report = run(sources, tmp_path / "dataset", "2")
    assert (report.videos_added, report.already_there, len(report.failures)) == (0, 2, 2)


def test_the_command_says_so_and_fails(tmp_path: Path) -> None:
    sources = corpus(tmp_path / "sources", good=1, broken=1)
    done = CliRunner().invoke(
        app, ["prep", str(sources), "--out", str(tmp_path / "d"), "--runner", "inline", "--max-failures", "10%"]
    )
    assert done.exit_code == 1
    assert "1 of 2 sources failed, more than --max-failures 10% allows" in done.output
