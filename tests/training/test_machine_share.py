"""Ranks that share a machine: each has its part of the CPUs, whoever started them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

import shortgop
from shortgop import machine_cpus
from shortgop.readers.dataset import reader_of
from shortgop.training.loader.machine_share import cpus_of_rank, ranks_of_machine
from training_videos import make_videos

BINDING = (
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "SLURM_STEP_TASKS_PER_NODE",
)
STARTERS = ("LOCAL_WORLD_SIZE", *BINDING)


@pytest.fixture(autouse=True)
def started_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*STARTERS, "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    # On machines that have GPUs, too.
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def machine_of(cpus: int, monkeypatch: pytest.MonkeyPatch, *, bound_to: int | None = None, limit: int = 1000) -> None:
    """A machine of so many CPUs, of which this process may run on some, in a container that has the time of some."""
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(bound_to or cpus)), raising=False)
    monkeypatch.setattr(machine_cpus, "_limits", lambda *_: iter([limit]))


@pytest.mark.parametrize("starter", STARTERS)
def test_the_program_that_started_the_ranks_says_how_many_there_are(
    starter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ranks_of_machine() == 1
    monkeypatch.setenv(starter, "8")
    assert ranks_of_machine() == 8


@pytest.mark.parametrize(("text", "ranks"), [("4(x2),3", 4), ("1,12(x10)", 12), ("0", 1), ("many", 1), ("8 ranks", 1)])
def test_srun_says_it_of_each_machine(text: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", text)
    assert ranks_of_machine() == ranks


def test_torchrun_under_srun_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One task on each machine, which starts the ranks."""
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "1(x4)")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert ranks_of_machine() == 8


@pytest.mark.parametrize("starter", BINDING)
def test_one_task_on_a_machine_may_have_started_the_ranks(starter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a script of Lightning under `srun`. The CPUs of the task are those of all its ranks."""
    machine_of(64, monkeypatch)
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv(starter, "1")
    assert (ranks_of_machine(), cpus_of_rank()) == (1, 64)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert (ranks_of_machine(), cpus_of_rank()) == (8, 8)


def test_ranks_of_lightning_know_how_many_there_are_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have GPUs of one machine, where there are any: as many ranks as these at most."""
    monkeypatch.setenv("WORLD_SIZE", "16")
    # Such as one rank in each of 16 containers, which has its CPUs alone.
    assert ranks_of_machine() == 1
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert ranks_of_machine() == 16
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert ranks_of_machine() == 8


@pytest.mark.long
def test_ranks_that_are_spawned_are_as_many_as_their_group(tmp_path: Path) -> None:
    """As by `torch.multiprocessing.spawn`: no variable says how many there are."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(ranks_seen_by, range(2), [str(tmp_path / "store")] * 2)) == [(1, 2)] * 2


def ranks_seen_by(rank: int, store: str) -> tuple[int, int]:
    """Before and after this rank is one of a group."""
    before = ranks_of_machine()
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    try:
        torch.distributed.barrier()
        return before, ranks_of_machine()
    finally:
        torch.distributed.destroy_process_group()


def test_cpus_are_divided_among_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_of(64, monkeypatch)
    assert cpus_of_rank() == 64
    for starter in STARTERS:
        with monkeypatch.context() as context:
            context.setenv(starter, "8")
            assert cpus_of_rank() == 8
            context.setenv(starter, "100")
            assert cpus_of_rank() == 1


def test_cpus_that_a_rank_is_bound_to_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Slurm and Open MPI bind ranks. torchrun binds none: what it may use, all its ranks use."""
    machine_of(64, monkeypatch, bound_to=4)
    for starter in BINDING:
        with monkeypatch.context() as context:
            context.setenv(starter, "8")
            assert cpus_of_rank() == 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert cpus_of_rank() == 2


@pytest.mark.parametrize("starter", STARTERS)
def test_the_time_of_a_container_is_that_of_all_its_ranks(starter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_of(64, monkeypatch, limit=16)
    assert cpus_of_rank() == 16
    monkeypatch.setenv(starter, "4")
    assert cpus_of_rank() == 4
    monkeypatch.setenv(starter, "17")
    assert cpus_of_rank() == 1


def test_a_loader_leaves_the_other_ranks_their_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clips = shortgop.ClipDataset(make_videos(tmp_path / "videos"), shortgop.AllClips(2))
    machine_of(64, monkeypatch)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "8")
    loader = shortgop.ClipLoader(clips, shortgop.ElasticSampler(clips, 8))
    # One of 8 is for training, and workers have as many threads each.
    assert (loader.workers, loader.threads) == (2, 3)


def test_without_workers_the_calling_process_decodes_on_as_many_threads(tmp_path: Path) -> None:
    """It decoded on those that the dataset was opened with, whatever was given; then all loaders of that dataset
    decoded on those that the last one was given, also after it was closed."""
    decoding: list[int] = []

    class Watched(shortgop.ClipDataset):
        def items(self, draws: Sequence[int], rows: Any = None) -> Any:
            decoding.append(threads_of(opened))
            return super().items(draws, rows)

    opened = shortgop.open(make_videos(tmp_path / "videos"), threads=2)
    loaders = []
    for given, threads in ((3, 3), (None, 2), (1, 1)):
        one, other = (Watched(opened, shortgop.AllClips(2)) for _ in range(2))
        for clips in (one, shortgop.MixedClips([one, other])):
            loader = shortgop.ClipLoader(clips, shortgop.ElasticSampler(clips, 8), workers=0, threads=given)
            assert loader.threads == threads
            assert f"0 workers of {threads} threads" in repr(loader)
            loaders.append((iter(loader), threads))
    for _ in range(2):
        for batches, threads in loaders:
            next(batches)
            assert decoding[-1] == threads
            assert threads_of(opened) == 2


def threads_of(opened: shortgop.Dataset) -> int:
    """On how many threads a request that comes now is decoded."""
    return reader_of(opened)._workers.threads
