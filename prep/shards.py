"""Writing shards: segments back to back in files of bounded size, visible only when a unit is complete."""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from ..manifests.layout import shard_path
from ..whole_files import commit, discard, temporary_path, writing


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
    """A position to go back to: how many shards there were, how long the last was, and the hash of its bytes."""

    shards: int
    length: int
    digest: Any


@dataclass(frozen=True)
class Committed:
    """A shard that is in place: its file's name, and its bytes."""

    name: str
    length: int


class ShardWriter:
    """Appends to the shards of one attempt at a unit, `<unit>-0`, `<unit>-1`, ...

    A segment never spans two shards: `start_segment` opens the next one when the current has reached
    `shard_bytes`. Nothing is visible before `commit`; `rollback` takes back what was written since a `mark`; `close`
    throws away whatever was not committed.

    A file's name holds a hash of its content, `<unit>-<number>-<hash>.shard`: two attempts at a unit that run at the
    same time cannot write to one name unless they have written the same bytes, and one that is repeated finds its own.
    """

    def __init__(self, dataset: Path, unit: str, shard_bytes: int) -> None:
        self._dataset = dataset
        self._unit = unit
        self._shard_bytes = shard_bytes
        self._shards: list[_OpenShard] = []

    def start_segment(self) -> tuple[str, int]:
        """The shard that the next segment goes to, as `commit` will name it, and the segment's offset in it."""
        if not self._shards or self._shards[-1].length >= self._shard_bytes:
            name = f"{self._unit}-{len(self._shards)}"
            temporary = temporary_path(self._dataset, f"{name}.shard")
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
        shard.digest.update(data)
        return offset

    def mark(self) -> Mark:
        if not self._shards:
            return Mark(0, 0, None)
        shard = self._shards[-1]
        return Mark(len(self._shards), shard.length, shard.digest.copy())

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
            shard.length, shard.digest = mark.length, mark.digest.copy()

    def commit(self) -> dict[str, Committed]:
        """Make the shards visible; returns the file of each by the name that `start_segment` gave."""
        committed = {}
        for shard in self._shards:
            with writing(shard_path(self._dataset, shard.name)):
                shard.file.close()
            committed[shard.name] = Committed(self._placed(shard), shard.length)
        self._shards.clear()
        return committed

    def _placed(self, shard: _OpenShard) -> str:
        """Give a shard its name; another attempt may have put the same bytes there already."""
        stem = f"{shard.name}-{shard.digest.hexdigest()}"
        for number in count():
            # The plain name is taken by other bytes where those were damaged behind our back.
            name = f"{stem}.{number}.shard" if number else f"{stem}.shard"
            final = shard_path(self._dataset, name)
            if commit(shard.temporary, final):
                break
            with writing(final):
                if filecmp.cmp(shard.temporary, final, shallow=False):
                    discard(shard.temporary)
                    break
        return name

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
