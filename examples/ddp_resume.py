"""Train on two ranks, which are killed in mid-epoch, and continue on three: python examples/ddp_resume.py

The two ranks are killed with SIGKILL, and three ranks continue from the last checkpoint. At the end, every clip of the
epoch was used for training exactly once. With --workers, batches that the killed workers had read ahead are read again.
"""

from __future__ import annotations

import argparse
import signal
import socket
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import shortgop
from moving_dots import make_dataset

GLOBAL_BATCH = 12
STOP_AFTER = 4  # steps


def train(rank: int, world_size: int, port: int, paths: tuple[Path, Path], workers: int) -> None:
    """Train for one epoch, or for the rest of it after a checkpoint. Rank 0 writes a checkpoint after each step."""
    dataset_path, checkpoint = paths
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    dataset = shortgop.ClipDataset(dataset_path, shortgop.AllClips(4, step=10), metadata=["label"], size=(16, 16))
    sampler = shortgop.ElasticSampler(dataset, GLOBAL_BATCH)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(4 * 3 * 16 * 16, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    trained: list[int] = []
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        sampler.load_state_dict(state["sampler"])
        trained = state["trained"]
        if rank == 0:
            print(f"{world_size} ranks continue from sample {state['sampler']['position']}", flush=True)
    loader = DataLoader(
        dataset,
        batch_size=GLOBAL_BATCH // world_size,
        sampler=sampler,
        num_workers=workers,
        # Workers that are children of their rank end when it is killed; those of a fork server would not.
        multiprocessing_context="spawn" if workers else None,
    )
    sampler.set_epoch(0)
    for step, batch in enumerate(loader, 1):
        frames = batch["frames"].float() / 255
        loss = nn.functional.cross_entropy(model(frames), batch["label"])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        parts: list[Any] = [None] * world_size
        dist.all_gather_object(parts, batch["draw"].tolist())
        trained = [*trained, *(draw for part in parts for draw in part)]
        if rank == 0:
            state = {"model": model.state_dict(), "sampler": sampler.state_after(step), "trained": trained}
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
        # Gives the parent process time to kill the ranks.
        if world_size == 2 and step == STOP_AFTER:
            time.sleep(600)
    if rank == 0:
        print(f"{len(trained)} samples, {len(set(trained))} of them different, of {len(dataset)}", flush=True)
    dist.destroy_process_group()


def start(world_size: int, paths: tuple[Path, Path], workers: int) -> list[BaseProcess]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    context = mp.get_context("forkserver")
    # The fork server imports these once, for all ranks.
    context.set_forkserver_preload(
        ["torch.distributed", "shortgop.training.sampling.sampler", "shortgop.training.datasets.clip_dataset"]
    )
    processes: list[BaseProcess] = [
        context.Process(target=train, args=(rank, world_size, port, paths, workers)) for rank in range(world_size)
    ]
    for process in processes:
        process.start()
    return processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=0, help="processes of each rank that read ahead")
    workers = parser.parse_args().workers
    with tempfile.TemporaryDirectory() as folder:
        dataset, checkpoint = make_dataset(Path(folder), count=12), Path(folder) / "checkpoint.pt"
        two = start(2, (dataset, checkpoint), workers)
        while not checkpoint.exists() or torch.load(checkpoint)["sampler"]["position"] < STOP_AFTER * GLOBAL_BATCH:
            if not all(process.is_alive() for process in two):
                raise SystemExit("a rank ended before it was killed")
            time.sleep(0.1)
        for process in two:
            process.kill()
            process.join()
        print(f"two ranks were killed with signal {signal.SIGKILL}", flush=True)
        three = start(3, (dataset, checkpoint), workers)
        for process in three:
            process.join()
        if any(process.exitcode for process in three):
            raise SystemExit("a rank failed")


if __name__ == "__main__":
    main()
