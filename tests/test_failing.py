"""Jobs that go wrong: how many failures end one, and which sources a later one does not try again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import shortgop
from shortgop.cli import app
from shortgop.errors import TooManyFailuresError, UsageError
from shortgop.jobs.failing import MaxFailures, parse_max_failures
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.prep.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
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


def run(
    sources: Path, dataset: Path, limit: str | None, *, retry_failed: bool = False, where: str = "inline"
) -> Report:
    return prepare(
        [str(sources)], DiskStorage(dataset), Profile(), where=Where(where, workers=2 if where == "ray" else None),
        max_failures=parse_max_failures(limit), retry_failed=retry_failed,
    )  # fmt: skip


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


@pytest.fixture
def killer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program in place of ffmpeg that kills whoever runs it on b0.mp4, as running out of memory would. It does so
    while the file that is returned exists."""
    wrapper, kills = tmp_path / "ffmpeg", tmp_path / "kills"
    wrapper.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *b0.mp4*) [ -e {kills} ] && kill -{int(signal.SIGKILL)} $PPID;; esac\n'
        f'exec {find_ffmpeg().path} "$@"\n'
    )
    wrapper.chmod(0o755)
    kills.touch()
    find_ffmpeg.cache_clear()
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(wrapper))
    yield kills
    find_ffmpeg.cache_clear()


def test_a_source_that_kills_its_workers_is_set_aside_until_it_is_to_be_tried_again(
    tmp_path: Path, killer: Path
) -> None:
    sources = corpus(tmp_path / "sources", good=2, broken=1)
    report = run(sources, tmp_path / "dataset", None, where="ray")
    reasons = {failure.id: failure.reason for failure in report.failures}
    assert (report.videos_added, set(reasons)) == (1, {"a0.mp4", "b0.mp4"})
    assert "its worker died 4 times" in reasons["b0.mp4"]
    killer.unlink()
    # It would work now, but only the other failure is tried.
    report = run(sources, tmp_path / "dataset", None)
    reasons = {failure.id: failure.reason for failure in report.failures}
    assert (report.videos_added, report.already_there, set(reasons)) == (0, 1, {"a0.mp4", "b0.mp4"})
    assert reasons["b0.mp4"].endswith("it was set aside; --retry-failed tries it again")
    report = run(sources, tmp_path / "dataset", None, retry_failed=True)
    assert (report.videos_added, [failure.id for failure in report.failures]) == (1, ["a0.mp4"])
    assert [failure.id for failure in shortgop.open(tmp_path / "dataset").failures] == ["a0.mp4"]
