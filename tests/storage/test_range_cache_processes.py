"""The local cache of byte ranges, used by threads and processes at once, some of which are killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from range_cache_items import ONE, bytes_on_disk, content, entry, files_of, item, size_of
from shortgop.storage.range_cache import RangeCache


def test_threads_share_one_cache(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 20 * ONE)
    wrong = []

    def use(seed: int) -> None:
        numbers = random.Random(seed)
        for _ in range(200):
            number = numbers.randrange(40)
            data = cache.get(entry(number))
            if data is None:
                cache.put([item(number)])
            elif data != content(number):
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cache.used_bytes == bytes_on_disk(cache) <= 20 * ONE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_goes_on(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            cache.put([item(2)])

    # Another thread writes at the moment of the forks.
    thread = threading.Thread(target=write)
    thread.start()
    context = multiprocessing.get_context("fork")
    try:
        children = [context.Process(target=_put_in_child, args=(cache, number)) for number in (3, 4, 5)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        thread.join()
    assert all(cache.get(entry(number)) == content(number) for number in range(1, 6))
    assert cache.used_bytes == 5 * ONE


def _put_in_child(cache: RangeCache, number: int) -> None:
    cache.put([item(number)])
    assert cache.get(entry(1)) == content(1)
    os._exit(0)


# Eight processes that read and write all the time, each line of whose output is a number that has wrong bytes.
WRITER = """
import random, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from range_cache_items import content, entry, item, size_of
from shortgop.storage.range_cache import RangeCache
cache, numbers = RangeCache(Path({folder!r}), {limit}), random.Random({seed})
print("ready", flush=True)
while True:
    chosen = [numbers.randrange(60) for _ in range(numbers.randint(1, 4))]
    for number in chosen:
        data = cache.get(entry(number, size_of(number)))
        if data is not None and data != content(number, size_of(number)):
            print("wrong", number, flush=True)
    cache.put([item(number, size_of(number)) for number in dict.fromkeys(chosen)])
"""


def started(folder: Path, limit: int, seed: int) -> subprocess.Popen[str]:
    code = WRITER.format(tests=str(Path(__file__).parents[1] / "shared"), folder=str(folder), limit=limit, seed=seed)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.mark.long
def test_killed_processes_leave_it_usable_and_bounded(tmp_path: Path) -> None:
    """Eight processes use it at once and are killed at random moments, whatever they are doing."""
    limit = 30 * 4608
    cache = RangeCache(tmp_path, limit)
    moments = random.Random(5)
    with contextlib.ExitStack() as all_writers:

        def start(seed: int) -> subprocess.Popen[str]:
            writer = started(tmp_path, limit, seed)
            all_writers.callback(ended, writer)
            return writer

        writers = [start(seed) for seed in range(8)]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        said = ""
        for seed in range(100, 116):
            time.sleep(moments.random() * 0.2)
            assert bytes_at_a_moment(cache) <= limit
            victim = moments.randrange(len(writers))
            said += ended(writers[victim])
            writers[victim] = start(seed)
        said += "".join(map(ended, writers))
    assert "wrong" not in said
    # No file without a row, and the total is that of the rows.
    index = sqlite3.connect(cache.folder / "index.sqlite")
    rows = dict(index.execute("SELECT name, bytes FROM entries").fetchall())
    index.close()
    assert {bytes.fromhex(path.parent.name + path.name) for path in files_of(cache)} <= set(rows)
    assert sum(rows.values()) == cache.used_bytes <= limit
    cache.put([item(1, size_of(1))])
    assert cache.get(entry(1, size_of(1))) == content(1, size_of(1))


def bytes_at_a_moment(cache: RangeCache) -> int:
    """What the files take while no process adds or removes any."""
    index = sqlite3.connect(cache.folder / "index.sqlite", isolation_level=None, timeout=30)
    try:
        index.execute("BEGIN IMMEDIATE")
        return bytes_on_disk(cache)
    finally:
        index.close()


def ended(writer: subprocess.Popen[str]) -> str:
    """What it wrote until it was killed."""
    writer.send_signal(signal.SIGKILL)
    assert writer.stdout is not None
    if writer.stdout.closed:
        return ""
    said, _ = writer.communicate(timeout=60)
    return said.replace("ready\n", "")
