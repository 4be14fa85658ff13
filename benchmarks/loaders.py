"""Loaders beside each other: clips a second that reach a training loop, with as many workers as there are cores.

    python benchmarks/loaders.py --rounds 5

Each loader delivers the same batches in turn, round by round: 16 clips of 16 frames, 224x224 cut from the middle of
456x256, as float16; from 24 minutes of video, so that few clips overlap. A round is timed between two batches in its
middle, so that neither what was read ahead before nor the end of an epoch counts. `make bench` leaves it out: the table
in docs/benchmarks-all.md comes from here, in the environment that `make bench` builds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import footage
import numpy as np
import torch
from results import ALL_PAGE, RESULTS, machine_name, write_page
from torch.utils.data import DataLoader, Dataset

import shortgop
from shortgop.comparison.estimates import Estimate, median
from shortgop.comparison.machine import this_machine
from shortgop.comparison.peers import load
from shortgop.comparison.tasks import FileSet

CROP = (16, 116, 224, 224)
FRAMES, STRIDE, BATCH = 16, 4, 16
AHEAD = 6
"""Batches before and after those that are timed: more than any of the loaders reads ahead."""
DTYPES = {"float16": torch.float16, "uint8": torch.uint8}
WORKERS = len(os.sched_getaffinity(0))

Batches = Callable[[int], Iterator[Any]]
"""The batches of an epoch; at least `AHEAD + timed + AHEAD`."""


@dataclass(frozen=True)
class PeerClips(Dataset[torch.Tensor]):
    """The same clips as a dataset of one's own reads them, with another library."""

    clips: shortgop.ClipDataset
    files: FileSet
    library: str
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, draw: int) -> torch.Tensor:
        # Loaded in each worker, since a decoder does not survive a fork. Python imports the library only once.
        readers, missing = load([self.library])
        if missing:
            raise ImportError(missing[self.library])
        clip = self.clips.clip_index.clips([draw])[0]
        frames = self.files.frames[clip.video][clip.frames].tolist()
        return as_training_wants(readers[self.library](self.files.files[clip.video], frames), self.dtype)


def as_training_wants(frames: Any, dtype: torch.dtype) -> torch.Tensor:
    """The part in the middle: (frames, 3, 224, 224); floats from 0 to 1."""
    tensor = frames if isinstance(frames, torch.Tensor) else torch.from_numpy(np.asarray(frames))
    if tensor.shape[-1] == 3:
        tensor = tensor.permute(0, 3, 1, 2)
    top, left, height, width = CROP
    part = tensor[:, :, top : top + height, left : left + width]
    return part.contiguous() if dtype == torch.uint8 else (part.float() / 255).to(dtype).contiguous()


def single_reader(dataset: shortgop.ClipDataset, path: str, dtype: torch.dtype) -> Callable[[int], float]:
    """Reads batches in this process with one thread and `out=`; returns clips a second."""
    source = shortgop.open(path, crop=CROP, dtype=dtype, threads=1)
    out = torch.empty(BATCH, FRAMES, 3, *CROP[2:], dtype=dtype)

    def read(epoch: int, batches: int) -> float:
        sampler = shortgop.ElasticSampler(dataset, BATCH)
        sampler.set_epoch(epoch)
        planned = [batch.draws for batch in islice(sampler.planned_batches(), batches + 1)]
        requests = [
            [(clip.video, clip.frames.tolist()) for clip in dataset.clip_index.clips(draws)] for draws in planned
        ]
        source.get_clips(requests[0], out=out)
        started = time.perf_counter()
        for request in requests[1:]:
            source.get_clips(request, out=out)
        return batches * BATCH / (time.perf_counter() - started)

    return lambda epoch: read(epoch, 24)


def at_once(dataset: shortgop.ClipDataset, path: str, epoch: int, dtype: torch.dtype) -> float:
    """The sum over as many such readers as there are cores, each a process of its own, at the same time."""
    context = multiprocessing.get_context("fork")
    queue: Any = context.SimpleQueue()
    barrier = context.Barrier(WORKERS)

    def run(number: int) -> None:
        read = single_reader(dataset, path, dtype)
        barrier.wait()
        queue.put(read(1000 * (number + 1) + epoch))

    processes = [context.Process(target=run, args=(number,)) for number in range(WORKERS)]
    for process in processes:
        process.start()
    rates = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    return float(sum(rates))


