"""ClipLoader with page-locked memory and with a device: its copies have never run."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from busy_gpu import long_kernel, streams
from check_record import Record
from gpu_decoding import ready
from gpu_memory import Growth
from sample_gops import samples

import shortgop
from shortgop.errors import UsageError
from shortgop.training.loader.arena import Arena
from shortgop.training.loader.batch_rows import Areas, rows_for
from shortgop.training.loader.to_device import DeviceCopies

BATCH_SIZE = 8
# A batch of 12.6 MB: a copy takes long enough for what is too early to be seen.
SIZE, FRAMES = (256, 256), 8
# Six batches, so that their memory is used again soon.
_PREFETCH_BYTES = 6 * BATCH_SIZE * FRAMES * 3 * SIZE[0] * SIZE[1] + (1 << 20)
_SOAK_BATCHES = 200


def clips(
    dataset: Path, kind: type[shortgop.ClipDataset] = shortgop.ClipDataset, **options: Any
) -> shortgop.ClipDataset:
    """The clips that all these checks read."""
    return kind(dataset, shortgop.AllClips(FRAMES, stride=2, step=4), size=SIZE, crop="center", **options)


def order_of(num_clips: int, batches: int) -> list[int]:
    """Clips in a random order, as often as so many batches need."""
    rng = random.Random(0)  # noqa: S311  # no secrets
    return [rng.randrange(num_clips) for _ in range(batches * BATCH_SIZE)]


class WithParts(shortgop.ClipDataset):
    """Tensors in a list in a dict, and a short one: none of them lies in page-locked memory."""

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        items = super().items(draws, rows)
        for item in items:
            item["parts"] = {"halves": list(item["frames"].chunk(2))}
            item["mean"] = item["frames"].float().mean().reshape(1)
        return items


def expected_frames(dataset: shortgop.ClipDataset) -> list[torch.Tensor]:
    """The frames of each clip, read one by one on the CPU."""
    return [dataset[number]["frames"] for number in range(len(dataset))]


def wrong_rows(frames: torch.Tensor, order: Sequence[int], expected: Sequence[torch.Tensor]) -> int:
    """How many clips of a batch are not those of the order."""
    if len(frames) != len(order):
        return max(len(frames), len(order))
    rows = zip(frames.cpu(), order, strict=True)
    return sum(not torch.equal(row, expected[number]) for row, number in rows)


def loader_of(dataset: shortgop.ClipDataset, order: Iterable[int], workers: int, **options: Any) -> shortgop.ClipLoader:
    return shortgop.ClipLoader(
        dataset, order, batch_size=BATCH_SIZE, workers=workers, threads=1, prefetch_bytes=_PREFETCH_BYTES, **options
    )


def in_batches(order: Sequence[int]) -> Iterator[Sequence[int]]:
    return (order[first : first + BATCH_SIZE] for first in range(0, len(order), BATCH_SIZE))


def to_device(record: Record) -> None:
    """`device="cuda"`: every tensor of every batch is there, and equals the CPU's."""
    ready()
    dataset = clips(samples(record, "h264"), WithParts)
    expected, order = expected_frames(dataset), order_of(len(dataset), 40)
    for workers in (0, 2):
        with_device = loader_of(dataset, order, workers, device="cuda")
        on_cpu = loader_of(dataset, order, 0)
        count = 0
        for batch, same, draws in zip(with_device, on_cpu, in_batches(order), strict=True):
            for (name, value), (_, expected_value) in zip(_tensors(batch), _tensors(same), strict=True):
                if value.device.type != "cuda":
                    raise RuntimeError(f"{name} of batch {count} is on {value.device}")
                if not torch.equal(value.cpu(), expected_value):
                    raise RuntimeError(f"{name} of batch {count} differs from the CPU's, with {workers} workers")
            if wrong_rows(batch["frames"], draws, expected):
                raise RuntimeError(f"frames of batch {count} are those of other clips, with {workers} workers")
            count += 1
        record.figure(f"batches equal to the CPU's, {workers} workers", count)
        with_device.close()
    record.figure("batches while torch refuses to wait", _without_waiting(dataset, order[: 5 * BATCH_SIZE]))


