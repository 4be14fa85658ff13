"""The rows of ids: a dict for small tables, and a binary search for large ones, which have to say the same."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shortgop.manifests import row_of_id
from shortgop.manifests.ragged import from_texts
from shortgop.manifests.row_of_id import RowOfId

# Zero bytes, characters of two to four bytes, half of a surrogate pair, and what a column has in its place.
IDS = st.text(st.sampled_from(["a", "b", "\0", "\x7f", "é", "\ud7ff", "\ue000", "\U0001f3ac", "\udce9"]), max_size=4)
LONG = st.sampled_from(["b" * 127, "b" * 128, "b" * 129, "é" * 65, "b" * 128 + "\0", r"\udce9", r"a\udce9"])


@given(
    there=st.sets(IDS | LONG, max_size=30),
    asked=st.lists(IDS | LONG, max_size=30),
    searched=st.integers(1, 7),
)
@example(there={"\udce9"}, asked=["\udce9", r"\udce9"], searched=1)
def test_both_ways_find_the_same_rows(there: set[str], asked: list[str], searched: int) -> None:
    """Ids as a table has them: sorted by their bytes, and those that are no Unicode written with other characters."""
    ids = sorted({each.encode(errors="backslashreplace") for each in there})
    column = from_texts(each.decode() for each in ids)
    asked = [*asked, *column.texts()[::2]]
    small = RowOfId(column)
    with pytest.MonkeyPatch.context() as patch:
        # Made before the limit is moved.
        expected = {each: small.get(each) for each in asked}
        small_of = small.of(asked)
        patch.setattr(row_of_id, "_MAX_DICT_ROWS", -1)
        patch.setattr(row_of_id, "_SEARCHED_IDS", searched)
        large = RowOfId(column)
        assert {each: large.get(each) for each in asked} == expected
        assert {each: each in large for each in asked} == {each: row is not None for each, row in expected.items()}
        assert list(large.of(asked).items()) == list(small_of.items())
        assert large.of(iter(asked)) == small_of
        assert "_dict" not in vars(large)
        assert len(large) == len(small) == len(ids)
    assert small_of == {each: row for each, row in expected.items() if row is not None}
    assert expected == {each: ids.index(each.encode()) if _is_in(each, ids) else None for each in asked}


def _is_in(text: str, ids: list[bytes]) -> bool:
    return text.encode(errors="surrogatepass") in ids


@pytest.mark.parametrize("limit", [-1, 10])
def test_a_row_by_its_id(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_of_id, "_MAX_DICT_ROWS", limit)
    rows = RowOfId(from_texts(["a", "b"]))
    assert (rows["b"], rows.get("b"), rows.get("c")) == (1, 1, None)
    with pytest.raises(KeyError, match="c"):
        rows["c"]
    assert 0 not in rows


def test_a_small_table_need_not_be_in_order() -> None:
    """The part of a unit has its videos in the order in which they were made."""
    rows = RowOfId(from_texts(["b", "a", "c"]))
    assert rows.of(["a", "c", "d", "b"]) == {"a": 1, "c": 2, "b": 0}


def test_nothing_goes_through_all_ids_by_mistake() -> None:
    """As `keys & others` of a dict would, from whichever side is the larger one."""
    with pytest.raises(TypeError, match="not iterable"):
        iter(RowOfId(from_texts(["a"])))  # type: ignore[call-overload]
