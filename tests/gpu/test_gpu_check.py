"""`make gpu-check`: its harness with checks that end in every way, and its parsers."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from check_process import run_check
from check_report import (
    Check,
    Ended,
    Outcome,
    again,
    details,
    exit_status,
    last_lines,
    limit_seconds,
    outcome_of,
    parse_report,
    table,
    where_a_gpu_is_required,
)
from checks import CHECKS, ENVIRONMENT, NVDEC
from gpu_environment import files_below, gpus_of, import_error, libraries_of, names_in
from gpu_memory import grows
from hypothesis import given
from hypothesis import strategies as st
from run_checks import ROOT, run_all

SHARED = Path(__file__).parents[1] / "shared"


@pytest.fixture(autouse=True)
def made_up_checks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(SHARED), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))


def made_up(name: str, seconds: float = 20, *, needs_nvdec: bool = False) -> Check:
    return Check(name, "what happens?", f"made_up_checks:{name}", seconds, needs_nvdec)


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
    required = where_a_gpu_is_required(outcome)
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


@pytest.mark.long
def test_a_check_that_hangs_is_killed_with_what_it_started_and_the_log_says_where_it_hung(tmp_path: Path) -> None:
    started = time.monotonic()
    # On a busy machine it takes some seconds to start.
    outcome = came_of("hangs", tmp_path, seconds=7)
    assert time.monotonic() - started < 60
    assert (outcome.result, outcome.why) == ("failed", "it was killed: it took more than 7 s")
    assert any("in hangs" in line for line in outcome.log)
    status = Path(f"/proc/{outcome.figures['pid_of_child']}/stat")
    deadline = time.monotonic() + 60
    while is_running(status):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(status: Path) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return status.read_text().split()[2] != "Z"
    return False


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
    assert path is not None
    found = json.loads(path.read_text())
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 4, 1)
    assert [check["name"] for check in found["checks"]] == names
    assert found["not_run_yet"] == []
    assert exit_status(outcomes) == 1


def test_checks_go_on_where_their_results_cannot_be_written_and_these_are_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier file lies there, and the disk is full: that would be taken for these."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    results, notes = tmp_path / "results", list[str]()
    results.mkdir()
    (results / "gpu-unknown.json").write_text("of an earlier run")
    (results / "gpu-unknown.json.new").symlink_to("/dev/full")
    checks = [made_up("fails"), made_up("passes")]
    outcomes, path = run_all(checks, tmp_path, results, total_seconds=100, note=notes.append)
    assert [outcome.result for outcome in outcomes] == ["failed", "passed"]
    assert sum("--results FOLDER writes them elsewhere" in each for each in notes) == 2
    assert path is not None
    assert path.parent.name.startswith("gpu-check-results-")
    assert [check["result"] for check in json.loads(path.read_text())["checks"]] == ["failed", "passed"]


def test_checks_for_which_no_time_is_left_are_skipped(tmp_path: Path) -> None:
    outcomes, _ = run_all([made_up("passes"), made_up("fails")], tmp_path, tmp_path, total_seconds=3)
    assert [(outcome.result, outcome.why) for outcome in outcomes] == [("skipped", "only 3 s were left")] * 2
    assert exit_status(outcomes) == 3
    assert again(outcomes) == "--only passes fails"


def test_a_check_with_less_than_half_of_its_limit_is_not_started() -> None:
    """Each is left ten seconds of grace besides."""
    assert limit_seconds(made_up("passes", 60), left_seconds=100) == 60
    assert limit_seconds(made_up("passes", 60), left_seconds=41) == 31
    assert limit_seconds(made_up("passes", 60), left_seconds=39) is None


@pytest.mark.long
def test_a_check_that_is_cut_off_by_the_end_of_all_has_not_failed(tmp_path: Path) -> None:
    outcomes, path = run_all([made_up("hangs", 5)], tmp_path, tmp_path, total_seconds=13)
    assert [(outcome.result, outcome.why) for outcome in outcomes] == [("skipped", "time was up after 3 s")]
    assert outcomes[0].figures["first"] == 1, "what it had found is kept"
    assert again(outcomes) == "--only hangs"
    assert path is not None
    assert json.loads(path.read_text())["checks"][0]["lacked_time"]


def test_a_check_that_failed_before_the_end_of_all_has_failed() -> None:
    check, report = made_up("passes", 60), b'{"result": "failed", "why": "frame 3 shows 4"}\n'
    ended = Ended(-9, 31.0, killed="it took more than 31 s", time_was_up=True)
    assert outcome_of(check, ended, 31.0).result == "skipped"
    assert outcome_of(check, ended, 60.0).result == "failed"
    assert outcome_of(check, replace(ended, report=report), 31.0).why == "frame 3 shows 4"
    assert outcome_of(check, replace(ended, time_was_up=False), 31.0).result == "failed", "it printed too much"


def test_without_nvdec_the_checks_that_need_it_are_not_started(tmp_path: Path) -> None:
    """Its own check says why; all others run."""
    caps = replace(made_up("skips"), name=NVDEC)
    checks = [made_up("passes", needs_nvdec=True), caps, made_up("fails", needs_nvdec=True), made_up("exits")]
    outcomes, _ = run_all(checks, tmp_path, tmp_path, total_seconds=100)
    assert [outcome.result for outcome in outcomes] == ["passed", "skipped", "skipped", "failed"]
    assert outcomes[2].why == "nvdec-caps was skipped: there is no GPU"
    assert again(outcomes) == "", "more time would not help"


def test_checks_that_decode_on_the_gpu_need_nvdec() -> None:
    needing = {check.name for check in CHECKS if check.needs_nvdec}
    assert {
        "pyav-pictures",
        "reader-equal",
        "bench-long-videos",
        "nvcuvid-soak",
        "torchcodec",
        "ffmpeg-nvdec",
    } <= needing
    others = {ENVIRONMENT, NVDEC, "convert-equal", "reader-fallback", "loader-device", "ffmpeg-nvenc", "sanitizer"}
    assert not needing & others


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
    ended = Ended(None, 30.0, killed="it took more than 20 s", report=b'{"began_after_seconds": 0.1}\n')
    outcome = outcome_of(made_up("passes"), ended)
    assert outcome.why == "it was killed: it took more than 20 s, and its process has still not ended"


def test_the_exit_status_says_whether_all_passed() -> None:
    def outcomes(*results: str) -> list[Outcome]:
        return [Outcome("", "", result, "", 0) for result in results]  # type: ignore[arg-type]

    assert exit_status(outcomes("passed", "passed")) == 0
    assert exit_status(outcomes("passed", "skipped", "failed")) == 1
    assert exit_status(outcomes("passed", "skipped")) == 3
    assert exit_status([]) == 1, "nothing was shown"


def test_the_table_has_a_row_for_each_check_and_its_figures() -> None:
    passed = Outcome("caps", "", "passed", "", 1.25, {"engines": 7, "list": [1, 2]})
    failed = Outcome("loader", "", "failed", "batch 3\n differs", 20, {})
    assert table([passed, failed]).splitlines() == [
        "passed  caps      1.2 s",
        "        engines: 7",
        "failed  loader   20.0 s  batch 3 differs",
        "1 passed, 1 failed, 0 skipped",
    ]


def test_figures_of_several_values_are_printed_in_short() -> None:
    """And the end of what failed checks printed: what is printed may be all that comes back."""
    passed = Outcome("caps", "", "passed", "", 1, {"engines": 7, "codecs": {"h264": [8]}}, ("not shown",))
    failed = Outcome("loader", "", "failed", "", 1, {"rates": list(range(1000))}, ("line 1", "line 2"))
    codecs, rates, log = details([passed, failed]).splitlines()
    assert codecs == 'caps: codecs: {"h264":[8]}'
    assert rates.startswith("loader: rates: [0,1,2,3,")
    assert rates.endswith("...")
    assert len(rates) < 430
    assert log == "loader: printed last: line 1 | line 2"


def test_every_check_of_the_list_exists_once() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        module, _, name = check.function.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), check.function


def has_gpu() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.first_case_short
@pytest.mark.skipif(has_gpu(), reason="this machine may have a GPU")
@pytest.mark.parametrize(("require", "result", "status"), [("", "skipped", 3), ("1", "failed", 1)])
def test_without_a_gpu_all_is_skipped_at_once_and_says_why(
    tmp_path: Path, require: str, result: str, status: int
) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(ROOT / "gpu_check" / "run_checks.py"), "--results", str(tmp_path)],
        env={**os.environ, "SHORTGOP_REQUIRE_GPU": require},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert time.monotonic() - started < 20
    assert done.returncode == status, done.stderr
    found = json.loads((tmp_path / "gpu-none.json").read_text())
    assert [check["result"] for check in found["checks"]] == [result] * len(CHECKS)
    assert all("libcuda.so.1 cannot be loaded" in check["why"] for check in found["checks"])
    assert found["checks"][0]["figures"]["python"].startswith("3.")
    assert f"{len(CHECKS)} {result}" in done.stdout


def test_gpus_are_read_from_nvidia_smi() -> None:
    printed = "NVIDIA L4, 580.95.05, 23034 MiB\n"
    assert gpus_of(printed)[0]["name"] == "NVIDIA L4"
    assert gpus_of(printed)[0]["driver_version"] == "580.95.05"
    assert gpus_of("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n") == []
    assert gpus_of("") == []


def test_libraries_of_the_driver_are_read_from_ldconfig() -> None:
    printed = """1284 libs found in cache `/etc/ld.so.cache'
\tlibnvcuvid.so.1 (libc6,x86-64) => /usr/local/nvidia/lib64/libnvcuvid.so.1
\tlibnvcuvid.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnvcuvid.so.1
\tlibcudart.so.13 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.13
\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1
"""
    # The first of several is the one that is loaded.
    assert libraries_of(printed) == {
        "libnvcuvid.so.1": "/usr/local/nvidia/lib64/libnvcuvid.so.1",
        "libcuda.so.1": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    }


def test_names_are_found_as_words_of_what_ffmpeg_lists() -> None:
    listing = " V....D h264_nvenc           NVIDIA NVENC H.264 encoder (codec h264)\n V..... libx264rgb  x264\n"
    assert names_in(listing, ("h264_nvenc", "hevc_nvenc", "libx264")) == ["h264_nvenc"]


def test_files_of_video_libraries_are_found_some_folders_deep(tmp_path: Path) -> None:
    (tmp_path / "lib" / "current").mkdir(parents=True)
    library = tmp_path / "lib" / "current" / "libnvcuvid.so.580.95.05"
    library.touch()
    (tmp_path / "lib" / "libnvcuvid.so.1").symlink_to("current/libnvcuvid.so.580.95.05")
    (tmp_path / "lib" / "libcuda.so.1").touch()
    found = [f"{tmp_path}/lib/current/libnvcuvid.so.580.95.05"]
    link = f"{tmp_path}/lib/libnvcuvid.so.1 -> current/libnvcuvid.so.580.95.05"
    assert files_below([str(tmp_path), str(tmp_path / "missing")], ["libnvcuvid"], deepest=2) == [*found, link]
    assert files_below([str(tmp_path)], ["libnvcuvid"], deepest=1) == [link]


def test_a_module_that_cannot_be_imported_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert import_error("shortgop.readers.open_dataset") == ""
    assert import_error("shortgop.readers.no_such") == "ModuleNotFoundError: No module named 'shortgop.readers.no_such'"
    assert "Traceback" in capsys.readouterr().err


def test_memory_that_grows_is_told_from_what_is_allocated_once() -> None:
    assert not grows((100, 500, 520, 510, 515, 520))
    assert grows((100, 500, 520, 600, 700, 800))
    assert not grows((100.0,))


def test_the_page_lists_the_checks_in_their_order_and_runs_some_of_them() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    assert re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE) == [check.name for check in CHECKS]
    chosen = [name for names in re.findall(r'--only ([\w -]+)"', page) for name in names.split()]
    assert len(chosen) >= 4
    assert set(chosen) <= {check.name for check in CHECKS}
