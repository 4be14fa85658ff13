"""How sources are divided into windows, and how the units of the windows follow one another."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from fractions import Fraction
from itertools import islice, pairwise, takewhile
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from made_up_sources import source, table_of
from shortgop.errors import UsageError
from shortgop.jobs.finding.source import Found, Source
from shortgop.jobs.planning.ahead import planned_ahead
from shortgop.jobs.sources.source_table import SourceTable
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.units import Item, Unit, plan_units
from shortgop.jobs.units_of_work.windows import WINDOW_SOURCES, Window, first_size, one_window_size, windows
from shortgop.prep.timing.stretch import Stretch

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
def test_windows_of_sources_follow_the_order_of_finding_and_do_not_divide_a_file(
    sources: list[Source], size: int, random: Random
) -> None:
    in_order = runs_without_stretches(sources, size)
    later = sources[sum(map(len, in_order)) :]
    shuffled = [each for run in in_order for each in random.sample(run, len(run))] + later
    with table_of(sources) as table, table_of(shuffled) as other:
        found = [[row.source for row in table.rows(window)] for window in table.windows(size)]
        assert found == [[row.source for row in other.rows(window)] for window in other.windows(size)]
        assert list(table.sources()) == by_id(sources)
    assert found[: len(in_order)] == [by_id(run) for run in in_order]
    assert by_id(each for window in found for each in window) == by_id(sources)
    # As few as these need not wait for others.
    assert len(found) == (len(sources) > 0) or len(sources) > one_window_size(size)
    for window in found:
        assert window == by_id(window)
    for film in {each.path for each in sources if each.part}:
        assert sum(any(each.path == film for each in window) for window in found) == 1


def by_id(sources: Iterable[Source]) -> list[Source]:
    return sorted(sources, key=lambda each: each.id)


def runs_without_stretches(sources: Sequence[Source], size: int) -> list[list[Source]]:
    """The sources of the windows before the first one with a stretch, where there is more than one window."""
    if len(sources) <= one_window_size(size):
        return []
    starts = [0, *range(first_size(size), len(sources), size), len(sources)]
    runs = [list(sources[start:end]) for start, end in pairwise(starts)]
    return list(takewhile(lambda run: not any(each.part for each in run), runs))


# The id of each find, and whether it is from a list, which gives it a label.
FINDS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=60)


@given(FINDS, st.integers(1, 12), st.integers(-1, 60), st.randoms(use_true_random=False))
@example([(name, False) for name in [*"ab" * 25, *"defgh"]], 12, -1, Random(0))
def test_windows_are_the_same_while_others_are_found_and_afterwards(
    names: list[tuple[str, bool]], size: int, first_stretch: int, random: Random
) -> None:
    """However often sources are found, from a folder or a list. What a list says of one later is told."""
    found = [
        Found(source(name)._replace(is_listed=listed, attributes='{"n": 1}' if listed else "{}"), "there", listed)
        for name, listed in names
    ]
    if first_stretch >= 0:
        others = [Found(source(f"z{n}", "/film", Stretch(Fraction(n), None, "")), "there", False) for n in range(3)]
        found[first_stretch:first_stretch] = others
    with SourceTable() as at_once, SourceTable() as table:
        at_once.add(found)
        left = iter(found)
        table.add_some(islice(left, size + 1))
        table.merge_found()
        planned: dict[str, Source] = {}
        before: list[list[str]] = []
        number = 0
        while table.num_found > max(size, number + size * (number > 0) - 1):
            window = table.plan_window_after(number, size)
            if window is None:
                break
            sources = [row.source for row in table.rows(window)]
            planned |= {each.id: each for each in sources}
            before += [[each.id for each in sources]] * (len(sources) > 0)
            number = window.last
            table.add_some(islice(left, random.randint(0, 2 * size)))
        table.add(left)
        later = [[row.source.id for row in table.rows(window)] for window in table.windows(size, number)]
        expected = [[row.source.id for row in at_once.rows(window)] for window in at_once.windows(size)]
        assert before + later == expected
        assert list(table.sources()) == list(at_once.sources())
        now = {each.id: each for each in at_once.sources()}
        assert list(table.labelled_later()) == [
            (name, now[name].attributes)
            for name, each in sorted(planned.items())
            if each.attributes != now[name].attributes
        ]


def test_no_window_is_planned_before_all_sources_are_found_where_stretches_are_in_it() -> None:
    """Others of the same film may be anywhere in a list."""
    stretches = [source(f"{number}", "/film", Stretch(Fraction(number), None, "")) for number in range(4)]
    with table_of([*stretches[:1], source("x"), *stretches[1:]]) as table:
        assert table.window_after(0, 2) is None
        assert [len(table.rows(window)) for window in table.windows(2)] == [4, 1]
    with table_of([source("x"), source("z"), source("y"), *stretches]) as table:
        assert [table.window_after(0, 2), table.window_after(1, 2), table.window_after(3, 2)] == [
            Window(1, 1, 1), Window(2, 3, 2), None,
        ]  # fmt: skip
        found = [[row.source.id for row in table.rows(window)] for window in table.windows(2)]
        assert found == [["x"], ["y", "z"], ["0", "1", "2", "3"]]


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

    def plans(_is_over: Callable[[], bool]) -> Generator[int]:
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
    def fail(_is_over: Callable[[], bool]) -> Generator[str]:
        yield "a"
        raise UsageError("what is wrong")

    with planned_ahead(fail) as ahead:
        assert ahead.take(wait=True) == "a"
        with pytest.raises(UsageError, match="what is wrong"):
            ahead.take(wait=True)

    begun = threading.Event()

    def go_on(is_over: Callable[[], bool]) -> Generator[str]:
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


@pytest.mark.parametrize(("cores", "windows"), [(0, 2), (1, 4), (3, 9), (9, 25), (1000, 31)])
def test_work_for_some_minutes_waits_for_each_core_of_a_large_cluster(cores: int, windows: int) -> None:
    """Each window has 20 sources in two units, which take 180 seconds together."""
    taken = 0

    def more(_wait: bool) -> list[Unit]:
        nonlocal taken
        taken += 1
        return [replace(unit(f"{taken}-{number}", 10), expected_seconds=90.0) for number in range(2)]

    order = Order(more=more, few_sources=20)
    order.fill(wait=False)
    order.next()
    order.fill(wait=False, cores=cores)
    assert taken == windows
    order.fill(wait=False, cores=cores)
    assert taken == windows


def test_units_of_unknown_length_are_not_taken_without_end() -> None:
    plans = [[unit(str(number), 10)] for number in range(9)]
    order = Order(more=lambda _: plans.pop(), few_sources=20)
    order.fill(wait=False, cores=1000)
    assert len(plans) == 7


def test_a_source_that_waits_takes_less_than_a_kilobyte() -> None:
    """So that the 300,000 of a large cluster fit into the memory of a driver."""
    count = 10_000
    tracemalloc.start()
    try:
        paths = (f"/shared/corpus/folder{number // 1000:05d}/clip_{number:08d}.mp4" for number in range(count))
        items = [Item(Source(path[15:], path, path[8:], "{}"), abs(hash(path)), 10**6 + len(path)) for path in paths]
        order = Order(plan_units(items, profile_key="", done={}, shard_bytes=10**9))
        assert tracemalloc.get_traced_memory()[0] < 700 * count
    finally:
        tracemalloc.stop()
    assert order


def unit(name: str, size: int) -> Unit:
    return Unit(name, tuple(Item(source(f"{name}-{number}"), 1, 10) for number in range(size)))
