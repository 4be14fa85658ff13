"""docs/trainers.md: packs of several videos up to a budget of tokens, on several ranks, and in a run that goes on."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import shortgop
from documents import ROOT, section
from training_videos import LENGTHS, RATES, make_videos, numbers

Packs = list[list[tuple[int, list[int]]]]


def five_random(video: Any, random: np.random.Generator) -> Any:
    return random.integers(video.num_frames, size=5)


def test_packs_are_as_many_on_each_rank_and_go_on(tmp_path: Path) -> None:
    """Each pack is told by the draws of its clips and the numbers that their frames show: 36 clips of 58, 54 and 54
    tokens, in packs of up to 330, so of 5 or 6 clips."""
    folder = make_videos(tmp_path / "videos")
    page = section(ROOT / "docs" / "trainers.md", "Vision-language models")
    found = re.search(r"```python\n(columns = .*?)```", page, re.DOTALL)
    assert found is not None
    text = found[1].replace("num_workers=8", "num_workers=0").replace("budget=16384", "budget=330")
    text = text.replace("        ...\n", "        packs_read.append(batch)\n")
    assert "packs_read" in text

    def run(rank: int, world_size: int, epochs: Any, done: int = 0) -> Packs:
        policy = shortgop.ClipsBy(five_random, clips_per_video=12)
        names: dict[str, Any] = {
            "shortgop": shortgop, "np": np, "torch": torch, "DataLoader": DataLoader, "tokens_of_two_frames": 2,
            "itertools": itertools,
            "clips": shortgop.ClipDataset(folder, policy, metadata=["id"]), "rank": rank, "world_size": world_size,
            "collate": told, "packs_read": [], "epochs": 0,
        }  # fmt: skip
        # The table of tokens is for one clip of each video.
        exec(text.replace("tokens, budget=", "np.repeat(tokens, 12), budget="), names)
        names["epochs"], names["packs"].done = epochs, done
        exec(text[text.index("for epoch in range") :].replace("range(epochs)", "epochs"), names)
        packs: Packs = names["packs_read"]
        return packs

    expected = [max(4, int(2 * count / rate)) // 2 * 2 + 50 for count, rate in zip(LENGTHS, RATES, strict=True)]
    assert expected == [58, 54, 54]
    whole = [run(rank, 2, range(2)) for rank in range(2)]
    alone = run(0, 1, range(2))
    assert len(whole[0]) == len(whole[1]) == 6
    # One rank has the same packs, and one more where the last pack of an epoch had none beside it.
    both = [pack for packs in zip(*whole, strict=True) for pack in packs]
    assert [pack for pack in alone if pack in both] == both
    for pack in both:
        assert sum(expected[draw % 36 // 12] for draw, _ in pack) <= 330
    for epoch in range(2):
        draws = [draw for pack in both for draw, _ in pack if draw // 36 == epoch]
        assert len(set(draws)) == len(draws) >= 30
    # After a step of two ranks it goes on, on two and on three.
    assert run(1, 2, range(1, 2), done=2) == whole[1][4:]
    three = [run(rank, 3, range(1, 2), done=2) for rank in range(3)]
    assert [pack for packs in zip(*three, strict=True) for pack in packs] == both[8:11]


def told(items: list[dict[str, Any]]) -> list[tuple[int, list[int]]]:
    """What a pack has: for each clip its draw, and the numbers that its frames show."""
    for item in items:
        assert numbers(item["frames"]) == (1000 * item["video"] + item["frame_numbers"]).tolist()
    return [(item["draw"], numbers(item["frames"])) for item in items]
