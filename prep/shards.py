"""Writing shards: segments back to back in files of bounded size, visible only when a unit is complete."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..manifests.commits import commit, temporary_path, writing
from ..manifests.dataset import shard_path


@dataclass
class _OpenShard:
    name: str
    temporary: Path
    file: BinaryIO
    length: int = 0


@dataclass(frozen=True)
class Mark:
    """A position to go back to: how many shards there were, and how long the last was."""

    shards: int
    length: int


class ShardWriter:
    """Appends to the shards of one unit, `<unit>-0.shard`, `<unit>-1.shard`, ...

    A segment never spans two shards: `start_segment` opens the next one when the current has reached
    `shard_bytes`. Nothing is visible before `commit`; `rollback` takes back what was written since a `mark`; `close`
    throws away whatever was not committed.
    """

    def __init__(self, dataset: Path, unit: str, shard_bytes: int) -> None:
        self._dataset = dataset
        self._unit = unit
        self._shard_bytes = shard_bytes
        self._shards: list[_OpenShard] = []

    def start_segment(self) -> tuple[str, int]:
        """Name of the shard that the next segment goes to, and the segment's offset in it."""
        if not self._shards or self._shards[-1].length >= self._shard_bytes:
            name = f"{self._unit}-{len(self._shards)}.shard"
            temporary = temporary_path(self._dataset, name)
            with writing(shard_path(self._dataset, name)):
                self._shards.append(_OpenShard(name, temporary, temporary.open("wb")))
        return self._shards[-1].name, self._shards[-1].length

    def append(self, data: bytes) -> int:
        """Write to the current shard; returns the offset at which the data lies."""
        shard = self._shards[-1]
        with writing(shard_path(self._dataset, shard.name)):
            shard.file.write(data)
        offset = shard.length
        shard.length += len(data)
        return offset

    def mark(self) -> Mark:
        return Mark(len(self._shards), self._shards[-1].length if self._shards else 0)

    def rollback(self, mark: Mark) -> None:
        """Forget everything since the mark: a source that failed leaves no bytes behind."""
        while len(self._shards) > mark.shards:
            self._discard(self._shards.pop())
        if self._shards:
            shard = self._shards[-1]
            with writing(shard_path(self._dataset, shard.name)):
                shard.file.flush()
                shard.file.seek(mark.length)
                shard.file.truncate()
            shard.length = mark.length

    def commit(self) -> dict[str, int]:
        """Make the shards visible; returns the length of each by name."""
        lengths = {}
        for shard in self._shards:
            with writing(shard_path(self._dataset, shard.name)):
                shard.file.close()
            commit(shard.temporary, shard_path(self._dataset, shard.name))
            lengths[shard.name] = shard.length
        self._shards.clear()
        return lengths

    def close(self) -> None:
        for shard in self._shards:
            self._discard(shard)
        self._shards.clear()

    @staticmethod
    def _discard(shard: _OpenShard) -> None:
        # Closing flushes, and on a full disk that fails once more; the file is going away in any case.
        with contextlib.suppress(OSError):
            shard.file.close()
        shard.temporary.unlink(missing_ok=True)
