"""A training loop for tests, in a process that may be killed: `python tests/shared/loader_consumer.py HOW DATASET`.

It prints a line for each batch, and may be told to have forked a child before, or to leave in a certain way.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import time
from pathlib import Path

from left_open import open_files
from loader_helpers import Sleeps, clips, loader_of, own_workers, shown


def train(how: str, dataset: str) -> None:
    """Train for ever, but where `how` says otherwise."""
    # Where the tests run in the background, a shell may have told them to ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    transform = Sleeps(1000) if how == "slow" else None
    loader = loader_of(clips(dataset, transform=transform), 4 if how == "few descriptors" else 2)
    for _ in range(3 if how == "goes on" else 0):
        print("begins", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                for batch in loader:
                    # print() writes the end of a line by itself: an interrupt between the two would join two lines.
                    sys.stdout.write(f"{len(batch['draw'])}\n")
                    sys.stdout.flush()
    if how == "goes on":
        print(sum(len(shown(batch)) for batch in loader))
        return
    batches = iter(loader)
    print(shown(next(batches)), flush=True)
    if how == "forked":
        # It has all descriptors that this process has.
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
        print("forked", flush=True)
    if how == "leaves":
        return
    if how == "finds nothing in /dev/shm":
        pids = ["self", *map(str, own_workers())]
        maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in pids)
        assert "/dev/shm" not in maps, maps
        assert not [file for file in open_files() if "/dev/shm" in file]
    while how in ("forked", "runs"):
        for batch in loader:
            print(len(batch["draw"]), flush=True)
    print(sum(len(shown(batch)) for batch in itertools.islice(batches, 100)), flush=True)


if __name__ == "__main__":
    train(*sys.argv[1:])
