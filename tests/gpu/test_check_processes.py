"""The processes of checks: the next one imports while a check runs, and all end with the harness."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import check_process
import pytest
from check_process import CHILD
from check_report import Check, Outcome
from checks import ENVIRONMENT
from run_checks import run_all

from started_processes import descendants

SHARED = Path(__file__).parents[1] / "shared"
# What is imported ahead: it marks the processes in which it was, and the folder in which it lies.
MARKS = "import builtins, pathlib; builtins.ahead = True; pathlib.Path(__file__).with_name('imported').touch()"


@pytest.fixture(autouse=True)
def made_up_checks_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paths = [str(SHARED), str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    monkeypatch.setattr(check_process, "AHEAD", "most")
    (tmp_path / "most.py").write_text(MARKS)


def made_up(name: str, seconds: float = 20) -> Check:
    return Check(name, "what happens?", f"made_up_checks:{name}", seconds)


def came_of(checks: list[Check], tmp_path: Path) -> list[Outcome]:
    """The outcomes, of which nothing is left behind."""
    before = {number for number, _ in descendants(os.getpid())}
    outcomes, _ = run_all(checks, tmp_path, tmp_path, total_seconds=200)
    wait_until(lambda: {number for number, _ in descendants(os.getpid())} <= before)
    return outcomes


def wait_until(over: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not over():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_next_process_imports_while_a_check_runs_and_each_check_has_one_of_its_own(tmp_path: Path) -> None:
    first, second = came_of([made_up("waits_for_the_next_process"), made_up("tells_its_process")], tmp_path)
    assert (first.result, first.figures["ahead"]) == ("passed", False), "nothing ran before it"
    assert second.figures["ahead"] is True
    assert second.figures["process"] != first.figures["process"]


def test_the_time_of_a_check_counts_from_when_it_is_asked_for(tmp_path: Path) -> None:
    """Also where its process still imports then."""
    (tmp_path / "most.py").write_text("import time; time.sleep(2)")
    _, outcome = came_of([made_up("passes"), made_up("tells_its_process", seconds=20)], tmp_path)
    began = outcome.began_after_seconds
    assert began is not None
    assert began < outcome.seconds
    assert outcome.figures["seconds_left"] == pytest.approx(20 - began, abs=0.5)


def test_a_check_that_needs_no_wheels_has_a_process_that_imported_nothing(tmp_path: Path) -> None:
    environment = replace(made_up("tells_its_process"), name=ENVIRONMENT)
    outcomes = came_of([made_up("tells_its_process"), environment, made_up("tells_its_process")], tmp_path)
    assert [outcome.figures["ahead"] for outcome in outcomes] == [False, False, True]


def test_processes_that_no_check_gets_are_ended(tmp_path: Path) -> None:
    """Without a GPU no other check is started."""
    environment = replace(made_up("skips"), name=ENVIRONMENT)
    outcomes = came_of([environment, made_up("passes"), made_up("passes")], tmp_path)
    assert [outcome.result for outcome in outcomes] == ["skipped"] * 3


def test_where_the_imports_fail_a_check_has_a_fresh_process_and_errors_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "most.py").write_text("import builtins; builtins.ahead = True\nraise ImportError('no torch')")
    checks = [made_up("passes"), made_up("tells_its_process"), made_up("imports_what_is_not_there")]
    _, second, third = came_of(checks, tmp_path)
    assert second.figures["ahead"] is False
    assert second.result == "passed"
    assert third.why == "ModuleNotFoundError: No module named 'no_such_module'"


def test_where_the_imports_crash_checks_run_without_them(tmp_path: Path) -> None:
    """One library may crash that few checks use."""
    (tmp_path / "most.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    outcomes = came_of([made_up("tells_its_process")] * 3, tmp_path)
    assert [(outcome.result, outcome.figures["ahead"]) for outcome in outcomes] == [("passed", False)] * 3


def test_imports_that_hang_cost_one_check_its_time_and_are_told(tmp_path: Path) -> None:
    (tmp_path / "most.py").write_text("import time; time.sleep(600)")
    checks = [made_up("passes"), made_up("passes", seconds=1), made_up("passes"), made_up("passes")]
    _, hung, *others = came_of(checks, tmp_path)
    assert (hung.result, hung.why) == ("failed", "it was killed: it took more than 1 s, while it still imported")
    assert [outcome.result for outcome in others] == ["passed"] * 2


def test_what_crashes_a_check_of_itself_is_told(tmp_path: Path) -> None:
    outcomes = came_of([made_up("waits_for_the_next_process"), made_up("crashes")], tmp_path)
    assert outcomes[1].why == "its process was ended by SIGSEGV"


@pytest.mark.long
def test_a_process_that_waits_for_long_prints_nothing(tmp_path: Path) -> None:
    """One that imports for long says where it is."""
    _, second = came_of([made_up("takes_seconds"), made_up("fails")], tmp_path)
    assert second.log[0] == "before the failure"
    (tmp_path / "most.py").write_text("import time; time.sleep(600)")
    _, hung = came_of([made_up("takes_seconds"), made_up("fails", seconds=1)], tmp_path)
    assert any("most.py" in line for line in hung.log)


def test_files_of_a_check_that_is_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks write gigabytes."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (outcome,) = came_of([made_up("writes_and_crashes")], tmp_path)
    assert Path(outcome.figures["file"]).is_relative_to(temporary)
    assert list(temporary.iterdir()) == []


HARNESS = """
import sys
from pathlib import Path
import check_process
from check_report import Check
from run_checks import run_all
check_process.AHEAD = "most"
checks = [Check("hangs", "what happens?", "made_up_checks:hangs", 60)] * 2
run_all(checks, Path(sys.argv[1]), Path(sys.argv[1]), total_seconds=500)
"""


@pytest.mark.parametrize("imports", ["", "import time; time.sleep(900)"], ids=["waiting", "importing"])
def test_a_check_what_it_started_and_the_next_process_end_where_the_harness_is_killed(
    tmp_path: Path, imports: str
) -> None:
    """As by what bounds the time of all: the next run would share the GPU with them."""
    (tmp_path / "most.py").write_text(imports)
    gpu_check = str(SHARED.parents[1] / "gpu_check")
    path = os.pathsep.join([gpu_check, os.environ["PYTHONPATH"]])
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, str(tmp_path)], env={**os.environ, "PYTHONPATH": path})
    try:
        wait_until(lambda: any("time.sleep(600)" in what for _, what in descendants(harness.pid)))
        started = list(descendants(harness.pid))
    finally:
        harness.kill()
        harness.wait()
    assert any("most" in what.split() for _, what in started)
    wait_until(lambda: not any(Path(f"/proc/{number}").exists() for number, _ in started))


def test_a_process_ends_where_the_harness_was_killed_before_it_told_which_check_it_is(tmp_path: Path) -> None:
    reading, asking = os.pipe()
    os.close(asking)
    done = subprocess.run(
        [sys.executable, str(CHILD), str(tmp_path / "report")],
        stdin=reading,
        start_new_session=True,
        capture_output=True,
        timeout=30,
        check=False,
    )
    os.close(reading)
    assert done.stderr == b""
