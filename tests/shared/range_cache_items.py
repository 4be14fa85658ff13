"""Entries of the local cache for its tests, and what becomes of them on the disk."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import zlib
from pathlib import Path

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


def size_of(number: int) -> int:
    """Entries of one to three blocks."""
    return 1 + 4096 * (number % 3) + number


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


def after_a_restart(cache: RangeCache) -> None:
    cache.close()
    with contextlib.closing(sqlite3.connect(cache.folder / "index.sqlite")) as index, index:
        index.execute("UPDATE state SET value = 'another boot' WHERE name = 'boot'")
