"""Writes shards: segments back to back in files of bounded size, which become visible when their unit is complete."""

from __future__ import annotations

from dataclasses import dataclass

from ..manifests.dataset_files.layout import shard_key
from ..storage.interface import Storage, Upload


@dataclass(frozen=True)
class Mark:
    """A position for `rollback`: the number of shards, and the length of the last one."""

    shards: int
    num_bytes: int


@dataclass(frozen=True)
class Committed:
    """A shard with its final name: the name of its file, its length in bytes, and the bytes [start, stop) at its end
    that belong to no segment."""

    name: str
    length: int
    unused: tuple[int, int] | None = None


class ShardWriter:
    """Appends to the shards of one attempt at a unit, `<unit>-0`, `<unit>-1`, ...

    A segment never spans two shards: `start_segment` opens the next shard when the current one has reached
    `shard_bytes`. Nothing is visible before `commit`. `rollback` removes what was written after a `mark`; `close`
    removes what was not committed.

    The final name of a shard has something that no other content has: two attempts at a unit that run at the same time
    never write to the same file, unless they wrote the same bytes.
    """

    def __init__(self, dataset: Storage, unit: str, shard_bytes: int) -> None:
        self._dataset = dataset
        self._unit = unit
        self._shard_bytes = shard_bytes
        self._shards: list[Upload] = []
        # Bytes at the end of a shard that could not be taken back, by its number. It gets no more segments.
        self._unused: dict[int, tuple[int, int]] = {}

    def start_segment(self) -> tuple[str, int]:
        """Start a segment. Returns the shard's name, which is the key in the result of `commit`, and the segment's
        offset in it."""
        last = len(self._shards) - 1
        if last < 0 or last in self._unused or self._shards[last].num_bytes >= self._shard_bytes:
            self._shards.append(self._dataset.start(shard_key(self._name(last + 1)), ".shard"))
        return self._name(len(self._shards) - 1), self._shards[-1].num_bytes

    def append(self, data: bytes) -> int:
        """Write to the current shard. Returns the offset of the data in it."""
        shard = self._shards[-1]
        offset = shard.num_bytes
        shard.write(data)
        return offset

    def mark(self) -> Mark:
        return Mark(len(self._shards), self._shards[-1].num_bytes if self._shards else 0)

    def rollback(self, mark: Mark) -> None:
        """Remove everything that was written after the mark: a source that failed leaves no bytes, except those at the
        end of a shard that a store has received already."""
        while len(self._shards) > mark.shards:
            self._shards.pop().discard()
            # Another shard may get its number.
            self._unused.pop(len(self._shards), None)
        last = len(self._shards) - 1
        if last >= 0:
            num_bytes = self._shards[last].cut(mark.num_bytes)
            # What came before bytes that could not be taken back may be taken back later.
            begin, _ = self._unused.get(last, (mark.num_bytes, num_bytes))
            if num_bytes > mark.num_bytes:
                self._unused[last] = (min(begin, mark.num_bytes), num_bytes)

    def commit(self) -> dict[str, Committed]:
        """Make the shards visible. Returns the file of each, by the name from `start_segment`."""
        committed = {}
        for number, shard in enumerate(self._shards):
            num_bytes, name = shard.num_bytes, shard.commit().removeprefix(shard_key(""))
            committed[self._name(number)] = Committed(name, num_bytes, self._unused.get(number))
        self._shards.clear()
        return committed

    def close(self) -> None:
        for shard in self._shards:
            shard.discard()
        self._shards.clear()

    def _name(self, number: int) -> str:
        return f"{self._unit}-{number}"
