"""What `make gpu-check` makes of the words of NVIDIA's compute-sanitizer."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from check_record import OutOfTime, Skipped
from gpu_conversion import by_torch
from gpu_sanitizer import ALL_RAN, FOUND_STATUS, NO_TRITON_STATUS, case_of_each_formula, checked_by, convert_all


def test_the_sanitizer_sees_each_formula_of_the_kernel() -> None:
    found = case_of_each_formula()
    assert sorted(found) == ["full chroma", "planes", "replicated", "tables"]
    convert_all(torch.device("cpu"), by_torch)


def program_that(tmp_path: Path, says: Sequence[str], status: int) -> str:
    """In place of compute-sanitizer: it writes down what it was asked, and runs nothing."""
    program = tmp_path / "compute-sanitizer"
    lines = [f"echo '{line}'" for line in says]
    said = [f'echo "$PYTORCH_NO_CUDA_MEMORY_CACHING $@" > {tmp_path}/asked', *lines, f"exit {status}"]
    program.write_text("\n".join(["#!/bin/sh", *said]))
    program.chmod(0o755)
    return str(program)


def test_what_the_sanitizer_finds_fails_its_check(tmp_path: Path) -> None:
    command = [sys.executable, "child.py"]
    says = ["========= COMPUTE-SANITIZER", "replicated: ...", ALL_RAN, "========= ERROR SUMMARY: 0 errors"]
    assert checked_by(program_that(tmp_path, says, 0), command, 60) == "ERROR SUMMARY: 0 errors"
    asked = (tmp_path / "asked").read_text().split()
    assert asked == ["1", "--tool", "memcheck", "--error-exitcode", str(FOUND_STATUS), *command]
    invalid = ["========= Invalid __global__ read of size 1 bytes", "========= ERROR SUMMARY: 1 error"]
    with pytest.raises(RuntimeError, match="found errors: Invalid __global__ read of size 1 bytes; .* 1 error"):
        checked_by(program_that(tmp_path, invalid, FOUND_STATUS), command, 60)
    with pytest.raises(RuntimeError, match="ended with status 1: Target application terminated"):
        checked_by(program_that(tmp_path, ["========= Target application terminated"], 1), command, 60)
    with pytest.raises(Skipped, match="Triton does not run"):
        checked_by(program_that(tmp_path, [], NO_TRITON_STATUS), command, 60)


def test_a_sanitizer_that_runs_nothing_has_shown_nothing(tmp_path: Path) -> None:
    """One that does not fit the driver may end with success, and one in gVisor says that there is no device for it."""
    clean = ["========= COMPUTE-SANITIZER", "========= ERROR SUMMARY: 0 errors"]
    with pytest.raises(RuntimeError, match="did not run all: ERROR SUMMARY: 0 errors"):
        checked_by(program_that(tmp_path, clean, 0), ["python"], 60)
    refused = ["========= COMPUTE-SANITIZER", "========= Error: Device not supported. See the documentation"]
    with pytest.raises(Skipped, match="does not run here: Error: Device not supported"):
        checked_by(program_that(tmp_path, refused, 1), ["python"], 60)


def test_a_sanitizer_that_is_slow_has_found_nothing_wrong(tmp_path: Path) -> None:
    """Nor is the program waited for that it runs, which holds its output open."""
    program = tmp_path / "compute-sanitizer"
    program.write_text("#!/bin/sh\necho ========= COMPUTE-SANITIZER\nsleep 30\n")
    program.chmod(0o755)
    started = time.monotonic()
    with pytest.raises(OutOfTime, match=r"^compute-sanitizer had not ended after 1 s$"):
        checked_by(str(program), ["python"], 1)
    assert time.monotonic() - started < 25
