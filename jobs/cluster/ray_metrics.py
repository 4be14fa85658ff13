"""Metrics of a job in Ray's Prometheus endpoints: each worker counts what it did itself, and Ray adds the node.

Ray puts `ray_` before the names and `_total` behind them: `ray_shortgop_frames_total`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ray.util.metrics import Counter

from ..units_of_work.steps import Outcome, Step
from ..units_of_work.unit_results import UnitProgress, UnitResult


@dataclass(frozen=True)
class _Counters:
    frames: Counter
    bytes_in: Counter
    bytes_out: Counter
    units: Counter
    failed: Counter
    seconds: Counter


@cache
def _counters() -> _Counters:
    """Those of this process."""

    def counter(name: str, description: str, *tags: str) -> Counter:
        return Counter(f"shortgop_{name}", description, tag_keys=("node", *tags))

    return _Counters(
        counter("frames", "Frames encoded."),
        counter("bytes_in", "Bytes of the sources of finished units."),
        counter("bytes_out", "Bytes of the shards of finished units."),
        counter("units", "Finished units of work."),
        counter("failed_sources", "Sources that cannot be prepared."),
        counter("step_seconds", "Seconds of workers, by what they did.", "step"),
    )


class StepMetrics:
    """Counts what one step does at a node, without what it finds done. Frames are counted while it goes on."""

    def __init__(self, node: str) -> None:
        self._node = {"node": node}
        self._frames = 0

    def on_progress(self, progress: UnitProgress) -> None:
        if not progress.is_own:
            return
        _add(_counters().frames, progress.frames - self._frames, self._node)
        self._frames = progress.frames

    def done(self, step: Step, outcome: Outcome, seconds: float) -> None:
        counters = _counters()
        _add(counters.seconds, seconds, self._node | {"step": type(step).__name__})
        if isinstance(outcome, UnitResult) and not outcome.was_there:
            _add(counters.units, 1, self._node)
            _add(counters.bytes_in, sum(item.size_bytes for item in step.unit.items), self._node)
            _add(counters.bytes_out, outcome.bytes, self._node)
            _add(counters.failed, len(outcome.failures), self._node)


def _add(counter: Counter, value: float, tags: dict[str, str]) -> None:
    # Ray refuses 0, and a source that is tried again begins at 0.
    if value > 0:
        counter.inc(value, tags)
