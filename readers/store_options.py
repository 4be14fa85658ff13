"""The options of `shortgop.open` for stores: the local cache, and how requests are made."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

from ..arguments import integer, number
from ..errors import UsageError, WrongTypeError
from ..manifests.shared_memory.host_copies import HostCopies, copies_in
from ..storage.interface import Storage
from ..storage.locate import from_home, is_half_a_url, is_url
from ..storage.network import AT_THE_START, NetworkOptions
from ..storage.range_cache import RangeCache
from .read_limits import ON_DISK, ReadLimits, limits_for, with_gap


def cache_at(cache_dir: str | os.PathLike[str] | None, cache_bytes: int) -> RangeCache | None:
    """The cache in a folder of this host; None without one. UsageError or WrongTypeError for what is no folder or no
    size."""
    limit = integer(cache_bytes, "cache_bytes")
    if limit < 1:
        raise UsageError(f"cache_bytes is {limit}; it takes a number of bytes, 1 or more")
    if cache_dir is None:
        return None
    try:
        text = str(Path(cache_dir)) if isinstance(cache_dir, os.PathLike) else cache_dir
        if is_url(text) or is_half_a_url(text):
            raise UsageError(f"cache_dir is {text}, a URL; it has to be a folder of this host, given as a path")
        folder = Path(from_home(os.fspath(cache_dir))).absolute()
    except TypeError:
        raise WrongTypeError(f"cache_dir is {cache_dir!r}; it has to be a folder of this host") from None
    if "\0" in str(folder):
        raise UsageError(f"cache_dir is {str(folder)!r}, which has a null byte, and no path has one; leave it out")
    if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112  # those of Path raise for some names
        raise UsageError(f"cache_dir is {folder}, which is a file; it has to be a folder of this host")
    return RangeCache(folder, limit)


def copies_of(cache: RangeCache | None) -> HostCopies | None:
    """Where this host has copies of large snapshots' tables: beside the cache, or in the user's own cache folder."""
    return copies_in(None if cache is None else cache.folder.parent)


def network_of(hedge_after: float | None, give_up_after: float | None = None) -> NetworkOptions:
    """The limits on requests. UsageError or WrongTypeError for what is no number of seconds."""
    options = AT_THE_START
    if hedge_after is not None:
        seconds = float(number(hedge_after, "hedge_after"))
        if not seconds > 0:
            raise UsageError(
                f"hedge_after is {hedge_after!r}; it takes the seconds after which a read is requested again"
            )
        options = replace(options, hedge_after_seconds=seconds)
    if give_up_after is not None:
        seconds = float(number(give_up_after, "give_up_after"))
        if not 0 < seconds < math.inf:
            raise UsageError(
                f"give_up_after is {give_up_after!r}; it takes the seconds after which a read without an answer is an "
                "error"
            )
        # Requests that nobody waits for any more end soon after.
        options = replace(
            options,
            give_up_after_seconds=seconds,
            connect_timeout_seconds=min(seconds, options.connect_timeout_seconds),
            timeout_seconds=min(seconds, options.timeout_seconds),
        )
    return options


def limits_of(place: Storage, max_gap_bytes: int | None) -> ReadLimits:
    """How ranges of this place are read together: as `max_gap_bytes` says, or by what its fastest answer took."""
    if max_gap_bytes is not None:
        gap = integer(max_gap_bytes, "max_gap_bytes")
        if gap < 0:
            raise UsageError(f"max_gap_bytes is {gap}; it takes the bytes of the longest gap to read over")
        return with_gap(gap)
    if place.folder is not None:
        return ON_DISK
    return limits_for(place.counts().least_seconds)
