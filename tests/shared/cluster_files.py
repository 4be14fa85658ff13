"""The files that bring a job to a cluster, and who can say whether they are right without a cluster."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RAY_JOB = ROOT / "jobs" / "kubernetes" / "rayjob.yaml"
RAY_CLUSTER = ROOT / "jobs" / "kubernetes" / "raycluster.yaml"
AWS = ROOT / "jobs" / "ray_up" / "aws.yaml"
MACHINES = ROOT / "jobs" / "ray_up" / "machines.yaml"
SLURM = ROOT / "jobs" / "slurm" / "prep.sbatch"
DOCKERFILE = ROOT / "Dockerfile"
_BIN = Path(sys.executable).parent


def loaded(file: Path) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(file.read_text())
    return values


def kuberay_schema(kind: str) -> dict[str, Any]:
    """KubeRay's schema of a RayJob, and that of a RayCluster: a RayJob has a whole one in its `rayClusterSpec`."""
    schema: dict[str, Any] = json.loads((ROOT / "tests" / "shared" / "kuberay_schema.json").read_text())
    if kind == "RayCluster":
        schema["properties"]["spec"] = schema["properties"]["spec"]["properties"]["rayClusterSpec"]
    return schema


def lint(program: str, *arguments: str, text: str | None = None) -> str:
    """What `hadolint` or `shellcheck` finds fault with; nothing if all is well. Skips the test on machines that the
    linter has no wheel for."""
    if platform.machine() != "x86_64" and not (_BIN / program).exists():
        pytest.skip(f"there is no wheel of {program} for this machine")
    done = subprocess.run(
        [str(_BIN / program), *arguments], input=text, capture_output=True, text=True, check=False
    )  # fmt: skip
    return done.stdout + done.stderr + ("" if done.returncode == 0 else f"status {done.returncode}")
