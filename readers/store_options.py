"""What `shortgop.open` is told of the way from a store: the local cache, and how requests are made."""

from __future__ import annotations

import os
from pathlib import Path

from ..arguments import integer
from ..errors import UsageError, WrongTypeError
from ..storage.interface import Storage
from ..storage.range_cache import RangeCache
from .read_limits import ON_DISK, ReadLimits, limits_for, with_gap


def cache_at(cache_dir: str | os.PathLike[str] | None, cache_bytes: int) -> RangeCache | None:
    """The cache in a folder of this host; None without one. UsageError or WrongTypeError for what is no folder or no
    size."""
    limit = integer(cache_bytes, "cache_bytes")
    if limit < 1:
        raise UsageError(f"cache_bytes is {limit}; it is how many bytes the cache may take, 1 or more")
    if cache_dir is None:
        return None
    try:
        folder = Path(cache_dir).expanduser().absolute()
    except TypeError:
        raise WrongTypeError(f"cache_dir is {cache_dir!r}; it has to be a folder of this host") from None
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"cache_dir is {folder}, which is a file; it has to be a folder of this host")
    return RangeCache(folder, limit)


def limits_of(
    place: Storage, max_gap_bytes: int | None, *, requests: int, num_bytes: int, seconds: float
) -> ReadLimits:
    """How ranges of this place are read together: as `max_gap_bytes` says, or by what its first requests took."""
    if max_gap_bytes is not None:
        gap = integer(max_gap_bytes, "max_gap_bytes")
        if gap < 0:
            raise UsageError(
                f"max_gap_bytes is {gap}; it is how many bytes may lie between ranges that are read at once"
            )
        return with_gap(gap)
    return ON_DISK if place.folder is not None else limits_for(requests, num_bytes, seconds)
