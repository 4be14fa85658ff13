"""Steps that were given to Ray and of which no word has come, although a machine could have begun them. Pure.

Ray waits for ever for the answer of a machine that has lost its network where it had just asked that one for a worker
(https://github.com/ray-project/ray/issues/63405), and for minutes where the task is there already. Most steps that wait
do so because all machines are busy, on a cluster that is about to grow also for long. Those are left alone: a step
counts as unheard of only while one and the same machine has room for it each time that the driver asks.
"""

from __future__ import annotations

from dataclasses import dataclass

# The driver asks every five seconds. A busy machine may take ten to start a worker, and more to say so. Times are not
# measured: a driver that publishes for a minute has not heard what was said meanwhile.
MOST_ASKS = 12


@dataclass(frozen=True)
class Unheard:
    """A step of which nothing was heard, although each of these `machines` had room for it whenever the driver asked,
    and so for the last `asks` times."""

    asks: int
    machines: frozenset[str]

    @property
    def is_overdue(self) -> bool:
        return self.asks > MOST_ASKS


def still_unheard(before: Unheard | None, with_room: frozenset[str]) -> Unheard:
    """What is known of a step that nothing was heard of, now that these machines have room for it. `before` is what was
    known when they were asked last."""
    machines = before.machines & with_room if before else frozenset[str]()
    return Unheard(before.asks + 1, machines) if before and machines else Unheard(min(1, len(with_room)), with_room)
