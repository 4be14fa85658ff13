"""The processes of checks: the next one imports while a check runs, and all end with the harness."""

from __future__ import annotations

import json
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
    deadline = time.monotonic() + 90
    while not over():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_next_process_imports_while_a_check_runs_and_each_check_has_one_of_its_own(tmp_path: Path) -> None:
    first, second = came_of([made_up("waits_for_the_next_process"), made_up("tells_its_process")], tmp_path)
    assert (first.result, first.figures["ahead"]) == ("passed", False), "nothing ran before it"
    assert second.figures["ahead"] is True
    assert second.figures["process"] != first.figures["process"]


def test_the_time_of_a_check_counts_from_when_its_process_has_imported_ahead(tmp_path: Path) -> None:
    (tmp_path / "most.py").write_text("import time; time.sleep(4)")
    _, outcome = came_of([made_up("passes"), made_up("tells_its_process", seconds=20)], tmp_path)
    assert outcome.began_after_seconds == pytest.approx(0, abs=3)
    assert outcome.figures["seconds_left"] == pytest.approx(20, abs=3)


def test_what_is_imported_does_not_read_which_check_it_is(tmp_path: Path) -> None:
    (tmp_path / "most.py").write_text("import builtins, sys; builtins.ahead = sys.stdin.read() == ''")
    _, outcome = came_of([made_up("passes"), made_up("tells_its_process")], tmp_path)
    assert (outcome.result, outcome.figures["ahead"]) == ("passed", True)


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


def notes_of(checks: list[Check], tmp_path: Path, total_seconds: float = 200) -> tuple[list[Outcome], str]:
    """The outcomes, and why nothing was imported ahead any more, which is printed and in the file of results."""
    notes = list[str]()
    outcomes, path = run_all(checks, tmp_path, tmp_path, total_seconds=total_seconds, note=notes.append)
    assert path is not None
    said = json.loads(path.read_text())["not_ahead"]
    assert sum(said in note for note in notes) == 1
    return outcomes, str(said)


def test_where_the_imports_crash_checks_run_without_them(tmp_path: Path) -> None:
    """One library may crash that few checks use. Each check has all of its time."""
    crash = "import os, signal, time; time.sleep(2); print('loads', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    (tmp_path / "most.py").write_text(crash)
    outcomes, said = notes_of([made_up("tells_its_process")] * 3, tmp_path)
    assert [(outcome.result, outcome.figures["ahead"]) for outcome in outcomes] == [("passed", False)] * 3
    assert all(outcome.figures["seconds_left"] > 18 for outcome in outcomes)
    assert said.startswith("nothing is imported ahead any more: a process ended while it imported, and printed last: ")
    assert "most.py" in said


def test_where_the_imports_hang_checks_run_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is taken for one that hangs."""
    monkeypatch.setattr(check_process, "_IMPORT_SECONDS", 2.0)
    (tmp_path / "most.py").write_text("import time; print('loads', flush=True); time.sleep(600)")
    outcomes, said = notes_of([made_up("tells_its_process")] * 3, tmp_path)
    assert [(outcome.result, outcome.figures["ahead"]) for outcome in outcomes] == [("passed", False)] * 3
    assert said.endswith("a process still imported after more than 2 s, and printed last: loads")


def test_imports_that_hang_take_no_more_time_than_is_left_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_process, "_IMPORT_SECONDS", 2.0)
    (tmp_path / "most.py").write_text("import time; time.sleep(600)")
    outcomes, _ = notes_of([made_up("passes", 4), made_up("tells_its_process", 9)], tmp_path, total_seconds=20)
    assert outcomes[1].figures["seconds_left"] < 8.1


def test_a_check_whose_own_library_crashes_leaves_the_others_their_imports(tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    crashing = Check("crashing", "what happens?", "crashing:check", 20)
    _, crashed, other = came_of([made_up("passes"), crashing, made_up("tells_its_process")], tmp_path)
    assert crashed.why == "its process was ended by SIGSEGV, while it still imported"
    assert other.figures["ahead"] is True


@pytest.mark.long
def test_a_process_that_waits_for_long_prints_nothing(tmp_path: Path) -> None:
    """One that imports for long says where it is."""
    _, second = came_of([made_up("takes_seconds"), made_up("fails")], tmp_path)
    assert second.log[0] == "before the failure"
    (tmp_path / "most.py").write_text("import time; time.sleep(600)")
    assert "most.py" in notes_of([made_up("takes_seconds"), made_up("passes")], tmp_path)[1]


def test_files_of_a_check_that_is_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks write gigabytes."""
    monkeypatch.setattr(check_process, "_MOST_TMPDIR_BYTES", 1000)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (outcome,) = came_of([made_up("writes_and_crashes")], tmp_path)
    assert Path(outcome.figures["file"]).is_relative_to(temporary)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("length", [37, 38, 75])
def test_sockets_have_room_in_a_long_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """A socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # pytest's own folder is too long
        folder = Path(short, "t" * (length - len(short) - 1))
        folder.mkdir()
        monkeypatch.setenv("TMPDIR", str(folder))
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        (outcome,) = came_of([made_up("opens_a_socket")], Path(short))
        assert outcome.result == "passed", outcome.why


def test_the_room_for_temporary_files_is_that_of_the_machine(tmp_path: Path) -> None:
    (outcome,) = came_of([made_up("tells_room")], tmp_path)
    assert set(outcome.figures["room"]) == {tempfile.gettempdir(), "/dev/shm"}


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
