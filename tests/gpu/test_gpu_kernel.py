"""The kernel in Triton's interpreter, and compiled for GPUs that are not there: gpu_kernel_cases.py in a process of its
own, since Triton has to be told to interpret before anything imports it."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest


def interprets() -> bool:
    """Whether Triton's interpreter runs loops: that of 3.6, which torch 2.11 brings, does not with numpy 2.4."""
    return tuple(map(int, importlib.metadata.version("triton").split(".")[:2])) >= (3, 7)


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed: a torch without CUDA does not bring it",
)
def test_the_kernel_equals_plain_torch_and_compiles(tmp_path: Path) -> None:
    cases = Path(__file__).parents[1] / "shared" / "gpu_kernel_cases.py"
    chosen, passed = ((), 20) if interprets() else (("-k", "compiles"), 1)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", f"--basetemp={tmp_path / 'cases'}", str(cases), *chosen],
        cwd=cases.parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{passed} passed" in done.stdout
