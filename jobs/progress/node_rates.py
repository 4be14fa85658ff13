"""How fast each machine of a job encodes, from the frames that each has encoded so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

# A cluster has up to a thousand nodes, and each sample holds all of them.
_SAMPLE_EVERY_SECONDS = 2.0


class NodeRates:
    """Keeps samples of the frames that each node has encoded: those of the last `over_seconds`, and one older
    sample."""

    def __init__(self, started: float, over_seconds: float) -> None:
        self._over_seconds = over_seconds
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque([(started, {})])

    def note(self, now: float, frames: Mapping[str, int]) -> None:
        """Take a sample at the time `now` in seconds, if the last one is old enough."""
        if now - self._samples[-1][0] >= _SAMPLE_EVERY_SECONDS:
            self._samples.append((now, dict(frames)))
        self._forget(now)

    def rates(self, now: float, frames: Mapping[str, int]) -> dict[str, float]:
        """The frames/s of each node since the oldest sample, sorted by the node's name."""
        self._forget(now)
        since, then = self._samples[0]
        seconds = max(now - since, 1e-3)
        return {node: (count - then.get(node, 0)) / seconds for node, count in sorted(frames.items())}

    def _forget(self, now: float) -> None:
        while len(self._samples) > 1 and self._samples[1][0] <= now - self._over_seconds:
            self._samples.popleft()
