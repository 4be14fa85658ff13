"""How sources are divided into windows, and how the units of the windows follow one another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from fractions import Fraction
from itertools import islice, pairwise
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from made_up_sources import source, table_of
from shortgop.errors import UsageError
from shortgop.jobs.ahead import planned_ahead
from shortgop.jobs.order import Order
from shortgop.jobs.source import Found, Source
from shortgop.jobs.source_table import SourceTable
from shortgop.jobs.units import Item, Unit, plan_units
from shortgop.jobs.windows import WINDOW_SOURCES, first_size, one_window_size, windows
from shortgop.prep.stretch import Stretch

KEYS = st.lists(st.integers(0, 30), max_size=60).map(sorted)


@st.composite
def corpora(draw: st.DrawFn) -> list[Source]:
    """Files, and stretches of a few films whose ids lie anywhere among theirs."""
    names = draw(st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=40))
    films = draw(st.lists(st.integers(-5, 3), min_size=len(names), max_size=len(names)))
    return [
        source(name, f"/films/{film}", Stretch(Fraction(number), None, "")) if film >= 0 else source(name)
        for number, (name, film) in enumerate(zip(names, films, strict=True))
    ]


def units_of(sources: Sequence[Source], size: int, done: Sequence[str] = ()) -> list[Unit]:
    """The units of all windows, without sources that are done."""
    with table_of(sources) as table:
        return [
            unit
            for window in table.windows(size)
            for unit in plan_units(
                [Item(row.source, 1, 100_000) for row in table.rows(window)],
                profile_key="p",
                done=dict.fromkeys(done, 1),
                shard_bytes=10**9,
            )
        ]


@given(KEYS, st.integers(1, 20), st.integers(1, 20))
def test_windows_hold_all_keys_once_and_are_no_larger_than_they_have_to_be(
    keys: list[int], size: int, first: int
) -> None:
    found = list(windows(keys, size, first))
    assert sum(window.count for window in found) == len(keys)
    for window in found:
        wanted = size if window is not found[0] else first
        assert window.count == sum(window.first <= key <= window.last for key in keys)
        assert window.count - keys.count(window.last) < wanted
        assert window.count >= wanted or window is found[-1]
    for one, other in pairwise(found):
        assert one.last < other.first


@given(corpora(), st.integers(1, 12), st.randoms(use_true_random=False))
def test_windows_of_sources_do_not_divide_a_file_and_depend_on_which_were_found_first_alone(
    sources: list[Source], size: int, random: Random
) -> None:
    first, others = sources[: first_size(size)], sources[first_size(size) :]
    shuffled = [*random.sample(first, len(first)), *random.sample(others, len(others))]
    with table_of(sources) as table, table_of(shuffled) as other:
        found = [[row.source for row in table.rows(window)] for window in table.windows(size)]
        assert found == [[row.source for row in other.rows(window)] for window in other.windows(size)]
        assert list(table.sources()) == sorted(sources, key=lambda each: each.id)
    assert sorted(each.id for window in found for each in window) == sorted(each.id for each in sources)
    # As few as these need not wait for others.
    assert len(found) == (len(sources) > 0) or len(sources) > one_window_size(size)
    for window in found:
        assert [each.id for each in window] == sorted(each.id for each in window)
    for film in {each.path for each in sources if each.part}:
        assert sum(any(each.path == film for each in window) for window in found) == 1


@given(st.lists(st.sampled_from("abcdefgh"), max_size=60), st.integers(1, 50), st.booleans())
@example([*"ab" * 25, *"defgh"], 49, False)
def test_the_first_window_is_the_same_before_and_after_all_sources_were_found(
    names: list[str], size: int, listed_later: bool
) -> None:
    """However often sources are found: from a folder, and later from a list."""
    found = [
        Found(source(name)._replace(is_listed=listed), "there", listed)
        for number, name in enumerate(names)
        for listed in [listed_later and number > size]
    ]
    with SourceTable() as at_once, SourceTable() as table:
        at_once.add(found)
        left = iter(found)
        table.add_first(islice(left, size + 1))
        first = table.first_window(size)
        before = [] if first is None else [row.source.id for row in table.rows(first)]
        table.add(left)
        found_windows = [[row.source for row in table.rows(window)] for window in table.windows(size)]
        assert found_windows == [[row.source for row in at_once.rows(window)] for window in at_once.windows(size)]
        if first is not None:
            assert before == [each.id for each in found_windows[0]] == sorted(set(names[: first_size(size)]))


def test_no_window_is_planned_before_all_sources_are_found_where_stretches_come_first() -> None:
    """Others of the same film may be anywhere in a list."""
    stretches = [source(f"{number}", "/film", Stretch(Fraction(number), None, "")) for number in range(4)]
    with table_of([*stretches[:1], source("x"), *stretches[1:]]) as table:
        assert table.first_window(2) is None
    with table_of([source("x"), *stretches]) as table:
        first = table.first_window(2)
        assert first is not None
        assert [row.source.id for row in table.rows(first)] == ["x"]
        assert [len(table.rows(window)) for window in table.windows(2)] == [1, 4]


@given(corpora(), st.integers(1, 12), st.randoms(use_true_random=False))
def test_what_is_left_of_a_job_has_the_units_of_an_undisturbed_one(
    sources: list[Source], size: int, random: Random
) -> None:
    undisturbed = units_of(sources, size)
    done = [item.source.id for unit in undisturbed if random.random() < 0.5 for item in unit.items]
    left = [unit for unit in undisturbed if unit.items[0].source.id not in done]
    assert units_of(sources, size, done) == left


@given(corpora())
def test_one_window_has_the_units_of_all_sources(sources: list[Source]) -> None:
    items = [Item(each, 1, 100_000) for each in sources]
    assert units_of(sources, 1000) == plan_units(items, profile_key="p", done={}, shard_bytes=10**9)


@pytest.mark.parametrize(
    ("num_sources", "counts"),
    [(1000, [1000]), (2000, [2000]), (2001, [1000, 1001]), (10_000, [1000, 9000]), (12_000, [1000, 10_000, 1000])],
)
def test_encoding_waits_for_one_or_two_thousand_sources_at_most(num_sources: int, counts: list[int]) -> None:
    with table_of([source(f"{number:05d}") for number in range(num_sources)]) as table:
        found = table.windows(WINDOW_SOURCES)
        assert [window.count for window in found] == [len(table.rows(window)) for window in found] == counts


def test_a_source_that_was_removed_moves_no_other_to_another_window() -> None:
    with table_of([source(name) for name in "abcdef"]) as table:
        found = table.windows(2)
        table.remove(["b", "d"])
        assert [[row.source.id for row in table.rows(window)] for window in found] == [["a"], ["c"], ["e"], ["f"]]
        assert (len(table), "a" in table, "b" in table, table.find("d")) == (4, True, False, None)


def test_one_window_is_planned_ahead_and_no_more() -> None:
    begun: list[int] = []

    def plans(_is_over: Callable[[], bool]) -> Iterator[int]:
        for number in range(1, 6):
            begun.append(number)
            yield -number

    with planned_ahead(plans) as ahead:
        for taken in range(1, 6):
            assert len(begun) <= taken
            assert ahead.take(wait=True) == -taken
        assert not ahead.is_over
        assert (ahead.take(wait=True), ahead.is_over, begun) == (None, True, [1, 2, 3, 4, 5])


def test_a_window_that_is_not_planned_yet_is_not_waited_for() -> None:
    go_on = threading.Event()
    with planned_ahead(lambda _is_over: (each for each in "a" if go_on.wait())) as ahead:
        assert ahead.take(wait=False) is None
        assert not ahead.is_over
        go_on.set()
        assert ahead.take(wait=True) == "a"


def test_an_error_of_planning_is_raised_where_the_plan_is_taken_and_the_end_of_a_job_ends_planning() -> None:
    def fail(_is_over: Callable[[], bool]) -> Iterator[str]:
        yield "a"
        raise UsageError("what is wrong")

    with planned_ahead(fail) as ahead:
        assert ahead.take(wait=True) == "a"
        with pytest.raises(UsageError, match="what is wrong"):
            ahead.take(wait=True)

    begun = threading.Event()

    def go_on(is_over: Callable[[], bool]) -> Iterator[str]:
        begun.set()
        while True:
            if is_over():
                raise CancelledError
            yield from ()

    with planned_ahead(go_on):
        begun.wait()


@given(
    st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=12),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_more_units_are_taken_while_few_sources_wait_and_every_unit_is_run_once(
    sizes: list[list[int]], few_sources: int, random: Random
) -> None:
    plans = [[unit(f"{window}-{number}", size) for number, size in enumerate(row)] for window, row in enumerate(sizes)]
    left = [each for each in plans if each]
    waiting = 0
    ran: list[str] = []

    def more(wait: bool) -> Sequence[Unit] | None:
        nonlocal waiting
        assert waiting < few_sources
        assert wait == (waiting == 0 and must_wait)
        if not left:
            return None
        # Not planned yet.
        if not wait and random.random() < 0.5:
            return ()
        waiting += sum(len(each.items) for each in left[0])
        return left.pop(0)

    order = Order(more=more, few_sources=few_sources)
    while True:
        must_wait = random.random() < 0.5
        if order.fill(wait=must_wait):
            step = order.next()
            waiting -= len(step.unit.items)
            ran.append(step.unit.id)
        elif must_wait:
            break
    assert sorted(ran) == sorted(each.id for plan in plans for each in plan)


def unit(name: str, size: int) -> Unit:
    return Unit(name, tuple(Item(source(f"{name}-{number}"), 1, 10) for number in range(size)))
