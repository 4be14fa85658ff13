"""Writes shards: segments back to back in files of bounded size, which become visible when their unit is complete."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ..manifests.layout import shard_path
from ..whole_files import commit_by_content, temporary_path, writing


def _new_digest() -> Any:
    return hashlib.blake2b(digest_size=8)


@dataclass
class _OpenShard:
    name: str
    temporary: Path
    file: BinaryIO
    length: int = 0
    digest: Any = field(default_factory=_new_digest)


@dataclass(frozen=True)
class Mark:
    """A position for `rollback`: the number of shards, and the length and hash of the last one."""

    shards: int
    length: int
    digest: Any


@dataclass(frozen=True)
class Committed:
    """A shard with its final name: the name of its file, and its length in bytes."""

    name: str
    length: int


class ShardWriter:
    """Appends to the shards of one attempt at a unit, `<unit>-0`, `<unit>-1`, ...

    A segment never spans two shards: `start_segment` opens the next shard when the current one has reached
    `shard_bytes`. Nothing is visible before `commit`. `rollback` removes what was written after a `mark`; `close`
    removes what was not committed.

    The name of a file contains a hash of its content, `<unit>-<number>-<hash>.shard`: two attempts at a unit that run
    at the same time write to the same name only if they wrote the same bytes, and a repeated attempt finds its file.
    """

    def __init__(self, dataset: Path, unit: str, shard_bytes: int) -> None:
        self._dataset = dataset
        self._unit = unit
        self._shard_bytes = shard_bytes
        self._shards: list[_OpenShard] = []

    def start_segment(self) -> tuple[str, int]:
        """Start a segment. Returns the shard's name, which is the key in the result of `commit`, and the segment's
        offset in it."""
        if not self._shards or self._shards[-1].length >= self._shard_bytes:
            name = f"{self._unit}-{len(self._shards)}"
            temporary = temporary_path(self._dataset, f"{name}.shard")
            with writing(shard_path(self._dataset, name)):
                self._shards.append(_OpenShard(name, temporary, temporary.open("wb")))
        return self._shards[-1].name, self._shards[-1].length

    def append(self, data: bytes) -> int:
        """Write to the current shard. Returns the offset of the data in it."""
        shard = self._shards[-1]
        with writing(shard_path(self._dataset, shard.name)):
            shard.file.write(data)
        offset = shard.length
        shard.length += len(data)
        shard.digest.update(data)
        return offset

    def mark(self) -> Mark:
        if not self._shards:
            return Mark(0, 0, None)
        shard = self._shards[-1]
        return Mark(len(self._shards), shard.length, shard.digest.copy())

    def rollback(self, mark: Mark) -> None:
        """Remove everything that was written after the mark: a source that failed leaves no bytes."""
        while len(self._shards) > mark.shards:
            self._discard(self._shards.pop())
        if self._shards:
            shard = self._shards[-1]
            with writing(shard_path(self._dataset, shard.name)):
                shard.file.flush()
                shard.file.seek(mark.length)
                shard.file.truncate()
            shard.length, shard.digest = mark.length, mark.digest.copy()

    def commit(self) -> dict[str, Committed]:
        """Make the shards visible. Returns the file of each, by the name from `start_segment`."""
        committed = {}
        for shard in self._shards:
            with writing(shard_path(self._dataset, shard.name)):
                shard.file.close()
            committed[shard.name] = Committed(self._placed(shard), shard.length)
        self._shards.clear()
        return committed

    def _placed(self, shard: _OpenShard) -> str:
        """Give a shard its final name. Another attempt may have written the same bytes under this name already."""
        stem = f"{shard.name}-{shard.digest.hexdigest()}"
        return commit_by_content(shard.temporary, shard_path(self._dataset, ""), stem, ".shard")

    def close(self) -> None:
        for shard in self._shards:
            self._discard(shard)
        self._shards.clear()

    @staticmethod
    def _discard(shard: _OpenShard) -> None:
        # Closing flushes, which fails again on a full disk; the file is removed in any case.
        with contextlib.suppress(OSError):
            shard.file.close()
        shard.temporary.unlink(missing_ok=True)
