"""Training reads of a LeRobot dataset, by LeRobot itself and by shortgop, for `robots.py`, which runs this in an
environment that has both.

    python benchmarks/robot_reading.py ROBOT --dataset default=DATASET --into FOUND.json --rounds 5
    python benchmarks/robot_reading.py ROBOT --dataset default=DATASET --alone "DataLoader over LeRobotDataset, pyav"

The loaders read in turn, round by round: each time as many batches of random items, in other orders. A round is timed
between two batches in its middle, so that neither what was read ahead before nor the end of an epoch counts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler

import shortgop

RATE = 30
CAMERAS = ("observation.images.front", "observation.images.wrist")
LIBRARIES = ("lerobot", "torchcodec", "av", "torch", "numpy", "zarr")
BACKENDS = ("torchcodec", "pyav")
AHEAD = 4
"""Batches before and after those that are timed: as many as any of the loaders reads ahead with two workers."""
_COMPARED = 24


@dataclass(frozen=True)
class Scenario:
    """What a policy reads: frames of each camera and actions, by how many frames they are away from the item's."""

    frames: Sequence[int]
    actions: Sequence[int]
    batch_size: int
    as_bytes: bool = False

    @property
    def deltas(self) -> dict[str, list[float]]:
        seen = [frame / RATE for frame in self.frames]
        of_cameras = {} if len(self.frames) == 1 else dict.fromkeys((*CAMERAS, "observation.state"), seen)
        return {**of_cameras, "action": [action / RATE for action in self.actions]}

    @property
    def frames_of_item(self) -> int:
        return len(CAMERAS) * len(self.frames)


SCENARIOS = {
    "ACT": Scenario((0,), range(100), 32),
    "diffusion policy": Scenario((-1, 0), range(-1, 15), 32),
    # As floats a batch of 32 would have 3.8 GB.
    "VLA with history": Scenario(range(-90, 1, 6), range(50), 8, as_bytes=True),
}


@dataclass(frozen=True)
class Round:
    """What a loader took for an item, by the clock and in CPU time of all its processes."""

    milliseconds: float
    cpu_milliseconds: float


def lerobot_dataset(robot: Path, scenario: Scenario, backend: str) -> Any:
    options = {"delta_timestamps": scenario.deltas, "video_backend": backend, "return_uint8": scenario.as_bytes}
    # By name: the environment that checks types does not have it.
    module = import_module("lerobot.datasets.lerobot_dataset")
    return module.LeRobotDataset("benchmark/robot", root=robot, **options)


def our_clips(dataset: str, robot: Path, scenario: Scenario) -> shortgop.LeRobotClips:
    dtype = torch.uint8 if scenario.as_bytes else torch.float32
    return shortgop.LeRobotClips(dataset, robot, delta_timestamps=scenario.deltas, dtype=dtype)


def loader_names(datasets: Iterable[str]) -> list[str]:
    """What is compared, that which the others are compared with first."""
    ours = [f"ClipLoader over LeRobotClips, {name}" for name in datasets]
    return [
        *ours,
        ours[0].replace("ClipLoader", "DataLoader"),
        *(f"DataLoader over LeRobotDataset, {backend}" for backend in BACKENDS),
    ]


@contextmanager
def batches_of(
    name: str, robot: Path, datasets: Mapping[str, str], scenario: Scenario, *, workers: int, count: int, seed: int
) -> Iterator[Iterator[Any]]:
    """So many batches of random items by the loader of this name."""
    kind, _, reading = name.partition(" over ")
    library, _, which = reading.partition(", ")
    if library == "LeRobotDataset":
        theirs = lerobot_dataset(robot, scenario, which)
        generator = torch.Generator().manual_seed(seed)
        order = RandomSampler(theirs, num_samples=count * scenario.batch_size, generator=generator)
        yield iter(DataLoader(theirs, scenario.batch_size, sampler=order, num_workers=workers))
        return
    ours = our_clips(datasets[which], robot, scenario)
    weights = shortgop.Weighted(np.ones(len(ours)), of="clips", num_samples=count * scenario.batch_size)
    sampler = shortgop.ElasticSampler(ours, scenario.batch_size, order=weights, seed=seed)
    if kind == "DataLoader":
        yield iter(DataLoader(ours, scenario.batch_size, sampler=sampler, num_workers=workers))
        return
    with shortgop.ClipLoader(ours, sampler, workers=workers, threads=1) as loader:
        yield iter(loader)


def timed(batches: Iterator[Any], count: int, batch_size: int, ahead: int) -> Round:
    """What the `count` batches in the middle of an epoch took, which `ahead` others come before and after."""
    for _ in range(ahead):
        next(batches)
    before, started = cpu_seconds(), time.perf_counter()
    for _ in range(count):
        next(batches)
    seconds, used = time.perf_counter() - started, cpu_seconds() - before
    for _ in batches:
        pass
    items = count * batch_size
    return Round(1000 * seconds / items, 1000 * used / items)


