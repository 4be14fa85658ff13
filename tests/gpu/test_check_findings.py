"""What a check of `make gpu-check` tells beside its result: what it had no time for, and what shortgop warned of."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from check_process import run_check
from check_report import Check, Outcome, again, outcome_of, results_name
from gpu_environment import why_not_torch

SHARED = Path(__file__).parents[1] / "shared"


@pytest.fixture(autouse=True)
def made_up_checks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(SHARED), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))


def came_of(name: str, tmp_path: Path, seconds: float = 20) -> Outcome:
    """Run for 20 s, of so many seconds that it has of its own."""
    check = Check(name, "what happens?", f"made_up_checks:{name}", seconds)
    return outcome_of(check, run_check(check, tmp_path, 20), 20)


def test_a_check_that_had_no_time_for_all_has_not_passed_and_is_named_to_run_again(tmp_path: Path) -> None:
    outcome = came_of("measures_a_part", tmp_path, seconds=30)
    assert (outcome.result, outcome.figures, outcome.hung) == ("skipped", {"first": 1}, False)
    assert outcome.why == "there was no time to measure 1 reader: second"
    assert again([outcome]) == "--only measures_a_part"
    assert again([came_of("measures_a_part", tmp_path)]) == "", "it had its whole limit, and would again"


def test_a_check_that_failed_and_had_no_time_for_all_is_named_to_run_again_too(tmp_path: Path) -> None:
    outcome = came_of("fails_and_measures_a_part", tmp_path, seconds=30)
    assert (outcome.result, outcome.lacked_time, outcome.hung) == ("failed", True, False)
    assert outcome.why.endswith("first: wrong; there was no time to measure second")
    assert again([outcome]) == "--only fails_and_measures_a_part"


def test_the_results_are_named_after_the_gpu() -> None:
    assert results_name("NVIDIA H100 80GB HBM3") == "gpu-nvidia-h100-80gb-hbm3"
    assert results_name("NVIDIA H200 MIG 1g.18gb") == "gpu-nvidia-h200-mig-1g-18gb"
    assert results_name(None) == "gpu-none"
    assert results_name("../../x") == "gpu-x"


def test_what_shortgop_warns_of_is_among_the_figures(tmp_path: Path) -> None:
    """It went another way than it should, and the frames are right: nobody would know."""
    outcome = came_of("warns_and_passes", tmp_path)
    assert outcome.result == "passed"
    assert outcome.figures == {"warnings": ["frames are converted by plain torch"]}


def test_where_an_error_was_raised_is_among_the_figures(tmp_path: Path) -> None:
    """That of the first cause: the last lines of the log are about the error that came of it."""
    outcome = came_of("fails_below", tmp_path)
    assert outcome.why == "RuntimeError: no frames are counted"
    first, last = outcome.figures["raised at"]
    assert re.fullmatch(r"tests/shared/made_up_checks\.py:\d+ fails_below", first)
    assert re.fullmatch(r"readers/gpu/annex_b\.py:\d+ annex_b", last)


def test_of_an_error_in_a_library_the_line_that_called_it_is_told(tmp_path: Path) -> None:
    (place,) = came_of("fails_in_a_library", tmp_path).figures["raised at"]
    assert re.fullmatch(r"tests/shared/made_up_checks\.py:\d+ fails_in_a_library", place)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU that torch uses")
def test_where_torch_does_not_use_a_gpu_it_is_said_why() -> None:
    """torch.cuda.is_available says no, and all checks that need torch's CUDA would be skipped without a reason."""
    said = why_not_torch()
    assert said.startswith(f"torch {torch.__version__} does not use the GPU: ")
    assert "compiled" in said or "driver" in said.lower()
