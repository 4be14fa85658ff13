"""The local cache of byte ranges: what it keeps, what goes first, and what it makes of damage."""

from __future__ import annotations

import multiprocessing
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from range_cache_items import ONE, bytes_on_disk, content, damage, entry, files_of, item, size_of
from shortgop.storage.range_cache import RangeCache, disk_bytes


def test_what_was_put_is_there_for_every_process_of_the_host(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    assert cache.get(entry(1)) is None
    assert not cache.has(entry(1))
    cache.put([item(1), item(2)])
    assert cache.get(entry(1)) == content(1)
    assert cache.has(entry(2))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(RangeCache.get, (cache, entry(2))) == content(2)


def test_an_entry_is_of_one_dataset_one_file_and_one_range(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    one = entry(1)
    others = [one._replace(place="s3://bucket/other"), one._replace(key="shards/x.shard")]
    others += [one._replace(start=8, stop=1008), one._replace(stop=1006), one._replace(crc32=1)]
    assert [cache.get(other) for other in others] == [None] * 5
    assert not any(cache.has(other) for other in others)


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 3 * ONE)
    for number in (1, 2, 3):
        cache.put([item(number)])
    cache.get(entry(1))
    cache.put([item(4)])
    assert [number for number in (1, 2, 3, 4) if cache.has(entry(number))] == [1, 3, 4]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("get"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("put"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), st.just(0)),
        st.tuples(st.just("damage"), st.integers(0, 9), st.integers(0, 2)),
        st.tuples(st.just("reopen"), st.integers(), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_it_is_a_bounded_dict_in_the_order_of_use(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int | list[int], int]], blocks: int
) -> None:
    limit = blocks * 4608
    cache = RangeCache(tmp_path_factory.mktemp("model"), limit)
    model: OrderedDict[int, bool] = OrderedDict()
    """Which entries have a row, the least recently used first, and whether their bytes are right."""

    def taken() -> int:
        return sum(disk_bytes(size_of(number)) for number in model)

    for what, which, how in steps:
        if what == "reopen":
            cache.close()
            cache = RangeCache(cache.folder.parent, limit)
        elif isinstance(which, list):
            room, wanted = limit, []
            for number in which:
                if disk_bytes(size_of(number)) <= room:
                    room -= disk_bytes(size_of(number))
                    wanted.append(number)
            # All of a call are used at the same time; one at a time, so that the order is known.
            for number in wanted:
                model.pop(number, None)
                while taken() + disk_bytes(size_of(number)) > limit:
                    model.popitem(last=False)
                model[number] = True
                cache.put([item(number, size_of(number))])
        elif what == "get":
            expected = content(which, size_of(which)) if model.get(which) else None
            assert cache.get(entry(which, size_of(which))) == expected
            if expected is not None:
                model.move_to_end(which)
        elif model.get(which):
            damage(cache, entry(which, size_of(which)), how)
            model[which] = False
        assert cache.used_bytes == taken() <= limit
        assert bytes_on_disk(cache) <= limit
    assert {number for number in range(10) if cache.get(entry(number, size_of(number)))} == {
        number for number, right in model.items() if right
    }


@pytest.mark.parametrize("how", [0, 1, 2], ids=["changed", "cut", "removed"])
def test_a_damaged_entry_is_none_and_is_written_again(tmp_path: Path, how: int) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    damage(cache, entry(1), how)
    assert cache.get(entry(1)) is None
    cache.put([item(1)])
    assert cache.get(entry(1)) == content(1)
    assert cache.used_bytes == ONE


def test_a_file_that_grew_is_written_again(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    with files_of(cache)[0].open("ab") as file:
        file.write(b"more")
    assert not cache.has(entry(1))
    cache.put([item(1)])
    assert cache.has(entry(1))


def test_what_is_longer_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 2 * ONE)
    cache.put([item(1)])
    cache.put([item(2, 100_000)])
    assert cache.has(entry(1))
    assert cache.used_bytes == ONE
    # Of a batch, what fits.
    cache.put([item(number) for number in (3, 4, 5)])
    assert [number for number in range(6) if cache.has(entry(number))] == [3, 4]


def test_a_process_with_a_lower_limit_makes_room(tmp_path: Path) -> None:
    RangeCache(tmp_path, 10 * ONE).put([item(number) for number in range(10)])
    smaller = RangeCache(tmp_path, 4 * ONE)
    smaller.put([item(10)])
    assert smaller.used_bytes == 4 * ONE == bytes_on_disk(smaller)


def test_a_pickle_is_the_place_and_the_limit(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 5 * ONE)
    cache.put([item(1)])
    copy = pickle.loads(pickle.dumps(cache))
    assert copy.get(entry(1)) == content(1)
    assert copy.max_bytes == 5 * ONE
