"""A loader whose dataset is decoded on a device: threads read ahead, and the training loop's stream waits for them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

import shortgop
from dataset_paths import shard_path
from datasets import current_manifest
from fake_gpu import CONSUMER, FakeGpu, ReadsTooEarly, late_convert, opened_through
from loader_helpers import BATCH, FRAMES_OF_VIDEO, shown
from shortgop.errors import UsageError
from shortgop.readers.decoders.device import DeviceDecoder
from shortgop.readers.decoders.pyav_upload import PyavUpload
from shortgop.training.loader.batch_memory import room_on_device
from shortgop.training.loader.loader_stats import LoaderStats
from shortgop.training.loader.on_device import DeviceReads, check_options
from shortgop.training.sampling.slices import BatchKind, PlannedBatch

pytestmark = pytest.mark.usefixtures("one_torch_thread")

CPU = torch.device("cpu")
KINDS = (BatchKind(BATCH, 0),)
NO_OPTIONS: dict[str, Any] = {"workers": None, "threads": None, "device": None, "pin_memory": False}
CLIPS = 2 * (FRAMES_OF_VIDEO - 1)


def clips_on(gpu: FakeGpu, folder: Path, **options: Any) -> shortgop.ClipDataset:
    """All clips of two frames, decoded on a device that converts them when its streams come to it."""
    decoder = DeviceDecoder(
        CPU, gpu=lambda: gpu, open_source=lambda config: PyavUpload(config, CPU), convert=late_convert(gpu)
    )
    return shortgop.ClipDataset(opened_through(decoder, folder, threads=2), shortgop.AllClips(2), **options)


def planned(dataset: shortgop.ClipDataset, count: int = 6) -> Iterator[PlannedBatch]:
    """Batches of four clips from all over the dataset; the last one has three."""
    for number in range(count):
        draws = [(7 * (number * BATCH + place)) % CLIPS for place in range(BATCH - (number == count - 1))]
        yield PlannedBatch(dataset.full_draws(draws), {"after": number})


def what_training_sees(gpu: FakeGpu, folder: Path) -> list[dict[str, Any]]:
    """A training loop that uses each batch on its stream, drops it, and never waits for the device."""
    dataset = clips_on(gpu, folder)
    seen: list[dict[str, Any]] = []

    def use(batch: dict[str, Any]) -> None:
        seen.append({**batch, "frames": batch["frames"].clone()})

    reads = DeviceReads(dataset, gpu, CPU, prefetch_bytes=1 << 20)
    for number, delivered in enumerate(reads.delivered(planned(dataset), KINDS)):
        assert delivered.state == {"after": number}
        batch = delivered.batch
        gpu.launch(lambda batch=batch: use(batch), CONSUMER)  # type: ignore[misc]
        assert (batch["frames"].data_ptr(), CONSUMER) in gpu.kept, "its memory could be used again too early"
    reads.close()
    gpu.finish()
    return seen


def test_training_sees_the_batches_that_were_planned(clips_folder: Path) -> None:
    """However late the device does its work."""
    for seed in range(8):
        gpu = FakeGpu(seed)
        dataset = shortgop.ClipDataset(clips_folder, shortgop.AllClips(2))
        expected = [default_collate(dataset.items(list(batch.draws))) for batch in planned(dataset)]
        seen = what_training_sees(gpu, clips_folder)
        assert [list(batch) for batch in seen] == [list(batch) for batch in expected]
        for batch, one in zip(seen, expected, strict=True):
            assert all(torch.equal(batch[name], one[name]) for name in one)
            assert len(shown(batch)) == len(one["draw"])


class Turned(shortgop.ClipDataset):
    """Views of what lies in the rows of a batch."""

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        items = super().items(draws)
        for place, item in enumerate(items):
            if rows is not None:
                item["frames"] = rows.tensors["frames"][rows.numbers[place]].copy_(item["frames"])
            item["frames"] = item["frames"].mT
        return items


def test_a_batch_has_what_a_subclass_made_of_frames_that_were_read_in_place(clips_folder: Path) -> None:
    dataset = Turned(clips_folder, shortgop.AllClips(2), size=(32, 32))
    reads = DeviceReads(dataset, FakeGpu(0), CPU, prefetch_bytes=1 << 20)
    for planned_one, delivered in zip(planned(dataset), reads.delivered(planned(dataset), KINDS), strict=True):
        expected = default_collate(dataset.items(list(planned_one.draws)))
        assert torch.equal(delivered.batch["frames"], expected["frames"])
    reads.close()


class InViews(shortgop.ClipDataset):
    """Tensors in a list in a dict."""

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        return [{"views": {"halves": list(item["frames"].chunk(2))}} for item in super().items(draws)]


def test_tensors_within_entries_are_kept_for_the_training_loop_as_well(clips_folder: Path) -> None:
    gpu = FakeGpu(0)
    dataset = InViews(clips_folder, shortgop.AllClips(2))
    reads = DeviceReads(dataset, gpu, CPU, prefetch_bytes=1 << 20)
    for delivered in reads.delivered(planned(dataset), KINDS):
        halves = delivered.batch["views"]["halves"]
        assert [len(half) for half in halves] == [len(halves[0])] * 2
        assert all((half.data_ptr(), CONSUMER) in gpu.kept for half in halves)
    reads.close()


def test_a_loop_that_does_not_wait_sees_other_frames(clips_folder: Path) -> None:
    """The device of this test is hard enough."""

    def is_right(seed: int) -> bool:
        try:
            for batch in what_training_sees(ReadsTooEarly(seed), clips_folder):
                shown(batch)
        except Exception:  # noqa: BLE001  # frames that show no number, or another
            return False
        return True

    assert not all(is_right(seed) for seed in range(8))


def test_batches_are_read_ahead_within_their_memory(clips_folder: Path) -> None:
    gpu = FakeGpu(0, runs_ahead=1)
    dataset = clips_on(gpu, clips_folder)
    batch_bytes = BATCH * 2 * 3 * 96 * 64
    asked: list[int] = []

    def batches() -> Iterator[PlannedBatch]:
        for number, batch in enumerate(planned(dataset, 12)):
            asked.append(number)
            yield batch

    reads = DeviceReads(dataset, gpu, CPU, prefetch_bytes=4 * batch_bytes)
    delivered = reads.delivered(batches(), KINDS)
    next(delivered)
    # One is with the training loop, and three more have memory.
    assert asked == [0, 1, 2]
    next(delivered)
    assert asked == [0, 1, 2, 3]
    delivered.close()
    reads.close()
    with pytest.raises(UsageError, match=f"prefetch_bytes is {batch_bytes}, and a batch on cpu has {batch_bytes}"):
        next(DeviceReads(dataset, gpu, CPU, prefetch_bytes=batch_bytes).delivered(planned(dataset), KINDS))


def test_a_batch_of_a_gigabyte_needs_no_option() -> None:
    """It has memory, and the one that is read ahead of it; torch tells where the device has too little."""
    gigabyte = 1 << 30
    assert room_on_device(gigabyte, None) == 2 * gigabyte
    assert room_on_device(gigabyte // 16, None) == gigabyte
    assert room_on_device(gigabyte, 100) == 100


def test_no_more_batches_have_memory_than_allowed_though_the_host_runs_ahead(clips_folder: Path) -> None:
    """The training loop launches its work and asks for the next batch at once; the device is far behind."""
    gpu = FakeGpu(0, runs_ahead=0)
    dataset = clips_on(gpu, clips_folder)
    reads = DeviceReads(dataset, gpu, CPU, prefetch_bytes=3 * BATCH * 2 * 3 * 96 * 64)
    finished: list[int] = []
    for number, _ in enumerate(reads.delivered(planned(dataset, 8), KINDS)):
        gpu.launch(partial(finished.append, number), CONSUMER)
        # This one, and one that is read ahead while another is used.
        assert number - len(finished) <= 2
    reads.close()
    gpu.finish()
    assert finished == list(range(8))


def test_an_error_comes_in_its_turn(clips_folder: Path) -> None:
    gpu = FakeGpu(0, runs_ahead=1)
    dataset = clips_on(gpu, clips_folder)
    wrong: Any = PlannedBatch(["no draw"])  # type: ignore[list-item]
    batches = [*planned(dataset, 3), wrong, *planned(dataset, 2)]
    reads = DeviceReads(dataset, gpu, CPU, prefetch_bytes=1 << 20)
    delivered = reads.delivered(iter(batches), KINDS)
    assert [next(delivered).state for _ in range(3)] == [{"after": number} for number in range(3)]
    with pytest.raises(ValueError, match="no draw"):
        next(delivered)
    reads.close()


class SomeLabelled(shortgop.ClipDataset):
    """An entry that only some clips have."""

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        items = super().items(draws, rows)
        return [{**item, "label": 1} if draw == 28 else item for draw, item in zip(draws, items, strict=True)]


@pytest.mark.parametrize("first", [28, 7])
def test_an_entry_that_some_clips_lack_is_named_and_not_left_out(clips_folder: Path, first: int) -> None:
    """Whichever clip of the batch is the first."""
    dataset = SomeLabelled(clips_folder, shortgop.AllClips(2))
    reads = DeviceReads(dataset, FakeGpu(0), CPU, prefetch_bytes=1 << 20)
    batch = PlannedBatch(dataset.full_draws([first, 35 - first]))
    with pytest.raises(UsageError, match="some clips of a batch have an entry 'label', and others have none"):
        next(reads.delivered(iter([batch]), KINDS))
    reads.close()


class Unlucky(shortgop.ClipDataset):
    """Fails at some clips."""

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        if 28 in draws:
            raise KeyError("label")
        return super().items(draws, rows)


def test_an_error_of_a_subclass_says_which_clips_it_was_called_with(clips_folder: Path) -> None:
    dataset = Unlucky(clips_folder, shortgop.AllClips(2))
    reads = DeviceReads(dataset, FakeGpu(0), CPU, prefetch_bytes=1 << 20)
    with pytest.raises(KeyError) as raised:
        list(reads.delivered(planned(dataset), KINDS))
    assert "Unlucky.items was called with the draws 28, " in raised.value.__notes__[0]
    reads.close()


def test_leaving_a_pass_leaves_no_thread(clips_folder: Path) -> None:
    gpu = FakeGpu(0, runs_ahead=1)
    dataset = clips_on(gpu, clips_folder)
    before = set(threading.enumerate())
    for _ in range(3):
        reads = DeviceReads(dataset, gpu, CPU, prefetch_bytes=1 << 20)
        delivered = reads.delivered(planned(dataset), KINDS)
        next(delivered)
        delivered.close()
        reads.close()
    left = [each for each in set(threading.enumerate()) - before if each.name.startswith("shortgop-loader")]
    assert not left


def test_counts(clips_folder: Path) -> None:
    gpu = FakeGpu(0, runs_ahead=1)
    dataset = clips_on(gpu, clips_folder)
    reads = DeviceReads(dataset, gpu, CPU, prefetch_bytes=1 << 20)
    assert len(list(reads.delivered(planned(dataset), KINDS))) == 6
    stats = reads.stats()
    assert (stats.batches, stats.clips) == (6, 6 * BATCH - 1)
    assert stats.decode_seconds > 0
    assert stats.busy_seconds >= stats.decode_seconds
    reads.close()


@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning")
def test_clips_that_were_skipped_are_counted(clips_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(clips_folder, copy)
    manifest = current_manifest(copy)
    with shard_path(copy, manifest.shards.name.text(0)).open("r+b") as file:
        file.seek(int(manifest.gops.offset[0]) + int(manifest.gops.length[0]) - 20)
        file.write(bytes(20))
    gpu = FakeGpu(0, runs_ahead=1)
    dataset = clips_on(gpu, copy, on_error="skip")
    reads = DeviceReads(dataset, gpu, CPU, prefetch_bytes=1 << 20)
    for _ in range(2):
        assert len(list(reads.delivered(planned(dataset, CLIPS // BATCH), KINDS))) == CLIPS // BATCH
    assert reads.stats().skipped == dataset.skipped > 0
    assert DeviceReads(dataset, gpu, CPU, prefetch_bytes=1 << 20).stats().skipped == 0
    reads.close()


@pytest.mark.parametrize(
    ("bytes_seconds", "decode_seconds", "wait_seconds", "remedy"),
    [(9.0, 1.0, 5.0, "prefetch_bytes"), (1.0, 9.0, 5.0, "smaller --size"), (1.0, 9.0, 0.1, "fast enough")],
)
def test_no_worker_is_advised_where_there_are_none(
    clips_folder: Path, bytes_seconds: float, decode_seconds: float, wait_seconds: float, remedy: str
) -> None:
    gpu = FakeGpu(0, runs_ahead=1)
    reads = DeviceReads(clips_on(gpu, clips_folder), gpu, CPU, prefetch_bytes=1 << 20)
    before_another_pass = reads.stats()
    reads.close()
    stats = before_another_pass + LoaderStats(
        10, 10, wait_seconds=wait_seconds, step_seconds=5.0, bytes_seconds=bytes_seconds, decode_seconds=decode_seconds
    )
    assert remedy in stats.advice
    assert "worker" not in stats.advice


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"workers": 2}, "workers is 2, and the dataset is decoded on cpu"),
        ({"threads": 8}, "as it was opened with: give threads=8 to shortgop.open, or to ClipDataset"),
        ({"device": "cuda:1"}, "device is 'cuda:1', and the dataset is decoded on cpu"),
        ({"pin_memory": True}, "pin_memory is for batches on the CPU"),
    ],
)
def test_options_that_make_no_sense(clips_folder: Path, options: dict[str, Any], why: str) -> None:
    dataset = shortgop.ClipDataset(clips_folder, shortgop.AllClips(2))
    with pytest.raises(UsageError, match=why):
        check_options(dataset, **{**NO_OPTIONS, **options})


def test_a_transform_belongs_into_the_training_loop(clips_folder: Path) -> None:
    dataset = shortgop.ClipDataset(clips_folder, shortgop.AllClips(2), transform=lambda frames: frames)
    with pytest.raises(UsageError, match="call it on the batch in the training loop"):
        check_options(dataset, **NO_OPTIONS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_without_cuda_nothing_can_be_pinned(clips_folder: Path) -> None:
    dataset = shortgop.ClipDataset(clips_folder, shortgop.AllClips(2))
    with pytest.raises(UsageError, match=r"pin_memory is for CUDA devices, and this torch .* finds no CUDA device"):
        shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 2), pin_memory=True)


def test_in_a_process_that_was_forked_beside_cuda_the_error_says_what_to_do(
    clips_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its torch may say that there is no CUDA device."""
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    dataset = shortgop.ClipDataset(clips_folder, shortgop.AllClips(2))
    for options in ({"device": "cuda"}, {"pin_memory": True}):
        with pytest.raises(UsageError, match='was forked from one that uses CUDA.*start it by "spawn" or "forkserver"'):
            shortgop.ClipLoader(dataset, shortgop.ElasticSampler(dataset, 2), **options)