def spdl_batches(clips: PeerClips, sampler: shortgop.ElasticSampler) -> Batches:
    """SPDL's pipeline over its own decoder, in threads of this process."""
    from spdl.pipeline import PipelineBuilder

    def batches(epoch: int) -> Iterator[Any]:
        sampler.set_epoch(epoch)
        pipeline = (
            PipelineBuilder()
            .add_source(iter(list(sampler)))
            .pipe(clips.__getitem__, concurrency=WORKERS, output_order="input")
            .aggregate(BATCH)
            .pipe(torch.stack)
            .add_sink(2)
            .build(num_threads=WORKERS + 1)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    return batches


def loaders(path: str, epoch_batches: int, dtype: torch.dtype) -> tuple[dict[str, Batches], dict[str, str]]:
    """What is measured, by name, ClipLoader first; and what could not be, with the reason."""
    output = {"frames": shortgop.Output(size=CROP[2:], crop=CROP, dtype=dtype)}
    videos = len(shortgop.open(path))
    policy = shortgop.RandomClips(FRAMES, stride=STRIDE, clips_per_video=-(-epoch_batches * BATCH // videos))
    dataset = shortgop.ClipDataset(path, policy, outputs=output)
    sampler = shortgop.ElasticSampler(dataset, BATCH)
    source = shortgop.open(path)
    missing: dict[str, str] = {}

    def of_data_loader(data: Dataset[Any], kind: Any = DataLoader) -> Batches:
        loader = kind(data, batch_size=BATCH, sampler=sampler, num_workers=WORKERS, persistent_workers=True)

        def batches(epoch: int) -> Iterator[Any]:
            sampler.set_epoch(epoch)
            return iter(loader)

        return batches

    ours = shortgop.ClipLoader(dataset, sampler, workers=WORKERS, threads=1)

    def of_ours(epoch: int) -> Iterator[Any]:
        sampler.set_epoch(epoch)
        return iter(ours)

    found: dict[str, Batches] = {"ClipLoader": of_ours, "DataLoader over ClipDataset": of_data_loader(dataset)}
    try:
        stateful = import_module("torchdata.stateful_dataloader").StatefulDataLoader
        found["StatefulDataLoader over ClipDataset"] = of_data_loader(dataset, stateful)
    except ImportError as error:
        missing["StatefulDataLoader"] = str(error)
    sets = {
        "the sources": FileSet.of_sources("sources", list(source)),
        "our segments": FileSet.of_exported("dataset as MP4", footage.make_exported(Path(path))),
    }
    wanted = [("torchcodec", each) for each in sets] + [("decord", "the sources")]
    for library, files in wanted:
        _, lacking = load([library])
        missing.update(lacking)
        if not lacking:
            found[f"{library} in a DataLoader, {files}"] = of_data_loader(
                PeerClips(dataset, sets[files], library, dtype)
            )
    try:
        found["SPDL's pipeline and decoder, the sources"] = spdl_batches(
            PeerClips(dataset, sets["the sources"], "spdl", dtype), sampler
        )
    except ImportError as error:
        missing["SPDL"] = str(error)
    return found, missing


def clips_per_second(batches: Iterator[Any], timed: int) -> float:
    """The rate over the `timed` batches in the middle of a pass."""
    for _ in range(AHEAD):
        next(batches)
    started = time.perf_counter()
    for _ in range(timed):
        next(batches)
    seconds = time.perf_counter() - started
    for _ in batches:
        pass
    return timed * BATCH / seconds


def seconds_to_first_batch(path: str) -> dict[str, float]:
    """From making a loader to its first batch. The fork server runs already, as it does from the second loader on."""
    output = {"frames": shortgop.Output(size=CROP[2:], crop=CROP, dtype=torch.float16)}
    dataset = shortgop.ClipDataset(
        path, shortgop.RandomClips(FRAMES, stride=STRIDE, clips_per_video=100), outputs=output
    )
    seconds: dict[str, list[float]] = {}
    for _ in range(5):
        for name in ("ClipLoader", "DataLoader, fork", "DataLoader, forkserver"):
            sampler = shortgop.ElasticSampler(dataset, BATCH)
            started = time.perf_counter()
            if name == "ClipLoader":
                loader: Any = shortgop.ClipLoader(dataset, sampler, workers=WORKERS, threads=1)
            else:
                context = name.rpartition(" ")[2]
                loader = DataLoader(
                    dataset, BATCH, sampler=sampler, num_workers=WORKERS, multiprocessing_context=context
                )
            batches = iter(loader)
            next(batches)
            seconds.setdefault(name, []).append(time.perf_counter() - started)
            del batches, loader
    return {name: statistics.median(each) for name, each in seconds.items()}


def step_slowdown(path: str, steps: int = 60) -> dict[str, float]:
    """How many times as long a training step on one CPU thread takes while a loader with one worker runs beside it.

    The step takes about as long as the worker needs for a batch, on a machine with one core for each.
    """
    torch.set_num_threads(1)
    output = {"frames": shortgop.Output(size=CROP[2:], crop=CROP, dtype=torch.float16)}
    dataset = shortgop.ClipDataset(
        path, shortgop.RandomClips(FRAMES, stride=STRIDE, clips_per_video=1000), outputs=output
    )
    convolution = torch.nn.Conv2d(16, 16, 3)
    picture = torch.randn(4, 16, 160, 160)

    def step() -> float:
        started = time.perf_counter()
        for _ in range(8):
            convolution(picture).mean().backward()
        return time.perf_counter() - started

    step()
    alone: list[float] = []
    beside: dict[str, list[float]] = {"ClipLoader": [], "DataLoader": []}
    for name, seconds in beside.items():
        sampler = shortgop.ElasticSampler(dataset, 4)
        loader: Any = (
            shortgop.ClipLoader(dataset, sampler, workers=1, threads=1)
            if name == "ClipLoader"
            else DataLoader(dataset, 4, sampler=sampler, num_workers=1)
        )
        batches = iter(loader)
        for _ in range(10):
            next(batches)
        for number in range(steps):
            next(batches)
            if number >= 5:
                seconds.append(step())
        del batches, loader
        time.sleep(1)
        alone += [step() for _ in range(steps // 2)]
    return {name: statistics.median(each) / statistics.median(alone) for name, each in beside.items()}


def table(rates: dict[str, list[float]], names: Sequence[str]) -> tuple[str, dict[str, Estimate]]:
    """Markdown, and how many times as many clips a second ClipLoader delivers."""
    lines = ["| | clips/s | ClipLoader against it |", "|---|---|---|"]
    ratios: dict[str, Estimate] = {}
    ours = np.array(rates["ClipLoader"])
    for name in names:
        own = np.array(rates[name])
        ratios[name] = median(ours / own)
        lines.append(f"| {name} | {np.median(own):.0f} | {ratios[name]} x |")
    return "\n".join(lines), ratios


def _listed(figures: dict[str, float], unit: str) -> str:
    return ", ".join(f"{value:.2f} {unit} ({name})" for name, value in figures.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=24, help="timed in each round")
    parser.add_argument("--dtype", choices=DTYPES, default="float16")
    parser.add_argument("--only", nargs="+", default=[], help="loaders whose names begin with one of these")
    parser.add_argument("--dry", action="store_true", help="write no results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    machine = this_machine()
    path = str(footage.make_dataset(footage.make_sources("clips", 24, 256, 60), "source"))
    dtype = DTYPES[arguments.dtype]
    found, missing = loaders(path, arguments.batches + 2 * AHEAD, dtype)
    if arguments.only:
        found = {name: each for name, each in found.items() if name.startswith(("ClipLoader", *arguments.only))}
    output = {"frames": shortgop.Output(size=CROP[2:], crop=CROP, dtype=dtype)}
    clips = shortgop.ClipDataset(path, shortgop.RandomClips(FRAMES, stride=STRIDE, clips_per_video=100), outputs=output)
    read_alone = single_reader(clips, path, dtype)
    one, together = f"{WORKERS} x one thread with out=", f"{WORKERS} such readers at once"
    rates: dict[str, list[float]] = {name: [] for name in (*found, one, together)}
    for number in range(arguments.rounds):
        for name, batches in found.items():
            rates[name].append(clips_per_second(batches(number), arguments.batches))
            print(f"round {number}: {name}: {rates[name][-1]:.0f} clips/s", flush=True)
        rates[one].append(WORKERS * read_alone(number))
        rates[together].append(at_once(clips, path, number, dtype))
        print(f"round {number}: {one}: {rates[one][-1]:.0f}, {together}: {rates[together][-1]:.0f}", flush=True)
    rows, ratios = table(rates, list(rates))
    first, slowdown = seconds_to_first_batch(path), step_slowdown(path)
    what = f"batches of {BATCH} clips of {FRAMES} frames of 224x224, {arguments.dtype}, {WORKERS} workers of one thread"
    material = (
        f"Measured by `benchmarks/loaders.py`: {what}; {arguments.rounds} rounds in turn, medians of ratios with 95 % "
        f"intervals. {machine.cpu}, {machine.cores} cores."
    )
    others = (
        f"The first batch is there after {_listed(first, 's')}, once a fork server runs: the first loader of a process "
        "starts it, which takes as long as `import torch`. A training step on one core takes "
        f"{_listed(slowdown, 'times as long')} while one worker runs on the other core."
    )
    missed = [f"Not measured: {name}: {reason}" for name, reason in missing.items()]
    text = "\n\n".join([material, rows, *missed, others])
    print(text)
    if not arguments.dry:
        content = {
            "machine": asdict(machine),
            "clips_per_second": rates,
            "clip_loader_against": {name: asdict(each) for name, each in ratios.items()},
            "seconds_to_first_batch": first,
            "step_beside_one_worker": slowdown,
            "not_measured": missing,
        }
        file = RESULTS / f"{machine_name(machine)}-loaders.json"
        file.write_text(json.dumps(content, indent=1, default=str) + "\n")
        write_page(ALL_PAGE, "loaders", text)


if __name__ == "__main__":
    main()
