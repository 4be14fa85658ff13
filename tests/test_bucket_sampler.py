"""BucketSampler: batches of clips of one shape, of videos that have several, in any loader."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import shortgop
from datasets import make_dataset
from fake_gpu import CONSUMER, FakeGpu, late_convert, opened_through
from shortgop.errors import DatasetWarning, UsageError, WrongTypeError
from shortgop.readers.decoders.device import DeviceDecoder
from shortgop.readers.decoders.pyav_upload import PyavUpload
from shortgop.training.loader.on_device import DeviceReads
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.usefixtures("one_torch_thread")

# (width, height) of the videos, which have 30 frames each and show the numbers from 1000 * video on.
SIZES = [(96, 64), (64, 96), (96, 64), (96, 96)]
FRAMES = 30
# A dataset for each shape: the videos, frames of a clip, and clips of a batch.
BUCKETS = [([0, 2], 4, 6), ([1], 2, 10), ([3], 1, 2)]
BATCH_SIZES = [size for *_, size in BUCKETS]
BATCHES = [9, 2, 15]
"""How many whole batches each has in an epoch."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("buckets")
    paths = [root / f"{number}.mp4" for number in range(len(SIZES))]
    for number, (path, size) in enumerate(zip(paths, SIZES, strict=True)):
        pts = constant_rate_pts(Fraction(30), FRAMES)
        make_video(path, pts=pts, timebase=Fraction(1, 30), size=size, first_number=1000 * number)
    assert make_dataset(paths, root / "dataset", gop_frames=8).failures == ()
    return root / "dataset"


def mixed(dataset: str | Path | shortgop.Dataset) -> shortgop.MixedClips:
    videos = shortgop.open(dataset) if not isinstance(dataset, shortgop.Dataset) else dataset
    return shortgop.MixedClips(
        [
            shortgop.ClipDataset(videos, shortgop.AllClips(frames), videos=numbers, metadata=["id"])
            for numbers, frames, _ in BUCKETS
        ]
    )


@pytest.fixture(scope="module")
def buckets(folder: Path) -> shortgop.MixedClips:
    return mixed(folder)


def shown(batch: Any, size: int | None = None) -> list[int]:
    """The draws of a batch, whose frames have to be those of its dataset's clips."""
    (dataset,) = set(batch["dataset"].tolist())
    videos, frames, whole = BUCKETS[dataset]
    width, height = SIZES[videos[0]]
    size = whole if size is None else size
    assert batch["frames"].shape == (size, frames, 3, height, width)
    assert len(batch["id"]) == size
    for clip, video, start in zip(batch["frames"], batch["video"].tolist(), batch["start"].tolist(), strict=True):
        assert video in videos
        assert [read_number(frame) for frame in clip] == [1000 * video + start + frame for frame in range(frames)]
    draws: list[int] = batch["draw"].tolist()
    return draws


def global_batches(dataset: shortgop.MixedClips, sizes: int | Sequence[int], ranks: int, **options: Any) -> Any:
    """What all ranks together read, batch by batch."""
    samplers = [shortgop.BucketSampler(dataset, sizes, rank=rank, world_size=ranks, **options) for rank in range(ranks)]
    return [[draw for part in batch for draw in part] for batch in zip(*samplers, strict=True)]


def test_every_loader_has_the_same_batches_each_of_clips_of_one_shape(buckets: shortgop.MixedClips) -> None:
    sampler = shortgop.BucketSampler(buckets, BATCH_SIZES, seed=3)
    expected = list(sampler)
    assert len(expected) == len(sampler) == sum(BATCHES)
    for workers in (0, 2):
        sampler = shortgop.BucketSampler(buckets, BATCH_SIZES, seed=3)
        assert [shown(batch) for batch in shortgop.ClipLoader(buckets, sampler, workers=workers)] == expected
    assert [shown(batch) for batch in DataLoader(buckets, batch_sampler=sampler)] == expected
    datasets = [buckets.clip_index.located(draws)[0][0] for draws in expected]
    assert [datasets.count(each) for each in range(3)] == BATCHES
    assert datasets != sorted(datasets)


def test_epochs_and_seeds_have_other_batches(buckets: shortgop.MixedClips) -> None:
    sampler = shortgop.BucketSampler(buckets, BATCH_SIZES)
    first = list(sampler)
    sampler.set_epoch(1)
    assert sampler.epoch == 1
    second = [shown(batch) for batch in shortgop.ClipLoader(buckets, sampler, workers=0)]
    other_seed = list(shortgop.BucketSampler(buckets, BATCH_SIZES, seed=1))
    plain = [[[draw % len(buckets) for draw in batch] for batch in each] for each in (first, second, other_seed)]
    assert plain[0] != plain[1] != plain[2] != plain[0]


