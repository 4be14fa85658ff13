"""How large the requests to a store are, and which gaps they read over: pure functions of what it answered at first."""

from __future__ import annotations

from dataclasses import dataclass

_MEGABYTE = 1 << 20
# One connection to S3 carries 85 to 90 MB/s, and ranges are typically 8 or 16 MB, says "Best practices design patterns:
# optimizing Amazon S3 performance" of its user guide.
_BYTES_PER_SECOND = 90e6
_READ_BYTES = 8 * _MEGABYTE
# The least and the largest gap that a latency leads to.
_LEAST_GAP_BYTES, _MOST_GAP_BYTES = 1 << 16, 4 * _MEGABYTE


@dataclass(frozen=True)
class ReadLimits:
    """Ranges that are at most `max_gap_bytes` apart are read at once, up to `max_read_bytes`."""

    max_gap_bytes: int
    max_read_bytes: int


# On a disk, reading a gap of 64 KiB takes about as long as another read call. 4 MiB bound the memory of a long request
# besides its frames.
ON_DISK = ReadLimits(max_gap_bytes=_LEAST_GAP_BYTES, max_read_bytes=4 * _MEGABYTE)


def limits_for(latency_seconds: float) -> ReadLimits:
    """The limits for a store whose fastest answer took so long.

    In the time that a request waits for its first byte, a connection to S3 carries latency x bandwidth: reading a gap
    of as many bytes costs as much as another request. Bandwidth is not measured: answers that come at once share it, so
    they would make a slow network look like a far one.
    """
    return with_gap(round(min(max(latency_seconds * _BYTES_PER_SECOND, _LEAST_GAP_BYTES), _MOST_GAP_BYTES)))


def with_gap(max_gap_bytes: int) -> ReadLimits:
    """The limits for a store with this gap. A request is long beside the gaps that it may read over."""
    return ReadLimits(max_gap_bytes, max(_READ_BYTES, 4 * max_gap_bytes))
