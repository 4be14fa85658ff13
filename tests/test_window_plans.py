"""How sources are kept and divided into windows, and how the units of the windows follow one another."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from fractions import Fraction
from itertools import islice, pairwise
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shortgop.errors import UsageError
from shortgop.jobs.addresses import Address
from shortgop.jobs.ahead import planned_ahead
from shortgop.jobs.look import Expected, Looked
from shortgop.jobs.order import Order
from shortgop.jobs.source_parts import Member
from shortgop.jobs.source_table import SourceTable
from shortgop.jobs.sources import Found, Source, same
from shortgop.jobs.store_files import StoreFile
from shortgop.jobs.units import Item, Unit, plan_units
from shortgop.jobs.windows import first_size, windows
from shortgop.prep.stretch import Stretch

KEYS = st.lists(st.integers(0, 30), max_size=60).map(sorted)


def source(video_id: str, path: str = "", part: Stretch | None = None) -> Source:
    return Source(video_id, path or f"/corpus/{video_id}", video_id, "{}", part=part)


@st.composite
def corpora(draw: st.DrawFn) -> list[Source]:
    """Files, and stretches of a few films whose ids lie anywhere among theirs."""
    names = draw(st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=40))
    films = draw(st.lists(st.integers(-5, 3), min_size=len(names), max_size=len(names)))
    return [
        source(name, f"/films/{film}", Stretch(Fraction(number), None, "")) if film >= 0 else source(name)
        for number, (name, film) in enumerate(zip(names, films, strict=True))
    ]


def table_of(sources: Sequence[Source]) -> SourceTable:
    table = SourceTable()
    table.add(Found(each, "in a list", listed=True) for each in sources)
    return table


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
    # As many as are planned at once need not wait for others.
    assert len(found) == (len(sources) > 0) or len(sources) > size
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


def test_a_source_that_was_removed_moves_no_other_to_another_window() -> None:
    with table_of([source(name) for name in "abcdef"]) as table:
        found = table.windows(2)
        table.remove(["b", "d"])
        assert [[row.source.id for row in table.rows(window)] for window in found] == [["a"], ["c"], ["e"], ["f"]]
        assert (len(table), "a" in table, "b" in table, table.find("d")) == (4, True, False, None)


def test_a_source_that_is_found_twice_is_one_and_two_with_one_id_are_an_error() -> None:
    with table_of([source("a"), source("b"), source("a")]) as table:
        assert [each.id for each in table.sources()] == ["a", "b"]
        with pytest.raises(UsageError, match="are two files with the same id 'b'"):
            table.add([Found(source("b", "/other/b"), "in a folder", listed=False)])


@pytest.mark.parametrize("size", [1, 3])
def test_what_was_looked_at_is_kept_and_sources_that_are_the_same_video_become_one(size: int) -> None:
    """The dataset has `m` and `z`, of which a list names the paths: `y/m` is given as `m` too, and `z` twice."""
    listed = [Source(name, f"/{name}", name, "{}", is_listed=True) for name in ("b", "y/m", "x", "k")]
    with table_of([source("a"), source("m"), *listed]) as table:
        found = table.windows(size)
        new_ids = {"y/m": "m", "x": "z", "k": "z"}
        for window in found:
            looked = [row.source for row in table.rows(window) if row.source.id not in ("a", "b")]
            table.save((each, Looked(renamed(each, new_ids.get(each.id, each.id)), Expected(7))) for each in looked)
        table.merge()
        rows = [row for window in found for row in table.rows(window)]
        assert [row.source.id for row in rows if row.looked is None] == ["a", "b"]
        items = [each.item.source for window in found for each in table.looked_at(window)]
        assert [(each.id, each.given) for each in items] == [("m", "y/m"), ("z", "x")]
        assert len(table) == 4
        assert [table.was_looked_at(name) for name in ("a", "m", "y/m")] == [False, True, False]


def renamed(each: Source, new_id: str) -> Item:
    return Item(Source(new_id, each.path, each.given, each.attributes, is_listed=each.is_listed), 1, 10)


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


PARTS = st.sampled_from([None, Stretch(Fraction(1, 3), None, "line 3"), Member("a.mp4", 512, 100)])
STORES = st.sampled_from([None, StoreFile(Address("s3://bucket/a", "a", "s3://bucket"))])
TEXTS = st.text(st.characters(exclude_categories=())) | st.just("{}")


@given(st.builds(Source, st.text(), TEXTS, TEXTS, TEXTS, st.booleans(), st.booleans(), part=PARTS, in_store=STORES))
def test_a_source_is_kept_as_it_is(kept: Source) -> None:
    """Names of files need not be Unicode."""
    with table_of([kept]) as table:
        assert table.find(kept.id) == kept
        assert list(table.sources()) == [kept]
        assert [row.source for window in table.windows(10) for row in table.rows(window)] == [kept]
        assert table.num_in_store == (kept.in_store is not None)


FINDS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["{}", '{"n": 1}']), st.booleans()), max_size=12)


@given(FINDS, st.integers(0, 12))
def test_finds_of_one_source_are_one(finds: list[tuple[str, str, bool]], added_first: int) -> None:
    """However they are added: a list gives the attributes of a source that a folder holds, too."""
    found = [
        Found(source(name) if not listed else source(name)._replace(attributes=text, is_listed=True), "there", listed)
        for name, text, listed in finds
    ]
    expected: dict[str, Found] = {}
    wrong = False
    for each in found:
        before = expected.get(each.source.id)
        try:
            expected[each.source.id] = each if before is None else same(before, each)
        except UsageError:
            wrong = True
    with SourceTable() as table:
        if wrong:
            with pytest.raises(UsageError, match="is listed twice with different attributes"):
                add_in_two(table, found, added_first)
            return
        add_in_two(table, found, added_first)
        assert [each.attributes for each in table.sources()] == [
            expected[name].source.attributes for name in sorted(expected)
        ]
        assert len(table) == len(expected)


def add_in_two(table: SourceTable, found: Sequence[Found], first: int) -> None:
    table.add(found[:first])
    table.add(found[first:])


FULL_DISK = """
import resource, signal
from shortgop.jobs.source_table import SourceTable
from shortgop.jobs.sources import Found, Source

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
text = "x" * 10_000
with SourceTable() as table:
    table.add(Found(Source(f"{number}", "/v", text, "{}"), "in a list", True) for number in range(10_000))
