"""The loaders and trainers that people have: torchdata's, Accelerate's and Hugging Face's."""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

import shortgop
from shortgop.errors import DatasetWarning, UsageError
from training_loops import CLIPS, clips_of_one_frame, draws, example
from training_videos import make_videos

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> shortgop.ClipDataset:
    return clips_of_one_frame(tmp_path_factory.mktemp("loaders"))


def test_batches_of_random_frames_need_no_sampler(dataset: shortgop.ClipDataset) -> None:
    frames = shortgop.ClipDataset(dataset.source, shortgop.RandomFrames())
    loader = DataLoader(frames, batch_size=25)
    starts = [batch["start"].tolist() for batch in loader]
    assert sorted(starts[0] + starts[1]) == list(range(50))
    assert starts[0] != sorted(starts[0])


@pytest.mark.long
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


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("stop", [9, 12])
def test_a_run_with_torchdata_counts_on_from_the_samplers_own_state(dataset: shortgop.ClipDataset, stop: int) -> None:
    """torchdata hands the sampler its state only as a loop begins: the loop over epochs needs one before."""
    stateful = import_module("torchdata.stateful_dataloader")
    sampler = shortgop.ElasticSampler(dataset, 8)
    loader = stateful.StatefulDataLoader(dataset, batch_size=8, sampler=sampler)
    checkpoint: dict[str, Any] = {}

    def trained(batches: float) -> list[int]:
        """Go through three epochs of 6 batches, or up to so many batches."""
        nonlocal checkpoint
        seen: list[int] = []
        for epoch in range(sampler.epoch, 3):
            sampler.set_epoch(epoch)
            for step, batch in enumerate(loader, 1):
                seen += batch["draw"].tolist()
                checkpoint = {"loader": loader.state_dict(), "sampler": sampler.state_after(step)}
                if len(seen) == 8 * batches:
                    return seen
        return seen

    seen, stopped = trained(stop), checkpoint
    for with_own in (True, False):
        sampler = shortgop.ElasticSampler(dataset, 8)
        loader = stateful.StatefulDataLoader(dataset, batch_size=8, sampler=sampler)
        loader.load_state_dict(stopped["loader"])
        if with_own:
            sampler.load_state_dict(stopped["sampler"])
            assert len({*seen, *trained(math.inf)}) == 3 * 6 * 8
        else:
            with pytest.warns(DatasetWarning, match="StatefulDataLoader hands its state on only where its loop"):
                assert len(trained(math.inf)) > (18 - stop) * 8


def test_accelerate_leaves_a_clip_loader_alone(dataset: shortgop.ClipDataset) -> None:
    accelerate = import_module("accelerate")
    loader = shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 8), workers=0)
    assert accelerate.Accelerator(cpu=True).prepare(loader) is loader


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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dispatch", [False, True])
def test_batches_that_accelerate_would_divide_once_more_are_refused(
    dataset: shortgop.ClipDataset, dispatch: bool
) -> None:
    """As where `accelerator.prepare` is given all there is: each of two ranks read half of its samples."""
    loaders = import_module("accelerate.data_loader")
    sampler = shortgop.ElasticSampler(dataset, 8, rank=0, world_size=2)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    options = {"device": torch.device("cpu"), "process_index": 0, "put_on_device": True}
    prepared = loaders.prepare_data_loader(loader, num_processes=2, dispatch_batches=dispatch, **options)
    if dispatch:
        prepared.state = SimpleNamespace(num_processes=2, process_index=0)
    with pytest.raises(UsageError, match="Accelerate divides .* among 2 already.* rank=0, world_size=1"):
        draws(prepared)
    # Of one rank nothing is divided.
    assert len(draws(loaders.prepare_data_loader(loader, num_processes=1, **options))) == 6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("split", [False, True])
def test_batches_that_go_on_are_not_divided_by_accelerate(dataset: shortgop.ClipDataset, split: bool) -> None:
    """Each of two ranks would have every second batch, so that no row went on."""
    loaders = import_module("accelerate.data_loader")
    sampler = shortgop.ElasticSampler(dataset, 4, order=shortgop.Continued(4), rank=0, world_size=1)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    options = {"num_processes": 2, "process_index": 0, "put_on_device": False, "split_batches": split}
    with pytest.raises(UsageError, match="where rows go on .* give ElasticSampler the rank and world_size, and leave"):
        draws(loaders.prepare_data_loader(loader, **options))


