"""`shortgop status --watch` ends with the job, says how it ended, and does not end before. With `--since` that is not a
job that was over before."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loader_helpers import comes_true
from shortgop.cli import app, status_command
from shortgop.cli.printing import PlainConsole
from shortgop.jobs.progress.job_status import STATUS_KEY, JobStatus
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage, Stored
from sweep import sample
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

_HOUR_SECONDS = 3600.0
_SOON_SECONDS = 0.02
_PATIENCE_SECONDS = 120
_MOST_SECONDS_OF_A_LOOK = 20.0
_RATE = Fraction(30)


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_command, "_LOOK_EVERY_SECONDS", _SOON_SECONDS)
    monkeypatch.setattr(status_command, "_WATCH_SECONDS", 0.5)


# How often the command has looked at a status.
_looks = [0]


@pytest.fixture(autouse=True)
def looks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    read = status_command._read

    def read_and_count(storage: Storage) -> JobStatus:
        try:
            return read(storage)
        finally:
            _looks[0] += 1

    monkeypatch.setattr(status_command, "_read", read_and_count)


def running() -> JobStatus:
    now = time.time()
    return JobStatus("host", 7, started=now - 2 * _HOUR_SECONDS, written=now, sources_total=2)


def write(dataset: Path, status: JobStatus) -> None:
    (dataset / "new").write_text(json.dumps(asdict(status)))
    (dataset / "new").rename(dataset / STATUS_KEY)


def watch(dataset: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["status", str(dataset), "--watch", *options])


def have_looked(times: int) -> bool:
    return _looks[0] >= times


@contextmanager
def meanwhile(*steps: Callable[[], object]) -> Iterator[None]:
    """Does one after the other, with a moment before each, in which the command has looked at what there is."""

    def work() -> None:
        for step in steps:
            # One look may have begun before.
            enough = _looks[0] + 2
            time.sleep(0.2)
            comes_true(partial(have_looked, enough), _MOST_SECONDS_OF_A_LOOK)
            step()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize(("state", "exit_status"), [("finished", 0), ("ended", 1)])
def test_watching_ends_with_the_job_and_says_how_it_ended(tmp_path: Path, state: str, exit_status: int) -> None:
    write(tmp_path, running())
    with meanwhile(lambda: write(tmp_path, replace(running(), state=state, reason="no space"))):
        done = watch(tmp_path)
    assert done.exit_code == exit_status
    assert done.stdout.startswith(f"process 7 on host, {state}")
    assert "after 2 h: no space\n" in done.stdout


def test_watching_waits_for_a_job_to_begin_and_says_so(tmp_path: Path) -> None:
    dataset = tmp_path / "new" / "dataset"
    with meanwhile(
        lambda: dataset.mkdir(parents=True),
        lambda: (dataset / STATUS_KEY).write_text("{"),
        lambda: write(dataset, running()),
        lambda: write(dataset, replace(running(), state="finished")),
    ):
        done = watch(dataset)
    assert done.exit_code == 0
    assert done.stderr == f"nothing yet at {dataset}: waiting for a job to begin\n"
    assert "process 7 on host, finished" in done.stdout


def test_watching_in_another_terminal_sees_the_job_that_begins_later(tmp_path: Path) -> None:
    make_video(tmp_path / "a.mp4", pts=constant_rate_pts(_RATE, 30), timebase=1 / _RATE)
    prep = [sys.executable, "-m", "shortgop", "prep", str(tmp_path / "a.mp4"), "--out", str(tmp_path / "dataset")]
    with meanwhile(lambda: subprocess.run([*prep, "--runner", "inline"], capture_output=True, check=True)):
        done = watch(tmp_path / "dataset")
    assert done.exit_code == 0
    assert "1 of 1 source done" in done.stdout


def test_watching_a_bucket_from_another_process_follows_the_job_that_begins_later(tmp_path: Path, s3_url: str) -> None:
    (tmp_path / "clips").mkdir()
    for number in range(2):
        make_video(tmp_path / "clips" / f"{number}.mp4", pts=constant_rate_pts(_RATE, 30), timebase=1 / _RATE)
    dataset = f"{s3_url}/dataset"
    program = (
        f"from shortgop.cli import app, status_command; status_command._LOOK_EVERY_SECONDS = {_SOON_SECONDS}; app()"
    )
    watching = subprocess.Popen(
        [sys.executable, "-c", program, "status", dataset, "--watch"],
        # What it shows meanwhile goes to terminals only.
        env=os.environ | {"FORCE_COLOR": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert watching.stderr is not None
        assert watching.stderr.readline() == f"nothing yet at {dataset}: waiting for a job to begin\n"
        prep = [sys.executable, "-m", "shortgop", "prep", str(tmp_path / "clips"), "--out", dataset]
        subprocess.run([*prep, "--runner", "inline"], capture_output=True, check=True)
        printed, shown = watching.communicate(timeout=_PATIENCE_SECONDS)
    finally:
        watching.kill()
        watching.wait()
    assert watching.returncode == 0
    assert ", running for " in shown
    lines = printed.splitlines()
    assert ", finished " in lines[0]
    assert lines[1] == "2 of 2 sources done"
    assert re.fullmatch(r"largest: .*0\.mp4 and 1 more, 60 frames in .* s, [\d.]+ kB", lines[-1])


@pytest.mark.usefixtures("s3_url")
def test_watching_does_not_wait_where_no_job_can_begin(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    places = {
        str(tmp_path / "file"): "is a file; give the folder that `shortgop prep --out` wrote",
        str(tmp_path / "file" / "dataset"): "does not exist",
        "ftp://host/dataset": "ftp:// is not known",
        "s3:/bucket/dataset": "write s3://bucket/dataset",
        "s3://bucket-of-nobody/dataset": "there is no such bucket; check its name",
    }
    for place, said in places.items():
        done = CliRunner().invoke(app, ["status", place, "--watch"])
        assert (done.exit_code, said in done.stderr) == (2, True), done.output


def test_without_watching_nothing_is_waited_for(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert done.exit_code == 2
    assert f"no job has left its progress in {tmp_path}" in done.stderr


def test_watching_goes_on_while_the_status_cannot_be_read_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may fail now and then."""
    terminal = io.StringIO()
    monkeypatch.setattr(status_command, "err", PlainConsole(file=terminal, force_terminal=True, width=400))
    file = tmp_path / STATUS_KEY
    write(tmp_path, running())
    with meanwhile(
        lambda: file.write_text("{"),
        file.unlink,
        file.mkdir,
        file.rmdir,
        lambda: write(tmp_path, replace(running(), state="finished")),
    ):
        done = watch(tmp_path)
    assert done.exit_code == 0
    shown = [line for line in terminal.getvalue().split("\n") if re.search(r"not read for \d s: ", line)]
    for problem in ("is damaged", "no job has left its progress", "cannot be read: Is a directory"):
        assert any(problem in line for line in shown), problem


