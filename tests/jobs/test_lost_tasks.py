"""Steps whose workers Ray's memory monitor kills, and steps whose results are lost, on a cluster that would retry them
without end. All jobs run on the same cluster, whose head runs no step; its machines change from test to test."""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from datasets import make_dataset, rows_of
from loader_helpers import comes_true
from own_units import make_own_units
from ray_heads import cluster_of
from shortgop.jobs.cluster import ray_runner
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.jobs.progress.job_status import read_status
from shortgop.jobs.sources import failing
from shortgop.manifests.dataset_files.parts import finished_units
from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

# The monitor of such a machine kills every worker as soon as it does something.
_LACKS_MEMORY = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "100"}
_PATIENCE_SECONDS = 120
_GB = 10**9
# Takes memory as long as the process that started it is there, but no more than the machine has.
_TAKES_MEMORY = """
import os, time
parent, held = os.getppid(), []
while os.getppid() == parent and len(held) < 100:
    held.append(b"x" * 50_000_000)
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a cluster whose only machine lacks memory, and which sends no result along with its answer."""
    head = {"num_cpus": 0, "_system_config": {"max_direct_call_object_size": 0}}
    with cluster_of(head, {"num_cpus": 2, "env_vars": _LACKS_MEMORY}) as (cluster, (_, lacking)):
        cluster.lacking = lacking
        yield cluster


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_own_units(tmp_path_factory.mktemp("sources") / "videos", 2)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_runner, "_FIRST_WAIT_SECONDS", 0.1)


def run(sources: Path, dataset: Path, cluster: Any, notes: set[str] | None = None) -> Report:
    """Run a job; what it says of itself is added to `notes`."""
    said = set[str]() if notes is None else notes
    return prepare(
        [str(sources)], DiskStorage(dataset), Profile(), where=Where(address=cluster.address),
        on_update=lambda progress: said.add(progress.note),
    )  # fmt: skip


def test_sources_for_which_there_is_no_memory_are_set_aside_each_for_itself(cluster: Any, tmp_path: Path) -> None:
    """Both are one unit, which is split. The job ends, and says what may help; at last it tried each alone."""
    notes: set[str] = set()
    corpus, dataset = tmp_path / "corpus", tmp_path / "dataset"
    corpus.mkdir()
    for name in ("0.mp4", "1.mp4"):
        make_video(corpus / name, pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30))
    report = run(corpus, dataset, cluster, notes)
    assert report.videos_added == 0
    assert {failure.id for failure in report.failures} == {"0.mp4", "1.mp4"}
    for failure in report.failures:
        assert "its worker died 4 times, in the end because its machine ran out of memory; take" in failure.reason
        assert "running low on memory" in failure.reason, "what Ray says"
    status = read_status(DiskStorage(dataset))
    assert (status.sources_done, status.sources_total, status.running) == (2, 2, ())
    assert any(
        note.endswith("1 unit may need more memory than any machine has and will run alone on one") for note in notes
    )
    again = run(corpus, dataset, cluster).failures
    assert [failure.reason.endswith("--retry-failed tries it again") for failure in again] == [True, True]


def test_a_unit_is_tried_again_on_a_machine_that_has_memory(
    sources: Path, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one kills its first attempt, and would kill the next ones as well: it is always free."""
    cluster.sound = cluster.add_node(num_cpus=1)
    avoided: list[frozenset[str]] = []
    selector = ray_runner.elsewhere
    monkeypatch.setattr(ray_runner, "elsewhere", lambda machines: avoided.append(machines) or selector(machines))  # type: ignore[func-returns-value]
    report = run(sources, tmp_path / "dataset", cluster)
    assert (report.videos_added, report.failures) == (2, ())
    assert set(avoided) == {frozenset(), frozenset({cluster.lacking.node_id})}
    make_dataset([sources], tmp_path / "plain")
    assert rows_of(tmp_path / "dataset") == rows_of(tmp_path / "plain")


def test_a_step_whose_result_is_lost_with_its_machine_is_done_again(
    sources: Path, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver takes no result until the unit is finished and its machine is gone. The next attempt finds it done."""
    cluster.remove_node(cluster.lacking)
    lost: list[int | None] = []

    class Losses(failing.Losses):
        def add(self, key: Hashable, machines_lost: int | None) -> bool:
            lost.append(machines_lost)
            return super().add(key, machines_lost)

    def ended(references: Sequence[Any], plainly: Any = ray_runner.ended) -> list[Any]:
        if cluster.sound is not None:
            assert comes_true(lambda: bool(finished_units(DiskStorage(tmp_path / "dataset"))), _PATIENCE_SECONDS)
            # The worker still has to return.
            time.sleep(1)
            cluster.remove_node(cluster.sound, allow_graceful=False)
            cluster.sound = None
            cluster.add_node(num_cpus=1)
        found: list[Any] = plainly(references)
        return found

    monkeypatch.setattr(ray_runner, "Losses", Losses)
    monkeypatch.setattr(ray_runner, "ended", ended)
    report = run(sources / "0.mp4", tmp_path / "dataset", cluster)
    assert (report.videos_added, report.failures) == (1, ())
    assert len(lost) == 1
    assert lost[0] is not None, "the machine was lost, not the worker alone"


def memory_of_this_machine() -> tuple[int, int]:
    """All of it, and what is in use, in bytes."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    found = {words[0]: int(words[1]) * 1024 for words in lines}
    return found["MemTotal:"], found["MemTotal:"] - found["MemAvailable:"]


# It takes three gigabytes of the machine, and nothing else may take much meanwhile.
@only_in_a_sweep
def test_units_beside_one_that_takes_all_memory_are_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray kills their workers, too."""
    total_bytes, used_bytes = memory_of_this_machine()
    if total_bytes - used_bytes < 8 * _GB:
        pytest.skip("it takes a machine with 8 GB of memory to spare")
    program = tmp_path / "ffmpeg"
    (tmp_path / "takes_memory.py").write_text(_TAKES_MEMORY)
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *2.mp4*) exec "{sys.executable}" "{tmp_path}/takes_memory.py";; *.mp4*) sleep 2;; esac\n'
        f'exec "{find_ffmpeg().path}" "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(program))
    monkeypatch.setattr(ray_runner, "_FIRST_WAIT_SECONDS", 2.0)
    threshold = {"RAY_memory_usage_threshold": str((used_bytes + 3 * _GB) / total_bytes)}
    with cluster_of({"num_cpus": 2, "memory": 4 * _GB, "env_vars": threshold}) as (own, _):
        report = run(make_own_units(tmp_path / "videos", 4), tmp_path / "dataset", own)
    assert (report.videos_added, [failure.id for failure in report.failures]) == (3, ["2.mp4"])
    assert "its machine ran out of memory" in report.failures[0].reason
