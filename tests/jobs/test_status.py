"""How far a job is, as anyone can ask who reads the dataset."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from fractions import Fraction
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shortgop.cli import app
from shortgop.cli.status_command import status_lines
from shortgop.errors import CorruptDataError, TooManyFailuresError, UsageError
from shortgop.jobs.finding.source import Source
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.progress.job_status import STATUS_KEY, JobStatus, read_status
from shortgop.jobs.progress.node_work import NodeWork
from shortgop.jobs.progress.status_board import StatusBoard
from shortgop.jobs.progress.status_file import status_kept
from shortgop.jobs.progress.tally import Tally, ignore
from shortgop.jobs.sources.failing import MaxFailures
from shortgop.jobs.sources.look import Expected
from shortgop.jobs.units_of_work.unit_results import Failure, UnitProgress, UnitResult
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.prep.profile import Profile
from shortgop.prep.timing.stretch import Stretch
from shortgop.reporting.dataset_report import read_page
from shortgop.storage.disk import DiskStorage
from shortgop.wording import byte_size
from store_helpers import put
from synthetic import SyntheticVideo, constant_rate_pts, make_video

_PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for number in range(2):
        make_video(
            folder / f"{number}.mp4", pts=constant_rate_pts(Fraction(30), 100), timebase=Fraction(1, 30),
            size=(320, 256), options={"qp": "1", "preset": "ultrafast"},
        )  # fmt: skip
    (folder / "broken.mp4").write_text("not a video")
    return folder


def run(sources: Path, dataset: Path, limit: MaxFailures | None = None) -> None:
    prepare([str(sources)], DiskStorage(dataset), Profile(), where=Where("inline"), max_failures=limit)


def show(dataset: Path, *options: str) -> str:
    done = CliRunner().invoke(app, ["status", str(dataset), *options])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_finished_job_says_what_it_did(sources: Path, tmp_path: Path) -> None:
    run(sources, tmp_path / "dataset")
    found = read_status(DiskStorage(tmp_path / "dataset"))
    assert (found.state, found.reason) == ("finished", "")
    assert (found.sources_done, found.sources_total, found.sources_failed) == (3, 3, 1)
    assert (found.frames_done, found.frames_planned) == (200, 200)
    assert found.bytes_in == sum(file.stat().st_size for file in sources.iterdir())
    assert found.bytes_out == sum(file.stat().st_size for file in (tmp_path / "dataset" / "shards").iterdir())
    assert found.nodes == {"": 200}
    assert found.node_work == {"": NodeWork(3, 1, found.bytes_in, found.bytes_out)}
    assert len(found.slowest) == len(found.largest) == 2
    assert all(task.seconds > 0 for task in found.slowest)
    assert found.running == ()
    text = show(tmp_path / "dataset", "--watch")
    assert "3 of 3 sources done, 1 of them failed\n200 of 200 frames," in text
    bytes_in, bytes_out = map(byte_size, (found.bytes_in, found.bytes_out))
    assert f"of this process: 200 frames; 3 units done, 1 source failed; {bytes_in} of sources became" in text
    assert text.count(f"{bytes_in} of sources became {bytes_out}\n") == 2, "of the job, and of its only node"
    as_json = json.loads(show(tmp_path / "dataset", "--json"))
    assert as_json["state"] == "finished"
    assert as_json["node_work"][""]["units"] == 3


def test_a_job_that_ended_says_why(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(TooManyFailuresError):
        run(sources, tmp_path / "dataset", MaxFailures(0))
    assert "more than --max-failures 0 allows" in show(tmp_path / "dataset").splitlines()[0]


def test_a_job_shows_itself_while_it_runs_and_what_was_heard_last_where_it_was_killed(
    sources: Path, tmp_path: Path
) -> None:
    dataset = DiskStorage(tmp_path / "dataset")
    command = [sys.executable, "-m", "shortgop", "prep", str(sources), "--out", str(tmp_path / "dataset")]
    job = subprocess.Popen([*command, "--runner", "inline"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + _PATIENCE_SECONDS
    while dataset.find(STATUS_KEY) is None:
        assert time.monotonic() < end
        assert job.poll() is None
        time.sleep(0.01)
    job.kill()
    job.wait()
    found = read_status(dataset)
    assert (found.state, found.pid, found.sources_total) == ("running", job.pid, 3)
    assert json.loads(show(tmp_path / "dataset", "--json"))["has_died"]
    assert ": it has died; the same command goes on from there" in show(tmp_path / "dataset").splitlines()[0]
    assert read_page(str(tmp_path / "dataset"), clips=0, seed=0).verdict.sentence.endswith("its process has died")
    run(sources, tmp_path / "dataset")
    assert read_status(dataset).state == "finished"


def test_without_a_job_there_is_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no job has left its progress in"):
        read_status(DiskStorage(tmp_path))
    (tmp_path / STATUS_KEY).write_text("{")
    with pytest.raises(CorruptDataError, match=r"\.status\.json is damaged"):
        read_status(DiskStorage(tmp_path))


def test_watching_ends_with_the_job(tmp_path: Path) -> None:
    found = JobStatus("host", 7, started=time.time(), written=time.time(), sources_total=2)

    def write(status: JobStatus) -> None:
        (tmp_path / "new").write_text(json.dumps(dataclasses.asdict(status)))
        (tmp_path / "new").rename(tmp_path / STATUS_KEY)

    write(found)
    end = threading.Timer(1, write, [dataclasses.replace(found, state="finished")])
    end.start()
    text = show(tmp_path, "--watch")
    end.join()
    assert "process 7 on host, finished" in text


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def unit(name: str) -> Unit:
    return Unit(name, (Item(Source(f"{name}.mp4", f"/v/{name}.mp4", f"{name}.mp4", "{}"), 1, 5_000_000),))


def test_rates_nodes_and_the_slowest_units() -> None:
    clock = Clock()
    board, tally = StatusBoard([], clock), Tally(ignore, clock)
    tally.tell(board)
    names = [f"u{number}" for number in range(8)]
    tally.plan([unit(name) for name in names], {f"{name}.mp4": Expected(100) for name in names})
    for number in range(7):
        tally.on_progress(UnitProgress(f"u{number}", 0, 100, node="a" if number % 2 else "b"))
        clock.now += 10 * (number + 1)
        tally.on_progress(UnitProgress(f"u{number}", 100, 100, node="a" if number % 2 else "b"))
        tally.on_result(UnitResult(f"u{number}", 1, 100, 1000 - number, ()))
    tally.on_progress(UnitProgress("u7", 30, 0, section=3, node="a"))
    tally.on_progress(UnitProgress("u7", 20, 0, section=4, node="b"))
    clock.now += 1
    found = board.status()
    assert found.nodes == {"a": 330, "b": 420}
    # Over the last minute and what lies between, 71 seconds: b encoded 100 frames of u6 and 20 of u7, a 30 of u7.
    assert found.node_rates == {"a": pytest.approx(30 / 71), "b": pytest.approx(120 / 71)}
    assert found.units_running == 1
    assert [task.source for task in found.slowest] == ["u6.mp4", "u5.mp4", "u4.mp4", "u3.mp4", "u2.mp4"]
    assert [task.seconds for task in found.slowest[:2]] == [70, 60]
    assert [task.source for task in found.largest] == ["u0.mp4", "u1.mp4", "u2.mp4", "u3.mp4", "u4.mp4"]
    assert [(task.source, task.frames, task.seconds, task.node) for task in found.running] == [
        ("u7.mp4", 50, 1, "a, b")
    ]
    assert found.bytes_in == 35_000_000
    # Over the last minute and what lies between: 150 frames in 70 seconds, and one second without.
    assert found.recent_frames_per_second == pytest.approx(150 / 71)
    assert found.seconds_left == pytest.approx(50 / (150 / 71))


@pytest.mark.parametrize("step", [-3600, 3600])
def test_nothing_is_lost_where_the_clock_of_the_machine_is_set(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    # A second copy of the module: a default argument of the first one may hold the real clock.
    spec = find_spec(StatusBoard.__module__)
    assert spec is not None
    assert spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    board, tally = copy.StatusBoard([unit("u0")]), Tally(ignore)
    tally.tell(board)
    tally.plan([unit("u0")], {"u0.mp4": Expected(100)})
    tally.on_progress(UnitProgress("u0", 0, 100, node="a"))
    now += step
    (task,) = board.status().running
    assert 0 <= task.seconds < 60
    tally.on_result(UnitResult("u0", 1, 100, 1000, ()))
    found = board.status("finished")
    assert sum(stretch.frames for stretch in found.history) == 100
    assert 0 <= found.written - found.started < 60
    # Readers compare it with their own clock.
    assert found.written == now


def test_a_unit_of_which_the_job_hears_late_took_as_long_as_its_worker_says() -> None:
    """A driver that publishes meanwhile hears that a unit has begun when it is nearly done."""
    clock = Clock()
    board = StatusBoard([unit("u0"), unit("u1")], clock)
    for name, seconds in (("u0", 5.0), ("u1", 1.0)):
        board.on_progress(UnitProgress(name, 50, 100))
        clock.now += 2.0
        board.on_result(UnitResult(name, 1, 100, 1000, (), seconds=seconds))
    assert [task.seconds for task in board.status().slowest] == [5.0, 2.0]


def test_what_a_worker_says_after_its_unit_is_done_is_not_counted_twice() -> None:
    board, tally = StatusBoard([unit("u0"), unit("u1")]), Tally(ignore)
    tally.plan([unit("u0"), unit("u1")], {"u0.mp4": Expected(100), "u1.mp4": Expected(100)})
    tally.tell(board)
    tally.on_progress(UnitProgress("u0", 80, 100, node="a"))
    tally.on_result(UnitResult("u0", 1, 100, 1000, ()))
    tally.on_progress(UnitProgress("u0", 100, 100, node="a"))
    # A unit that an earlier job had finished was encoded by no node of this one.
    tally.on_result(UnitResult("u1", 1, 100, 1000, ()))
    assert board.status().nodes == {"a": 100}
    assert board.status().running == ()


def test_a_unit_that_was_split_is_replaced_by_its_parts() -> None:
    """Ray's workers died of it, and each of its sources is tried alone."""
    whole = Unit("ab", unit("a").items + unit("b").items)
    parts = [unit("a"), unit("b")]
    clock = Clock()
    board, tally = StatusBoard([whole], clock), Tally(ignore, clock)
    tally.plan([whole], {"a.mp4": Expected(100), "b.mp4": Expected(60)})
    tally.tell(board)
    tally.on_progress(UnitProgress("ab", 70, 150))
    tally.on_split(whole, parts)
    found = board.status()
    assert (found.frames_done, found.frames_planned, found.running) == (0, 160, ())

    # What the dead worker said comes last.
    tally.on_progress(UnitProgress("ab", 80, 150))
    tally.on_progress(UnitProgress("a", 10, 90))
    clock.now += 3
    found = board.status()
    assert (found.frames_done, found.frames_planned) == (10, 160)
    assert [(task.source, task.frames, task.seconds) for task in found.running] == [("a.mp4", 10, 3)]

    tally.on_result(UnitResult("a", 1, 90, 1000, ()))
    tally.on_result(UnitResult("b", 0, 0, 0, (Failure("b.mp4", "b.mp4", "its worker died", "/v/b.mp4"),)))
    found = board.status()
    assert (found.sources_done, found.sources_total, found.sources_failed) == (2, 2, 1)
    assert (found.frames_done, found.frames_planned, found.bytes_in) == (90, 90, 10_000_000)
    assert [task.source for task in found.slowest] == ["a.mp4"]


