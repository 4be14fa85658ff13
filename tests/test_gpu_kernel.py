"""The kernel in Triton's interpreter, and compiled for GPUs that are not there: gpu_kernel_cases.py in a process of its
own, since Triton has to be told to interpret before anything imports it."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed: a torch without CUDA does not bring it",
)
def test_the_kernel_equals_plain_torch_and_compiles() -> None:
    cases = Path(__file__).with_name("gpu_kernel_cases.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", str(cases)],
        cwd=cases.parents[1],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "20 passed" in done.stdout
