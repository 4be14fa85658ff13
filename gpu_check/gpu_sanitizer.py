"""The conversion kernel under NVIDIA's compute-sanitizer, which sees each access outside of what is allocated.

`gpu_sanitizer.py` alone is what runs under it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import torch
from check_record import OutOfTime, Record, Skipped
from gpu_conversion import Case, Fill, cases, empty_slots, filled
from gpu_driver import require_gpu

from shortgop.readers.frame_format import PixelFormat
from shortgop.readers.gpu.conversion_plan import Formula
from shortgop.readers.gpu.surface_conversion import conversion_way
from shortgop.readers.gpu.torch_conversion import checked_plan
from shortgop.readers.gpu.triton_conversion import launch

PROGRAM, FOLDER = "compute-sanitizer", "/usr/local/cuda/bin"
# What it ends with where it found something, and what this module ends with where Triton does not run.
FOUND_STATUS, NO_TRITON_STATUS = 9, 8
# What this module prints behind its last conversion. A compute-sanitizer that does not fit the driver may run nothing
# and report no error.
ALL_RAN = "all formulas ran"
# What it says where it cannot be used, as in gVisor.
_REFUSED = "device not supported"
_LARGEST = 96
_COLORS = (PixelFormat(), PixelFormat(color="grey"))


def memcheck(record: Record) -> None:
    """One case of each formula under memcheck. Skipped where the program is not installed."""
    require_gpu()
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=FOLDER)
    if program is None:
        raise Skipped(f"{PROGRAM} is neither on the PATH nor in {FOLDER}; it comes with NVIDIA's CUDA toolkit")
    seconds = record.measure_until - time.perf_counter()
    record.figure("what it says", checked_by(program, [sys.executable, str(Path(__file__).resolve())], seconds))


def checked_by(program: str, command: Sequence[str], seconds: float) -> str:
    """The last line that compute-sanitizer prints about this command. RuntimeError where it found something, or did not
    run all of it, Skipped where it cannot run it, OutOfTime where it has not ended after so many seconds."""
    argv = [program, "--tool", "memcheck", "--error-exitcode", str(FOUND_STATUS), *command]
    # Memory that torch keeps for later would hide accesses beyond a tensor.
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        status = None
        # No pipes: where it is killed, the program that it runs would hold them open.
        with suppress(subprocess.TimeoutExpired):
            status = subprocess.run(argv, env=env, stdout=out, stderr=errors, timeout=seconds, check=False).returncode
        stdout, stderr = _all_of(out), _all_of(errors)
    print(stdout, stderr, sep="\n")
    if status is None:
        raise OutOfTime(f"{PROGRAM} had not ended after {seconds:.0f} s")
    said = [line.strip("= \t") for line in stdout.splitlines() if line.startswith("=====")]
    if status == NO_TRITON_STATUS:
        raise Skipped(f"Triton does not run: {(stderr.strip().splitlines() or ['no reason is given'])[-1]}")
    if refused := [line for line in said if _REFUSED in line.lower()]:
        raise Skipped(f"{PROGRAM} does not run here: {refused[0]}")
    if status == FOUND_STATUS:
        raise RuntimeError(f"{PROGRAM} found errors: {'; '.join(said[:4])} ... {said[-1] if said else ''}")
    if status:
        last = "; ".join(said[-2:]) or stderr[-300:]
        raise RuntimeError(f"{PROGRAM} ended with status {status}: {last}")
    if ALL_RAN not in stdout.splitlines():
        raise RuntimeError(f"{PROGRAM} found no error, and did not run all: {said[-1] if said else 'it says nothing'}")
    return said[-1] if said else "nothing"


def _all_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def case_of_each_formula() -> dict[Formula, Case]:
    """Small frames of both depths by which of the kernel's formulas converts them."""
    found: dict[Formula, Case] = {}
    for pixels in _COLORS:
        for case in cases(pixels, largest=_LARGEST):
            for surface, geometry in zip(case.surfaces, case.geometries, strict=True):
                alone = Case([surface], [geometry], pixels, case.packed)
                (slot,) = empty_slots(alone, torch.device("cpu"))
                found.setdefault(checked_plan(surface, geometry, slot, pixels).formula, alone)
    return found


def convert_all(device: torch.device, fill: Fill) -> None:
    for formula, case in case_of_each_formula().items():
        filled(case, device, fill)
        print(f"{formula}: {case.geometries[0]}")


def main() -> None:
    device = torch.device("cuda", 0)
    way = conversion_way(device)
    if way.name != "triton":
        print(way.reason, file=sys.stderr)
        sys.exit(NO_TRITON_STATUS)
    convert_all(device, launch)
    torch.cuda.synchronize()
    print(ALL_RAN)


if __name__ == "__main__":
    main()