def test_sources_that_are_not_looked_at_yet_count_as_much_as_the_others() -> None:
    clock = Clock()
    board, tally = StatusBoard([], clock), Tally(ignore, clock)
    tally.tell(board)
    tally.expect(8)
    tally.note("encoding")
    tally.plan([unit("a"), unit("b")], {"a.mp4": Expected(100), "b.mp4": Expected(60)})
    tally.on_progress(UnitProgress("a", 0, 100))
    clock.now += 10
    tally.on_result(UnitResult("a", 1, 100, 1000, ()))
    found = board.status()
    assert (found.sources_done, found.sources_planned, found.sources_total) == (1, 2, 8)
    assert (found.frames_planned, found.frames_expected) == (160, 640)
    assert found.note == "encoding; 2 of 8 sources looked at"
    (line,) = [line for line in status_lines(found, now=clock.now) if "640 frames," in line]
    assert line == "100 of about 640 frames, 10 frames/s while encoding (10 in the last minute), about 54 s left"
    rest = [unit(name) for name in "cdefgh"]
    tally.plan(rest, {f"{name}.mp4": Expected(50) for name in "cdefgh"})
    found = board.status()
    assert (found.note, found.frames_planned, found.frames_expected) == ("encoding", 460, 460)


def test_progress_that_comes_after_the_result_changes_nothing() -> None:
    """On Ray it goes another way. Of a unit that was given up, other sections may go on for a while."""
    board, tally = StatusBoard([unit("a")]), Tally(ignore)
    tally.plan([unit("a")], {"a.mp4": Expected(100)})
    tally.tell(board)
    tally.on_progress(UnitProgress("a", 50, 100, section=1, node="n"))
    tally.on_result(UnitResult("a", 1, 100, 1000, ()))
    before = board.status()
    tally.on_progress(UnitProgress("a", 60, 100, section=2, node="n"))
    after = board.status()
    assert after.running == ()
    assert (after.frames_done, after.frames_planned, after.nodes) == (100, 100, {"n": 100})
    of_time: dict[str, Any] = {
        "started": 0, "written": 0, "recent_frames_per_second": 0, "node_rates": {}, "history": (),
    }  # fmt: skip
    assert dataclasses.replace(after, **of_time) == dataclasses.replace(before, **of_time)