def test_watching_ends_if_the_status_cannot_be_read_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_command, "_GIVE_UP_SECONDS", 1.0)
    write(tmp_path, running())
    with meanwhile(lambda: (tmp_path / STATUS_KEY).write_text("{")):
        done = watch(tmp_path)
    assert done.exit_code == 1
    assert "is damaged" in done.stderr


def test_watching_ends_if_the_job_was_not_heard_of_for_ten_minutes(tmp_path: Path) -> None:
    write(tmp_path, replace(running(), written=time.time() - 700))
    os.utime(tmp_path / STATUS_KEY, (time.time() - 700,) * 2)
    done = watch(tmp_path)
    assert done.exit_code == 4
    assert "it may be dead, unless clocks of machines differ; the same command goes on from there" in done.stdout
    assert done.stderr == (
        "error: the job was not heard of for 10 min or more; it is dead, or cannot write to the dataset\n"
    )


def test_a_job_whose_clock_is_slow_is_not_dead(tmp_path: Path) -> None:
    states = [replace(running(), written=time.time() - _HOUR_SECONDS + number) for number in range(5)]
    write(tmp_path, states[0])
    steps = [lambda state=state: write(tmp_path, state) for state in [*states, replace(states[-1], state="finished")]]
    with meanwhile(*steps):
        done = watch(tmp_path)
    assert done.exit_code == 0


def test_a_dead_job_whose_clock_was_fast_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_command, "_GIVE_UP_SECONDS", 1.0)
    write(tmp_path, replace(running(), written=time.time() + _HOUR_SECONDS))
    assert watch(tmp_path).exit_code == 4


def test_since_now_takes_the_next_job_and_not_the_one_that_is_over(tmp_path: Path) -> None:
    write(tmp_path, replace(running(), pid=6, state="ended", reason="no space"))
    with meanwhile(
        lambda: write(tmp_path, running()),
        lambda: write(tmp_path, replace(running(), state="finished")),
    ):
        done = watch(tmp_path, "--since", "now")
    assert done.exit_code == 0
    assert done.stderr == f"nothing new yet at {tmp_path}: waiting for a job to begin\n"
    assert "process 7 on host, finished" in done.stdout


def test_since_a_time_takes_the_job_that_was_over_after_it_and_none_of_the_same_second(tmp_path: Path) -> None:
    write(tmp_path, replace(running(), pid=6, state="finished"))
    os.utime(tmp_path / STATUS_KEY, (1000.75, 1000.75))
    assert "process 6 on host, finished" in watch(tmp_path, "--since", "999").stdout
    for second in ("1000", "1000.5", "2000"):
        with meanwhile(lambda: write(tmp_path, replace(running(), state="ended", reason="no space"))):
            done = watch(tmp_path, "--since", second)
        assert (done.exit_code, "process 7 on host, ended" in done.stdout) == (1, True), second
        write(tmp_path, replace(running(), pid=6, state="finished"))
        os.utime(tmp_path / STATUS_KEY, (1000.75, 1000.75))


