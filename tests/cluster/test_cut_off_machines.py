"""A machine that loses its network holds a job up for a minute at most after its other machines have nothing to do,
whatever Ray says of it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

import cluster_chaos
import driver_without_patience
from chaos_corpus import run
from cluster_chaos import assert_same
from dataset_places import folders
from loader_helpers import comes_true
from ray_machines import Machines, machines, may_have_networks, start_all
from shortgop.errors import ShortGopError
from shortgop.jobs.progress.job_status import read_status
from shortgop.jobs.units_of_work.where import Where
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.interface import Storage
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not may_have_networks(), reason="machines need networks of their own"),
]

_PATIENCE_SECONDS = 120
# Keeps the core of the first machine until a file is there.
_KEEP_BUSY = """
import sys, time
from pathlib import Path
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init(address=sys.argv[1], log_to_driver=False)
begun, ending = map(Path, sys.argv[2:])
def keep():
    begun.touch()
    while not ending.exists():
        time.sleep(0.1)
here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
ray.get(ray.remote(num_cpus=1)(keep).options(scheduling_strategy=here).remote())
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "sources").mkdir()
    path = tmp_path / "sources" / "small0.mp4"
    make_video(path, pts=constant_rate_pts(Fraction(30), 20), timebase=Fraction(1, 30))
    return path


@contextlib.contextmanager
def busy_head(cluster: Machines, folder: Path) -> Iterator[None]:
    """Start the machines, and keep the only core of the head busy in the block, so that Ray gives work to the other
    one."""
    start_all(cluster)
    head, begun, ending = cluster.all["head"], folder / "begun", folder / "ending"
    command = [sys.executable, "-c", _KEEP_BUSY, cluster.address, str(begun), str(ending)]
    keeping = subprocess.Popen(head.at(command), env=cluster.environment | head.own_environment)
    try:
        cluster.wait(begun.exists, "a busy head")
        yield
    finally:
        ending.touch()
        keeping.wait(_PATIENCE_SECONDS)


@contextlib.contextmanager
def job(program: str, cluster: Machines, source: Path, dataset: Storage) -> Iterator[subprocess.Popen[bytes]]:
    head = cluster.all["head"]
    command = [sys.executable, *program.split(), str(source.parent), dataset.url, cluster.address]
    with subprocess.Popen(head.at(command), env=cluster.environment | head.own_environment) as process:
        try:
            yield process
        finally:
            process.kill()


def encodes(dataset: Storage) -> bool:
    """Whether the job has given its steps to Ray."""
    try:
        return read_status(dataset).note.startswith("encoding")
    except ShortGopError:
        return False


def assert_done(dataset: Storage, source: Path, folder: Path) -> None:
    undisturbed = folders(folder).new()
    run(source.parent, undisturbed, Where("inline"))
    assert_same(dataset, undisturbed)


@only_in_a_sweep
def test_a_job_ends_though_ray_waits_for_the_answer_of_a_machine_that_it_asked_for_a_worker(
    source: Path, tmp_path: Path
) -> None:
    """Ray, which takes the machine for alive, asks no other one meanwhile. The driver was told of nothing."""
    settings = {
        "RAY_health_check_failure_threshold": "1000",
        "RAY_max_pending_lease_requests_per_scheduling_category": "1",
    }
    dataset = folders(tmp_path).new()
    with machines(separate=True, names=("head", "a"), environment=settings) as cluster, contextlib.ExitStack() as stack:
        with busy_head(cluster, tmp_path):
            cluster.all["a"].cut_off()
            process = stack.enter_context(job(driver_without_patience.__file__, cluster, source, dataset))
            assert comes_true(lambda: encodes(dataset), _PATIENCE_SECONDS)
            assert process.poll() is None
        began = time.monotonic()
        assert process.wait(_PATIENCE_SECONDS) == 0
        assert 5 < time.monotonic() - began < 60, "three times five seconds"
        assert cluster.all["a"].ip in cluster.alive()
    assert_done(dataset, source, tmp_path)


@only_in_a_sweep
def test_a_job_ends_though_ray_never_says_that_a_step_was_lost_with_its_machine(source: Path, tmp_path: Path) -> None:
    """Ray finds the machine dead after half a minute here. The first attempt at the only step hangs there."""
    program, stands = tmp_path / "ffmpeg", tmp_path / "stands"
    program.write_text(
        "#!/bin/sh\n"
        f'case "$(hostname) $*" in "a "*.mp4*) touch {stands}; exec sleep 1000;; esac\n'
        f'exec "{find_ffmpeg().path}" "$@"\n'
    )
    program.chmod(0o755)
    dataset, settings = folders(tmp_path).new(), {ENVIRONMENT_VARIABLE: str(program)}
    with machines(separate=True, names=("head", "a"), environment=settings) as cluster, contextlib.ExitStack() as stack:
        with busy_head(cluster, tmp_path):
            process = stack.enter_context(job(f"{cluster_chaos.__file__} --job", cluster, source, dataset))
            cluster.wait(stands.exists, "a step on the other machine")
            # Its first report is there by now.
            time.sleep(2)
            cluster.all["a"].cut_off()
        began = time.monotonic()
        assert process.wait(_PATIENCE_SECONDS) == 0
        print(f"held up for {time.monotonic() - began:.1f} s")
    assert_done(dataset, source, tmp_path)
