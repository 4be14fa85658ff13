"""A machine that loses its mount in mid-job is left out, and the others do its work.

Machines of a long job are replaced, and one of them may lack what all others have.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cluster_chaos
from chaos_corpus import make_corpus
from cluster_chaos import assert_same
from dataset_places import folders
from loader_helpers import comes_true
from ray_machines import Machine, machines, may_have_networks, start_all
from shortgop.cli.app import EXIT_SOMETHING_MISSING
from shortgop.errors import ShortGopError
from shortgop.jobs.progress.job_status import JobStatus, read_status
from shortgop.storage.interface import Storage
from sweep import only_in_a_sweep

pytestmark = [pytest.mark.long, pytest.mark.skipif(not may_have_networks(), reason="machines need mounts of their own")]

_PATIENCE_SECONDS = 120


def status(dataset: Storage) -> JobStatus | None:
    try:
        return read_status(dataset)
    except ShortGopError:
        return None


def lose_mount(machine: Machine, folder: Path) -> None:
    """Let this machine, and no other one, see an empty folder in place of another one."""
    inside = ["nsenter", f"--mount=/proc/{machine.process.pid}/ns/mnt"]
    subprocess.run([*inside, "mount", "-t", "tmpfs", "none", str(folder)], check=True)


@only_in_a_sweep
def test_a_machine_that_loses_the_dataset_is_left_out_and_the_job_goes_on(tmp_path: Path) -> None:
    corpus, dataset = make_corpus(tmp_path / "corpus", copies=6), folders(tmp_path).new()
    sources = corpus.sources(has_sections=False)
    assert dataset.folder is not None
    notes: set[str] = set()

    def have_both_worked() -> bool:
        found = status(dataset)
        return found is not None and sum(each.units > 0 for each in found.node_work.values()) == 2

    with machines(separate=True, names=("head", "a")) as cluster:
        start_all(cluster)
        head = cluster.all["head"]
        command = [sys.executable, cluster_chaos.__file__, "--job", str(sources), dataset.url, cluster.address]
        with subprocess.Popen(head.at(command), env=cluster.environment | head.own_environment) as process:
            try:
                cluster.wait(have_both_worked, "a result of each machine")
                lose_mount(cluster.all["a"], dataset.folder)

                def has_ended() -> bool:
                    found = status(dataset)
                    notes.add("" if found is None else found.note)
                    return process.poll() is not None

                assert comes_true(has_ended, _PATIENCE_SECONDS)
            finally:
                process.kill()
    assert process.returncode == EXIT_SOMETHING_MISSING, "one source is no video"
    (left_out,) = {note.partition("; ")[2] for note in notes if "left out" in note}
    assert left_out.startswith("1 machine is left out for some minutes: on the cluster's node a (")
    assert_same(dataset, corpus.undisturbed(has_sections=False))
