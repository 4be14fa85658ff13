"""The local cache of byte ranges: what it keeps, what goes first, and what deaths and damage leave of it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
import zlib
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortgop.errors import DatasetWarning
from shortgop.storage.range_cache import Entry, RangeCache, disk_bytes


def content(number: int, num_bytes: int = 1000) -> bytes:
    return random.Random(number).randbytes(num_bytes)


def entry(number: int, num_bytes: int = 1000) -> Entry:
    """Each number stands for other bytes of another file."""
    return Entry("s3://bucket/set", f"shards/{number}.shard", 7, 7 + num_bytes, zlib.crc32(content(number, num_bytes)))


def item(number: int, num_bytes: int = 1000) -> tuple[Entry, bytes]:
    return entry(number, num_bytes), content(number, num_bytes)


def files_of(cache: RangeCache) -> list[Path]:
    return [path for path in cache.folder.glob("*/*") if path.is_file()]


def bytes_on_disk(cache: RangeCache) -> int:
    return sum(disk_bytes(path.stat().st_size) for path in files_of(cache))


ONE = disk_bytes(1000)


def test_what_was_put_is_there_for_every_process_of_the_host(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    assert cache.get(entry(1)) is None
    assert not cache.has(entry(1))
    cache.put([item(1), item(2)])
    assert cache.get(entry(1)) == content(1)
    assert cache.has(entry(2))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(RangeCache.get, (cache, entry(2))) == content(2)


def test_an_entry_is_of_one_dataset_one_file_and_one_range(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    one = entry(1)
    others = [one._replace(place="s3://bucket/other"), one._replace(key="shards/x.shard")]
    others += [one._replace(start=8, stop=1008), one._replace(stop=1006)]
    assert [cache.get(other) for other in others] == [None] * 4


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 3 * ONE)
    for number in (1, 2, 3):
        cache.put([item(number)])
    cache.get(entry(1))
    cache.put([item(4)])
    assert [number for number in (1, 2, 3, 4) if cache.has(entry(number))] == [1, 3, 4]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("get"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("put"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), st.just(0)),
        st.tuples(st.just("damage"), st.integers(0, 9), st.integers(0, 2)),
        st.tuples(st.just("reopen"), st.integers(), st.just(0)),
    ),
    max_size=40,
)


def size_of(number: int) -> int:
    """Entries of one to three blocks."""
    return 1 + 4096 * (number % 3) + number


@given(STEPS, st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_it_is_a_bounded_dict_in_the_order_of_use(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int | list[int], int]], blocks: int
) -> None:
    limit = blocks * 4608
    cache = RangeCache(tmp_path_factory.mktemp("model"), limit)
    model: OrderedDict[int, bool] = OrderedDict()
    """Which entries have a row, the least recently used first, and whether their bytes are right."""

    def taken() -> int:
        return sum(disk_bytes(size_of(number)) for number in model)

    for what, which, how in steps:
        if what == "reopen":
            cache.close()
            cache = RangeCache(cache.folder.parent, limit)
        elif isinstance(which, list):
            room, wanted = limit, []
            for number in which:
                if disk_bytes(size_of(number)) <= room:
                    room -= disk_bytes(size_of(number))
                    wanted.append(number)
            # All of a call are used at the same time; one at a time, so that the order is known.
            for number in wanted:
                model.pop(number, None)
                while taken() + disk_bytes(size_of(number)) > limit:
                    model.popitem(last=False)
                model[number] = True
                cache.put([item(number, size_of(number))])
        elif what == "get":
            expected = content(which, size_of(which)) if model.get(which) else None
            assert cache.get(entry(which, size_of(which))) == expected
            if expected is not None:
                model.move_to_end(which)
        elif model.get(which):
            damage(cache, entry(which, size_of(which)), how)
            model[which] = False
        assert cache.used_bytes == taken() <= limit
        assert bytes_on_disk(cache) <= limit
    assert {number for number in range(10) if cache.get(entry(number, size_of(number)))} == {
        number for number, right in model.items() if right
    }


def damage(cache: RangeCache, one: Entry, how: int) -> None:
    """Change a byte, cut the file or remove it; its time stays."""
    name = one.name.hex()
    path = cache.folder / name[:2] / name[2:]
    used = path.stat().st_mtime_ns
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data if how == 0 else data[: len(data) // 2])
    os.utime(path, ns=(used, used))
    if how == 2:
        path.unlink()


@pytest.mark.parametrize("how", [0, 1, 2], ids=["changed", "cut", "removed"])
def test_a_damaged_entry_is_none_and_is_written_again(tmp_path: Path, how: int) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    damage(cache, entry(1), how)
    assert cache.get(entry(1)) is None
    cache.put([item(1)])
    assert cache.get(entry(1)) == content(1)
    assert cache.used_bytes == ONE


def test_a_file_that_grew_is_written_again(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    with files_of(cache)[0].open("ab") as file:
        file.write(b"more")
    assert not cache.has(entry(1))
    cache.put([item(1)])
    assert cache.has(entry(1))


def test_what_is_longer_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 2 * ONE)
    cache.put([item(1)])
    cache.put([item(2, 100_000)])
    assert cache.has(entry(1))
    assert cache.used_bytes == ONE
    # Of a batch, what fits.
    cache.put([item(number) for number in (3, 4, 5)])
    assert [number for number in range(6) if cache.has(entry(number))] == [3, 4]


def test_a_process_with_a_lower_limit_makes_room(tmp_path: Path) -> None:
    RangeCache(tmp_path, 10 * ONE).put([item(number) for number in range(10)])
    smaller = RangeCache(tmp_path, 4 * ONE)
    smaller.put([item(10)])
    assert smaller.used_bytes == 4 * ONE == bytes_on_disk(smaller)


def test_a_pickle_is_the_place_and_the_limit(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 5 * ONE)
    cache.put([item(1)])
    copy = pickle.loads(pickle.dumps(cache))
    assert copy.get(entry(1)) == content(1)
    assert copy.max_bytes == 5 * ONE


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
            child.join(20)
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
import json, random, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_range_cache import content, entry, item, size_of
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
    code = WRITER.format(tests=str(Path(__file__).parent), folder=str(folder), limit=limit, seed=seed)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


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


def test_files_that_the_index_does_not_know_are_removed_after_a_restart_of_the_machine(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1), item(2)])
    cache.close()
    index = sqlite3.connect(cache.folder / "index.sqlite", isolation_level=None)
    index.execute("DELETE FROM entries WHERE name = ?", (entry(2).name,))
    index.execute("UPDATE state SET value = ? WHERE name = 'bytes'", (ONE,))
    cache.put([item(1)])
    assert cache.has(entry(2)), "without a restart nothing looks for such files"
    index.execute("UPDATE state SET value = 'another' WHERE name = 'boot'")
    index.close()
    RangeCache(tmp_path, 10 * ONE).put([item(3)])
    assert [number for number in range(4) if cache.has(entry(number))] == [1, 3]


FULL = """
import json, resource, sys, warnings
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_range_cache import entry, item
from shortgop.storage.range_cache import RangeCache
cache = RangeCache(Path({folder!r}), 1 << 30)
cache.put([item(1)])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for number in (2, 3, 4):
        cache.put([item(number, 400_000)])
