"""Run an operation on copies of a dataset, each killed by SIGKILL before another of its changes.

    python killed_steps.py

Each line on standard input is a list in JSON: DATASET, COPIES, OPERATION, FIRST, STRIDE, LAST, SOURCE... It has
COPIES/1, COPIES/2, ... made, a path or a URL, up to the first copy on which the operation comes to its end. They begin
with the number FIRST, and only every STRIDE of them is made, and the last one if LAST is true. Each line on standard
output has the numbers of those that were killed. OPERATION is the name of a function of this module, which takes the
copy, and the sources if there are any. It runs as a process of its own, until its standard input ends: it forks, and
the processes that are killed must have no threads when they begin.

A change is one to the file system, or a request that changes a store.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dataset_places import copied
from s3_server import share_models
from shortgop.manifests.dataset_files.layout import snapshots
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.compact import compact
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.lost_root import restore_root
from shortgop.manifests.operations.recovery import repair_snapshot
from shortgop.manifests.operations.rollback import rollback
from shortgop.storage.interface import Storage
from shortgop.storage.locate import is_url, storage_at

LABELS: dict[str, dict[str, Any]] = {"a": {"label": 1}, "c": {"label": [2, None], "split": "é"}}
_CHANGES = ("os.link", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
_CHANGING_REQUESTS = ("put", "delete", "copy", "open_writer")
_MOST_STEPS = 500


def annotated(dataset: Storage) -> None:
    """Set columns, and remove one."""
    annotate(dataset, LABELS, remove=["old"], keep_snapshots_seconds=0)


def dropped(dataset: Storage) -> None:
    """Take out one of several videos of a shard."""
    drop(dataset, ["a"])


def collected(dataset: Storage) -> None:
    """Remove all that is not needed."""
    collect(dataset)


def published(dataset: Storage) -> None:
    """Make a snapshot of what is finished."""
    with dataset.lock():
        publish(dataset)


def compacted(dataset: Storage) -> None:
    """Put small shards together."""
    compact(dataset, keep_snapshots_seconds=0)


def rolled_back(dataset: Storage) -> None:
    """Go back to the second snapshot."""
    rollback(dataset, sorted(snapshots(dataset))[1])


def recovered(dataset: Storage) -> None:
    """Make the current snapshot again, which is damaged."""
    repair_snapshot(dataset)


def with_its_root(dataset: Storage) -> None:
    """Make zarr.json again, which is damaged."""
    restore_root(dataset)


def filled(dataset: Storage, source: Storage) -> None:
    """Copy a dataset to this place."""
    copy_videos([source], dataset, update=True)


def merged(dataset: Storage, *sources: Storage) -> None:
    """Bring the videos of other datasets into this one."""
    copy_videos(sources, dataset)


Operation = Callable[..., None]
EDITS = ("annotated", "dropped", "collected", "published", "compacted", "rolled_back")
# These take sources.
MOVES = ("filled", "merged")
OPERATIONS: dict[str, Operation] = {name: globals()[name] for name in (*EDITS, *MOVES, "recovered", "with_its_root")}


def killed_before(step: int, original: str, copy: str, operation: Operation, sources: Sequence[str]) -> bool:
    """Whether the operation was killed, in a process of its own, before so many changes were made."""
    child = os.fork()
    if not child:
        dataset = copied(storage_at(original), storage_at(copy))
        kill_at(step, copy)
        operation(dataset, *map(storage_at, sources))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    assert status == 0, f"the operation failed on {copy}"
    return False


def kill_at(step: int, dataset: str) -> Callable[[], int]:
    """Have this process killed before its change number `step`, from 1, to the files of a dataset, given by its path or
    URL. The result says how many changes there have been."""
    seen, counting = 0, threading.Lock()

    def change() -> None:
        nonlocal seen
        with counting:
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        # Opening for reading changes nothing.
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (event in _CHANGES or writes) and dataset in str(arguments[0]):
            change()

    if is_url(dataset):
        _before_requests(change)
    else:
        sys.addaudithook(hook)
    return lambda: seen


def _before_requests(change: Callable[[], None]) -> None:
    """Have `change` called before each request that changes a store; an upload in parts is one."""
    import obstore

    def with_change(request: Callable[..., Any]) -> Callable[..., Any]:
        def requested(*arguments: Any, **keywords: Any) -> Any:
            change()
            return request(*arguments, **keywords)

        return requested

    for name in _CHANGING_REQUESTS:
        setattr(obstore, name, with_change(getattr(obstore, name)))


Killer = Callable[..., list[str]]
"""What `killed_steps.py` does with a line."""


@contextlib.contextmanager
def killer() -> Iterator[Killer]:
    """Start the process that has operations killed, with the environment that this one has now."""
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def killed(*words: str | int) -> list[str]:
            assert process.stdin is not None
            assert process.stdout is not None
            print(json.dumps(words), file=process.stdin, flush=True)
            line = process.stdout.readline()
            assert line, "the process that has operations killed has ended"
            return line.split()

        try:
            yield killed
        finally:
            process.kill()


def killed_steps(
    original: str, copies: str, operation: Operation, first: int, stride: int, last: bool, sources: Sequence[str]
) -> list[int]:
    """The numbers of the copies on which the operation was killed."""

    def killed(step: int) -> bool:
        return killed_before(step, original, f"{copies}/{step}", operation, sources)

    for step in range(first, _MOST_STEPS, stride):
        if not killed(step):
            some = [*range(first, step, stride)]
            between = range(max(first, step - stride + 1), step if last else 0)
            # Of these the first ones are killed, and the others come to their end.
            num_killed = bisect.bisect_left(between, True, key=lambda each: not killed(each))
            return [*some, *between[:num_killed][-1:]]
    raise AssertionError(f"the operation makes more than {_MOST_STEPS} changes")


def main() -> None:
    if "AWS_ENDPOINT_URL" in os.environ:
        share_models()
    for line in sys.stdin:
        original, copies, operation, first, stride, last, *sources = json.loads(line)
        print(*killed_steps(original, copies, OPERATIONS[operation], first, stride, last, sources), flush=True)


if __name__ == "__main__":
    main()
