"""What becomes of a job when a signal ends ffmpeg while prep tries what it can do, as a kernel out of memory does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shortgop.cli import app
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.prep.tools.doctor import diagnose
from synthetic import SyntheticVideo

VERSION, HELP, ENCODE = '"-version"', '"-hide_banner -h full"', "*testsrc2*libx264*"

StandIn = Callable[..., Path]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Makes a program in place of ffmpeg. A signal ends it so many times when its arguments fit a pattern of the
    shell. Returns the file that has a line for each of these times."""
    real = find_ffmpeg().path

    def make(pattern: str, times: int, signal: str = "KILL") -> Path:
        program, notes = tmp_path / "ffmpeg", tmp_path / "notes"
        notes.touch()
        program.write_text(
            f'#!/bin/sh\ncase "$*" in {pattern})\n[ $(wc -l < {notes}) -lt {times} ] && echo >> {notes} && '
            f'kill -{signal} $$ ;;\nesac\nexec "{real}" "$@"\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(program))
        find_ffmpeg.cache_clear()
        return notes

    yield make
    find_ffmpeg.cache_clear()


def prep(video: SyntheticVideo, out: Path) -> tuple[int, str]:
    command = ["prep", str(video.path), "--out", str(out), "--runner", "inline", "--streams-per-gpu", "0"]
    done = CliRunner().invoke(app, command)
    return done.exit_code, done.output


@pytest.mark.parametrize("pattern", [VERSION, HELP, ENCODE])
def test_a_trial_that_was_killed_is_tried_again(
    stand_in: StandIn, constant_video: SyntheticVideo, tmp_path: Path, pattern: str
) -> None:
    notes = stand_in(pattern, times=2)
    status, said = prep(constant_video, tmp_path / "out")
    assert (status, len(notes.read_text().splitlines())) == (0, 2), said


@pytest.mark.parametrize("pattern", [VERSION, HELP, ENCODE])
def test_one_that_is_killed_each_time_ends_the_job_with_what_happened_and_the_next_job_tries_it_anew(
    stand_in: StandIn, constant_video: SyntheticVideo, tmp_path: Path, pattern: str
) -> None:
    stand_in(pattern, times=3)
    status, said = prep(constant_video, tmp_path / "out")
    assert status == 1
    assert "was ended by SIGKILL, 3 times over" in said
    assert "--workers" in said
    assert not any(wrong in said for wrong in ("does not run", "too old", "pip install", "none of"))
    # What is kept in this process for the life of a worker is no verdict on the program.
    assert prep(constant_video, tmp_path / "out")[0] == 0


def test_an_ffmpeg_that_crashes_by_itself_is_one_that_cannot_be_used(
    stand_in: StandIn, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    stand_in(VERSION, times=100, signal="SEGV")
    status, said = prep(constant_video, tmp_path / "out")
    assert status == 1
    assert "it does not run" in said


def test_doctor_names_the_signal(stand_in: StandIn) -> None:
    stand_in(VERSION, times=100)
    found = diagnose()
    assert found.chosen is None
    assert "was ended by SIGKILL" in (found.ffmpegs[0].problem or "")
