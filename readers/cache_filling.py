"""Fills the local cache with videos before they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from ..errors import OutputError, UsageError
from ..manifests.ragged import Array, offsets_of, ragged_indices
from ..manifests.tables import Manifest
from ..storage.range_cache import disk_bytes
from .dataset import Dataset, chosen_of, reader_of

# Their requests run side by side. At the end of so many, what was fetched is waited for until it is in the cache.
_VIDEOS_AT_ONCE = 64
# What videos take in a cache is worked out for so many at a time.
_BLOCK_VIDEOS = 4096


@dataclass(frozen=True)
class Filling:
    """How far a cache is filled."""

    videos: int
    """Videos that are to be in the cache."""
    videos_done: int = 0
    bytes_fetched: int = 0
    """Bytes that came from the store; the rest was in the cache already."""
    left_out: int = 0
    """Videos for which `cache_bytes` is too small."""


def fill_cache(
    dataset: Dataset,
    videos: Iterable[str | int] | None = None,
    *,
    on_progress: Callable[[Filling], object] = lambda _: None,
) -> Filling:
    """Fetch videos, by id or number, into the cache that the dataset was opened with; by default all.

    They are taken in their order. One that no longer fits into `cache_bytes` beside those before it is left out, and
    what was in the cache before goes for them. What is there is checked and not fetched again, so a second call goes on
    where the first was broken off. UsageError for a dataset that has no cache, and where no video fits;
    VideoNotFoundError; OutputError where the disk is full. Errors of reading are those of `Dataset`.
    """
    reader = reader_of(dataset)
    cache = reader.options.cache
    if cache is None:
        raise UsageError("the dataset was opened without a cache; give cache_dir=, and cache_bytes=")
    chosen = chosen_of(dataset)
    if videos is None:
        rows = chosen.all_rows()
    else:
        named = dict.fromkeys(chosen.row_of(each, reader.manifest) for each in videos)
        rows = np.fromiter(named, np.int64, len(named))
    fitting = rows[fitting_into(cache.max_bytes, cached_bytes(reader.manifest, rows))]
    if len(rows) and not len(fitting):
        name = reader.manifest.videos.id.text(int(rows[0]))
        needed = cached_bytes(reader.manifest, rows[:1])[0]
        raise UsageError(
            f"video {name!r} takes {needed} bytes, and cache_bytes is {cache.max_bytes}: give it more",
            video=name,
        )
    state = Filling(videos=len(fitting), left_out=len(rows) - len(fitting))
    on_progress(state)
    for first in range(0, len(fitting), _VIDEOS_AT_ONCE):
        for fetched in reader.fill_cache(fitting[first : first + _VIDEOS_AT_ONCE].tolist()):
            state = replace(state, videos_done=state.videos_done + 1, bytes_fetched=state.bytes_fetched + fetched)
            on_progress(state)
        if cache.stopped is not None:
            raise OutputError(
                f"cannot write {cache.folder}: {cache.stopped}; {cache.remedy}, and run this again",
                file=str(cache.folder),
            )
    return state


def fitting_into(room: int, sizes: Array) -> Array:
    """Which of these go into the room, int64, ascending: each that fits beside those before it that do."""
    fitting, rest = [np.zeros(0, dtype=np.int64)], np.arange(len(sizes))
    while len(rest := rest[sizes[rest] <= room]):
        taken = np.cumsum(sizes[rest])
        count = int(np.searchsorted(taken, room, side="right"))
        room -= int(taken[count - 1])
        fitting.append(rest[:count])
        rest = rest[count:]
    return np.concatenate(fitting)


def cached_bytes(manifest: Manifest, videos: Array) -> Array:
    """What the GOPs of each of these rows of videos take in a cache, int64."""
    found = np.zeros(len(videos), dtype=np.int64)
    for start in range(0, len(videos), _BLOCK_VIDEOS):
        some = videos[start : start + _BLOCK_VIDEOS]
        firsts = manifest.first_gops[some]
        counts = manifest.first_gops[some + 1] - firsts
        lengths = manifest.gops.length[ragged_indices(firsts, counts)].tolist()
        sums = offsets_of(np.fromiter(map(disk_bytes, lengths), np.int64, len(lengths)))
        ends = offsets_of(counts)
        found[start : start + len(some)] = sums[ends[1:]] - sums[ends[:-1]]
    return found
