"""The CPUs that a process can have: a container may run on all of a machine, and have the time of a few."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shortgop.comparison.machine import this_machine
from shortgop.machine_cpus import _limits, cpus_to_run_on, usable_cpus


def written(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_here() -> None:
    assert 1 <= usable_cpus() <= len(os.sched_getaffinity(0))


def test_a_system_that_binds_no_process_to_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as macOS."""
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cpus_to_run_on() == this_machine().cores == os.cpu_count()


@pytest.mark.parametrize(
    ("limit", "cpus"), [("800000 100000", [8]), ("250000 100000", [2]), ("50000 100000", [0]), ("max 100000", [])]
)
def test_version_2_as_kubernetes_and_docker_write_it(limit: str, cpus: list[int], tmp_path: Path) -> None:
    written(tmp_path / "self", "0::/pod/container\n")
    written(tmp_path / "pod" / "container" / "cpu.max", f"{limit}\n")
    assert list(_limits(tmp_path / "self", tmp_path)) == cpus


def test_the_group_above_may_leave_less(tmp_path: Path) -> None:
    written(tmp_path / "self", "0::/pod/container\n")
    written(tmp_path / "pod" / "container" / "cpu.max", "800000 100000\n")
    written(tmp_path / "pod" / "cpu.max", "400000 100000\n")
    assert list(_limits(tmp_path / "self", tmp_path)) == [8, 4]


def test_version_1_in_a_container(tmp_path: Path) -> None:
    written(tmp_path / "self", "5:cpuacct,cpu:/docker/abc\n4:memory:/docker/abc\n0::/\n")
    written(tmp_path / "cpu" / "cpu.cfs_quota_us", "300000\n")
    written(tmp_path / "cpu" / "cpu.cfs_period_us", "100000\n")
    assert list(_limits(tmp_path / "self", tmp_path)) == [3]
    written(tmp_path / "cpu" / "cpu.cfs_quota_us", "-1\n")
    assert list(_limits(tmp_path / "self", tmp_path)) == []


def test_neither(tmp_path: Path) -> None:
    assert list(_limits(tmp_path / "missing", tmp_path)) == []
