"""A cluster of three machines that lose processes and each other; `make chaos` goes on for as long as one likes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

import cluster_chaos
import shortgop
from chaos_corpus import Corpus, make_corpus, run
from chaos_stores import KINDS, Stores, stores_of
from cluster_chaos import Case, Disturbance, assert_same
from ray_machines import Machines, machines, may_have_networks, start_all, start_missing
from shortgop.jobs.progress.job_status import read_status
from shortgop.jobs.sources.failing import WORKER_DIED
from shortgop.jobs.units_of_work.where import Where
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from sweep import only_in_a_sweep, sample

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are looked up in /proc"),
]

_PATIENCE_SECONDS = 120
# Where a dataset lies, and what is killed while it is made. The case says where its sources lie.
_CASES = {
    "disk": Case(1, has_sections=True, kills=("worker", "driver", "head", "machine"), longest_wait_seconds=2),
    "flaky, sources s3": Case(
        2, has_sections=True, kills=("worker", "machine", "driver"), longest_wait_seconds=2, sources="s3"
    ),
}
_MORE_CASES = {
    "flaky": Case(6, has_sections=False, kills=("driver", "worker"), longest_wait_seconds=2),
    "s3": Case(4, has_sections=False, kills=("machine", "worker"), longest_wait_seconds=2, sources="s3"),
    "disk, cut off": Case(
        3, has_sections=False, kills=("worker", "cut off"), window_sources=4, longest_wait_seconds=2, sources="s3"
    ),
    "disk, sources flaky": Case(
        5, has_sections=True, kills=("worker", "driver", "head", "machine"), longest_wait_seconds=2, sources="flaky"
    ),
}
# A source of all cases: a job that waits for it does not end.
_HELD_BACK = "large3.mp4"
# Where sources lie in a store, all are held back: what is killed has the copy of one.
_COPIES = ".copy/"


@dataclass(frozen=True)
class Killer:
    """A program in the place of ffmpeg, on all machines: while `what` is in the file, it kills the process that runs it
    on a source with this in its path, as running out of memory would. While `gate` is there, it waits before a
    source with what is in that file in its path, and has a file in `waiting`."""

    program: Path
    what: Path
    gate: Path
    waiting: Path

    def hold_back(self, source: str) -> None:
        """Wait from now on before sources with this in their paths."""
        for left in self.waiting.iterdir():
            left.unlink()
        self.gate.write_text(source)


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Killer:
    folder = tmp_path_factory.mktemp("killer")
    killer = Killer(folder / "ffmpeg", folder / "what", folder / "gate", folder / "waiting")
    killer.waiting.mkdir()
    killer.program.write_text(
        "#!/bin/sh\n"
        f'if held=$(cat {killer.gate} 2> /dev/null); then case "$*" in *"$held"*)\n'
        f"mktemp -p {killer.waiting} > /dev/null\n"
        f"while [ -e {killer.gate} ]; do sleep 0.1; done;; esac; fi\n"
        f'if [ -s {killer.what} ]; then case "$*" in *"$(cat {killer.what})"*) kill -9 $PPID;; esac; fi\n'
        f'exec "{find_ffmpeg().path}" "$@"\n'
    )
    killer.program.chmod(0o755)
    return killer


@pytest.fixture(scope="module")
def cluster(killer: Killer) -> Iterator[Machines]:
    environment = {ENVIRONMENT_VARIABLE: str(killer.program)}
    with machines(separate=may_have_networks(), names=("head", "a"), environment=environment) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), copies=1)


@pytest.fixture(scope="module")
def stores(cluster: Machines, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Return where sources and datasets may lie. Machines that start later have the store's settings."""
    with stores_of(cluster, corpus, tmp_path_factory.mktemp("places"), KINDS) as stores:
        yield stores


@pytest.mark.parametrize("name", sample(list(_CASES), more=list(_MORE_CASES)))
def test_whatever_is_killed_the_dataset_is_the_undisturbed_one(
    name: str, cluster: Machines, stores: Stores, killer: Killer
) -> None:
    """And no machine has a part of a source left. What is killed is known, the moment is not: the job cannot end
    before."""
    case, where = {**_CASES, **_MORE_CASES}[name], name.partition(",")[0]
    if not cluster.separate:
        # Without a network of its own a machine cannot lose it.
        case = replace(case, kills=tuple(kill.replace("cut off", "machine") for kill in case.kills))
    # All that may be killed gets the copy of a source that is held back.
    case = replace(case, longest_wait_for_copies_seconds=60)
    done = Disturbance(case, cluster, stores.corpus_at(case.sources), stores.new(where), killer.gate.unlink)
    killer.hold_back(_HELD_BACK if case.sources == "disk" else _COPIES)
    try:
        with stores.disturbed(case.sources, where, case.seed):
            done.run()
    finally:
        killer.gate.unlink(missing_ok=True)
        if "cut off" in case.kills and "a" in cluster.all:
            # It runs, and would be waited for.
            cluster.kill("a")
    assert {kill: done.counts[f"killed: {kill}"] for kill in case.kills} == dict.fromkeys(case.kills, 1)


