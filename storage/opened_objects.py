"""Objects that are read in pieces, with few requests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from .network import PIECE_BYTES
from .read_bucket import ReadBucket

# The end of a zip archive says where its members are; a small file comes whole.
TAIL_BYTES = 256 * 1024
# To read so much more takes about as long as another request: 20 ms at 50 MB/s.
MAX_GAP_BYTES = 1024 * 1024


class OpenedObject:
    """`OpenedFile` in a store. One request when it is opened, which brings the end of the file, and in Azure two if it
    is long; then one for each read of what neither that nor `will_need` has brought."""

    def __init__(self, bucket: ReadBucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        tail, self.stored = bucket.read_tail(key, TAIL_BYTES)
        # In order.
        self._kept = [(self.stored.num_bytes - len(tail), tail)]

    def read(self, start: int, stop: int) -> bytes:
        if start < 0:
            raise EOFError(f"the file has no byte {start}")
        at = bisect_right(self._kept, start, key=lambda piece: piece[0]) - 1
        if at >= 0 and (kept := self._kept_bytes(at, start, stop)) is not None:
            return kept
        if stop > self.stored.num_bytes:
            raise EOFError(f"the file ends before byte {stop}")
        return self._bucket.read_version(self._key, [(start, stop)], self.stored.version)[0]

    def _kept_bytes(self, at: int, start: int, stop: int) -> bytes | None:
        """Bytes [start, stop) of the kept pieces from number `at` on. None if some of them are not kept."""
        parts = []
        for first, data in self._kept[at:]:
            if first > start:
                return None
            parts.append(data[start - first : stop - first])
            start += len(parts[-1])
            if start == stop:
                return parts[0] if len(parts) == 1 else b"".join(parts)
        return None

    def will_need(self, ranges: Sequence[tuple[int, int]]) -> None:
        tail_start = self._kept[-1][0]
        wanted = coalesced([each for each in ranges if each[0] < tail_start], MAX_GAP_BYTES)
        # Put together, a long range would be in memory twice for a moment.
        requests = [
            (at, min(at + PIECE_BYTES, stop)) for start, stop in wanted for at in range(start, stop, PIECE_BYTES)
        ]
        pieces = self._bucket.read_version(self._key, requests, self.stored.version)
        self._kept = [*((start, data) for (start, _), data in zip(requests, pieces, strict=True)), self._kept[-1]]


def coalesced(ranges: Iterable[tuple[int, int]], max_gap_bytes: int) -> list[tuple[int, int]]:
    """The ranges [start, stop) in order, those joined that are at most so far apart. Empty ones are left out."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(each for each in ranges if each[0] < each[1]):
        if joined and start - joined[-1][1] <= max_gap_bytes:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined
