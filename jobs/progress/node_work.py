"""What each machine of a job has done: frames, and of finished units their number, failed sources, and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..units_of_work.unit_results import UnitProgress, UnitResult


@dataclass(frozen=True)
class NodeWork:
    """What one machine has done. `units` are those that it finished, and `sources_failed` are theirs. `bytes_in` and
    `bytes_out` are its share of the sources of finished units and of what was made of them: several machines may encode
    sections of a video, and one of them joins these."""

    units: int = 0
    sources_failed: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class WorkOfNodes:
    """Adds up the frames and the work of each node, by its name."""

    def __init__(self) -> None:
        self.frames: dict[str, int] = {}
        self.work: dict[str, NodeWork] = {}

    def encoded(self, node: str, frames: int) -> None:
        self.frames[node] = self.frames.get(node, 0) + frames

    def finished(self, result: UnitResult, bytes_in: int, reports: Sequence[UnitProgress]) -> None:
        """Count a finished unit. `reports` are the last ones of all its sections: frames that are in none of them count
        for the same nodes. A unit that is reported by no node was finished by an earlier job."""
        if not result.node and not reports:
            return
        finisher = result.node or reports[-1].node
        reported: dict[str, int] = {}
        for each in reports:
            reported[each.node] = reported.get(each.node, 0) + each.frames
        num_reported = sum(reported.values())
        parts = reported if num_reported else {finisher: 1}
        for node, frames in shares(max(0, result.frames - num_reported), parts).items():
            self.encoded(node, frames)
        self._add(finisher, NodeWork(units=1, sources_failed=len(result.failures)))
        of_bytes_out = shares(result.bytes, parts)
        for node, num_bytes in shares(bytes_in, parts).items():
            self._add(node, NodeWork(bytes_in=num_bytes, bytes_out=of_bytes_out[node]))

    def _add(self, node: str, more: NodeWork) -> None:
        before = self.work.get(node, NodeWork())
        self.work[node] = NodeWork(
            before.units + more.units,
            before.sources_failed + more.sources_failed,
            before.bytes_in + more.bytes_in,
            before.bytes_out + more.bytes_out,
        )


def shares(total: int, parts: Mapping[str, int]) -> dict[str, int]:
    """The total in proportion to the parts, in whole numbers that add up to it. Not all parts are 0."""
    whole = sum(parts.values())
    found: dict[str, int] = {}
    passed = given = 0
    for name, part in parts.items():
        passed += part
        found[name] = total * passed // whole - given
        given += found[name]
    return found
