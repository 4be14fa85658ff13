"""`make gpu-check`: its harness with checks that end in every way; what can be tested of the checks without a GPU."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from check_process import run_check
from check_report import (
    Check,
    Ended,
    Outcome,
    exit_status,
    last_lines,
    limit_seconds,
    outcome_of,
    parse_report,
    results_name,
    table,
)
from hypothesis import given
from hypothesis import strategies as st
from run_checks import run_all

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def made_up_checks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))


def made_up(name: str, seconds: float = 20) -> Check:
    return Check(name, "what happens?", f"made_up_checks:{name}", seconds)


def came_of(name: str, tmp_path: Path, seconds: float = 20) -> Outcome:
    check = made_up(name, seconds)
    return outcome_of(check, run_check(check, tmp_path, seconds))


def test_a_check_that_passes_reports_its_figures(tmp_path: Path) -> None:
    outcome = came_of("passes", tmp_path)
    assert (outcome.result, outcome.why, outcome.figures) == ("passed", "", {"frames_per_second": 12.5})


def test_a_check_that_raises_has_failed_and_what_it_printed_is_kept(tmp_path: Path) -> None:
    outcome = came_of("fails", tmp_path)
    assert (outcome.result, outcome.why) == ("failed", "ValueError: frame 3 shows 4")
    assert outcome.log[0] == "before the failure"
    assert outcome.log[-1] == "ValueError: frame 3 shows 4"


def test_a_check_that_skips_says_why_and_has_failed_where_a_gpu_is_required(tmp_path: Path) -> None:
    check = made_up("skips")
    ended = run_check(check, tmp_path, 20)
    outcome = outcome_of(check, ended)
    assert (outcome.result, outcome.why, outcome.figures) == ("skipped", "there is no GPU", {"libcuda": False})
    required = outcome_of(check, ended, require_gpu=True)
    assert required.result == "failed"
    assert required.why == "skipped, and SHORTGOP_REQUIRE_GPU is set: there is no GPU"


def test_a_check_that_crashes_has_failed_and_keeps_what_it_had_found(tmp_path: Path) -> None:
    outcome = came_of("crashes", tmp_path)
    assert (outcome.result, outcome.why) == ("failed", "its process was ended by SIGSEGV")
    assert outcome.figures == {"opened": True}
    assert any("made_up_checks.py" in line for line in outcome.log), "the log says where it crashed"


def test_a_check_that_crashes_after_it_passed_has_failed(tmp_path: Path) -> None:
    outcome = came_of("crashes_after_its_end", tmp_path)
    assert (outcome.result, outcome.why) == ("failed", "it passed, and then its process was ended by SIGSEGV")


def test_a_check_that_hangs_is_killed_with_what_it_started_and_the_log_says_where_it_hung(tmp_path: Path) -> None:
    started = time.monotonic()
    outcome = came_of("hangs", tmp_path, seconds=3)
    assert time.monotonic() - started < 12
    assert (outcome.result, outcome.why) == ("failed", "it was killed: it took more than 3 s")
    assert any("in hangs" in line for line in outcome.log)
    status = Path(f"/proc/{outcome.figures['pid_of_child']}/stat")
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_a_check_that_exits_without_a_result_has_failed(tmp_path: Path) -> None:
    assert came_of("exits", tmp_path).why == "its process ended with status 7"


def test_garbage_does_no_harm(tmp_path: Path) -> None:
    outcome = came_of("leaves_garbage", tmp_path)
    # Its own last line goes on where the garbage ended without a line's end.
    assert (outcome.result, outcome.why) == ("failed", "its process ended without a result")
    assert outcome.figures == {}
    json.dumps(outcome.log)


def test_a_check_that_prints_without_end_is_killed(tmp_path: Path) -> None:
    assert came_of("prints_without_end", tmp_path).why == "it was killed: it printed more than 64 MB"


def test_all_checks_run_whatever_became_of_those_before_and_each_result_is_written_at_once(tmp_path: Path) -> None:
    names = ["crashes", "hangs", "leaves_garbage", "skips", "fails", "passes"]
    checks = [made_up(name, 2 if name == "hangs" else 20) for name in names]
    written = []

    def note(_: str) -> None:
        written.append(sorted((file.name, len(json.loads(file.read_text())["checks"])) for file in tmp_path.iterdir()))

    outcomes, path = run_all(checks, tmp_path / "none", tmp_path, total_seconds=100, note=note)
    assert [outcome.result for outcome in outcomes] == ["failed"] * 3 + ["skipped", "failed", "passed"]
    assert written[2::2] == [[("gpu-unknown.json", count)] for count in range(1, 6)]
    found = json.loads(path.read_text())
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 4, 1)
    assert [check["name"] for check in found["checks"]] == names
    assert found["not_run_yet"] == []
    assert exit_status(outcomes) == 1


def test_checks_for_which_no_time_is_left_are_skipped(tmp_path: Path) -> None:
    outcomes, _ = run_all([made_up("passes"), made_up("fails")], tmp_path, tmp_path, total_seconds=3)
    assert [(outcome.result, outcome.why) for outcome in outcomes] == [("skipped", "only 3 s were left")] * 2
    assert exit_status(outcomes) == 3


@given(
    limits=st.lists(st.floats(0.5, 100), max_size=20),
    total=st.floats(0, 500),
    share=st.floats(0, 1.1),
)
def test_checks_that_all_take_their_whole_time_and_grace_end_in_time(
    limits: list[float], total: float, share: float
) -> None:
    left = total
    for seconds in limits:
        limit = limit_seconds(Check("", "", "", seconds), left)
        if limit is not None:
            assert 0 < limit <= seconds
            # At worst a check that hangs takes the grace besides.
            left -= min(limit * share, limit) + 10 * (share > 1)
    assert left >= 0


@given(st.binary(max_size=300))
def test_a_report_of_any_bytes_can_be_read(data: bytes) -> None:
    parse_report(data)
    json.dumps(last_lines(data))
    outcome_of(made_up("passes"), Ended(0, 1.0, report=data, log=data))


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans())), st.integers(0, 400))
def test_lines_before_a_cut_are_read(figures: dict[str, object], cut: int) -> None:
    lines = [json.dumps({"figure": name, "value": value}) + "\n" for name, value in figures.items()]
    whole = len("".join(lines).encode()[:cut].decode().split("\n")) - 1
    report = parse_report("".join(lines).encode()[:cut])
    read = dict(list(figures.items())[:whole])
    # A line that lacks only its end is whole too.
    assert report.figures in (read, dict(list(figures.items())[: whole + 1]))
    assert report.result is None


def test_a_process_that_cannot_be_killed_is_left_behind() -> None:
    ended = Ended(None, 30.0, killed="it took more than 20 s")
    outcome = outcome_of(made_up("passes"), ended)
    assert outcome.why == "it was killed: it took more than 20 s, and its process has still not ended"


def test_the_exit_status_says_whether_all_passed() -> None:
    def outcomes(*results: str) -> list[Outcome]:
        return [Outcome("", "", result, "", 0) for result in results]  # type: ignore[arg-type]

    assert exit_status(outcomes("passed", "passed")) == 0
    assert exit_status(outcomes("passed", "skipped", "failed")) == 1
    assert exit_status(outcomes("passed", "skipped")) == 3
    assert exit_status([]) == 1, "nothing was shown"


def test_the_results_are_named_after_the_gpu() -> None:
    assert results_name("NVIDIA H100 80GB HBM3") == "gpu-nvidia-h100-80gb-hbm3"
    assert results_name(None) == "gpu-none"
    assert results_name("../../x") == "gpu-x"


def test_the_table_has_a_row_for_each_check_and_its_figures() -> None:
    passed = Outcome("caps", "", "passed", "", 1.25, {"engines": 7, "list": [1, 2]})
    failed = Outcome("loader", "", "failed", "batch 3\n differs", 20, {})
    assert table([passed, failed]).splitlines() == [
        "passed  caps      1.2 s",
        "        engines: 7",
        "failed  loader   20.0 s  batch 3 differs",
        "1 passed, 1 failed, 0 skipped",
    ]
