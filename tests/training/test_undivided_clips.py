"""DataLoader(clips, shuffle=True) on several ranks: each rank reads all clips, and is told so."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Subset

import shortgop
from training_videos import make_videos

Passes = dict[str, tuple[int, list[str]]]
SAID = (
    "each of 2 ranks reads all 74 clips of its dataset in an epoch, and with the same seed also the same ones in each "
    "step, unless each has videos of its own: shuffle=True, or RandomSampler, knows of no ranks. Give the loader "
    "shortgop.ElasticSampler(dataset, global_batch"
)


@pytest.mark.long
def test_a_rank_that_reads_all_clips_is_told(tmp_path: Path) -> None:
    """Each pass says how many clips this rank read, and what it was told. Trainers that divide what a random sampler
    yields need no word, nor does a loop that divides the clips by itself."""
    folder = make_videos(tmp_path / "videos")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        ranks = list(pool.map(passes_of, range(2), [str(tmp_path / "store")] * 2, [str(folder)] * 2))
    for passes in ranks:
        told = {name: (count, [message[: len(SAID)] for message in said]) for name, (count, said) in passes.items()}
        assert told == {
            "shuffled": (74, [SAID]),
            "shuffled, by torchdata": (74, [SAID]),
            "shuffled, of a mixture": (74, [SAID]),
            "shuffled, by ClipLoader": (74, [SAID]),
            "once more": (74, []),
            "divided by ElasticSampler": (37, []),
            "divided by DistributedSampler": (37, []),
            "divided by Accelerate": (39 if passes is ranks[0] else 35, []),
            "divided by Lightning": (37, []),
            "divided by hand": (37, []),
            "so many of all": (20, []),
            "in order": (74, []),
        }


def passes_of(rank: int, store: str, folder: str) -> Passes:
    """An epoch of each of several loaders, in one of two ranks."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    try:
        torch.distributed.barrier()
        again = clips_of(folder)
        found = {"shuffled": read(DataLoader(again, shuffle=True)), "once more": read(DataLoader(again, shuffle=True))}
        for name, loader_of in loaders().items():
            found[name] = read(loader_of(clips_of(folder)))
        torch.distributed.barrier()
        return found
    finally:
        torch.distributed.destroy_process_group()


def loaders() -> dict[str, Callable[[Any], Iterable[Any]]]:
    stateful = import_module("torchdata.stateful_dataloader").StatefulDataLoader
    prepare = import_module("accelerate.data_loader").prepare_data_loader
    in_order: Any = partial(shortgop.ElasticSampler, order=shortgop.Sequential(), drop_last=False)
    return {
        "shuffled, by torchdata": partial(stateful, shuffle=True),
        "shuffled, by ClipLoader": lambda clips: shortgop.ClipLoader(
            clips, RandomSampler(clips), batch_size=8, workers=0
        ),
        "shuffled, of a mixture": lambda clips: DataLoader(shortgop.MixedClips([clips]), shuffle=True),
        "divided by ElasticSampler": lambda clips: DataLoader(clips, sampler=in_order(clips, 2)),
        "divided by DistributedSampler": lambda clips: DataLoader(clips, sampler=DistributedSampler(clips)),
        "divided by Accelerate": lambda clips: prepare(
            DataLoader(clips, 5, shuffle=True), num_processes=2, process_index=torch.distributed.get_rank(),
            put_on_device=False, even_batches=False,
        ),
        "divided by Lightning": lambda clips: DataLoader(clips, sampler=wrapped_by_lightning(clips)),
        "divided by hand": lambda clips: DataLoader(Subset(clips, range(37)), shuffle=True),
        "so many of all": lambda clips: DataLoader(clips, sampler=RandomSampler(clips, num_samples=20)),
        "in order": DataLoader,
    }  # fmt: skip


def wrapped_by_lightning(clips: shortgop.ClipDataset) -> Any:
    """What Lightning makes of a random sampler that it does not replace."""
    wrapper = import_module("lightning_fabric.utilities.distributed").DistributedSamplerWrapper
    return wrapper(RandomSampler(clips))


def clips_of(folder: str) -> shortgop.ClipDataset:
    """All 74 clips of one frame."""
    return shortgop.ClipDataset(folder, shortgop.AllClips(1))


def read(loader: Iterable[Any]) -> tuple[int, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", shortgop.DatasetWarning)
        count = sum(len(batch["draw"]) for batch in loader)
    return count, [str(each.message) for each in caught if issubclass(each.category, shortgop.DatasetWarning)]