def test_a_source_that_was_cut_and_is_encoded_whole_counts_once() -> None:
    board = StatusBoard([unit("a")])
    board.on_progress(UnitProgress("a", 50, 0, section=0))
    board.on_progress(UnitProgress("a", 30, 0, section=1))
    board.on_progress(UnitProgress("a", 20, 100))
    assert [task.frames for task in board.status().running] == [20]


def test_nothing_runs_of_a_job_that_ended_early() -> None:
    board = StatusBoard([unit("a")])
    board.on_progress(UnitProgress("a", 50, 100))
    assert board.status().units_running == 1
    found = board.status("ended", "more sources failed than --max-failures allows")
    assert (found.units_running, found.running) == (0, ())


def test_a_running_job_in_a_folder_is_heard_of_when_its_file_changed(tmp_path: Path) -> None:
    status = JobStatus("host", 7, started=time.time() - 4000, written=time.time() - 3600)
    (tmp_path / STATUS_KEY).write_text(json.dumps(dataclasses.asdict(status)))
    assert "dead" not in show(tmp_path)


def test_a_report_hears_of_a_running_job_when_its_file_changed(empty_dataset: Path, s3_url: str) -> None:
    status = JobStatus("host", 7, started=time.time() - 4000, written=time.time() - 3600)
    (empty_dataset / STATUS_KEY).write_text(json.dumps(dataclasses.asdict(status)))
    put(f"{s3_url}/dataset/zarr.json", empty_dataset / "zarr.json")
    put(f"{s3_url}/dataset/{STATUS_KEY}", empty_dataset / STATUS_KEY)
    for place in (empty_dataset, f"{s3_url}/dataset"):
        assert read_page(str(place), clips=0, seed=0).verdict.mood == "running"
    os.utime(empty_dataset / STATUS_KEY, (1000, 1000))
    assert "has not been heard of for 1 h" in read_page(str(empty_dataset), clips=0, seed=0).verdict.sentence


