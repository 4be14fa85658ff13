"""How a corpus is cut into units of work, and how a file is known again."""

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import SourceError, SourceNotFoundError
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.finding.source import Source
from shortgop.jobs.units_of_work.units import Item, Unit, changed_sources, plan_units, split_unit

MB = 1_000_000
SHARD_BYTES = 256 * MB


def item(video_id: str, *, size_bytes: int = 1000, identity: int = 1) -> Item:
    return Item(Source(video_id, f"/corpus/{video_id}", video_id, "{}"), identity, size_bytes)


def plan(items: Sequence[Item], done: Sequence[Item] = (), *, profile_key: str = "profile") -> list[Unit]:
    known = {one.source.id: one.identity for one in done}
    return plan_units(items, profile_key=profile_key, done=known, shard_bytes=SHARD_BYTES)


def ids(units: Sequence[Unit]) -> list[list[str]]:
    return [[one.source.id for one in unit.items] for unit in units]


def corpora() -> st.SearchStrategy[list[Item]]:
    """Short, long and empty files, sometimes so many short ones that their number limits the units."""
    sizes = st.sampled_from([0, 1, 1000, 300_000, 500_000, MB - 1, MB, MB + 1, 40 * MB, 300 * MB])
    few = st.dictionaries(st.text(max_size=5), st.tuples(sizes, st.integers(0, 2**64 - 1)), max_size=40)
    many = st.integers(200, 600).map(lambda n: {f"{i:04}": (100, i) for i in range(n)})
    return st.builds(
        lambda a, b: [item(name, size_bytes=size, identity=key) for name, (size, key) in {**a, **b}.items()],
        few,
        st.one_of(st.just({}), many),
    )


def test_neighbours_share_a_unit_and_a_long_video_has_one_to_itself() -> None:
    items = [
        item("a.mp4"),
        item("b.mp4"),
        item("c long.mp4", size_bytes=3 * MB),
        item("d.mp4"),
        item("e.mp4"),
    ]
    assert ids(plan(items)) == [["a.mp4", "b.mp4"], ["c long.mp4"], ["d.mp4", "e.mp4"]]


def test_a_large_corpus_makes_about_64_units() -> None:
    items = [item(f"{i:04}.mp4", size_bytes=MB) for i in range(6400)]
    assert [len(unit.items) for unit in plan(items)] == [100] * 64


def test_no_unit_of_several_videos_exceeds_a_shard() -> None:
    items = [item(f"{i:04}.mp4", size_bytes=100 * MB) for i in range(1000)]
    assert {len(unit.items) for unit in plan(items)} == {2}


def test_no_unit_holds_more_than_256_videos() -> None:
    assert [len(unit.items) for unit in plan([item(f"{i:04}", size_bytes=10) for i in range(600)])] == [256, 256, 88]


def test_nothing_to_do_is_no_units() -> None:
    one = item("a.mp4")
    assert plan([]) == []
    assert plan([one], done=[one]) == []


@given(corpora(), st.data())
def test_each_video_that_is_not_done_is_in_one_unit(items: list[Item], data: st.DataObject) -> None:
    done = data.draw(st.lists(st.sampled_from(items), unique=True)) if items else []
    planned = [one for unit in plan(items, done) for one in unit.items]
    expected = [one for one in items if one not in done]
    assert planned == sorted(expected, key=lambda one: one.source.id)


@pytest.mark.long
@given(corpora(), st.randoms())
def test_the_order_in_which_sources_come_does_not_matter(items: list[Item], random: Random) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)
    assert plan(shuffled) == plan(items)


@given(corpora(), st.data())
def test_an_interrupted_job_plans_the_units_it_had_not_finished(items: list[Item], data: st.DataObject) -> None:
    units = plan(items)
    finished = data.draw(st.lists(st.sampled_from(units), unique_by=lambda unit: unit.id)) if units else []
    done = [one for unit in finished for one in unit.items]
    assert plan(items, done) == [unit for unit in units if unit not in finished]


