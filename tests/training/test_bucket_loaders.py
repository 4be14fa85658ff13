"""Loaders and trainers that read the batches of a BucketSampler: ours, with memory that is used again, and others."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from bucket_videos import BATCH_SIZES, BATCHES, BUCKETS, EVALUATED, make_bucket_videos, mixed, of_epochs, shown
from fake_gpu import CONSUMER, FakeGpu, late_convert, opened_through
from shortgop.errors import DatasetWarning, UsageError
from shortgop.readers.decoders.device import DeviceDecoder
from shortgop.readers.decoders.pyav_upload import PyavUpload
from shortgop.training.loader.on_device import DeviceReads

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bucket_videos(tmp_path_factory.mktemp("buckets"))


@pytest.fixture(scope="module")
def buckets(folder: Path) -> shortgop.MixedClips:
    return mixed(folder)


@pytest.mark.filterwarnings("ignore")
def test_accelerate_gives_its_ranks_the_parts_of_each_batch(buckets: shortgop.MixedClips) -> None:
    """It gives each rank whole batches in turn: those of a sampler of one rank would be of other datasets in a step."""
    loaders = import_module("accelerate.data_loader")

    def prepared(process: int, **ranks: Any) -> Any:
        sampler = shortgop.BucketSampler(buckets, BATCH_SIZES, **ranks)
        return loaders.prepare_data_loader(
            DataLoader(buckets, batch_sampler=sampler), num_processes=2, process_index=process, put_on_device=False
        )

    for rank in range(2):
        own = shortgop.BucketSampler(buckets, BATCH_SIZES, rank=rank, world_size=2)
        # Of one rank, as without torch.distributed, and as it finds the ranks there.
        for ranks in ((0, 1), (rank, 2)):
            loader = prepared(rank, rank=ranks[0], world_size=ranks[1])
            for epoch in range(2):
                own.set_epoch(epoch)
                assert [batch["draw"].tolist() for batch in loader] == list(own)
            assert len(loader) == sum(BATCHES)
        loader = prepared(rank, rank=0, world_size=1)
        loader.set_epoch(1)
        rest = loaders.skip_first_batches(loader, 5)
        assert [batch["draw"].tolist() for batch in rest] == list(own)[5:]
    of_three = shortgop.BucketSampler(buckets, 6, rank=0, world_size=3)
    with pytest.raises(UsageError, match="among 2 ranks, and its BucketSampler is of 3: give BucketSampler rank=0"):
        next(iter(loaders.BatchSamplerShard(of_three, num_processes=2)))
    odd = shortgop.BucketSampler(buckets, rank=0, world_size=1, **EVALUATED)
    loader = loaders.prepare_data_loader(
        DataLoader(buckets, batch_sampler=odd), num_processes=2, process_index=0, put_on_device=False
    )
    with pytest.raises(UsageError, match="a batch has 9 clips, which the 2 ranks of Accelerate do not divide evenly"):
        next(iter(loader))


@pytest.mark.long
def test_batches_may_be_kept(buckets: shortgop.MixedClips) -> None:
    """Memory of slots is used for batches of another shape, but not while anything shares it."""
    expected = list(shortgop.BucketSampler(buckets, BATCH_SIZES))
    sampler = shortgop.BucketSampler(buckets, BATCH_SIZES)
    # As few slots as possible: those of the largest batches, which have 6 * 4 frames of 18 kB.
    few = 3 * 470_000
    loader = shortgop.ClipLoader(buckets, sampler, workers=2, prefetch_bytes=few)
    with pytest.warns(DatasetWarning, match="the training loop keeps so many batches"):
        kept = list(loader)
    assert [shown(batch) for batch in kept] == expected
    before: Any = None
    for batch in shortgop.ClipLoader(buckets, sampler, workers=2, prefetch_bytes=few):
        for each in filter(None, (before, batch)):
            shown(each)
        before = batch
    sampler.set_epoch(1)
    with pytest.raises(UsageError, match=r"prefetch_bytes is 400000; the loader has 3 batches of \d+ bytes at least"):
        next(iter(shortgop.ClipLoader(buckets, sampler, workers=0, prefetch_bytes=400_000)))


def test_chunks_of_neighbours_are_read_together(buckets: shortgop.MixedClips) -> None:
    sampler = shortgop.BucketSampler(buckets, BATCH_SIZES, orders=[shortgop.Chunked(6), *[shortgop.Sequential()] * 2])
    for batch in shortgop.ClipLoader(buckets, sampler, workers=0):
        draws = shown(batch)
        starts = [draw % len(buckets) for draw in draws]
        if batch["dataset"][0] == 0 and max(starts) - min(starts) < 10:
            assert sorted(starts) == list(range(min(starts), min(starts) + 6))
        elif batch["dataset"][0]:
            assert starts == list(range(starts[0], starts[0] + len(starts)))


def test_a_transform_of_batches_gets_whole_ones(folder: Path) -> None:
    seen: list[tuple[int, ...]] = []

    def remember(clips: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(clips.shape))
        return clips[..., ::2, ::2]

    videos = shortgop.open(folder)
    both = shortgop.MixedClips(
        [
            shortgop.ClipDataset(
                videos, shortgop.AllClips(frames), videos=numbers, transform=remember, transform_batch=True
            )
            for numbers, frames, _ in BUCKETS[:2]
        ]
    )
    loader = shortgop.ClipLoader(both, shortgop.BucketSampler(both, BATCH_SIZES[:2]), workers=0)
    shapes = [tuple(batch["frames"].shape) for batch in loader]
    assert set(shapes) == {(6, 4, 3, 32, 48), (10, 2, 3, 48, 32)}
    # An example of each kind is read before: a clip of each.
    assert {shape for shape in seen if shape[0] > 1} == {(6, 4, 3, 64, 96), (10, 2, 3, 96, 64)}
    assert sum(shape[0] == 1 for shape in seen) == 2


@pytest.mark.filterwarnings("ignore")
def test_trainers_set_the_epoch_and_resume(buckets: shortgop.MixedClips, tmp_path: Path) -> None:
    """Lightning began the second epoch as the first one, with a DataLoader: it looks for a sampler to set it of."""
    lightning = import_module("pytorch_lightning")
    expected = of_epochs(buckets, 2)

    class Model(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.seen: list[list[int]] = []

        def training_step(self, batch: dict[str, Any], _: int) -> torch.Tensor:
            self.seen.append(batch["draw"].tolist())
            return self.weight.sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters())

    for make in (
        lambda sampler: shortgop.ClipLoader(buckets, sampler, workers=0),
        lambda sampler: DataLoader(buckets, batch_sampler=sampler),
    ):
        model = Model()
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False,
            enable_model_summary=False, default_root_dir=tmp_path, use_distributed_sampler=False,
        )  # fmt: skip
        trainer.fit(model, make(shortgop.BucketSampler(buckets, BATCH_SIZES)))
        assert model.seen == expected

    stateful: Any = import_module("torchdata.stateful_dataloader").StatefulDataLoader

    def loader() -> Any:
        return stateful(buckets, batch_sampler=shortgop.BucketSampler(buckets, BATCH_SIZES), num_workers=2)

    begun = loader()
    batches = iter(begun)
    assert [next(batches)["draw"].tolist() for _ in range(5)] == expected[:5]
    again = loader()
    again.load_state_dict(begun.state_dict())
    assert [batch["draw"].tolist() for batch in again] == expected[5 : sum(BATCHES)]


def test_a_device_reads_batches_of_several_shapes_ahead(folder: Path) -> None:
    gpu, cpu = FakeGpu(0, runs_ahead=1), torch.device("cpu")
    decoder = DeviceDecoder(
        cpu, gpu=lambda: gpu, open_source=lambda config: PyavUpload(config, cpu), convert=late_convert(gpu)
    )
    dataset = mixed(opened_through(decoder, folder, threads=2))
    sampler = shortgop.BucketSampler(dataset, BATCH_SIZES)
    reads = DeviceReads(dataset, gpu, cpu, prefetch_bytes=1 << 22)
    planned = list(sampler.planned_batches())
    seen: list[dict[str, Any]] = []

    def use(batch: dict[str, Any]) -> None:
        seen.append({**batch, "frames": batch["frames"].clone()})

    for delivered in reads.delivered(iter(planned), sampler.kinds(planned[0])):
        gpu.launch(partial(use, delivered.batch), CONSUMER)
        del delivered
    reads.close()
    gpu.finish()
    assert [shown(batch) for batch in seen] == [list(batch.draws) for batch in planned]