"""


def test_a_list_that_does_not_fit_where_it_is_kept_says_what_to_do() -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK], capture_output=True, text=True, check=False)
    assert "OutputError: the list of sources cannot be kept in " in done.stderr
    assert "free some space, or set TMPDIR to a larger disk, and run the same command again" in done.stderr


CLOSED_MEANWHILE = """
import sys, threading, time
from concurrent.futures import CancelledError
from shortgop.jobs.source_table import SourceTable
from shortgop.jobs.sources import Found, Source

def add(table):
    try:
        table.add(Found(Source(f"{n * 7919 % 100_003:06}", "/v", "/v", "{}"), "there", True) for n in range(100_000))
        ended.append("added")
    except CancelledError:
        ended.append("cancelled")

ended = []
for tenths in range(1, 9):
    with SourceTable() as table:
        adding = threading.Thread(target=add, args=(table,))
        adding.start()
        time.sleep(tenths / 10)
    adding.join()
print(*ended)
"""


def test_a_table_may_be_closed_while_a_thread_still_adds_sources() -> None:
    """A job that is ended does not wait for the thread that reads its list; SQLite crashed then."""
    done = subprocess.run([sys.executable, "-c", CLOSED_MEANWHILE], capture_output=True, text=True, check=True)
    ended = done.stdout.split()
    assert len(ended) == 8
    assert "cancelled" in ended
    assert set(ended) <= {"cancelled", "added"}


def test_closing_a_table_does_not_wait_for_a_list_that_does_not_answer() -> None:
    answers = threading.Event()

    def found() -> Iterator[Found]:
        answers.wait(60)
        yield Found(source("a"), "there", listed=True)

    def add(table: SourceTable) -> None:
        with pytest.raises(CancelledError):
            table.add(found())

    with SourceTable() as table:
        adding = threading.Thread(target=add, args=(table,))
        adding.start()
        start = time.monotonic()
    assert time.monotonic() - start < 20
    assert adding.is_alive()
    answers.set()
    adding.join()


LONG_LIST = """
import resource
from shortgop.jobs.source_table import SourceTable
from shortgop.jobs.sources import Found, Source

def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000

before, text = peak_megabytes(), "x" * 5_000
with SourceTable() as table:
    table.add(Found(Source(f"{number:05}", "/v", text, "{}"), "in a list", True) for number in range(40_000))
    held = sum(len(table.rows(window)) for window in table.windows(1_000))
print(held, peak_megabytes() - before)
"""


def test_the_list_of_sources_is_not_in_memory() -> None:
    """Of 200 MB that it has, as much as the cache of the database and a window."""
    done = subprocess.run([sys.executable, "-c", LONG_LIST], capture_output=True, text=True, check=True)
    held, megabytes = done.stdout.split()
    assert int(held) == 40_000
    assert float(megabytes) < 80