def test_a_job_that_was_interrupted_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), status_kept(DiskStorage(tmp_path), StatusBoard([])):
        raise KeyboardInterrupt
    assert show(tmp_path).splitlines()[0].endswith(": it was interrupted")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"running": 3}', '{"node_work": []}', '{"pid": 1}'])
def test_a_damaged_status_is_named_and_keeps_no_job_from_its_work(
    text: str, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    run(constant_video.path, tmp_path / "dataset")
    (tmp_path / "dataset" / STATUS_KEY).write_text(text)
    with pytest.raises(CorruptDataError, match=r"\.status\.json is damaged; the next job replaces it"):
        read_status(DiskStorage(tmp_path / "dataset"))
    run(constant_video.path, tmp_path / "dataset")
    assert read_status(DiskStorage(tmp_path / "dataset")).state == "finished"


def test_what_a_later_version_adds_to_a_status_is_left_out(constant_video: SyntheticVideo, tmp_path: Path) -> None:
    run(constant_video.path, tmp_path / "dataset")
    written = read_status(DiskStorage(tmp_path / "dataset"))
    values = dataclasses.asdict(written) | {"new": 1}
    for each in (*values["slowest"], *values["node_work"].values()):
        each["new"] = 1
    assert values["slowest"]
    assert values["node_work"]
    (tmp_path / "dataset" / STATUS_KEY).write_text(json.dumps(values))
    assert read_status(DiskStorage(tmp_path / "dataset")) == written


def test_a_file_in_the_place_of_a_dataset_is_named_as_info_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = [CliRunner().invoke(app, [command, str(tmp_path / "file")]) for command in ("status", "info")]
    assert said[0].exit_code == said[1].exit_code == 1
    assert "is a file; give the folder that `shortgop prep --out` wrote" in said[0].output
    assert said[0].output == said[1].output


def test_a_file_counts_once_for_all_its_stretches() -> None:
    def stretch(name: str, start: int) -> Unit:
        part = Stretch(Fraction(start), Fraction(start + 1))
        source = unit(name).items[0].source._replace(part=part)
        return Unit(f"{name}{start}", (Item(source, 1, 5_000_000),))

    units = [stretch("a", 0), stretch("a", 1), stretch("b", 0), unit("c")]
    board = StatusBoard(units)
    for each in units:
        board.on_result(UnitResult(each.id, 1, 30, 1000, ()))
    assert board.status().bytes_in == 3 * 5_000_000
