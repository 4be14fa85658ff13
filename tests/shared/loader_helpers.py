"""What tests of ClipLoader share with the processes that they start: a dataset, transforms that fail, and checks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

import shortgop
from started_processes import descendants
from synthetic import constant_rate_pts, make_video, read_number

# Each clip has two frames of 96 x 64 pixels: a batch of four takes 150 kB.
FRAMES_OF_VIDEO = 41
BATCH = 4
BATCH_BYTES = 180_000
"""With what else a batch has, and what rounding up to pages takes."""

Shown = list[tuple[int, int, list[int]]]


def make_clips(root: Path) -> Path:
    """Make a dataset of two videos, whose frames show 0 to 40 and 1000 to 1040; returns its folder."""
    # Workers import this module too, and need none of what makes datasets.
    from datasets import make_dataset

    for number in range(2):
        pts = constant_rate_pts(Fraction(30), FRAMES_OF_VIDEO)
        make_video(root / f"{number}.mp4", pts=pts, timebase=Fraction(1, 30), size=(96, 64), first_number=1000 * number)
    assert make_dataset(sorted(root.glob("*.mp4")), root / "dataset", gop_frames=8).failures == ()
    return root / "dataset"


def clips(dataset: str | Path, **options: Any) -> shortgop.ClipDataset:
    """All clips of two neighbouring frames."""
    return shortgop.ClipDataset(dataset, shortgop.AllClips(2), **options)


def loader_of(dataset: shortgop.ClipDataset, workers: int = 2, **options: Any) -> shortgop.ClipLoader:
    """A loader of batches of four, shuffled."""
    sampler = shortgop.ElasticSampler(dataset, BATCH, order=options.pop("order", None))
    return shortgop.ClipLoader(dataset, sampler, workers=workers, **options)


def shown(batch: Any) -> Shown:
    """The draws of a batch, the videos, and the numbers that the frames show. They have to be those of the clips."""
    rows = []
    for row, draw in enumerate(batch["draw"].tolist()):
        video, start = int(batch["video"][row]), int(batch["start"][row])
        numbers = [read_number(frame) for frame in batch["frames"][row]]
        first = 1000 * (video % 2) + start
        assert numbers == [first, first + 1], (draw, video, start, numbers)
        rows.append((draw, video, numbers))
    return rows


def all_shown(batches: Iterable[Any]) -> list[Shown]:
    """What each batch shows."""
    return [shown(batch) for batch in batches]


def undisturbed(dataset: shortgop.ClipDataset, **options: Any) -> list[Shown]:
    """What an epoch shows where no other process takes part."""
    return all_shown(loader_of(dataset, 0, **options))


@dataclass(frozen=True)
class KillsItself:
    """A transform that ends its process at the clip that starts at a frame."""

    number: int

    def __call__(self, frames: torch.Tensor) -> torch.Tensor:
        if read_number(frames[0]) == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
        return frames


@dataclass(frozen=True)
class Refuses:
    """A transform that raises an error at the clip that starts at a frame."""

    number: int

    def __call__(self, frames: torch.Tensor) -> torch.Tensor:
        if read_number(frames[0]) == self.number:
            raise ZeroDivisionError(f"at {self.number}")
        return frames


def filled_from_the_environment(frames: torch.Tensor) -> torch.Tensor:
    """A transform that shows a variable of its process's environment."""
    return torch.full_like(frames, int(os.environ.get("SHORTGOP_TEST_LEVEL", "0")))


@dataclass(frozen=True)
class Sleeps:
    """A transform that takes this long, in workers, and says when it begins."""

    seconds: float

    def __call__(self, frames: torch.Tensor) -> torch.Tensor:
        if multiprocessing.parent_process() is not None:
            print("sleeps", flush=True)
            time.sleep(self.seconds)
        return frames


class ArrivesLate(shortgop.ClipDataset):
    """A dataset that workers wait for, as for a script that does much where they import it."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        time.sleep(3)
        self.__dict__.update(state)


def with_a_list(outputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    """A transform with an entry that is no tensor but consists of tensors."""
    return {**outputs, "views": [outputs["frames"][0].clone(), outputs["frames"][1].clone()]}


def with_a_function(outputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    """A transform with an entry that cannot be pickled."""
    return {**outputs, "function": lambda: None}


def own_workers() -> list[int]:
    """The pids of the workers of this process's loaders, in the order of their start."""
    workers = [each for each in multiprocessing.active_children() if each.name == "shortgop loader"]
    return sorted(each.pid for each in workers if each.pid is not None)


def fork_server_of(consumer: int) -> tuple[int, list[int]]:
    """The pid of a process's fork server, and those of its workers, which have the same command line."""
    pids = [pid for pid, command in descendants(consumer) if "multiprocessing.forkserver" in command]
    workers = {pid: [child for child, _ in descendants(pid)] for pid in pids}
    return next(((pid, found) for pid, found in workers.items() if set(pids) == {pid, *found}), (0, []))


def fork_server() -> int:
    """The pid of this process's fork server."""
    return fork_server_of(os.getpid())[0]


def marked(mark: str) -> Iterator[int]:
    """The pids of all processes that were started with this text in their environment, or inherited it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    yield int(entry.name)
            except OSError:
                continue


def runs(pid: int) -> bool:
    """Whether a process runs. A process that has ended may be listed until its parent reads its exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def comes_true(check: Callable[[], bool], seconds: float) -> bool:
    """Whether this happens within this time."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def none_left(mark: str, seconds: float) -> bool:
    """Whether all marked processes end within this time."""
    return comes_true(lambda: not list(marked(mark)), seconds)