def test_since_now_takes_the_first_job_of_all_and_one_that_runs_already(tmp_path: Path) -> None:
    for dataset, at_first in ((tmp_path / "new", []), (tmp_path / "running", [running()])):
        dataset.mkdir()
        for status in at_first:
            write(dataset, status)
        steps = [partial(write, dataset, each) for each in (running(), replace(running(), state="finished"))]
        with meanwhile(*steps):
            done = watch(dataset, "--since", "now")
        assert (done.exit_code, "process 7 on host, finished" in done.stdout) == (0, True)


def test_since_now_does_not_give_up_a_job_that_died_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_command, "_GIVE_UP_SECONDS", 0.1)
    monkeypatch.setattr(status_command, "_WATCH_SECONDS", 0.1)
    write(tmp_path, replace(running(), pid=6, written=time.time() - _HOUR_SECONDS))
    with meanwhile(
        # Longer than it takes to give up a job that is watched.
        *[lambda: None] * 5,
        lambda: write(tmp_path, replace(running(), state="finished")),
    ):
        done = watch(tmp_path, "--since", "now")
    assert (done.exit_code, "process 7 on host, finished" in done.stdout) == (0, True)


def test_since_goes_on_where_a_store_fails_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be looked up is not taken for a new status."""
    write(tmp_path, replace(running(), pid=6, state="finished"))
    find, looks = DiskStorage.find, iter(range(9))

    def failing(self: DiskStorage, key: str) -> Stored | None:
        if key == STATUS_KEY and next(looks, 0) % 3 == 1:
            raise TimeoutError(110, "no answer")
        return find(self, key)

    monkeypatch.setattr(DiskStorage, "find", failing)
    with meanwhile(*[lambda: None] * 3, lambda: write(tmp_path, replace(running(), state="finished"))):
        done = watch(tmp_path, "--since", "now")
    assert next(looks, None) is None
    assert (done.exit_code, "process 7 on host, finished" in done.stdout) == (0, True)


def test_since_is_a_time_and_for_watching_alone(tmp_path: Path) -> None:
    write(tmp_path, replace(running(), state="finished"))
    for words, said in (
        (["--watch", "--since", "yesterday"], "--since yesterday is no time; give seconds since 1970"),
        (["--watch", "--since", "nan"], "--since nan is no time"),
        (["--since", "now"], "--since is for --watch"),
    ):
        done = CliRunner().invoke(app, ["status", str(tmp_path), *words])
        assert (done.exit_code, said in done.stderr) == (2, True), done.output


def prepared(sources: Path, dataset: str) -> None:
    prep = [sys.executable, "-m", "shortgop", "prep", str(sources), "--out", dataset, "--runner", "inline"]
    subprocess.run(prep, capture_output=True, check=True)


@pytest.mark.parametrize("where", sample(["store"], more=["folder"]))
def test_jobs_that_are_submitted_one_after_the_other_are_each_waited_for(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As a script submits them: the first job, another one with more sources, and one that finds nothing to do."""
    dataset = f"{tmp_path if where == 'folder' else request.getfixturevalue('s3_url')}/dataset"
    (tmp_path / "clips").mkdir()
    for number, said in ((0, "1 of 1 source done\n"), (1, "1 of 1 source done, 1 other was")):
        make_video(tmp_path / "clips" / f"{number}.mp4", pts=constant_rate_pts(_RATE, 30), timebase=1 / _RATE)
        submitted = str(int(time.time()))
        with meanwhile(lambda: prepared(tmp_path / "clips", dataset)):
            done = CliRunner().invoke(app, ["status", dataset, "--watch", "--since", submitted])
        assert done.exit_code == 0, done.output
        assert said in done.stdout
    # The time of a file in a store is a whole second.
    time.sleep(1.1)
    for _ in range(2):
        submitted = str(int(time.time()))
        time.sleep(1.1)
        # It may be over before anyone looks.
        prepared(tmp_path / "clips", dataset)
        done = CliRunner().invoke(app, ["status", dataset, "--watch", "--since", submitted])
        assert (done.exit_code, said in done.stdout) == (0, True), done.output
    with meanwhile(lambda: prepared(tmp_path / "clips", dataset)):
        done = CliRunner().invoke(app, ["status", dataset, "--watch", "--since", "now"])
    assert (done.exit_code, said in done.stdout) == (0, True), done.output


def test_watching_a_job_that_finds_nothing_to_do_says_whose_status_is_left(tmp_path: Path) -> None:
    before = replace(running(), pid=6, written=time.time() - _HOUR_SECONDS, state="finished")
    write(tmp_path, running())
    with meanwhile(lambda: write(tmp_path, before)):
        done = watch(tmp_path)
    assert done.stderr == "the job found nothing to do, and left what the one before it wrote:\n"
    assert (done.exit_code, "process 6 on host, finished 1 h ago" in done.stdout) == (0, True)
