"""Lightning trains with a DataLoader and with a ClipLoader: which clips, in which epoch, and after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from sweep import sample
from training_loops import clips_of_one_frame, draws, example

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> shortgop.ClipDataset:
    return clips_of_one_frame(tmp_path_factory.mktemp("loaders"))


def trained_by_lightning(
    folder: Path, loader: Any, epochs: int, *, resumed_from: Path | None = None, callbacks: Sequence[Any] = ()
) -> list[list[int]]:
    """The draws of the batches that a model of Lightning's is trained on. It leaves a checkpoint after eight steps, and
    one of the last whole epoch."""
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

    after_eight = lightning.callbacks.ModelCheckpoint(
        dirpath=folder, filename="{step}", every_n_train_steps=8, save_top_k=-1
    )
    after_epochs = lightning.callbacks.ModelCheckpoint(dirpath=folder, filename="epoch", enable_version_counter=False)
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, logger=False,
        callbacks=[after_eight, after_epochs, *callbacks], enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(Model(), loader, ckpt_path=resumed_from)
    return seen


def of_epochs(dataset: shortgop.ClipDataset, epochs: int) -> list[list[int]]:
    sampler = shortgop.ElasticSampler(dataset, 8)
    found = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        found += draws(DataLoader(dataset, batch_size=8, sampler=sampler))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "workers"), sample([("", 2)], more=[("", 0), ("Stateful", 2)]))
def test_lightning_resumes_a_data_loader_with_the_callback_of_the_page(
    dataset: shortgop.ClipDataset, tmp_path: Path, kind: str, workers: int
) -> None:
    """That of docs/trainers.md. Without it a run that went on in mid-epoch began that epoch again, and one between two
    epochs the first one."""
    names: dict[str, Any] = {"lightning": import_module("pytorch_lightning")}
    exec(example("class SamplerState").partition("\n\n\n")[0], names)

    loaders = {"": DataLoader, "Stateful": import_module("torchdata.stateful_dataloader").StatefulDataLoader}

    def loader() -> Any:
        sampler = shortgop.ElasticSampler(dataset, 8)
        return loaders[kind](dataset, batch_size=8, sampler=sampler, num_workers=workers)

    def trained(epochs: int, *, resumed_from: Path | None = None) -> list[list[int]]:
        used = loader()
        state = names["SamplerState"](used.sampler)
        return trained_by_lightning(tmp_path, used, epochs, resumed_from=resumed_from, callbacks=[state])

    whole = of_epochs(dataset, 3)
    assert trained(2) == whole[:12]
    # An epoch has six steps.
    assert trained(3, resumed_from=tmp_path / "epoch.ckpt") == whole[12:]
    assert trained(3, resumed_from=tmp_path / "step=8.ckpt") == whole[8:]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_lightning_sets_the_epoch_and_leaves_the_sampler_alone(dataset: shortgop.ClipDataset, tmp_path: Path) -> None:
    loader = DataLoader(dataset, batch_size=8, sampler=shortgop.ElasticSampler(dataset, 8))
    assert trained_by_lightning(tmp_path, loader, epochs=2) == of_epochs(dataset, 2)


@pytest.mark.filterwarnings("ignore")
def test_lightning_sets_the_epoch_of_a_clip_loader_and_resumes_it_in_mid_epoch(
    dataset: shortgop.ClipDataset, tmp_path: Path
) -> None:
    def loader() -> shortgop.ClipLoader:
        return shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 8), workers=0)

    whole = of_epochs(dataset, 3)
    assert trained_by_lightning(tmp_path, loader(), epochs=3) == whole
    # An epoch has six steps.
    checkpoint = tmp_path / "step=8.ckpt"
    assert trained_by_lightning(tmp_path, loader(), epochs=3, resumed_from=checkpoint) == whole[8:]


@pytest.mark.filterwarnings("ignore")
def test_lightning_resumes_a_clip_loader_between_two_epochs(dataset: shortgop.ClipDataset, tmp_path: Path) -> None:
    """It begins a pass before it sets the epoch: the first epoch after a restart was epoch 0 again without a word."""
    loaders = [shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 8), workers=0) for _ in range(2)]
    whole = of_epochs(dataset, 3)
    assert trained_by_lightning(tmp_path, loaders[0], epochs=2) == whole[:12]
    assert trained_by_lightning(tmp_path, loaders[1], epochs=3, resumed_from=tmp_path / "epoch.ckpt") == whole[12:]


@pytest.mark.filterwarnings("ignore")
def test_lightning_validates_tests_and_predicts_with_a_clip_loader(
    dataset: shortgop.ClipDataset, tmp_path: Path
) -> None:
    """There it asks a loader for more than in training, and every sample comes once."""
    lightning = import_module("pytorch_lightning")
    seen: list[int] = []

    class Model(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def validation_step(self, batch: Any) -> None:
            seen.extend(batch["draw"].tolist())

        test_step = predict_step = validation_step

    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, default_root_dir=tmp_path
    )
    sampler = shortgop.ElasticSampler(dataset, 9, order=shortgop.Sequential(), drop_last=False)
    loader = shortgop.ClipLoader(dataset, sampler, workers=0)
    for run in (trainer.validate, trainer.test, trainer.predict):
        seen.clear()
        run(Model(), loader)
        assert seen == list(range(len(dataset)))
