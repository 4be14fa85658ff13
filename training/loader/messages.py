"""What a loader and its workers send each other, over one pipe for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...readers.stats import Stats
from ..datasets.drawn_from import HasClips
from ..pixels.rows import Rows
from .batch_rows import Areas


class ReadsItems(HasClips, Protocol):
    """What a loader needs of a dataset: ClipDataset and MixedClips have it."""

    def example(self, draw: int) -> dict[str, Any]: ...

    def items(self, draws: Sequence[int], rows: Rows | None = None) -> list[dict[str, Any]]: ...

    def full_draws(self, draws: Sequence[int]) -> list[int]: ...

    def check_items(self, reader: str) -> None: ...

    def will_need(self, draws: Sequence[int]) -> None: ...

    def use_threads(self, threads: int) -> None: ...

    def on_threads(self, threads: int) -> AbstractContextManager[None]: ...

    @property
    def threads(self) -> int: ...

    def stats(self) -> Stats: ...

    @property
    def seeds(self) -> tuple[int, ...]: ...

    @property
    def transforms_batches(self) -> bool: ...

    @property
    def has_transform(self) -> bool: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def skipped_here(self) -> int: ...


@dataclass(frozen=True)
class Work:
    """Read the items of these draws into rows of an area of an arena, for the pass of this number. `kind` is the kind
    of the batches that they belong to."""

    pass_number: int
    number: int
    draws: tuple[int, ...]
    arena: int
    area: int
    kind: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class UseArena:
    """The arena of this number has these areas. Its file follows."""

    arena: int
    areas: Areas


@dataclass(frozen=True)
class Cancel:
    """Work for this pass is not wanted any more. Each piece of it is answered all the same."""

    pass_number: int


@dataclass(frozen=True)
class Spent:
    """What a worker did with its time, in seconds. Reading and decoding are added up over its threads."""

    bytes_seconds: float = 0.0
    decode_seconds: float = 0.0
    busy_seconds: float = 0.0
    idle_seconds: float = 0.0
    clips: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.bytes_seconds + other.bytes_seconds,
            self.decode_seconds + other.decode_seconds,
            self.busy_seconds + other.busy_seconds,
            self.idle_seconds + other.idle_seconds,
            self.clips + other.clips,
        )


@dataclass(frozen=True)
class Done:
    """The work is done, or was cancelled, or ended in an error. `rest` has the entries without a column, clip by clip,
    or is empty where all entries have one."""

    work: int
    pass_number: int
    rest: tuple[dict[str, Any], ...] = ()
    error: BaseException | None = None
    spent: Spent = Spent()
    skipped: int = 0


@dataclass(frozen=True)
class Ready:
    """The worker has started."""
