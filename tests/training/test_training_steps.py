"""The loop of docs/training.md over steps in place of epochs: where it goes on, and when it stops."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

import shortgop
from datasets import make_dataset
from synthetic import constant_rate_pts, make_video

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def loop() -> str:
    """The page's code, with validation after every 5 steps."""
    block = re.search(r"```python\n(def endless.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    return block[1].replace("1000", "5").replace("workers=2", "workers=0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        make_video(tmp_path / f"{number}.mp4", pts=constant_rate_pts(Fraction(10), 64), timebase=Fraction(1, 10))
    assert make_dataset(sorted(tmp_path.glob("*.mp4")), tmp_path / "dataset").failures == ()
    return tmp_path / "dataset"


def run(
    text: str,
    folder: Path,
    checkpoint: dict[str, Any],
    losses: list[float],
    *,
    batch: int = 3,
    validated: Sequence[int] = range(3),
    stop: int = 1000,
) -> tuple[list[list[int]], dict[str, Any]]:
    """The draws of each step until one is stopped, and the last checkpoint. `losses` are those of each validation,
    which is one batch of the clips `validated`."""
    clips = shortgop.ClipDataset(folder, shortgop.RandomClips(4, clips_per_video=4))
    loader = shortgop.ClipLoader(clips, shortgop.ElasticSampler(clips, batch), workers=0)
    if "loader" in checkpoint:
        loader.load_state_dict(checkpoint["loader"])
    draws: list[list[int]] = []

    def train_on(batch: Any) -> None:
        if len(draws) == stop:
            raise KeyboardInterrupt
        draws.append(batch["draw"].tolist())

    names: dict[str, Any] = {"itertools": itertools, "math": math, "shortgop": shortgop, "torch": torch}
    names |= {"loader": loader, "val": shortgop.open(folder), "train_on": train_on, "checkpoint": checkpoint}

    def loss_of(batch: Any) -> float:
        assert batch["draw"].tolist() == list(validated)
        return losses[len(names["checkpoint"]["losses"])]

    names["loss_of"] = loss_of
    with contextlib.suppress(KeyboardInterrupt):
        exec(text, names)
    return draws, names["checkpoint"]


def test_steps_in_place_of_epochs(folder: Path) -> None:
    """Over the ends of epochs, and on from a checkpoint with the batches of a run that was not stopped."""
    losses = [9.0, 3.0, 5.0, 4.0, 4.0, 3.0, 3.5, 1.0]
    draws, last = run(loop(), folder, {"step": 0, "losses": []}, losses)
    # Of the first seven losses none of the last five is less than the second one.
    assert (last["step"], last["losses"]) == (35, losses[:7])
    # Epochs have four steps, and each has all of its clips.
    epochs = [sorted(itertools.chain(*draws[first : first + 4])) for first in range(0, 32, 4)]
    assert epochs == [list(range(12 * epoch, 12 * epoch + 12)) for epoch in range(8)]
    before, checkpoint = run(loop(), folder, {"step": 0, "losses": []}, losses, stop=13)
    assert checkpoint["step"] == 10
    after, end = run(loop(), folder, checkpoint, losses)
    assert before[:10] + after == draws
    assert end == last


# By its own losses the first of two ranks would stop after the seventh validation, and the second would go on.
LOSSES_OF_RANKS = [
    [2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    [9.0, 8.0, 7.0, 6.0, 6.0, 6.0, 6.0, 6.0, 6.0, 5.0],
]


def run_as_rank(rank: int, folder: Path, store: Path) -> tuple[list[list[int]], int, list[float]]:
    """The draws of one of two ranks, the step at which it stopped, and the losses that it compared."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    try:
        text = loop()
        assert text.count("# With several ranks: ") == 1
        text = text.replace("# With several ranks: ", "")
        draws, last = run(
            text, folder, {"step": 0, "losses": []}, LOSSES_OF_RANKS[rank], batch=4, validated=[[0], [1, 2]][rank]
        )
        torch.distributed.barrier()
        return draws, last["step"], last["losses"]
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.long
def test_all_ranks_stop_at_the_same_step(folder: Path, tmp_path: Path) -> None:
    with get_context("spawn").Pool(2) as pool:
        first, second = pool.starmap(run_as_rank, [(rank, folder, tmp_path / "store") for rank in range(2)])
    # Of the sums none of the last five is less than the fourth.
    losses = [one + other for one, other in zip(*LOSSES_OF_RANKS, strict=True)][:9]
    assert first[1:] == second[1:] == (45, losses)
    # Together they have each clip of an epoch of three steps once.
    steps = [one + other for one, other in zip(first[0], second[0], strict=True)]
    epochs = [sorted(itertools.chain(*steps[start : start + 3])) for start in range(0, 45, 3)]
    assert epochs == [list(range(12 * epoch, 12 * epoch + 12)) for epoch in range(15)]
