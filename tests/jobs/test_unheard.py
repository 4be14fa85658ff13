"""A step that Ray does not begin although a machine has room for it is attempted once more, and so is one whose
machines are gone. With a clock of its own, without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shortgop.jobs.cluster.ray_tasks import RayTasks
from shortgop.jobs.finding.source import Source
from shortgop.jobs.units_of_work.gpu_slots import Free, Machine, Slots
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.steps import Whole
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.jobs.working.second_attempts import Attempt, Attempts, key_of
from shortgop.jobs.working.unheard import Unheard, still_unheard

_MEMORY = 8 << 30
_ROOM, _FULL = Free(1.0, 0.0, _MEMORY), Free(0.0, 0.0, _MEMORY)
_NO_MEMORY = Free(4.0, 0.0, 1000.0)


def unit(name: str) -> Unit:
    return Unit(name, (Item(Source(name, name, name, "{}"), 1, 1),), expected_seconds=20.0, expected_bytes=1)


@dataclass
class Cluster:
    """Machines of a core that a test changes, each with what is free of it, and the attempts that were given to Ray,
    each with the time and the machines that it avoids."""

    free: dict[str, Free]
    units: tuple[str, ...]
    given: list[tuple[float, Attempt, frozenset[str]]] = field(default_factory=list)
    asked_bytes: list[int] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.order = Order([unit(name) for name in self.units])
        self.attempts = Attempts(self.order)
        self.tasks = RayTasks(self.attempts, "auto", self._slots, self._submit, str, 0.0)

    def _slots(self) -> Slots:
        return Slots(
            len(self.free), machines=tuple(Machine(each, _MEMORY, free=free) for each, free in self.free.items())
        )

    def _submit(self, attempt: Attempt, _slots: Slots, asked_bytes: int, avoided: frozenset[str]) -> int:
        self.given.append((self.now, attempt, avoided))
        self.asked_bytes.append(asked_bytes)
        return len(self.given) - 1

    def wait_until(self, end: float, changing: Mapping[float, Mapping[str, Free]] | None = None) -> None:
        """The driver goes round twice a second."""
        while self.now < end:
            self.free |= (changing or {}).get(self.now, {})
            self.tasks.begin(self.now)
            self.now += 0.5

    def add(self, later: Unit) -> None:
        self.order.again([Whole(later)])

    def begins(self, name: str, machine: str) -> None:
        """A worker tells that it has begun a unit."""
        assert self.attempts.progressed((name, None), 0, self.now, machine)

    def given_at(self, name: str) -> list[float]:
        return [now for now, attempt, _ in self.given if attempt.step.unit.id == name]


def test_what_ray_does_not_begin_although_a_machine_has_room_is_attempted_twice_more_at_most() -> None:
    cluster = Cluster({"a": _ROOM, "b": _FULL}, ("u",))
    cluster.wait_until(1000)
    first, second, third = cluster.given_at("u")
    assert (first, 60 < second - first < 75, 60 < third - second < 75) == (0, True, True)


def test_each_attempt_may_be_the_one_that_counts() -> None:
    cluster = Cluster({"a": _ROOM, "b": _ROOM}, ("u",))
    cluster.wait_until(100)
    assert len(cluster.given) == 2
    assert cluster.attempts.ended(cluster.tasks.take(1), 5.0)
    assert not cluster.attempts
    assert not cluster.attempts.ended(cluster.tasks.take(0), 5.0)


def test_what_waits_for_a_busy_machine_or_for_its_memory_or_for_a_machine_to_come_is_left_alone() -> None:
    for free in ({"a": _FULL}, {"a": _FULL, "b": _NO_MEMORY}, {"a": _NO_MEMORY}, {}):
        cluster = Cluster(dict(free), ("u", "v"))
        cluster.wait_until(1000)
        assert len(cluster.given) <= 2, free
        assert len(set(cluster.given_at("u"))) <= 1, free


def test_each_further_attempt_and_what_follows_asks_for_another_amount_of_memory() -> None:
    """Ray has a queue for each amount, and no longer serves that of the first attempt where enough machines do not
    answer."""
    cluster = Cluster({"a": _ROOM, "b": _ROOM}, ("u",))
    cluster.wait_until(100)
    cluster.add(unit("v"))
    cluster.wait_until(101)
    first, second, third = cluster.asked_bytes
    assert (second, third) == (first - 1, first - 1)
    assert [attempt.spread for _, attempt, _ in cluster.given] == [False, True, False]


def test_a_driver_that_was_busy_for_minutes_has_not_heard_what_was_said() -> None:
    cluster = Cluster({"a": _ROOM}, ("u",))
    cluster.wait_until(30)
    cluster.now += 500.0
    cluster.wait_until(540)
    assert cluster.given_at("u") == [0]


def test_gaps_between_the_steps_of_busy_machines_are_no_room() -> None:
    """On a large cluster some core is free whenever the driver asks, but it is another one each time."""
    cluster = Cluster({"a": _ROOM, "b": _FULL}, ("u",))
    turns = {
        float(now): {"a": _ROOM, "b": _FULL} if now % 20 else {"a": _FULL, "b": _ROOM} for now in range(0, 1000, 10)
    }
    cluster.wait_until(1000, turns)
    assert cluster.given_at("u") == [0]


def test_what_has_begun_is_left_alone_though_machines_have_room() -> None:
    cluster = Cluster({"a": _ROOM, "b": _ROOM}, ("u",))
    cluster.wait_until(50)
    cluster.begins("u", "a")
    cluster.wait_until(800)
    assert cluster.given_at("u") == [0]


def test_a_step_is_attempted_once_more_where_its_machine_is_gone_and_ray_says_nothing_of_it() -> None:
    """It does not matter that nobody knows how long such a step takes. The next attempt has as many chances."""
    cluster = Cluster({"a": _FULL, "b": _FULL, "c": _FULL}, ("u",))
    cluster.wait_until(1)
    cluster.begins("u", "a")
    cluster.wait_until(100)
    assert cluster.given_at("u") == [0]
    del cluster.free["a"]
    cluster.wait_until(130)
    assert len(cluster.given) == 2
    when, _, avoided = cluster.given[1]
    assert (110 < when < 120, avoided) == (True, frozenset("a"))
    # Until it has begun, it waits in Ray.
    cluster.wait_until(300)
    assert len(cluster.given) == 2
    cluster.begins("u", "b")
    del cluster.free["b"]
    cluster.wait_until(330)
    assert cluster.given[2][2] == {"a", "b"}
    cluster.begins("u", "c")
    del cluster.free["c"]
    cluster.free["d"] = _FULL
    cluster.wait_until(1000)
    assert len(cluster.given) == 3, "three attempts at a time are enough"


def test_an_attempt_of_which_ray_says_that_it_is_lost_is_no_second_one() -> None:
    cluster = Cluster({"a": _FULL, "b": _FULL}, ("u",))
    cluster.wait_until(1)
    cluster.begins("u", "a")
    del cluster.free["a"]
    cluster.wait_until(9)
    assert cluster.attempts.ended(cluster.tasks.take(0), None)
    cluster.wait_until(100)
    assert cluster.given_at("u") == [0]


def test_machines_that_are_all_gone_may_come_again() -> None:
    cluster = Cluster({"a": _FULL}, ("u",))
    cluster.wait_until(1)
    cluster.begins("u", "a")
    del cluster.free["a"]
    cluster.wait_until(1000)
    assert cluster.given_at("u") == [0]


def test_of_two_attempts_the_one_that_runs_is_waited_for() -> None:
    cluster = Cluster({"a": _FULL, "b": _FULL, "c": _FULL}, ("u",))
    cluster.wait_until(1)
    cluster.begins("u", "a")
    del cluster.free["a"]
    cluster.wait_until(30)
    cluster.begins("u", "b")
    assert len(cluster.given) == 2
    # At last Ray says that the first one is lost.
    assert not cluster.attempts.ended(cluster.tasks.take(0), None)
    cluster.wait_until(800)
    assert len(cluster.given) == 2


def test_what_is_known_begins_anew_where_another_machine_has_room() -> None:
    first = still_unheard(None, frozenset("ab"))
    assert first == Unheard(1, frozenset("ab"))
    assert still_unheard(first, frozenset("bc")) == Unheard(2, frozenset("b"))
    assert still_unheard(first, frozenset("c")) == Unheard(1, frozenset("c"))
    assert still_unheard(first, frozenset()) == Unheard(0, frozenset())
    assert [Unheard(asks, frozenset("a")).is_overdue for asks in (12, 13)] == [False, True]


def test_a_step_that_is_to_begin_later_is_not_waited_for() -> None:
    cluster = Cluster({"a": _ROOM}, ())
    attempt = Attempt(Order([unit("u")]).next(), "cpu")
    cluster.tasks.begin_later(attempt, 500.0, 0.0)
    cluster.wait_until(530)
    assert (cluster.given_at("u"), key_of(attempt.step)) == ([500.0], ("u", None))