@given(corpora())
def test_units_keep_within_their_limits(items: list[Item]) -> None:
    target = min(SHARD_BYTES, max(MB, sum(one.size_bytes for one in items) // 64))
    for unit in plan(items):
        sizes = [one.size_bytes for one in unit.items]
        assert 1 <= len(sizes) <= 256
        assert len(sizes) == 1 or (sum(sizes) <= target and max(sizes) < target)


def test_a_unit_id_is_16_hexadecimal_digits_that_stay_the_same_for_ever() -> None:
    # Datasets hold these ids: another value here means that running jobs start from scratch.
    (unit,) = plan([item("a.mp4"), item("b.mp4", identity=2**64 - 1)])
    assert unit.id == "292f8e476c9be5a5"


@pytest.mark.parametrize(
    ("items", "profile_key"),
    [
        ([item("a.mp4"), item("b.mp4")], "another profile"),
        ([item("a.mp4"), item("b.mp4", identity=2)], "profile"),
        ([item("a.mp4"), item("c.mp4")], "profile"),
        ([item("a.mp4")], "profile"),
        ([item("a.mp4" + "\0" * 7 + "\1b.mp4")], "profile"),
    ],
)
def test_another_profile_content_or_set_of_videos_is_another_unit(items: list[Item], profile_key: str) -> None:
    (unit,) = plan([item("a.mp4"), item("b.mp4")])
    (other,) = plan(items, profile_key=profile_key)
    assert other.id != unit.id


def test_where_a_file_lies_does_not_change_its_unit() -> None:
    here = Item(Source("a.mp4", "/here/a.mp4", "a.mp4", "{}"), 1, 1000)
    there = Item(Source("a.mp4", "/there/a.mp4", "../there/a.mp4", '{"label": 1}'), 1, 1000)
    assert plan([here])[0].id == plan([there])[0].id


def test_a_file_that_changed_since_it_was_prepared_is_told_and_left_out() -> None:
    old, new, same, fresh = item("a.mp4"), item("a.mp4", identity=2), item("b.mp4"), item("c.mp4")
    items = [fresh, same, new]
    assert changed_sources(items, {"a.mp4": old.identity, "b.mp4": same.identity}) == [new]
    assert ids(plan(items, done=[old, same])) == [["c.mp4"]]


def test_a_unit_splits_into_one_for_each_video() -> None:
    (unit,) = plan([item("a.mp4"), item("b.mp4")])
    parts = split_unit(unit, "profile")
    assert ids(parts) == [["a.mp4"], ["b.mp4"]]
    assert parts == [*plan([item("a.mp4")]), *plan([item("b.mp4")])]


def test_identity_is_of_the_content_not_of_the_name_or_the_time(tmp_path: Path) -> None:
    original, copy = tmp_path / "a.mp4", tmp_path / "moved" / "b.mp4"
    copy.parent.mkdir()
    for file in (original, copy):
        file.write_bytes(b"frames" * 50_000)
    os.utime(copy, (0, 0))
    assert identity_of(str(original)) == identity_of(str(copy))
    assert identity_of(str(original))[1] == 300_000


@pytest.mark.parametrize("position", [0, 65_535, 300_000 - 65_536, 299_999])
def test_a_byte_near_either_end_changes_the_identity(tmp_path: Path, position: int) -> None:
    data = bytearray(300_000)
    before = fingerprint(tmp_path, data)
    data[position] = 1
    assert fingerprint(tmp_path, data) != before


def test_a_byte_in_the_middle_of_a_large_file_goes_unnoticed(tmp_path: Path) -> None:
    data = bytearray(300_000)
    before = fingerprint(tmp_path, data)
    data[150_000] = 1
    assert fingerprint(tmp_path, data) == before


def test_files_of_different_length_differ(tmp_path: Path) -> None:
    lengths = [0, 1, 65_535, 65_536, 65_537, 131_072, 131_073, 300_000]
    assert len({fingerprint(tmp_path, bytes(length)) for length in lengths}) == len(lengths)


def fingerprint(folder: Path, data: bytes | bytearray) -> int:
    file = folder / "source.mp4"
    file.write_bytes(data)
    identity, size_bytes = identity_of(str(file))
    assert 0 <= identity < 2**64
    assert size_bytes == len(data)
    return identity


def test_a_source_that_cannot_be_fingerprinted_is_an_error_that_names_it(tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe.mp4", tmp_path / "link.mp4", tmp_path / "file"
    os.mkfifo(pipe)
    link.symlink_to(link)
    file.touch()
    for path in (tmp_path / "gone.mp4", file / "below a file.mp4"):
        with pytest.raises(SourceNotFoundError, match="does not exist") as caught:
            identity_of(str(path))
        assert caught.value.file == str(path)
    for path in (tmp_path, pipe, link):
        with pytest.raises(SourceError, match=path.name):
            identity_of(str(path))
