"""Machines whose disks have no room for the copy of a source in a store: what they hand back, and where and when it is
attempted again."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from own_units import make_own_units
from scratch_holders import holder
from shortgop.jobs.cluster.ray_runner import may_hand_back
from shortgop.jobs.cluster.ray_tasks import RayTasks
from shortgop.jobs.cluster.rooms import WAIT_SECONDS, Rooms
from shortgop.jobs.finding.addresses import parse
from shortgop.jobs.finding.source import Source
from shortgop.jobs.finding.store_files import StoreFile
from shortgop.jobs.units_of_work.gpu_slots import Machine, Slots
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.steps import Look, NoRoom, Whole, copy_bytes
from shortgop.jobs.units_of_work.task_memory import ALL_BYTES
from shortgop.jobs.units_of_work.unit_results import UnitResult
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.jobs.working.second_attempts import Attempt, Attempts
from shortgop.jobs.working.step_work import lacking_room, run_step
from shortgop.jobs.working.work import Terms
from shortgop.manifests.dataset_files.root_file import create
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.prep.timing.stretch import Stretch
from shortgop.storage.disk import DiskStorage
from store_helpers import put

FULL = NoRoom("/tmp", 0, 10**9, "a")
_URL = "s3://bucket/a.mp4"


def unit(size_bytes: int, url: str = _URL, *, name: str = "u", is_long: bool = False, seconds: float = 0.0) -> Unit:
    """A unit of a source in a store, and of a larger one on a disk."""
    in_store = Item(Source("a", url, url, "{}", in_store=StoreFile(parse(url))), 1, size_bytes)
    on_disk = Item(Source("b", "/b", "b", "{}"), 1, 10**12)
    return Unit(name, (in_store,) if is_long else (in_store, on_disk), is_long=is_long, expected_seconds=seconds)


def unit_of_a_disk(name: str) -> Unit:
    return Unit(name, (Item(Source("s", "/s", "s", "{}"), 1, 10**9),), expected_seconds=1.0)


def attempt(size_bytes: int = 100, **how: Any) -> Attempt:
    return Attempt(Whole(unit(size_bytes)), "cpu", **how)


def rooms(disk_bytes: int = 10**9, **most_bytes: int) -> Rooms:
    """What is known of machines that lacked room at 0."""
    found = Rooms()
    for machine, most in most_bytes.items():
        found.lacked(machine, NoRoom("/tmp", most, disk_bytes, machine), 0.0)
    return found


def next_of(known: Rooms, given: Attempt, machine: str, machines: str, *, others_run: bool) -> tuple[Any, ...]:
    """What becomes of an attempt: the machines that it avoids, whether it is the last one and runs alone, and for how
    long it waits."""
    again, wait_seconds = known.next_attempt(given, machine, list(machines), others_run=others_run)
    return "".join(sorted(again.avoided)), again.is_last, again.alone, wait_seconds


def test_a_machine_that_lacked_room_gets_what_is_smaller_and_after_a_minute_all() -> None:
    known = rooms(a=100, b=10)
    assert known.too_small_for(Whole(unit(101))) == {"a", "b"}
    assert known.too_small_for(Whole(unit(100))) == {"b"}, "the source on the disk needs no copy"
    assert known.names == ["/tmp on a", "/tmp on b"]
    known.forget(59.0)
    assert known.too_small_for(Whole(unit(101))) == {"a", "b"}
    known.forget(60.0)
    assert (known.too_small_for(Whole(unit(101))), known.names) == (frozenset(), [])
    assert known.too_small_for(Whole(unit(10**9 + 1))) == {"a", "b"}, "their disks do not grow"


def test_what_may_do_with_a_part_of_a_file_is_kept_from_no_machine() -> None:
    known = rooms(a=0)
    stretch = Stretch(Fraction(0), Fraction(1))
    (item,) = unit(100, is_long=True).items
    cut = Unit("u", (replace(item, source=item.source._replace(part=stretch)),))
    assert known.too_small_for(Look(unit(100, is_long=True))) == frozenset()
    assert known.too_small_for(Whole(cut)) == frozenset()
    assert copy_bytes(Whole(unit(100))) == 100


def test_a_unit_goes_at_once_to_a_machine_that_may_have_room() -> None:
    assert next_of(rooms(a=0), attempt(), "a", "ab", others_run=True) == ("a", False, False, 0.0)


def test_where_no_machine_has_room_a_unit_waits_while_others_run() -> None:
    given = attempt(avoided=frozenset("a"))
    assert next_of(rooms(a=0, b=0), given, "b", "ab", others_run=True) == ("", False, False, WAIT_SECONDS)


def test_where_nothing_else_runs_the_last_attempt_is_made_alone_where_there_is_most_room() -> None:
    given = attempt(avoided=frozenset("ab"))
    assert next_of(rooms(a=7, b=99, c=8), given, "c", "abc", others_run=False) == ("ac", True, True, 0.0)


def test_a_source_that_is_larger_than_all_disks_does_not_wait_for_room_nor_for_a_machine() -> None:
    assert next_of(rooms(50, a=50), attempt(), "a", "a", others_run=True) == ("", True, False, 0.0)


def test_a_machine_whose_disk_is_too_small_does_not_decide_for_one_whose_disk_is_full() -> None:
    known = rooms(a=0)
    known.lacked("b", NoRoom("/tmp", 50, 50, "b"), 0.0)
    given = attempt(avoided=frozenset("a"))
    assert next_of(known, given, "b", "ab", others_run=True) == ("", False, False, WAIT_SECONDS)
    assert next_of(known, given, "b", "ab", others_run=False) == ("b", True, True, 0.0)


def test_where_no_machine_is_left_a_unit_waits_for_one() -> None:
    assert next_of(rooms(a=0), attempt(), "a", "", others_run=False) == ("", False, False, WAIT_SECONDS)


def test_where_ray_cannot_avoid_machines_a_unit_is_not_given_to_the_same_one_over_and_over() -> None:
    """Those before 2.49 cannot."""
    given = attempt(avoided=frozenset("a"))
    assert next_of(rooms(a=0), given, "a", "ab", others_run=True) == ("", False, False, WAIT_SECONDS)


class Ray:
    """Two machines of a core each, one of them with a GPU if that is wanted, and what was submitted: each attempt with
    the machines that it avoids."""

    def __init__(self, *units: Unit, has_gpu: bool = False) -> None:
        self.submitted: list[tuple[Attempt, frozenset[str]]] = []
        self.notes: list[str] = []
        self.attempts = Attempts(Order(units))
        machines = (Machine("a", 1 << 30, has_gpu), Machine("b", 1 << 30))
        self.slots = Slots(2, 1, 1.0, machines) if has_gpu else Slots(2, machines=machines)
        self.tasks = RayTasks(self.attempts, "auto", lambda: self.slots, self.submit, self.notes.append, 0.0)
        self.tasks.begin(0.0)

    def submit(self, attempt: Attempt, _slots: Slots, _asked_bytes: int, avoided: frozenset[str]) -> int:
        self.submitted.append((attempt, avoided))
        return len(self.submitted) - 1

    def hand_back(self, reference: int, machine: str, now: float) -> None:
        """A machine hands back an attempt, and what follows begins."""
        self.tasks.lacks_room(self.tasks.take(reference), machine, FULL, now)
        self.tasks.begin(now)

    def name(self, reference: int) -> str:
        return self.submitted[reference][0].step.unit.id


def test_a_unit_is_handed_from_machine_to_machine_and_no_more_than_once_to_each() -> None:
    ray = Ray(unit(100))
    ray.hand_back(0, "a", 1.0)
    assert ray.submitted[1][1] == {"a"}
    assert ray.notes[-1].endswith("1 machine has no room for some sources: /tmp on a")
    ray.hand_back(1, "b", 2.0)
    last, avoided = ray.submitted[2]
    assert (last.is_last, last.alone, len(avoided)) == (True, True, 1)
    assert ray.attempts, "its outcome is still wanted"
    assert last.step.unit.expected_bytes < ALL_BYTES, "the sections of a film that was looked at alone do not run alone"


def test_a_last_attempt_whose_machine_is_gone_is_handed_back_once_more() -> None:
    last = attempt(avoided=frozenset("a"), is_last=True)
    assert not may_hand_back(last, frozenset("a"))
    assert may_hand_back(last, frozenset()), "it may run on a"
    assert may_hand_back(attempt(), frozenset())


def test_what_comes_later_is_not_given_to_a_machine_that_lacked_room() -> None:
    ray = Ray(unit(100), unit(90, name="large"), unit_of_a_disk("small"))
    first = next(number for number in ray.tasks.references if ray.name(number) == "u")
    ray.hand_back(first, "a", 1.0)
    for name in ("large", "small"):
        ray.tasks.begin_later(
            Attempt(Whole(unit(90, name=name) if name == "large" else unit_of_a_disk(name)), "cpu"), 1.0, 0.0
        )
    ray.tasks.begin(1.0)
    avoided = {attempt.step.unit.id: avoided for attempt, avoided in ray.submitted[3:]}
    assert avoided == {"u": {"a"}, "large": {"a"}, "small": frozenset()}


def test_steps_that_wait_for_room_leave_their_places_to_others() -> None:
    """There is room for one copy, which takes long, and twenty wait for it; twenty others need none."""
    large = [unit(100, name=f"large {number}", seconds=1000.0 + number) for number in range(20)]
    ray = Ray(*large, *(unit_of_a_disk(f"small {number}") for number in range(20)))
    now, done, copied = 1.0, 0, ray.tasks.references[0]
    while done < 20 and now < 60:
        for number in ray.tasks.references:
            if number not in ray.tasks.references or number == copied:
                continue
            if ray.name(number).startswith("small"):
                assert ray.attempts.ended(ray.tasks.take(number), 1.0)
                done += 1
            else:
                assert not ray.submitted[number][0].is_last
                ray.hand_back(number, "b" if "a" in ray.submitted[number][1] else "a", now)
        ray.tasks.begin(now)
        now += 1.0
    assert done == 20


def test_a_second_attempt_that_is_handed_back_does_no_harm_to_the_first_one() -> None:
    """The first one is slow. The machine that has no room for the second one gets no third."""
    ray = Ray(unit(100, is_long=True))
    ray.attempts.progressed(("u", None), 0, 0.0, "a")
    for now in range(6000, 6030):
        ray.tasks.begin(float(now))
        for number in ray.tasks.references[1:]:
            ray.hand_back(number, "b", float(now))
    assert len(ray.submitted) == 2
    assert ray.attempts.ended(ray.tasks.take(0), 6100.0)


def test_an_attempt_that_nobody_wants_any_more_keeps_no_source_waiting() -> None:
    """It hangs, and the other attempt at its step has ended."""
    ray = Ray(unit(100), unit_of_a_disk("small"))
    small, large = sorted(ray.tasks.references, key=ray.name)
    first = ray.submitted[small][0]
    ray.attempts.another(first, ray.slots)
    assert ray.attempts.ended(ray.tasks.take(small), 1.0)
    ray.hand_back(large, "a", 1.0)
    ray.hand_back(ray.tasks.references[-1], "b", 2.0)
    assert ray.submitted[-1][0].is_last


def test_where_no_gpu_machine_has_room_one_without_does_it() -> None:
    ray = Ray(unit(100), has_gpu=True)
    assert ray.submitted[0][0].place == "gpu"
    ray.hand_back(0, "a", 1.0)
    again, avoided = ray.submitted[1]
    assert (again.place, sorted(avoided), again.is_last) == ("cpu", ["a"], False)


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
    assert (lacking_room(step) is not None) == (kind is Whole), "a part of the file may do for a look"
    outcome = run_step(dataset, step, Options(Profile()), lambda _: None, Terms(needs_room=True))
    assert isinstance(outcome, NoRoom)
    assert 0 < outcome.most_bytes <= 2**17
    assert (outcome.folder, outcome.disk_bytes) == (tempfile.gettempdir(), 5 * 2**20)
    assert not [file for folder in ("parts", "shards") for file in dataset.files(folder)]
    result = run_step(dataset, step, Options(Profile()), lambda _: None)
    assert isinstance(result, UnitResult)
    (failure,) = result.failures
    assert failure.reason.startswith(f"{url} does not fit into {tempfile.gettempdir()}, where it is kept")


def test_the_copy_of_a_worker_that_was_killed_takes_no_room_from_the_one_that_replaces_it(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    step = Whole(unit(3 * 2**20))
    with holder(small_disk, num_bytes=3 * 2**20) as (kept, _):
        assert lacking_room(step) is not None
        assert kept.exists(), "a worker that lives keeps its copy"
    assert lacking_room(step) is None
