"""ClipLoader in the trainers that people have."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import shortgop
from datasets import make_dataset
from synthetic import constant_rate_pts, make_video


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> shortgop.ClipDataset:
    root = tmp_path_factory.mktemp("trainers")
    make_video(root / "a.mp4", pts=constant_rate_pts(Fraction(30), 50), timebase=Fraction(1, 30))
    make_dataset([root / "a.mp4"], root / "dataset", gop_frames=8)
    return shortgop.ClipDataset(root / "dataset", shortgop.AllClips(1), size=(16, 16))


def epochs(dataset: shortgop.ClipDataset, count: int) -> list[list[int]]:
    sampler = shortgop.ElasticSampler(dataset, 8)
    found = []
    for epoch in range(count):
        sampler.set_epoch(epoch)
        found += [batch["draw"].tolist() for batch in shortgop.ClipLoader(dataset, sampler, workers=0)]
    return found


@pytest.mark.filterwarnings("ignore")
def test_lightning_sets_the_epoch_saves_the_loader_and_resumes_it_in_mid_epoch(
    dataset: shortgop.ClipDataset, tmp_path: Path
) -> None:
    lightning = import_module("pytorch_lightning")
    seen: list[list[int]] = []

    class Model(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3 * 16 * 16, 1)

        def training_step(self, batch: Any) -> torch.Tensor:
            seen.append(batch["draw"].tolist())
            output: torch.Tensor = self.layer(batch["frames"].float().flatten(1)).mean()
            return output

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    checkpoint = tmp_path / "step=8.ckpt"

    def train(resumed_from: str | None) -> None:
        every_eight = lightning.callbacks.ModelCheckpoint(
            dirpath=tmp_path, filename="{step}", every_n_train_steps=8, save_top_k=-1
        )
        trainer = lightning.Trainer(
            max_epochs=3, accelerator="cpu", devices=1, logger=False, callbacks=[every_eight],
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        loader = shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 8), workers=0)
        trainer.fit(Model(), loader, ckpt_path=resumed_from)

    whole = epochs(dataset, 3)
    train(None)
    assert seen == whole
    seen.clear()
    train(str(checkpoint))
    assert seen == whole[8:]


def test_accelerate_leaves_the_loader_alone(dataset: shortgop.ClipDataset) -> None:
    accelerate = import_module("accelerate")
    loader = shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 8), workers=0)
    assert accelerate.Accelerator(cpu=True).prepare(loader) is loader
