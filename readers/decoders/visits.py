"""Frame after frame, each by its own request: where a context is in a GOP, and which requests let it stay there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...manifests.records import Pattern

Context = TypeVar("Context")

# GOPs that a thread remembers: as many videos can be read side by side, frame after frame.
MAX_VISITS = 16


@dataclass
class Position:
    """How far a context has come in a GOP; at `next_sample` 0 it is in none.

    Samples before `next_sample`, in decode order, were sent or left out. Of those sent, the frames `inside` have not
    come out yet.
    """

    next_sample: int = 0
    inside: set[int] = field(default_factory=set)

    def leads_to(self, pattern: Pattern, frames: Sequence[int]) -> bool:
        """Whether all of these frames can still come out."""
        return all(frame in self.inside or pattern.frames.index(frame) >= self.next_sample for frame in frames)

    def leave(self) -> None:
        """The context is in no GOP any more."""
        self.next_sample = 0
        self.inside.clear()


@dataclass
class Visit(Generic[Context]):
    """What is left of the last request for frames of a GOP: its last frame, and the context if it stays there."""

    last_frame: int
    context: Context | None


def is_step(pattern: Pattern, last_frame: int, frames: Sequence[int]) -> bool:
    """Whether a request for these frames of a GOP goes a small step on from the last one, and another step would not
    leave the GOP. Random frames seldom do."""
    step = frames[0] - last_frame
    return 0 < step <= len(pattern) // 4 and frames[-1] + step < len(pattern)
