"""The loaders and trainers that people have: torchdata's, Lightning's and Accelerate's."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from datasets import make_dataset
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> shortgop.ClipDataset:
    root = tmp_path_factory.mktemp("loaders")
    make_video(root / "a.mp4", pts=constant_rate_pts(Fraction(30), 50), timebase=Fraction(1, 30))
    make_dataset([root / "a.mp4"], root / "dataset", gop_frames=8)
    return shortgop.ClipDataset(root / "dataset", shortgop.AllClips(1), size=(16, 16))


def draws(loader: Any) -> list[list[int]]:
    return [batch["draw"].tolist() for batch in loader]


def test_batches_of_random_frames_need_no_sampler(dataset: shortgop.ClipDataset) -> None:
    frames = shortgop.ClipDataset(dataset.source, shortgop.RandomFrames())
    loader = DataLoader(frames, batch_size=25)
    starts = [batch["start"].tolist() for batch in loader]
    assert sorted(starts[0] + starts[1]) == list(range(50))
    assert starts[0] != sorted(starts[0])


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_resumes_where_the_loop_was(dataset: shortgop.ClipDataset, workers: int) -> None:
    """Batches that were read ahead do not count, and the end of an epoch is the start of the next."""
    stateful = import_module("torchdata.stateful_dataloader")

    def loader(epoch: int) -> Any:
        sampler = shortgop.ElasticSampler(dataset, 8)
        sampler.set_epoch(epoch)
        context = "fork" if workers else None
        return stateful.StatefulDataLoader(
            dataset, batch_size=8, sampler=sampler, num_workers=workers, multiprocessing_context=context
        )

    whole, following = draws(loader(2)), draws(loader(3))
    for stop in (1, 4, 6):
        first = loader(2)
        batches = iter(first)
        before = [next(batches)["draw"].tolist() for _ in range(stop)]
        if stop == len(whole):
            assert next(batches, None) is None
        resumed = loader(2)
        resumed.load_state_dict(first.state_dict())
        assert draws(resumed) == (whole[stop:] if stop < len(whole) else following)
        assert before == whole[:stop]


@pytest.mark.filterwarnings("ignore")
def test_lightning_sets_the_epoch_and_leaves_the_sampler_alone(dataset: shortgop.ClipDataset, tmp_path: Path) -> None:
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

    sampler = shortgop.ElasticSampler(dataset, 8)
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Model(), DataLoader(dataset, batch_size=8, sampler=sampler))
    expected = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected += draws(DataLoader(dataset, batch_size=8, sampler=sampler))
    assert seen == expected


@pytest.mark.filterwarnings("ignore")
def test_accelerate_divides_the_batches_of_a_sampler_of_one_rank(dataset: shortgop.ClipDataset) -> None:
    """It would divide those of a sampler of several ranks once more."""
    loaders = import_module("accelerate.data_loader")
    sampler = shortgop.ElasticSampler(dataset, 8, rank=0, world_size=1)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    options = {"num_processes": 2, "split_batches": True, "put_on_device": False}
    parts = [draws(loaders.prepare_data_loader(loader, process_index=rank, **options)) for rank in range(2)]
    for rank in range(2):
        own = shortgop.ElasticSampler(dataset, 8, rank=rank, world_size=2)
        assert parts[rank] == draws(DataLoader(dataset, batch_size=4, sampler=own))