def test_the_global_batches_do_not_depend_on_the_number_of_ranks(buckets: shortgop.MixedClips) -> None:
    alone = global_batches(buckets, BATCH_SIZES, 1)
    assert global_batches(buckets, BATCH_SIZES, 2) == alone
    assert global_batches(buckets, 6, 3) == global_batches(buckets, 6, 1)
    half = shortgop.BucketSampler(buckets, BATCH_SIZES, rank=1, world_size=2)
    read = [batch["draw"].tolist() for batch in shortgop.ClipLoader(buckets, half, workers=0)]
    assert read == [draws[len(draws) // 2 :] for draws in alone]


def of_epochs(dataset: shortgop.MixedClips, epochs: int) -> list[list[int]]:
    """All batches of so many epochs."""
    sampler = shortgop.BucketSampler(dataset, BATCH_SIZES)
    batches: list[list[int]] = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        batches += list(sampler)
    return batches


# Ranks, and how many batches are trained on before the run ends.
LIVES = st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, 12)), max_size=6)


@settings(max_examples=20)
@given(lives=LIVES)
def test_no_batch_is_lost_or_repeated_over_restarts(buckets: shortgop.MixedClips, lives: list[tuple[int, int]]) -> None:
    state: Any = None
    read: list[list[int]] = []
    for ranks, steps in lives:
        parts = []
        for rank in range(ranks):
            sampler = shortgop.BucketSampler(buckets, BATCH_SIZES, rank=rank, world_size=ranks)
            if state is not None:
                sampler.load_state_dict(state)
            # Loaders read ahead of the training loop.
            taken = [batch for batch, _ in zip(sampler, range(steps + 3), strict=False)]
            trained = min(steps, len(taken))
            parts.append((taken[:trained], sampler.state_after(trained)))
        assert len({str(sorted(after.items())) for _, after in parts}) == 1, "the state differs between ranks"
        state = parts[0][1]
        read += [[draw for part in batch for draw in part] for batch in zip(*(own for own, _ in parts), strict=True)]
    assert read == of_epochs(buckets, 4)[: len(read)]


def test_a_loader_goes_on_after_any_batch(buckets: shortgop.MixedClips) -> None:
    loader = shortgop.ClipLoader(buckets, shortgop.BucketSampler(buckets, BATCH_SIZES), workers=0)
    states, draws = zip(*((batch.state, shown(batch)) for batch in loader), strict=True)
    for number in (0, 7, len(states) - 1):
        sampler = shortgop.BucketSampler(buckets, BATCH_SIZES)
        again = shortgop.ClipLoader(buckets, sampler, workers=0)
        again.load_state_dict(states[number])
        rest = [shown(batch) for batch in again]
        if number == len(states) - 1:
            assert (len(rest), sampler.epoch) == (len(states), 1)
        else:
            assert rest == list(draws[number + 1 :])


def test_a_state_of_other_batch_sizes_or_datasets_is_refused(folder: Path, buckets: shortgop.MixedClips) -> None:
    state = shortgop.BucketSampler(buckets, BATCH_SIZES).state_dict()
    with pytest.raises(UsageError, match=r"another order: 'batches of \[6, 10, 2\] of .* now 'batches of \[6, 6, 6\]"):
        shortgop.BucketSampler(buckets, 6).load_state_dict(state)
    fewer = shortgop.MixedClips(list(buckets.datasets[:2]))
    with pytest.raises(UsageError, match="the state was taken with other videos"):
        shortgop.BucketSampler(fewer, BATCH_SIZES[:2]).load_state_dict(state)
    # A copy that was opened anew has the same ones.
    shortgop.BucketSampler(mixed(folder), BATCH_SIZES).load_state_dict(state)


# These leave over 6, 9 and 2 clips: 9 come first, and of 2 the third of three ranks has none.
EVALUATED: dict[str, Any] = {"batch_sizes": [8, 10, 4], "orders": shortgop.Sequential(), "drop_last": False}


@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (1, 2), (2, 0), (3, 0), (3, 2)])
def test_evaluation_has_every_clip_once_over_all_ranks(ranks: int, workers: int, buckets: shortgop.MixedClips) -> None:
    alone = [sorted(batch) for batch in shortgop.BucketSampler(buckets, **EVALUATED)]
    assert sorted(draw for batch in alone for draw in batch) == list(range(len(buckets)))
    assert list(map(len, alone))[-3:] == [9, 6, 2]
    read: list[list[list[int]]] = []
    for rank in range(ranks):
        sampler = shortgop.BucketSampler(buckets, rank=rank, world_size=ranks, **EVALUATED)
        loader = shortgop.ClipLoader(buckets, sampler, workers=workers)
        read.append([shown(batch, len(batch["draw"])) for batch in loader])
        plain = DataLoader(buckets, batch_sampler=sampler)
        assert [batch["draw"].tolist() for batch in plain] == read[rank]
        assert len(loader) == len(sampler) == len(plain) == len(read[rank]) == 18 - (rank == 2)
        loader.close()
    for step, expected in enumerate(alone):
        assert sorted(draw for own in read for draw in (own[step] if step < len(own) else [])) == expected


