"""docs/training.md: masks that follow crops and flips, and other videos with the same random crops."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

import shortgop
from documents import ROOT

PAGE = ROOT / "docs" / "training.md"
SIZE, COUNT = (96, 160), 12


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each video is a white shape on black, which moves; its depth is the negative, its masks are 1 in the shape."""
    root = tmp_path_factory.mktemp("masks")
    for name in ("a", "b"):
        for number in range(COUNT):
            shape = np.zeros(SIZE, bool)
            shape[8 + 4 * number :, (20 if name == "a" else 60) + 4 * number :][:40, :50] = True
            shape[:20, : 10 + 3 * number] = True
            for folder, picture in (("colour", 255 * shape), ("depth", 255 * ~shape), ("Annotations/colour", shape)):
                (root / folder / name).mkdir(parents=True, exist_ok=True)
                Image.fromarray(picture.astype(np.uint8)).save(root / folder / name / f"{number:05}.png")
    folders = [root / "colour", root / "depth"]
    report = shortgop.prepare(folders, root / "dataset", image_fps=10, id_root=root, runner="inline")
    assert report.failures == ()
    return root


def test_masks_lie_where_their_frames_show_them(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pixels that lie between two of the video, they differ at the edges alone."""
    monkeypatch.chdir(root)
    found = re.search(r"### Masks\n.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    block = (
        found[1].replace('"DATASET"', '"dataset"').replace("(16, stride=4)", "(4)").replace("(224, 224)", "(48, 48)")
    )
    block = block.replace("metadata=", 'videos=["colour/a", "colour/b"], metadata=')
    names: dict[str, Any] = {"shortgop": shortgop, "torch": torch, "np": np, "Path": Path, "Image": Image}
    names["F"] = functional
    exec(block, names)
    flips, differing = set(), []
    sampler = shortgop.ElasticSampler(names["masked"], 2)
    for epoch in range(30):
        sampler.set_epoch(epoch)
        for batch in shortgop.ClipLoader(names["masked"], sampler, workers=0):
            assert batch["masks"].dtype == torch.uint8
            assert batch["masks"].shape == (2, 4, 48, 48)
            flips |= {*batch["flip"].tolist()}
            differing.append(((batch["frames"][:, :, 1] > 127) != (batch["masks"] == 1)).float().mean().item())
    assert flips == {False, True}
    assert max(differing) < 0.001


def test_the_same_clips_and_crops_of_other_videos(root: Path) -> None:
    assert '`other.items([item["draw"] for item in items])`' in PAGE.read_text()
    frames = shortgop.Output(size=(48, 48), crop="random-resized", flip=0.5)

    def clips(folder: str) -> shortgop.ClipDataset:
        names, policy = [f"{folder}/a", f"{folder}/b"], shortgop.RandomClips(4)
        return shortgop.ClipDataset(root / "dataset", policy, videos=names, outputs={"frames": frames}, seed=7)

    other, crops = clips("depth"), set()
    for epoch in range(10):
        items = clips("colour").items([2 * epoch, 2 * epoch + 1])
        for item, depth in zip(items, other.items([item["draw"] for item in items]), strict=True):
            crops.add((*item["crop"].tolist(), bool(item["flip"])))
            assert (item["frames"].int() + depth["frames"].int() - 255).abs().float().mean() < 4
    assert len(crops) == 20
