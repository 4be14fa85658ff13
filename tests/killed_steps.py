"""Run an operation on copies of a dataset, each killed by SIGKILL before another of its changes to the file system.

    python killed_steps.py DATASET COPIES OPERATION

makes COPIES/1, COPIES/2, ... and ends after the first copy on which the operation comes to its end. OPERATION is the
name of a function of this module. It runs as a process of its own: it forks, and the processes that are killed must
have no threads.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shortgop.manifests.annotate import annotate
from shortgop.manifests.collect import collect
from shortgop.manifests.drop import drop
from shortgop.storage.disk import DiskStorage

LABELS: dict[str, dict[str, Any]] = {"a": {"label": 1}, "c": {"label": [2, None], "split": "é"}}
_CHANGES = ("os.link", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
_MOST_STEPS = 500


def annotated(dataset: Path) -> None:
    """Set columns, and remove one."""
    annotate(DiskStorage(dataset), LABELS, remove=["old"], keep_snapshots_seconds=0)


def dropped(dataset: Path) -> None:
    """Take out one of several videos of a shard."""
    drop(DiskStorage(dataset), ["a"])


def collected(dataset: Path) -> None:
    """Remove all that is not needed."""
    collect(DiskStorage(dataset))


OPERATIONS: dict[str, Callable[[Path], None]] = {each.__name__: each for each in (annotated, dropped, collected)}


def killed_before(step: int, dataset: Path, operation: Callable[[Path], None]) -> bool:
    """Whether the operation was killed, in a process of its own, before so many changes were made."""
    child = os.fork()
    if not child:
        kill_at(step, str(dataset))
        operation(dataset)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    assert status == 0, f"the operation failed on {dataset}"
    return False


def kill_at(step: int, dataset: str) -> Callable[[], int]:
    """Have this process killed before its change number `step`, from 1, to the files of a dataset. The result says how
    many changes there have been."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        # Opening for reading changes nothing.
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (event in _CHANGES or writes) and dataset in str(arguments[0]):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return lambda: seen


def main(dataset: Path, copies: Path, operation: Callable[[Path], None]) -> None:
    for step in range(1, _MOST_STEPS):
        copy = copies / str(step)
        shutil.copytree(dataset, copy)
        if not killed_before(step, copy, operation):
            return
    raise AssertionError(f"the operation makes more than {_MOST_STEPS} changes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), OPERATIONS[sys.argv[3]])
