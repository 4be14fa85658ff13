"""Where and with what something was measured."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..machine_cpus import cpus_to_run_on

_LIBRARIES = (
    "shortgop", "av", "torch", "torchcodec", "numpy", "opencv-python-headless", "opencv-python", "decord",
    "eva-decord", "imageio", "spdl",
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """`cores` are those this process may run on; `load` is the system's load average over the last minute."""

    cpu: str
    cores: int
    system: str
    python: str
    versions: dict[str, str]
    date: str
    load: float


def this_machine() -> Machine:
    """The machine of this process, with its load now."""
    found = {}
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return Machine(
        cpu=_cpu(),
        cores=cpus_to_run_on(),
        system=platform.system(),
        python=platform.python_version(),
        versions=found,
        date=datetime.now(UTC).date().isoformat(),
        load=os.getloadavg()[0],
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
