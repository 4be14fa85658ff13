"""What attempts ask of Ray's machines while these come and go, without Ray."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from shortgop.errors import OutputError, ToolError
from shortgop.jobs.cluster.ray_tasks import RayTasks
from shortgop.jobs.finding.source import Source
from shortgop.jobs.units_of_work.gpu_slots import Machine, Slots
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.steps import Whole
from shortgop.jobs.units_of_work.task_memory import ALL_BYTES
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.jobs.working.second_attempts import Attempt, Attempts, key_of
from shortgop.prep.tools.pipelines import NoEncoderError

_LARGE = 8 << 30


def unit(name: str) -> Unit:
    return Unit(name, (Item(Source(name, name, name, "{}"), 1, 1),), expected_seconds=20.0, expected_bytes=1)


@dataclass
class Ray:
    """Machines that a test changes, and what was submitted: each attempt with the machines that it avoids."""

    machines: dict[str, int]
    submitted: list[tuple[Attempt, frozenset[str]]] = field(default_factory=list)

    def slots(self) -> Slots:
        return Slots(2 * len(self.machines), machines=tuple(Machine(*each) for each in self.machines.items()))

    def submit(self, attempt: Attempt, _slots: Slots, _asked_bytes: int, avoided: frozenset[str]) -> int:
        self.submitted.append((attempt, avoided))
        return len(self.submitted) - 1

    def tasks(self, attempts: Attempts) -> RayTasks:
        return RayTasks(attempts, "auto", self.slots, self.submit, str, 0.0)


def with_a_slow_one(ray: Ray) -> tuple[RayTasks, Attempts]:
    """Four steps began at 0 on machine a; three of them took 20 seconds."""
    attempts = Attempts(Order([unit(name) for name in "pqrs"]))
    tasks = ray.tasks(attempts)
    tasks.begin(0.0)
    for attempt, _ in ray.submitted:
        attempts.progressed(key_of(attempt.step), 0, 0.0, "a")
    for reference in range(3):
        assert attempts.ended(tasks.take(reference), 20.0)
    return tasks, attempts


def test_a_second_attempt_avoids_the_machine_of_the_first_one() -> None:
    ray = Ray({"a": _LARGE, "b": _LARGE})
    tasks, _ = with_a_slow_one(ray)
    tasks.begin(40.0)
    assert [avoided for _, avoided in ray.submitted[4:]] == [{"a"}]


@pytest.mark.parametrize("machines", [{"a": _LARGE}, {"a": _LARGE, "b": 1}], ids=["alone", "others-are-too-small"])
def test_where_no_other_machine_can_do_it_a_second_attempt_avoids_none(machines: dict[str, int]) -> None:
    ray = Ray(machines)
    tasks, _ = with_a_slow_one(ray)
    tasks.begin(40.0)
    assert [avoided for _, avoided in ray.submitted[4:]] == [set()]


def test_a_second_attempt_whose_machines_are_lost_is_begun_anew_on_the_one_that_is_left() -> None:
    """Ray would wait without a word for another one."""
    ray = Ray({"a": _LARGE, "b": _LARGE})
    tasks, _ = with_a_slow_one(ray)
    tasks.begin(40.0)
    del ray.machines["b"]
    tasks.begin(50.0)
    assert [avoided for _, avoided in ray.submitted[4:]] == [{"a"}, set()]
    tasks.begin(60.0)
    assert len(ray.submitted) == 6


def test_an_attempt_that_is_to_wait_is_begun_at_its_time_with_all_that_it_asks_for() -> None:
    ray = Ray({"a": _LARGE, "b": _LARGE})
    attempts = Attempts(Order())
    tasks = ray.tasks(attempts)
    attempt = Attempt(Whole(unit("p")), "cpu", frozenset("a"))
    tasks.begin_later(attempt, 3.0, 0.0)
    tasks.begin(2.9)
    assert (ray.submitted, bool(attempts)) == ([], True), "the job does not end"
    for now in (3.0, 3.1):
        tasks.begin(now)
        assert ray.submitted == [(attempt, frozenset("a"))]


def test_what_is_to_run_alone_asks_for_all_of_a_machine_that_it_does_not_avoid() -> None:
    """It would ask for more than any other machine has, if it asked for what the largest one has."""
    ray = Ray({"a": _LARGE, "b": _LARGE // 2})
    tasks = ray.tasks(Attempts(Order()))
    attempt = Attempt(Whole(replace(unit("p"), expected_bytes=ALL_BYTES)), "cpu", frozenset("a"))
    tasks.begin_later(attempt, 0.0, 0.0)
    for now in (0.0, 10.0):
        tasks.begin(now)
        assert ray.submitted == [(attempt, frozenset("a"))]


def test_what_is_to_run_alone_begins_some_time_after_what_was_killed_on_its_machine() -> None:
    ray = Ray({"a": _LARGE})
    attempts = Attempts(Order())
    tasks = ray.tasks(attempts)
    bad, good = (Attempt(Whole(replace(unit(name), expected_bytes=ALL_BYTES)), "cpu") for name in ("bad", "good"))
    for attempt in (bad, good):
        tasks.begin_later(attempt, 1.0, 0.0)
    for now in (1.0, 2.0):
        tasks.begin(now)
    # The one ends, and is to be tried again.
    assert attempts.ended(tasks.take(0), None)
    tasks.begin_later(bad, 20.0, 7.0)
    for now in (3.0, 6.9, 7.0, 20.0):
        assert len(ray.submitted) == 1 + (now > 7.0)
        tasks.begin(now)
    assert attempts.ended(tasks.take(1), 1.0)
    tasks.begin(21.0)
    assert [attempt for attempt, _ in ray.submitted] == [bad, good, bad]


def test_machines_that_are_lost_are_counted_once_each() -> None:
    ray = Ray({"a": _LARGE, "b": _LARGE})
    tasks = ray.tasks(Attempts(Order([unit("p")])))
    lost = []
    for number, machines in enumerate(("ab", "b", "bc", "b", "bd", "bd")):
        ray.machines = dict.fromkeys(machines, _LARGE)
        tasks.begin(10.0 * number)
        lost.append(tasks.machines.num_lost)
    assert lost == [0, 1, 1, 2, 2, 2]
    tasks.machines.leave_out("d", NoEncoderError("encoder h264_nvenc does not run here"), 10.0)
    assert tasks.machines.num_lost == 2, "one that lacks the encoder is not lost"


def test_a_machine_that_lacks_the_encoder_gets_nothing_more_and_the_job_ends_where_no_other_has_it() -> None:
    ray, notes = Ray({"a": _LARGE, "b": _LARGE}), list[str]()
    tasks = RayTasks(
        Attempts(Order([unit(name) for name in "pqr"])), "libx264", ray.slots, ray.submit, notes.append, 0.0
    )
    tasks.machines.leave_out("a", NoEncoderError("encoder libx264 does not run here"), 0.0)
    tasks.begin(0.0)
    assert [avoided for _, avoided in ray.submitted] == [{"a"}] * 3
    assert notes == ["encoding, 4 at a time; 1 machine cannot run the encoder and is left out"]
    tasks.begin(10.0)
    assert tasks.machines.num_lost == 0
    with pytest.raises(ToolError, match="libx264 does not run here"):
        tasks.machines.leave_out("b", NoEncoderError("encoder libx264 does not run here"), 10.0)


_NO_MOUNT = "on the cluster's node b (10.0.0.2): there is no folder /shared/dataset"


def test_a_machine_that_cannot_do_what_others_have_done_is_left_out_for_some_minutes() -> None:
    ray, notes = Ray({"a": _LARGE, "b": _LARGE}), list[str]()
    order = Order([unit("p")])
    tasks = RayTasks(Attempts(order), "auto", ray.slots, ray.submit, notes.append, 0.0)
    tasks.machines.worked.add("a")
    tasks.machines.leave_out("b", OutputError(_NO_MOUNT), 0.0)
    tasks.begin(0.0)
    assert notes == [f"encoding, 4 at a time; 1 machine is left out for some minutes: {_NO_MOUNT}"]
    order.again([Whole(unit("q"))])
    tasks.begin(590.0)
    order.again([Whole(unit("r"))])
    tasks.begin(610.0)
    assert [avoided for _, avoided in ray.submitted] == [{"b"}, {"b"}, set()]
    assert notes[1:] == ["encoding, 4 at a time"]


def test_what_no_machine_is_known_to_have_ends_the_job() -> None:
    """A folder that is not shared is told at once, and not after the job has tried a hundred machines."""
    ray = Ray({"a": _LARGE, "b": _LARGE})
    tasks = ray.tasks(Attempts(Order([unit("p")])))
    tasks.machines.worked.add("b")
    with pytest.raises(OutputError, match="there is no folder /shared/dataset"):
        tasks.machines.leave_out("b", OutputError(_NO_MOUNT), 0.0)


def test_the_job_ends_where_every_machine_is_left_out() -> None:
    """As where the credentials of all have run out."""
    ray = Ray({"a": _LARGE, "b": _LARGE})
    tasks = ray.tasks(Attempts(Order([unit("p")])))
    tasks.machines.worked |= {"a", "b"}
    tasks.machines.leave_out("b", OutputError(_NO_MOUNT), 0.0)
    with pytest.raises(OutputError, match="there is no folder /shared/dataset"):
        tasks.machines.leave_out("a", OutputError(_NO_MOUNT), 1.0)