@pytest.mark.filterwarnings("error")
def test_evaluation_begins_anew_each_time(buckets: shortgop.MixedClips) -> None:
    """Each epoch of training is evaluated on the same clips, of which no warning tells."""
    sampler = shortgop.BucketSampler(buckets, rank=2, world_size=3, **EVALUATED)
    loader = shortgop.ClipLoader(buckets, sampler, workers=0)
    passes = [[batch["draw"].tolist() for batch in loader] for _ in range(4)]
    assert all(each == passes[0] for each in passes)
    # Also where nothing was left of the pass before.
    state = {**sampler.state_dict(), "position": 17}
    loader.load_state_dict(state)
    assert [[batch["draw"].tolist() for batch in loader] for _ in range(2)] == [[], passes[0]]


def test_evaluation_goes_on_after_any_batch_on_other_ranks(buckets: shortgop.MixedClips) -> None:
    expected = list(shortgop.BucketSampler(buckets, **EVALUATED))
    for step in (0, 5, 15, 16, 17):
        sampler = shortgop.BucketSampler(buckets, rank=0, world_size=2, **EVALUATED)
        batches = iter(sampler)
        for _ in range(step):
            next(batches)
        state = sampler.state_after(step)
        parts = []
        for rank in range(3):
            resumed = shortgop.BucketSampler(buckets, rank=rank, world_size=3, **EVALUATED)
            resumed.load_state_dict(state)
            parts.append(list(resumed))
        for place, batch in enumerate(expected[step:]):
            assert [draw for own in parts if place < len(own) for draw in own[place]] == batch
        assert max(map(len, parts)) == len(expected) - step
    with pytest.raises(UsageError, match=r"another order: 'batches of \[8, 10, 4\] and smaller ones of "):
        shortgop.BucketSampler(buckets, [8, 10, 4], orders=shortgop.Sequential()).load_state_dict(state)


def test_ranks_that_train_without_a_batch_are_told(buckets: shortgop.MixedClips) -> None:
    with pytest.warns(DatasetWarning, match="some ranks have up to 1 batch fewer than others in each epoch"):
        shortgop.BucketSampler(buckets, [8, 10, 4], drop_last=False, rank=0, world_size=3)
    with pytest.raises(UsageError, match="a batch size is 4, less than the 5 ranks; give 5 or more"):
        shortgop.BucketSampler(buckets, rank=0, world_size=5, **EVALUATED)


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


def test_a_sampler_pickles_at_its_place(buckets: shortgop.MixedClips) -> None:
    sampler = shortgop.BucketSampler(buckets, BATCH_SIZES)
    sampler.load_state_dict({**sampler.state_dict(), "position": 5})
    copy = pickle.loads(pickle.dumps(sampler))
    assert list(copy) == list(sampler)
    assert len(list(shortgop.BucketSampler(buckets, BATCH_SIZES))) == len(sampler)


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


def test_wrong_use_is_told_with_the_remedy(folder: Path, buckets: shortgop.MixedClips) -> None:
    clips = shortgop.ClipDataset(folder, shortgop.AllClips(2))
    with pytest.raises(WrongTypeError, match="BucketSampler takes MixedClips, .* for one dataset take ElasticSampler"):
        shortgop.BucketSampler(clips, 2)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="batch_sizes has 2 for 3 datasets; each has one"):
        shortgop.BucketSampler(buckets, [2, 2])
    with pytest.raises(UsageError, match="a batch size is 10, which 4 ranks do not divide evenly"):
        shortgop.BucketSampler(buckets, [8, 10, 4], rank=0, world_size=4)
    with pytest.raises(UsageError, match="orders has 1 for 3 datasets; each has one"):
        shortgop.BucketSampler(buckets, 2, orders=[shortgop.Shuffled()])
    with pytest.raises(WrongTypeError, match="it is an order such as shortgop.Shuffled"):
        shortgop.BucketSampler(buckets, 2, orders=[shortgop.Shuffled] * 3)  # type: ignore[list-item]
    with pytest.raises(UsageError, match="rank and world_size go together"):
        shortgop.BucketSampler(buckets, 2, rank=0)
    with pytest.raises(UsageError, match="a batch size is 0"):
        shortgop.BucketSampler(buckets, [0, 1, 1])
    sampler = shortgop.BucketSampler(buckets, BATCH_SIZES)
    with pytest.raises(UsageError, match="DataLoader with sampler=BucketSampler.*: give it batch_sampler= alone"):
        next(iter(DataLoader(buckets, sampler=sampler, batch_size=2)))
    with pytest.raises(UsageError, match="the sampler is of another dataset, or of other clips"):
        shortgop.ClipLoader(shortgop.MixedClips([clips]), sampler)
    with pytest.raises(UsageError, match="the sampler is of a dataset of"):
        next(iter(DataLoader(clips, batch_sampler=sampler)))