class TakesEpochs(RandomSampler):
    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("seedable", [True, False])
def test_clips_that_come_again_on_ranks_of_accelerate_are_told_in_the_second_epoch(
    rank: int, seedable: bool, dataset: shortgop.ClipDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain Trainer trained in all epochs on the clips of the first one. Of 25 clips in batches of 4 each of two
    ranks reads more than half, as the last batches are filled up: that is no second epoch."""
    loaders = import_module("accelerate.data_loader")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def loader_of(clips: shortgop.ClipDataset) -> Any:
        # With a sampler that takes an epoch, as Trainer's does, Accelerate tells that the epoch, and not the dataset.
        sampler = RandomSampler(clips) if seedable else TakesEpochs(clips)
        loader = DataLoader(clips, batch_size=4, sampler=sampler)
        options = {"use_seedable_sampler": seedable, "data_seed": 0, "put_on_device": False}
        return loaders.prepare_data_loader(loader, num_processes=2, process_index=rank, **options)

    clips = [shortgop.ClipDataset(dataset.source, shortgop.RandomClips(2, clips_per_video=25)) for _ in range(2)]
    untold, told = map(loader_of, clips)
    assert len(draws(untold)) == 4
    said = "epoch 1 begins with the random clips of epoch 0: Accelerate tells" if seedable else "for the second time .*"
    with pytest.warns(DatasetWarning, match=f"{said} .* on_epoch_begin of a TrainerCallback"):
        draws(untold)
    for epoch in range(4):
        clips[1].set_epoch(epoch)
        draws(told)


def test_an_epoch_that_a_plain_trainer_resumed_is_told_to_be_read_with_the_clips_of_the_first(
    dataset: shortgop.ClipDataset,
) -> None:
    """Where a run goes on in mid-epoch, Accelerate tells its sampler the epoch, and not the dataset."""
    loaders = import_module("accelerate.data_loader")

    def passes(epochs: range, skipped: int, *, callback: bool = False) -> list[list[list[int]]]:
        """As Trainer goes through epochs of a run that goes on after so many batches, with its sampler."""
        random = shortgop.RandomClips(2, clips_per_video=24)
        clips = shortgop.MixedClips([shortgop.ClipDataset(dataset.source, random)])
        loader = DataLoader(clips, batch_size=4, shuffle=True)
        prepared = loaders.prepare_data_loader(loader, num_processes=1, use_seedable_sampler=True, data_seed=0)
        read = []
        for epoch in epochs:
            if callback:
                clips.set_epoch(epoch)
            own = loaders.skip_first_batches(prepared, skipped) if epoch == epochs[0] and skipped else prepared
            own.set_epoch(epoch)
            read.append(draws(own))
        return read

    whole = passes(range(3), 0)
    assert min(draw for batch in whole[1] for draw in batch) >= sum(map(len, whole[0]))
    with pytest.warns(DatasetWarning, match="epoch 1 begins with the random clips of epoch 0: Accelerate tells its"):
        repeated = passes(range(1, 3), 3)
    assert repeated[0] != whole[1][3:]
    assert passes(range(1, 3), 3, callback=True) == [whole[1][3:], whole[2]]


@pytest.mark.filterwarnings("ignore")
def test_accelerate_resumes_in_a_later_epoch(dataset: shortgop.ClipDataset) -> None:
    """Skipping hides the sampler of several ranks from `set_epoch`, so the loader has to be told before. A sampler that
    resumed is told epoch 0 where the loader is not told its epoch."""
    loaders = import_module("accelerate.data_loader")
    for rank in range(2):
        sampler = shortgop.ElasticSampler(dataset, 8, rank=0, world_size=1)
        loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        prepared = loaders.prepare_data_loader(loader, num_processes=2, process_index=rank, put_on_device=False)
        prepared.set_epoch(1)
        resumed = loaders.skip_first_batches(prepared, 2)
        state = {**sampler.state_dict(), "position": 16}
        own = shortgop.ElasticSampler(dataset, 8, rank=rank, world_size=2)
        own.set_epoch(1)
        left = draws(DataLoader(dataset, batch_size=4, sampler=own))[2:]
        assert draws(resumed) == left
        sampler = shortgop.ElasticSampler(dataset, 8, rank=0, world_size=1)
        sampler.load_state_dict(state)
        loader = DataLoader(dataset, batch_size=4, sampler=sampler)
        prepared = loaders.prepare_data_loader(loader, num_processes=2, process_index=rank, put_on_device=False)
        prepared.set_epoch(sampler.epoch)
        assert draws(prepared) == left


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_hugging_faces_trainer_resumes_with_the_samples_that_were_left(
    tmp_path: Path, names_for_trainer: dict[str, Any]
) -> None:
    """As docs/trainers.md writes it: two epochs, and from checkpoints in mid-epoch and between epochs. A step is two
    batches of the loader."""
    transformers = import_module("transformers")
    folder, seen = make_videos(tmp_path / "videos"), list[list[int]]()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3 * 16 * 16, 1)

        def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor, draw: torch.Tensor) -> Any:
            assert pixel_values.shape[1:] == (2, 3, 16, 16)
            assert len(labels) == len(draw)
            seen.append(draw.tolist())
            return {"loss": self.layer(pixel_values.flatten(2)).mean()}

    def run(**resumed: str) -> list[list[int]]:
        seen.clear()
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4, save_steps=1, use_cpu=True,
            report_to=[], disable_tqdm=True, logging_strategy="no", gradient_accumulation_steps=2,
        )  # fmt: skip
        names = names_for_trainer | {"model": Model(), "arguments": arguments}
        exec(example("class ClipTrainer").replace("DATASET", str(folder)), names)
        names["trainer"].train(**resumed)
        return list(seen)

    dataset = shortgop.ClipDataset(folder, eval(f"shortgop.{CLIPS}"))
    expected = []
    for epoch in range(2):
        sampler = shortgop.ElasticSampler(dataset, 8)
        sampler.set_epoch(epoch)
        expected += draws(DataLoader(dataset, batch_size=4, sampler=sampler))
    assert run() == expected
    for step in (2, 6, 9):
        assert run(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}")) == expected[2 * step :]


@pytest.fixture
def names_for_trainer(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the block of the page uses. Trainer takes the tests' module `datasets` for the package of that name."""
    transformers, half = import_module("transformers"), [0.5] * 3
    monkeypatch.setattr(import_module("transformers.trainer"), "is_datasets_available", lambda: False)
    return {"shortgop": shortgop, "torch": torch, "transformers": transformers, "mean": half, "std": half}


@pytest.mark.filterwarnings("ignore")
def test_hugging_faces_models_train_and_are_evaluated_as_the_page_says(
    tmp_path: Path, names_for_trainer: dict[str, Any]
) -> None:
    """VideoMAE as it is: it takes pixel_values and labels, and nothing else that an item has."""
    transformers = import_module("transformers")
    folder = make_videos(tmp_path / "videos")
    configuration = transformers.VideoMAEConfig(
        image_size=16, patch_size=8, num_frames=2, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=2,
    )  # fmt: skip
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=8, per_device_eval_batch_size=2,
        use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    names = names_for_trainer | {"arguments": arguments}
    names["model"] = transformers.VideoMAEForVideoClassification(configuration)
    exec(example("class ClipTrainer").replace("DATASET", str(folder)), names)
    trainer = names["trainer"]
    assert trainer.train().global_step == 2
    fixed = shortgop.Output(size=(16, 16), dtype=torch.float32)
    views = shortgop.ClipDataset(
        folder, shortgop.UniformClips(2, clips_per_video=3), outputs={"pixel_values": fixed}, metadata=["label"]
    )
    trainer.compute_metrics = lambda found: {"labels": found.label_ids.tolist()}
    assert trainer.evaluate(views)["eval_labels"] == [0, 0, 0, 1, 1, 1, 1, 1, 1]
