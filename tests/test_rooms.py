"""Machines whose disks have no room for the copy of a source in a store: what they hand back, and where and when it is
attempted again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from own_units import make_own_units
from shortgop.jobs.addresses import parse
from shortgop.jobs.gpu_slots import Machine, Slots
from shortgop.jobs.order import Order
from shortgop.jobs.ray_tasks import RayTasks
from shortgop.jobs.rooms import WAIT_SECONDS, Rooms
from shortgop.jobs.second_attempts import Attempt, Attempts
from shortgop.jobs.source import Source
from shortgop.jobs.steps import Look, NoRoom, Whole, run_step
from shortgop.jobs.store_files import StoreFile
from shortgop.jobs.task_memory import ALL_BYTES
from shortgop.jobs.units import Item, Unit
from shortgop.jobs.work import Terms, UnitResult
from shortgop.manifests.layout import create
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from store_helpers import put

FULL = NoRoom("it does not fit", 0, may_have_later=True)
_URL = "s3://bucket/a.mp4"


def unit(size_bytes: int, url: str = _URL, *, is_long: bool = False) -> Unit:
    """A unit of a source in a store, and of a larger one on a disk."""
    in_store = Item(Source("a", url, url, "{}", in_store=StoreFile(parse(url))), 1, size_bytes)
    if is_long:
        return Unit("u", (in_store,), is_long=True)
    return Unit("u", (in_store, Item(Source("b", "/b", "b", "{}"), 1, 10**12)))


def attempt(size_bytes: int = 100, **how: Any) -> Attempt:
    return Attempt(Whole(unit(size_bytes)), "cpu", **how)


def rooms(**most_bytes: int) -> Rooms:
    """What is known of machines that lacked room at 0."""
    found = Rooms()
    for machine, most in most_bytes.items():
        found.lacked(machine, NoRoom("full", most, may_have_later=True), 0.0)
    return found


def test_a_machine_that_lacked_room_gets_what_is_smaller_and_after_a_minute_all() -> None:
    known = rooms(a=100, b=10)
    assert known.too_small_for(unit(101)) == {"a", "b"}
    assert known.too_small_for(unit(100)) == {"b"}, "the source on the disk needs no copy"
    assert known.reasons == ["full", "full"]
    known.forget(59.0)
    assert known.too_small_for(unit(101)) == {"a", "b"}
    known.forget(60.0)
    assert (known.too_small_for(unit(101)), known.reasons) == (frozenset(), [])


def test_a_unit_goes_at_once_to_a_machine_that_may_have_room() -> None:
    again, wait_seconds = rooms(a=0).next_attempt(attempt(), "a", FULL, ["a", "b"], others_run=True)
    assert (again.avoided, again.is_last, wait_seconds) == (frozenset("a"), False, 0.0)


def test_where_no_machine_has_room_a_unit_waits_while_others_run() -> None:
    again, wait_seconds = rooms(a=0, b=0).next_attempt(
        attempt(avoided=frozenset("a")), "b", FULL, ["a", "b"], others_run=True
    )
    assert (again.avoided, again.is_last, wait_seconds) == (frozenset(), False, WAIT_SECONDS)


def test_where_nothing_else_runs_the_last_attempt_is_made_alone_where_there_is_most_room() -> None:
    again, wait_seconds = rooms(a=7, b=99, c=8).next_attempt(
        attempt(avoided=frozenset("ab")), "c", FULL, ["a", "b", "c"], others_run=False
    )
    assert (again.avoided, again.is_last, wait_seconds) == (frozenset("ac"), True, 0.0)
    assert again.step.unit.expected_bytes == ALL_BYTES


def test_a_source_that_is_larger_than_the_disk_does_not_wait_for_room() -> None:
    too_large = NoRoom("too large", 50, may_have_later=False)
    again, _ = rooms(a=50).next_attempt(attempt(), "a", too_large, ["a"], others_run=True)
    assert again.is_last
    assert again.step.unit.expected_bytes < ALL_BYTES, "nor for the machine"


def test_where_ray_cannot_avoid_machines_a_unit_is_not_given_to_the_same_one_over_and_over() -> None:
    """Those before 2.49 cannot."""
    known = rooms(a=0)
    again, wait_seconds = known.next_attempt(attempt(), "a", FULL, ["a", "b"], others_run=True)
    assert wait_seconds == 0
    _, wait_seconds = known.next_attempt(again, "a", FULL, ["a", "b"], others_run=True)
    assert wait_seconds == WAIT_SECONDS


class Ray:
    """Two machines, and what was submitted: each attempt with the machines that it avoids."""

    def __init__(self, *units: Unit) -> None:
        self.submitted: list[tuple[Attempt, frozenset[str]]] = []
        self.notes: list[str] = []
        self.attempts = Attempts(Order(units))
        slots = Slots(2, machines=(Machine("a", 1 << 30), Machine("b", 1 << 30)))
        self.tasks = RayTasks(self.attempts, "auto", lambda: slots, self.submit, self.notes.append, 0.0)
        self.tasks.begin(0.0)

    def submit(self, attempt: Attempt, _slots: Slots, _asked_bytes: int, avoided: frozenset[str]) -> int:
        self.submitted.append((attempt, avoided))
        return len(self.submitted) - 1

    def hand_back(self, reference: int, machine: str, now: float) -> None:
        """A machine hands back an attempt."""
        attempt = self.tasks.take(reference)
        self.tasks.lacks_room(attempt, machine, FULL, now, is_wanted=self.attempts.ended(attempt, None))


def test_a_unit_is_handed_from_machine_to_machine_and_no_more_than_once_to_each() -> None:
    ray = Ray(unit(100))
    ray.hand_back(0, "a", 1.0)
    ray.tasks.begin(1.0)
    assert ray.submitted[1][1] == {"a"}
    assert ray.notes[-1].endswith("1 machine has too little room: it does not fit")
    ray.hand_back(1, "b", 2.0)
    ray.tasks.begin(2.0)
    last, avoided = ray.submitted[2]
    assert last.is_last
    assert len(avoided) == 1
    assert ray.attempts, "its outcome is still wanted"


def test_what_comes_later_is_not_given_to_a_machine_that_lacked_room() -> None:
    ray = Ray(unit(100))
    ray.hand_back(0, "a", 1.0)
    small = Unit("small", (Item(Source("s", "/s", "s", "{}"), 1, 10**9),))
    for name, each in {"large": unit(90), "small": small}.items():
        ray.tasks.begin_later(Attempt(Whole(Unit(name, each.items)), "cpu"), 1.0, 0.0)
    ray.tasks.begin(1.0)
    avoided = {attempt.step.unit.id: avoided for attempt, avoided in ray.submitted[1:]}
    assert avoided == {"u": {"a"}, "large": {"a"}, "small": frozenset()}


@pytest.fixture
def stored(s3_url: str, tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """A video in a store, whose URL and size are returned, and a folder for temporary files that is nearly full."""
    file = make_own_units(tmp_path / "videos", 1) / "0.mp4"
    put(f"{s3_url}/a.mp4", file)
    (small_disk / "full").write_bytes(bytes(5 * 2**20 - 2**17))
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    assert file.stat().st_size > 2**17
    return f"{s3_url}/a.mp4", file.stat().st_size


@pytest.mark.parametrize("kind", [Whole, Look])
def test_a_step_without_room_is_handed_back_or_fails_on_the_terms_of_the_last_attempt(
    kind: type[Whole | Look], stored: tuple[str, int], tmp_path: Path
) -> None:
    url, size_bytes = stored
    step = kind(unit(size_bytes, url, is_long=True))
    dataset = DiskStorage(tmp_path / "dataset")
    create(dataset, Profile().to_json())
    outcome = run_step(dataset, step, Options(Profile()), lambda _: None, Terms(needs_room=True))
    assert isinstance(outcome, NoRoom)
    assert 0 < outcome.most_bytes <= 2**17
    assert outcome.may_have_later
    assert not [file for folder in ("parts", "shards") for file in dataset.files(folder)]
    result = run_step(dataset, step, Options(Profile()), lambda _: None)
    assert isinstance(result, UnitResult)
    (failure,) = result.failures
    assert failure.reason.startswith(f"{url} does not fit into {tempfile.gettempdir()}, where it is kept")


def test_a_file_that_is_larger_than_the_disk_is_told_from_one_for_which_there_may_be_room_later(
    stored: tuple[str, int], tmp_path: Path
) -> None:
    url, _ = stored
    step = Whole(unit(6 * 2**20, url))
    dataset = DiskStorage(tmp_path / "dataset")
    create(dataset, Profile().to_json())
    outcome = run_step(dataset, step, Options(Profile()), lambda _: None, Terms(needs_room=True))
    assert isinstance(outcome, NoRoom)
    assert not outcome.may_have_later