print(json.dumps([[str(each.message) for each in caught], cache.get(entry(1)) is not None]))
"""


def test_a_full_disk_is_one_warning_and_reading_goes_on(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    code = FULL.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    warned, hit = json.loads(said.stdout)
    assert warned == [
        f"nothing more is kept in {tmp_path}/ranges-1: File too large; what was kept is still used. Free some space, "
        "or give another cache_dir on a local disk"
    ]
    assert hit
    # Others go on.
    cache = RangeCache(tmp_path, 1 << 30)
    cache.put([item(5)])
    assert cache.get(entry(5)) == content(5)


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = RangeCache(tmp_path / "file", 1 << 20)
    with pytest.warns(DatasetWarning, match=r"nothing more is kept in .*file/ranges-1: Not a directory"):
        cache.put([item(1)])
    cache.put([item(2)])
    assert cache.get(entry(1)) is None


def test_an_index_that_is_no_index_is_one_warning(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 1 << 20)
    cache.folder.mkdir()
    (cache.folder / "index.sqlite").write_bytes(b"no database" * 1000)
    with pytest.warns(DatasetWarning, match="file is not a database"):
        cache.put([item(1)])
    assert cache.get(entry(1)) is None


def test_a_disk_that_is_full_is_one_warning_and_reading_goes_on(small_disk: Path) -> None:
    """The cache may take more than the disk has: 5 MB."""
    cache = RangeCache(small_disk, 1 << 30)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for number in range(10):
            cache.put([item(number, 1_000_000)])
    assert ["nothing more is kept in" in str(each.message) for each in warned] == [True]
    there = [number for number in range(10) if cache.get(entry(number, 1_000_000)) is not None]
    assert there == list(range(len(there)))
    assert 3 <= len(there) <= 5


def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    (kept,) = files_of(cache)
    others = [kept.parent / name for name in (".nfs123", ".DS_Store", "0" * 29)]
    for other in others:
        other.write_bytes(b"not of the cache")
    unknown = kept.parent / ("0" * 30)
    unknown.write_bytes(b"of the cache, and without a row")
    (kept.parent / ("1" * 30)).mkdir()
    after_a_restart(cache)
    again = RangeCache(tmp_path, 10 * ONE)
    again.put([item(2)])
    assert again.stopped is None
    assert [again.get(entry(number)) for number in (1, 2)] == [content(1), content(2)]
    assert all(other.exists() for other in others)
    assert not unknown.exists()


def after_a_restart(cache: RangeCache) -> None:
    cache.close()
    with contextlib.closing(sqlite3.connect(cache.folder / "index.sqlite")) as index, index:
        index.execute("UPDATE state SET value = 'another boot' WHERE name = 'boot'")


@pytest.mark.parametrize("is_open", [True, False])
def test_the_total_is_counted_again_where_its_row_is_lost(tmp_path: Path, is_open: bool) -> None:
    cache = RangeCache(tmp_path, 2 * ONE)
    cache.put([item(1)])
    with contextlib.closing(sqlite3.connect(cache.folder / "index.sqlite")) as index, index:
        index.execute("DELETE FROM state")
    if not is_open:
        cache = RangeCache(tmp_path, 2 * ONE)
    assert cache.used_bytes == ONE
    cache.put([item(2)])
    cache.put([item(3)])
    assert cache.stopped is None
    assert cache.used_bytes == bytes_on_disk(cache) == 2 * ONE


def test_an_index_that_makes_no_sense_ends_with_one_warning(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    with contextlib.closing(sqlite3.connect(cache.folder / "index.sqlite")) as index, index:
        index.execute("UPDATE state SET value = 'many' WHERE name = 'bytes'")
    with pytest.warns(DatasetWarning, match="nothing more is kept in"):
        cache.put([item(2)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put([item(3)])
    assert cache.get(entry(1)) == content(1)
