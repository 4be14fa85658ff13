"""How requests to a store are made: time limits, retries, how many at once. And counts of them."""

from __future__ import annotations

import math
import re
import threading
from dataclasses import dataclass, field, fields
from urllib.parse import urlsplit

from ..errors import UsageError

# Files are read and written in pieces of this size: large enough that latency matters little, small enough that a
# retry repeats little, and that a few of them fit into memory.
PIECE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class NetworkOptions:
    """Limits on requests to an object store.

    A request that fails is made again after a random time of at most `first_backoff_seconds`, which doubles with each
    further retry up to `max_backoff_seconds`: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
    With `hedge_after_seconds` a second, identical request is made when the first has taken so long, and whichever
    answers first counts. With `give_up_after_seconds` a request that has no answer by then is an error, however often
    it was made until then. Both are for reads alone. What the store turns away since there are too many requests is
    made again for `throttled_seconds`, however often. A piece of an upload, and a new file of one piece, is sent again
    for `upload_seconds`, whatever it fails for that may pass: with it the work of a unit would be lost. Any other
    request is made again for `outage_seconds` if the store has done something before, or what asks goes on, as a
    worker does. These waits end when a job ends, see `outages`.

    As long as the store has answered nothing at all, its address may be wrong, or this machine have no network. Then a
    request is made three times at least, and no more after `first_answer_seconds`.
    """

    connect_timeout_seconds: float = 5.0
    # How long a server may send nothing.
    timeout_seconds: float = 30.0
    retries: int = 8
    first_backoff_seconds: float = 0.1
    max_backoff_seconds: float = 10.0
    throttled_seconds: float = 300.0
    upload_seconds: float = 300.0
    outage_seconds: float = 0.0
    hedge_after_seconds: float | None = None
    give_up_after_seconds: float | None = None
    first_answer_seconds: float = math.inf
    max_concurrent_requests: int = 16
    # Goes with the URL of each file of a web server, and may be a secret: the signature of a presigned URL.
    query: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, str):
                continue
            may_be_0 = each.name in ("retries", "first_backoff_seconds", "throttled_seconds", "outage_seconds")
            if value is not None and not (value >= 0 if may_be_0 else value > 0):
                raise UsageError(f"{each.name} is {value!r}; it has to be {'at least' if may_be_0 else 'above'} 0")


AT_THE_START = NetworkOptions(first_answer_seconds=10)
"""For a command or a job that has just begun. What goes on, as a worker of a job, waits for longer."""
OF_A_JOB = NetworkOptions(first_answer_seconds=10, outage_seconds=90)
"""For the dataset that a job writes: the job goes on after the store's servers have started again."""


@dataclass(frozen=True)
class RequestCounts:
    """Counts of the requests to a store. Parts of an upload count; their retries do not, since obstore makes them."""

    requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    retries: int = 0
    # Second requests that were made because the first took too long.
    hedged: int = 0
    # The time that callers waited for answers, summed over threads.
    waited_seconds: float = 0.0
    # What the fastest of all requests took: about the time that any has to wait for its first byte.
    least_seconds: float = math.inf

    def __add__(self, other: RequestCounts) -> RequestCounts:
        names = [each.name for each in fields(self) if each.name != "least_seconds"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return RequestCounts(**sums, least_seconds=min(self.least_seconds, other.least_seconds))


class RequestCounter:
    """Adds up requests of many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = RequestCounts()

    def add(self, more: RequestCounts) -> None:
        with self._lock:
            self._counts += more

    @property
    def counts(self) -> RequestCounts:
        with self._lock:
            return self._counts


def is_server(text: str) -> bool:
    """Whether a text is the URL of a server; its port may be missing."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        # The port is no number, or there are brackets of an IPv6 address without one.
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"[\s\x00-\x1f]", text)