def cpu_seconds() -> float:
    """The CPU time of this process and all below it that run."""
    fields = [text.rpartition(")")[2].split() for text in _of_processes("stat")]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def resident_megabytes() -> float:
    """The memory of this process and all below it; what several share counts once."""
    lines = [line for text in _of_processes("smaps_rollup") for line in text.splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def _of_processes(file: str) -> Iterator[str]:
    """A file in /proc of this process and of all below it."""
    waiting = [Path(f"/proc/{os.getpid()}")]
    while waiting:
        process = waiting.pop()
        # Threads and processes end at any time.
        with suppress(FileNotFoundError, ProcessLookupError):
            yield (process / file).read_text()
        for children in (process / "task").glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):
                waiting += [process.parent / child for child in children.read_text().split()]


def compared(robot: Path, dataset: str) -> dict[str, float]:
    """How many of the same random items have the same times, states and actions, and how near the frames are."""
    scenario = SCENARIOS["diffusion policy"]
    theirs, ours = lerobot_dataset(robot, scenario, "torchcodec"), our_clips(dataset, robot, scenario)
    same, nearness = 0, []
    for index in np.random.default_rng(0).choice(len(theirs), _COMPARED, replace=False).tolist():
        their, our = theirs[index], ours[index]
        keys = ("timestamp", "episode_index", "frame_index", "observation.state", "action", "action_is_pad")
        same += all(torch.equal(their[key], our[key]) for key in keys)
        nearness += [_psnr(our[camera], their[camera]) for camera in CAMERAS]
    return {"items": _COMPARED, "same": same, "psnr": float(np.median(nearness)), "least_psnr": min(nearness)}


def quality(robot: Path, dataset: str) -> dict[str, float]:
    """PSNR against the frames before LeRobot encoded them: the median over frames."""
    from robot_writing import KEPT_EVERY

    before = torch.from_numpy(np.load(robot.with_name(f"{robot.name}-before.npy"))).permute(0, 1, 4, 2, 3) / 255
    scenario = SCENARIOS["ACT"]
    read = {"LeRobot": lerobot_dataset(robot, scenario, "torchcodec"), "shortgop": our_clips(dataset, robot, scenario)}
    return {
        name: float(
            np.median(
                [
                    _psnr(items[place * KEPT_EVERY][camera], frames[number])
                    for place, frames in enumerate(before)
                    for number, camera in enumerate(CAMERAS)
                ]
            )
        )
        for name, items in read.items()
    }


def _psnr(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(-10 * torch.log10(((one - other) ** 2).mean()))


def alone(robot: Path, datasets: Mapping[str, str], name: str, workers: int) -> dict[str, float]:
    """Of one loader in a new process that has imported torch: seconds until its first batch, and the memory that it has
    when as many were read as are read ahead."""
    started, scenario = time.perf_counter(), SCENARIOS["ACT"]
    with batches_of(name, robot, datasets, scenario, workers=workers, count=2 * AHEAD, seed=0) as batches:
        next(batches)
        seconds = time.perf_counter() - started
        for _ in range(AHEAD):
            next(batches)
        return {"first_batch": seconds, "megabytes": resident_megabytes()}


def measured(robot: Path, datasets: Mapping[str, str], arguments: argparse.Namespace) -> dict[str, Any]:
    """For each scenario and number of workers the rounds of each loader."""
    found: dict[str, Any] = {}
    names = loader_names(datasets)
    # Workers first: once LeRobotDataset has read in this process, those forked from it fail to decode.
    for workers in sorted(arguments.workers, reverse=True):
        ahead = AHEAD if workers else 1
        count = arguments.batches + 2 * ahead
        for title in arguments.only:
            scenario = SCENARIOS[title]
            rounds: dict[str, list[dict[str, float]]] = {name: [] for name in names}
            for number in range(arguments.rounds):
                for name in np.random.default_rng(number).permutation(names).tolist():
                    with batches_of(
                        name, robot, datasets, scenario, workers=workers, count=count, seed=number
                    ) as batches:
                        rounds[name].append(vars(timed(batches, arguments.batches, scenario.batch_size, ahead)))
                    print(f"{title}, {workers} workers, round {number}: {name}: {rounds[name][-1]}", flush=True)
            found[f"{title}, {workers}"] = {"frames_of_item": scenario.frames_of_item, "rounds": rounds}
            if arguments.into:
                arguments.into.write_text(json.dumps({"read": found}))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robot", type=Path)
    parser.add_argument("--dataset", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=8, help="timed in each round")
    parser.add_argument("--into", type=Path, help="the file for what was measured")
    parser.add_argument("--alone", metavar="LOADER", help="time a first batch of this one, and end")
    arguments = parser.parse_args()
    datasets = dict(each.split("=", 1) for each in arguments.dataset)
    if arguments.alone:
        print(json.dumps(alone(arguments.robot, datasets, arguments.alone, max(arguments.workers))))
        return
    torch.set_num_threads(1)
    some = next(iter(datasets.values()))
    found = {
        "versions": {name: version(name) for name in LIBRARIES},
        "read": measured(arguments.robot, datasets, arguments),
        "compared": compared(arguments.robot, some),
        "psnr": quality(arguments.robot, some),
    }
    print({name: value for name, value in found.items() if name != "read"})
    if arguments.into:
        arguments.into.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