def _tensors(entry: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an entry, however deep, with the name of the innermost entry that has one."""
    if isinstance(entry, torch.Tensor):
        yield name, entry
    elif isinstance(entry, dict):
        for key, each in entry.items():
            yield from _tensors(each, key)
    elif isinstance(entry, list):
        for each in entry:
            yield from _tensors(each, name)


def _without_waiting(dataset: shortgop.ClipDataset, order: Sequence[int]) -> int | str:
    """How many batches come while torch makes an error of what the host would wait for, or that error."""
    cuda: Any = torch.cuda
    if not hasattr(cuda, "set_sync_debug_mode"):
        return "this torch cannot refuse"
    loader, count = loader_of(dataset, order, 0, device="cuda"), 0
    cuda.set_sync_debug_mode("error")
    try:
        for _ in loader:
            count += 1
    except Exception as error:  # noqa: BLE001  # batches are right all the same
        return f"{type(error).__name__} after {count}: {error}"
    finally:
        cuda.set_sync_debug_mode("default")
        loader.close()
    return count


def slow_stream(record: Record) -> None:
    """`device="cuda"`: batches are right when the stream that uses them is far behind, the default one or another."""
    ready()
    dataset = clips(samples(record, "h264"))
    expected, order = expected_frames(dataset), order_of(len(dataset), 60)
    for name, stream in streams().items():
        loader = loader_of(dataset, order, 2, device="cuda")
        kept = []
        with torch.cuda.stream(stream):
            for batch in loader:
                long_kernel()
                # Behind the kernel; the batch itself is dropped at once.
                kept.append(batch["frames"] + 0)
                del batch
        torch.cuda.synchronize()
        wrong = sum(wrong_rows(frames, draws, expected) for frames, draws in zip(kept, in_batches(order), strict=True))
        record.figure(f"clips behind a busy {name}: all, wrong", [len(order), wrong])
        loader.close()
        if wrong:
            raise RuntimeError(f"{wrong} of {len(order)} clips are not those that were asked for, on a busy {name}")


def pinned(record: Record) -> None:
    """`pin_memory=True`: frames lie in page-locked memory and are right; how fast copies from it are."""
    ready()
    dataset = clips(samples(record, "h264"))
    expected, order = expected_frames(dataset), order_of(len(dataset), 20)
    loader = loader_of(dataset, order, 2, pin_memory=True)
    for number, (batch, draws) in enumerate(zip(loader, in_batches(order), strict=True)):
        frames = batch["frames"]
        if not frames.is_pinned():
            raise RuntimeError(f"frames of batch {number} are not in page-locked memory")
        if wrong_rows(frames.to("cuda", non_blocking=True), draws, expected):
            raise RuntimeError(f"batch {number} differs from the CPU's")
        if number == 0:
            record.figure("GB/s to the GPU from page-locked memory", _copy_rate(frames))
            record.figure("GB/s to the GPU from other memory", _copy_rate(frames.clone()))
    loader.close()


def _copy_rate(frames: torch.Tensor) -> float:
    frames.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(20):
        frames.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    return round(20 * frames.nbytes / (time.perf_counter() - started) / 1e9, 2)


def pinned_and_dropped(record: Record) -> None:
    """`pin_memory=True`: what a training loop copies without waiting, as from a DataLoader, is right although it drops
    the batch at once and its stream is behind.

    torch keeps memory that it locked itself until such copies have ended. It does not follow copies from memory that
    other code locked, so the loader might give that memory to a worker before the copy has begun.
    """
    ready()
    dataset = clips(samples(record, "h264"))
    expected, order = expected_frames(dataset), order_of(len(dataset), 60)
    loader = loader_of(dataset, order, 2, pin_memory=True)
    kept = []
    for batch in loader:
        long_kernel()
        kept.append(batch["frames"].to("cuda", non_blocking=True))
        del batch
    torch.cuda.synchronize()
    wrong = sum(wrong_rows(frames, draws, expected) for frames, draws in zip(kept, in_batches(order), strict=True))
    record.figure("clips: all, wrong", [len(order), wrong])
    loader.close()
    if wrong:
        raise RuntimeError(
            f"{wrong} of {len(order)} clips were overwritten before their copy to the GPU: memory of a batch is filled "
            "again while a copy from it is waiting"
        )


def left_early(record: Record) -> None:
    """`device="cuda"`: a batch stays right when its pass is left at once and another one begins."""
    ready()
    dataset = clips(samples(record, "h264"))
    expected, order = expected_frames(dataset), order_of(len(dataset), 6)
    loader = loader_of(dataset, order, 2, device="cuda")
    wrong = 0
    for _ in range(15):
        first = next(iter(loader))["frames"]
        last = [batch["frames"] for batch in loader][-1]
        wrong += wrong_rows(first, order[:BATCH_SIZE], expected) + wrong_rows(last, order[-BATCH_SIZE:], expected)
    loader.close()
    record.figure("wrong clips", wrong)
    if wrong:
        raise RuntimeError(f"{wrong} clips are wrong after passes that were left")


def registration(record: Record) -> None:
    """Memory of batches is page-locked for as long as an array of it lives, and no longer."""
    ready()
    dataset = clips(samples(record, "h264"))
    areas = Areas.of([rows_for(dataset[0], BATCH_SIZE)], 4)
    copies = DeviceCopies.of(None, pin_memory=True)
    for number in range(20):
        arena = Arena(areas)
        copies.pin(arena)
        _refused_again(copies, arena)
        # Another view of the same mapping, which stays when the arena is gone.
        view = torch.from_numpy(np.frombuffer(cast("Any", arena.bytes.base), np.uint8))
        batch = arena.lease(arena.take(), BATCH_SIZE)
        if not view.is_pinned():
            raise RuntimeError(f"arena {number} is not page-locked")
        arena.close()
        del arena
        if not view.is_pinned():
            raise RuntimeError(f"arena {number} is not page-locked any more while a batch of it lives")
        del batch
        if view.is_pinned():
            raise RuntimeError(f"arena {number} is still page-locked when all of its batches are gone")
        record.figure("arenas locked and unlocked", number + 1)


def _refused_again(copies: DeviceCopies, arena: Arena) -> None:
    """CUDA refuses to lock memory twice. RuntimeError where it does not, or where torch has the error then."""
    try:
        copies.pin(arena)
    except UsageError:
        torch.ones(1, device="cuda")
    else:
        raise RuntimeError("memory that is page-locked is locked once more without an error")


def soak(record: Record) -> None:
    """Up to 200 batches to the GPU: its memory and that of the process do not grow."""
    ready()
    dataset = clips(samples(record, "h264"))
    order = order_of(len(dataset), _SOAK_BATCHES)
    loader = loader_of(dataset, order, 4, device="cuda")
    growth, started = Growth(record), time.perf_counter()
    total = torch.zeros((), dtype=torch.int64, device="cuda")
    for number, batch in zip(growth.rounds(_SOAK_BATCHES), loader, strict=False):
        total += batch["frames"].sum(dtype=torch.int64)
        if number % 25 == 24:
            growth.look()
            record.figure("memory after each 25 batches, MB: GPU, process", growth.megabytes())
            record.figure("batches/s", round((number + 1) / (time.perf_counter() - started), 1))
    record.figure("what the loader advises", loader.stats().advice)
    loader.close()
    growth.check()


def on_gpu(frames: torch.Tensor) -> torch.Tensor:
    """A transform that uses CUDA."""
    return frames.cuda().cpu()


def forked(record: Record) -> None:
    """CUDA in a forked worker is a UsageError that says what to do; and what a loader says that is made there."""
    ready()
    folder = samples(record, "h264")
    dataset = clips(folder, transform=on_gpu)
    loader: Any = torch.utils.data.DataLoader(
        dataset, batch_size=2, num_workers=1, multiprocessing_context=multiprocessing.get_context("fork")
    )
    try:
        next(iter(loader))
    except UsageError as error:
        record.figure("a transform in a forked worker", str(error).strip().splitlines()[-1])
    else:
        raise RuntimeError("a forked worker used CUDA without an error")
    said = said_in_fork(_load, folder)
    record.figure('ClipLoader(device="cuda") in a forked process', said)


def _load(folder: Path) -> None:
    next(iter(loader_of(clips(folder), range(BATCH_SIZE), 0, device="cuda")))


def said_in_fork(attempt: Callable[[Any], None], what: Any) -> str:
    """The error of an attempt in a forked process, or "no error"; or that there is no answer. It takes up to 25 s."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(attempt, what, sending))
    process.start()
    sending.close()
    try:
        said = receiving.recv() if receiving.poll(20) else "no answer within 20 s"
    except EOFError:
        said = "it ended without an answer"
    process.join(5)
    if process.is_alive():
        process.kill()
    return str(said)


def _answer(attempt: Callable[[Any], None], what: Any, sending: Any) -> None:
    try:
        attempt(what)
    except Exception as error:  # noqa: BLE001  # which one it is, is what is asked
        sending.send(f"{type(error).__name__}: {error}")
    else:
        sending.send("no error")
