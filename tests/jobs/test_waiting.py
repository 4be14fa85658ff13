"""Which step of a job is run next: the one that the others wait for, then the longest."""

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.jobs.finding.source import Source
from shortgop.jobs.units_of_work.steps import Cut, Join, Look, OneSection, Step, Whole
from shortgop.jobs.units_of_work.task_memory import UNKNOWN_BYTES
from shortgop.jobs.units_of_work.units import Item, Unit, split_unit, with_costs
from shortgop.jobs.units_of_work.waiting import Waiting

_NO_SECTION = cast(Any, None)


def item(name: str, num_bytes: int = 5_000_000) -> Item:
    return Item(Source(f"{name}.mp4", f"/v/{name}.mp4", f"{name}.mp4", "{}"), 1, num_bytes)


def unit(name: str, seconds: float = 1.0) -> Unit:
    return Unit(name, (item(name),), expected_seconds=seconds)


def taken(waiting: Waiting) -> list[Step]:
    steps = [waiting.take() for _ in range(len(waiting))]
    assert waiting.take() is None
    return [step for step in steps if step is not None]


def test_the_longest_unit_comes_first_and_of_equals_the_first() -> None:
    steps = [Whole(unit(name, seconds)) for name, seconds in (("a", 3), ("b", 9), ("c", 3), ("d", 1))]
    assert [step.unit.id for step in taken(Waiting(steps))] == ["b", "a", "c", "d"]


def test_what_other_steps_wait_for_comes_before_the_longest() -> None:
    film, cut = unit("film", 5), Cut("key", 2, 0, 0)
    waiting = Waiting([Whole(unit("long", 100)), Look(film)])
    waiting.add_first([Join(unit("other"), cut)])
    assert [type(step) for step in taken(waiting)] == [Join, Look, Whole]


def test_sections_come_in_their_order_and_before_units_that_take_as_long() -> None:
    film = unit("film", 6)
    sections = [OneSection(film, Cut("key", 3, 0, 0), number, _NO_SECTION) for number in range(3)]
    waiting = Waiting([Whole(unit("longer", 2.5)), Whole(unit("as long", 2))])
    waiting.add_first(sections)
    found = taken(waiting)
    assert [step.unit.id for step in found] == ["longer", "film", "film", "film", "as long"]
    assert [step.number for step in found if isinstance(step, OneSection)] == [0, 1, 2]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100))), st.sampled_from("abc"))
def test_steps_of_a_unit_can_be_left_out(units: list[tuple[str, float]], gone: str) -> None:
    waiting = Waiting([Whole(unit(name, seconds)) for name, seconds in units])
    assert waiting.leave_out(gone) == sum(name == gone for name, _ in units)
    lengths = [step.unit.expected_seconds for step in taken(waiting)]
    assert lengths == sorted((seconds for name, seconds in units if name != gone), reverse=True)


def test_what_is_expected_is_corrected_by_the_factor_of_its_class() -> None:
    def webm(name: str, seconds: float) -> Unit:
        return Unit(name, (replace(item(name), source=Source(name, f"/v/{name}.webm", name, "{}")),), False, seconds)

    factors = {"mp4": 1.0, "webm": 4.0}
    steps = [Whole(unit("a", 8)), Whole(webm("b", 3)), Whole(webm("c", 1)), Whole(unit("d", 5))]
    waiting = Waiting(steps)
    found = [waiting.take(correction=lambda each: factors[each.source]) for _ in steps]
    assert [step.unit.id for step in found if step] == ["b", "a", "d", "c"]


def test_a_place_takes_the_first_step_of_a_kind_that_fits() -> None:
    film = unit("film", 5)
    waiting = Waiting([Look(film), Whole(unit("a", 1)), Whole(unit("b", 2))])
    found = [waiting.take(fits=lambda kind: kind is Whole) for _ in range(3)]
    assert [step and step.unit.id for step in found] == ["b", "a", None]
    assert len(waiting) == 1
    assert waiting.sources == 1


def test_a_unit_takes_as_long_as_its_sources_or_as_their_bytes_suggest() -> None:
    known, unknown = Unit("k", (item("a"), item("b"))), Unit("u", (item("c", 50_000_000),))
    found = with_costs([known, unknown], {"a.mp4": 4.0, "b.mp4": 2.0}, {"a.mp4": 1, "b.mp4": 1, "c.mp4": 1})
    assert [each.expected_seconds for each in found] == pytest.approx([6, 10])
    assert [each.is_guess for each in found] == [False, True]
    assert [each.expected_seconds for each in split_unit(found[0], "key")] == [3, 3]


def test_a_unit_takes_the_memory_of_its_largest_source_or_that_of_1080p_for_unknown_ones() -> None:
    memory = {"a.mp4": 10, "b.mp4": 30, "small.mp4": 20, "large.mp4": UNKNOWN_BYTES + 1, "c.mp4": None}
    units = [Unit(names, tuple(map(item, names.split()))) for names in ("a b", "small c", "large c")]
    found = with_costs(units, {}, memory)
    assert [each.expected_bytes for each in found] == [30, UNKNOWN_BYTES, UNKNOWN_BYTES + 1]
    assert [each.guesses_memory for each in found] == [False, True, True]