def test_a_machine_that_joins_during_the_job_takes_part(
    cluster: Machines, corpus: Corpus, stores: Stores, killer: Killer
) -> None:
    start_all(cluster)
    dataset, sources = stores.new("disk"), corpus.sources(has_sections=False)
    killer.hold_back(".mp4")
    job = cluster.all["head"].at([sys.executable, cluster_chaos.__file__, "--job"])
    process = subprocess.Popen([*job, str(sources), dataset.url, cluster.address], env=cluster.environment)
    try:
        # One unit runs on each machine; the job has more.
        cluster.wait(lambda: len(list(killer.waiting.iterdir())) == 2, "two units")
        cluster.start("b")
        cluster.wait(lambda: len(list(killer.waiting.iterdir())) == 3, "a third unit")
        killer.gate.unlink()
        assert process.wait(_PATIENCE_SECONDS) == 3
    finally:
        killer.gate.unlink(missing_ok=True)
        process.kill()
        process.wait()
        if "b" in cluster.all:
            cluster.kill("b")
    assert_same(dataset, corpus.undisturbed(has_sections=False))


@only_in_a_sweep
def test_units_that_lose_spot_machines_again_and_again_are_done_in_the_end(
    cluster: Machines, corpus: Corpus, stores: Stores, killer: Killer
) -> None:
    """Each of two units loses its machine eight times, and the job sixteen machines."""
    dataset, sources = stores.new("disk"), corpus.sources(has_sections=False)
    start_all(cluster)
    spot_machines = ("a", "b")

    def are_begun(num_units: int) -> bool:
        for name in spot_machines:
            if name in cluster.all and not cluster.all[name].runs:
                # On a busy machine Ray may give up its start.
                cluster.kill(name)
            if name not in cluster.all:
                cluster.start(name)
        return len(list(killer.waiting.iterdir())) >= num_units

    killer.hold_back(".mp4")
    job = cluster.all["head"].at([sys.executable, cluster_chaos.__file__, "--job"])
    process = subprocess.Popen([*job, str(sources), dataset.url, cluster.address], env=cluster.environment)
    try:
        for times_lost in range(9):
            # One that the head has goes on.
            cluster.wait(partial(are_begun, 3 + 2 * times_lost), "two more units")
            if times_lost < 8:
                for name in spot_machines:
                    cluster.kill(name)
        killer.gate.unlink()
        assert process.wait(_PATIENCE_SECONDS) == 3
    finally:
        killer.gate.unlink(missing_ok=True)
        process.kill()
        process.wait()
        if "b" in cluster.all:
            cluster.kill("b")
    assert [failure.id for failure in shortgop.open(dataset.url).failures] == ["broken.mp4"]
    assert_same(dataset, corpus.undisturbed(has_sections=False))


# In the suite, `test_ray.py` has such a source, on a cluster that is there anyway.
@only_in_a_sweep
def test_a_source_that_kills_its_workers_is_set_aside_until_it_is_asked_for(
    cluster: Machines, corpus: Corpus, stores: Stores, killer: Killer
) -> None:
    """Its unit is split, so that the other sources of the unit are there."""
    start_missing(cluster)
    dataset, sources = stores.new("disk"), corpus.sources(has_sections=False)
    killer.what.write_text("small2.mp4")
    job = cluster.all["head"].at([sys.executable, cluster_chaos.__file__, "--job"])
    arguments = [str(sources), dataset.url, cluster.address]
    done = subprocess.run([*job, *arguments], env=cluster.environment, capture_output=True, text=True, check=False)
    killer.what.unlink()
    assert done.returncode == 3, done.stderr

    failures = {failure.id: failure.reason for failure in shortgop.open(dataset.url).failures}
    assert failures.keys() == {"broken.mp4", "small2.mp4"}
    assert f"{WORKER_DIED} 4 times" in failures["small2.mp4"]
    found = read_status(dataset)
    assert (found.sources_done, found.sources_total, found.sources_failed) == (9, 9, 2)
    assert found.frames_done == found.frames_planned == 4 * 150 + 3 * 20
    assert found.running == ()

    assert "--retry-failed" in run(sources, dataset, Where("inline")).failures[1].reason
    assert run(sources, dataset, Where("inline"), retry_failed=True).videos_added == 1
    assert_same(dataset, corpus.undisturbed(has_sections=False))
