"""What units of work report to the driver while they run, and what they come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Failure:
    """A source whose present content is not in the dataset, and why. `source` is the path as it was given, `path` the
    absolute path."""

    id: str
    source: str
    reason: str
    path: str


@dataclass(frozen=True)
class UnitResult:
    """The result of a unit. It is small, however large the unit is. `was_there`: another attempt had committed it.
    `node` is the name of the machine that finished it, empty where that is not known. `seconds` are those that encoding
    it took, 0 where it was not encoded in one go."""

    unit: str
    videos: int
    frames: int
    bytes: int
    failures: tuple[Failure, ...]
    was_there: bool = field(default=False, compare=False)
    node: str = field(default="", compare=False)
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class UnitProgress:
    """The progress of a unit: frames encoded, and frames planned for those of its sources that are planned so far. With
    `section`, the frames of one section of a long video. `node` is the machine at work. `is_own`: the attempt that
    reports them has encoded them, and not found them in the dataset. `machine` is the machine's id in Ray."""

    unit: str
    frames: int
    planned: int
    section: int | None = None
    node: str = field(default="", compare=False)
    is_own: bool = field(default=False, compare=False)
    machine: str = field(default="", compare=False)


OnProgress = Callable[[UnitProgress], None]
