"""docs/trainers.md: loops whose weights and proportions change."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shortgop
from documents import ROOT, section
from training_videos import make_videos, numbers

TRAINERS = ROOT / "docs" / "trainers.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


def blocks_of(title: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", section(TRAINERS, title), re.DOTALL)


class StoppedError(Exception):
    """The run is killed."""


def test_weights_that_change_go_on_from_any_batch(folder: Path) -> None:
    """The draws of a run that is stopped after any batch, and goes on, are those of one that is not."""
    block = blocks_of("Weights, proportions and clips that change")[0].replace(", 256, ", ", 4, ")
    block = block.replace("ClipLoader(clips, sampler)", "ClipLoader(clips, sampler, workers=0)")

    def run(checkpoint: Any, stop: int | None) -> tuple[list[list[int]], Any]:
        """What was trained on until so many batches were, and the checkpoint then."""
        trained: list[list[int]] = []

        def loss_of(frames: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
            if len(trained) == stop:
                raise StoppedError
            trained.append(draws.tolist())
            # Some are much harder than others.
            return torch.tensor([numbers(clip)[0] * 7919 % 100 + 1.0 for clip in frames])

        names: dict[str, Any] = {
            "shortgop": shortgop, "torch": torch, "epochs": 3, "checkpoint": checkpoint,
            "clips": shortgop.ClipDataset(folder, shortgop.RandomClips(2, clips_per_video=5), metadata=["label"]),
            "model": lambda frames: frames, "criterion": lambda frames, _: loss_of(frames, names["batch"]["draw"]),
        }  # fmt: skip
        with suppress(StoppedError):
            exec(block, names)
        return trained, names["checkpoint"]

    whole, _ = run(None, None)
    assert len(whole) == 9
    for stop in range(1, 9):
        before, checkpoint = run(None, stop)
        assert before + run(checkpoint, None)[0] == whole, stop


def test_proportions_by_a_temperature(folder: Path) -> None:
    """Datasets of 74 and 3 clips, by the square root of their sizes: 4.97 to 1."""
    clips = [shortgop.ClipDataset(folder, policy) for policy in (shortgop.AllClips(1), shortgop.CenterClips(1))]
    names: dict[str, Any] = {
        "shortgop": shortgop, "np": np, "mixed": shortgop.MixedClips(clips), "temperature": 2
    }  # fmt: skip
    exec(blocks_of("Weights, proportions and clips that change")[1], names)
    assert names["order"].quotas == (53, 11)
    batch = list(shortgop.ElasticSampler(names["mixed"], 64, order=names["order"]))[:64]
    assert sum(draw % 77 < 74 for draw in batch) == 53
