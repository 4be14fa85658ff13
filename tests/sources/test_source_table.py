"""The table of all sources of a job: what is added to it, and what it keeps of looking at them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_up_sources import source, table_of
from shortgop.errors import UsageError
from shortgop.jobs.finding.addresses import Address
from shortgop.jobs.finding.source import Found, Source, same
from shortgop.jobs.finding.source_parts import Member
from shortgop.jobs.finding.store_files import StoreFile
from shortgop.jobs.sources.look import Expected, Looked
from shortgop.jobs.sources.source_table import SourceTable
from shortgop.jobs.sources.temporary_database import TableBusyError
from shortgop.jobs.units_of_work.units import Item
from shortgop.prep.timing.stretch import Stretch


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
        table.merge_renamed()
        rows = [row for window in found for row in table.rows(window)]
        assert [row.source.id for row in rows if row.looked is None] == ["a", "b"]
        items = [each.item.source for window in found for each in table.looked_at(window)]
        assert [(each.id, each.given) for each in items] == [("m", "y/m"), ("z", "x")]
        assert [each for window in found for each in table.labels(window)] == [("m", "{}"), ("z", "{}")]
        assert len(table) == 4
        assert sorted(name for window in found for name in table.ids(window)) == ["a", "b", "m", "z"]


def renamed(each: Source, new_id: str) -> Item:
    return Item(Source(new_id, each.path, each.given, each.attributes, is_listed=each.is_listed), 1, 10)


PARTS = st.sampled_from([None, Stretch(Fraction(1, 3), None, "line 3"), Member("a.mp4", 512, 100)])
STORES = st.sampled_from([None, StoreFile(Address("s3://bucket/a", "a", "s3://bucket"))])
TEXTS = st.text(st.characters(exclude_categories=())) | st.just("{}")


@given(st.builds(Source, st.text(), TEXTS, TEXTS, TEXTS, st.booleans(), st.booleans(), part=PARTS, in_store=STORES))
def test_a_source_is_kept_as_it_is(kept: Source) -> None:
    """Names of files need not be Unicode."""
    with table_of([kept]) as table:
        assert table.find(kept.id) == kept
        assert list(table.sources()) == [kept]
        (window,) = table.windows(10)
        assert [row.source for row in table.rows(window)] == [kept]
        assert table.names(window) == [(kept.id, kept.path, kept.id_is_given, kept.is_named_by_path)]
        assert table.ids(window) == [kept.id]
        assert list(table.labels(window)) == [(kept.id, kept.attributes)] * (kept.attributes != "{}")


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
    table.add_some(found[:first])
    table.merge_found()
    table.add(found[first:])


FULL_DISK = """
import resource, signal
from shortgop.jobs.sources.source_table import SourceTable
from shortgop.jobs.finding.source import Found, Source

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
text = "x" * 10_000
with SourceTable() as table:
    table.add(Found(Source(f"{number}", "/v", text, "{}"), "in a list", True) for number in range(10_000))
"""


@pytest.mark.parametrize("is_there", [True, False])
def test_a_list_that_does_not_fit_where_it_is_kept_says_what_to_do(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path if is_there else tmp_path / "nowhere"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK], capture_output=True, text=True, check=False,
        env=os.environ | {"TMPDIR": str(folder)},
    )  # fmt: skip
    # SQLite passes over a folder that is not there.
    place = tmp_path if is_there else "/var/tmp"
    assert f"OutputError: the list of sources cannot be kept in {place}: " in done.stderr
    assert "free some space, or set TMPDIR to a larger disk, and run the same command again" in done.stderr


CLOSED_MEANWHILE = """
import threading, time
from concurrent.futures import CancelledError
from shortgop.jobs.sources.source_table import SourceTable
from shortgop.jobs.finding.source import Found, Source

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


@pytest.mark.long
def test_a_table_may_be_closed_while_a_thread_still_adds_sources() -> None:
    """A job that is ended does not wait for the thread that reads its list; SQLite crashed then."""
    done = subprocess.run([sys.executable, "-c", CLOSED_MEANWHILE], capture_output=True, text=True, check=True)
    ended = done.stdout.split()
    assert len(ended) == 8
    assert "cancelled" in ended
    assert set(ended) <= {"cancelled", "added"}


def test_closing_a_table_does_not_wait_for_a_list_that_does_not_answer() -> None:
    is_asked, answers = threading.Event(), threading.Event()

    def found() -> Iterator[Found]:
        is_asked.set()
        answers.wait(300)
        yield Found(source("a"), "there", listed=True)

    def add(table: SourceTable) -> None:
        with pytest.raises(CancelledError):
            table.add(found())

    with SourceTable() as table:
        adding = threading.Thread(target=add, args=(table,))
        adding.start()
        assert is_asked.wait(60)
        start = time.monotonic()
    try:
        assert time.monotonic() - start < 100
        assert adding.is_alive()
    finally:
        answers.set()
        adding.join()


LONG_LIST = """
from process_memory import peak_bytes
from shortgop.jobs.sources.source_table import SourceTable
from shortgop.jobs.finding.source import Found, Source

before, text = peak_bytes(), "x" * 5_000
with SourceTable() as table:
    table.add(Found(Source(f"{number:05}", "/v", text, "{}"), "in a list", True) for number in range(40_000))
    held = sum(len(table.rows(window)) for window in table.windows(1_000))
print(held, peak_bytes() - before)
"""


def test_the_list_of_sources_is_not_in_memory() -> None:
    """Of 200 MB that it has, as much as the cache of the database and a window."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LONG_LIST]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    held, num_bytes = map(int, done.stdout.split())
    assert held == 40_000
    assert num_bytes < 80_000_000


def test_planning_does_not_wait_for_the_thread_that_changes_the_table() -> None:
    """It would seem to hang, and not to be waited for."""
    with table_of([source("a"), source("b")]) as table:
        is_merging, may_end = threading.Event(), threading.Event()

        def change() -> None:
            with table._database.changing():
                is_merging.set()
                may_end.wait(60)

        changing = threading.Thread(target=change)
        changing.start()
        assert is_merging.wait(60)
        with pytest.raises(TableBusyError):
            table.plan_window_after(0, 10)
        may_end.set()
        changing.join()
        assert table.plan_window_after(0, 10) is not None


def test_what_is_kept_of_a_table_is_divided_as_if_nothing_else_had_been_found() -> None:
    """A repair of a few videos has no windows of one."""
    names = [f"{number:03}" for number in range(200)]
    with table_of([source(name) for name in names]) as table, table_of([source(name) for name in names[::9]]) as few:
        table.keep_only(set(names[::9]))
        assert table.num_found == few.num_found == 23
        kept = [[row.source for row in table.rows(window)] for window in table.windows(10)]
        assert kept == [[row.source for row in few.rows(window)] for window in few.windows(10)]
