"""Rows of different lengths in two flat arrays."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.manifests import ragged
from shortgop.manifests.ragged import (
    Ragged,
    concatenate,
    ever_falls,
    from_rows,
    from_texts,
    offsets_of,
    ragged_indices,
    stretches_of,
)

byte_rows = st.lists(st.binary(max_size=5), max_size=8)


def test_rows_come_back_as_they_went_in() -> None:
    ragged = from_rows([[1, 2, 3], [], [4]], "<i4")
    assert len(ragged) == 3
    assert [ragged.row(index).tolist() for index in range(3)] == [[1, 2, 3], [], [4]]
    assert ragged.values.dtype == np.dtype("<i4")


def test_text_is_stored_as_utf_8() -> None:
    ragged = from_texts(["a.mp4", "", "日本/é.mkv"])
    assert ragged.bytes(2) == "日本/é.mkv".encode()
    assert ragged.text(2) == "日本/é.mkv"
    assert ragged.texts() == ["a.mp4", "", "日本/é.mkv"]


def test_names_that_are_no_unicode_stay_apart() -> None:
    """The names of two files, in Latin-1, as Python gives them."""
    names = [b"caf\xe9".decode(errors="surrogateescape"), b"caf\xe8".decode(errors="surrogateescape")]
    assert from_texts(names).texts() == [r"caf\udce9", r"caf\udce8"]


@given(byte_rows, st.lists(st.integers(0, 7), max_size=12), st.sampled_from([0, 2, 1000]))
def test_take_picks_rows_in_any_order(data: list[bytes], order: list[int], values_of_a_copy: int) -> None:
    rows = [row for row in order if row < len(data)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged, "_VALUES_OF_A_COPY", values_of_a_copy)
        taken = from_rows(data).take(np.array(rows, dtype=np.int64))
    assert [taken.bytes(index) for index in range(len(taken))] == [data[index] for index in rows]


@pytest.mark.parametrize("order", [range(1000), range(999, -1, -1)])
def test_long_rows_are_taken_without_an_index_of_each_value(order: range) -> None:
    """Labels may be transcripts, or lists with a box for each frame."""
    whole = from_texts(str(number) * 1000 for number in range(1000))
    tracemalloc.start()
    taken = whole.take(np.array(order))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken.text(7) == str(order[7]) * 1000
    assert peak_bytes < 1.5 * len(whole.values)


@given(st.lists(byte_rows, min_size=1, max_size=4))
def test_concatenate_puts_one_below_the_other(parts: list[list[bytes]]) -> None:
    whole = concatenate([from_rows(part) for part in parts])
    assert [whole.bytes(index) for index in range(len(whole))] == [row for part in parts for row in part]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8))
def test_ragged_indices_are_the_ranges_one_after_the_other(ranges: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in ranges], dtype=np.int64)
    lengths = np.array([length for _, length in ranges], dtype=np.int64)
    expected = [index for start, length in ranges for index in range(start, start + length)]
    assert ragged_indices(starts, lengths).tolist() == expected


def test_offsets_are_running_sums() -> None:
    assert offsets_of(np.array([3, 0, 2])).tolist() == [0, 3, 3, 5]


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(0, 12), st.integers(0, 3))
def test_stretches_have_as_many_values_as_fit_or_one_row(lengths: list[int], most: int, before: int) -> None:
    stretches = list(stretches_of(offsets_of(np.array(lengths, np.int64)) + before, most))
    assert [row for first, last in stretches for row in range(first, last)] == list(range(len(lengths)))
    for first, last in stretches:
        assert last == first + 1 or sum(lengths[first:last]) <= most
        assert last == len(lengths) or sum(lengths[first : last + 1]) > most


@pytest.mark.parametrize("offsets", [[], [0], [1, 3], [0, 2, 1, 3], [0, 4]], ids=str)
def test_offsets_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets do not fit 3 values"):
        Ragged(np.zeros(3, dtype="u1"), np.array(offsets, dtype=np.int64))


@given(st.lists(st.integers(-2, 9), max_size=9), st.integers(1, 4))
def test_numbers_that_ever_fall(numbers: list[int], compared: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged, "_COMPARED_ROWS", compared)
        assert ever_falls(np.array(numbers, np.int64)) == (numbers != sorted(numbers))


@given(st.lists(st.text(st.sampled_from("ab\0é\U0001f3ac"), max_size=4)) | st.lists(st.text(max_size=200), max_size=8))
def test_keys_sort_as_the_texts_do(texts: list[str]) -> None:
    encoded = [text.encode(errors="backslashreplace").decode() for text in texts]
    keys = from_texts(texts).sort_keys()
    order = np.argsort(keys, kind="stable").tolist()
    assert [encoded[row] for row in order] == sorted(encoded)
    equal = [one == other for one in keys for other in keys]
    assert equal == [one == other for one in encoded for other in encoded]


def test_keys_of_long_texts_are_bytes_unless_most_texts_are_short() -> None:
    """Objects take twice the time. Keys of one width take the memory of the longest text for each."""
    assert from_texts([f"{'b' * 200}{number}" for number in range(100)]).sort_keys().dtype == "S202"
    assert from_texts(["a"] * 100 + ["b" * 200]).sort_keys().dtype == object
    assert from_texts([f"{'b' * 300}{number}" for number in range(100)]).sort_keys().dtype == object


@given(st.lists(st.text(max_size=4)), st.text(max_size=4))
def test_a_text_is_found_among_sorted_ones(texts: list[str], wanted: str) -> None:
    ordered = sorted({text.encode(errors="backslashreplace").decode() for text in texts})
    ragged = from_texts(ordered)
    assert [ragged.find(text) for text in ordered] == list(range(len(ordered)))
    assert ragged.find(wanted) == (ordered.index(wanted) if wanted in ordered else None)


@given(st.lists(st.text(st.sampled_from("ab\0é\U0001f3ac"), max_size=2), max_size=8), st.integers(1, 3), st.booleans())
def test_whether_texts_ascend(texts: list[str], compared: int, in_order: bool) -> None:
    texts = sorted(texts, key=str.encode) if in_order else texts
    keys = [text.encode() for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged, "_COMPARED_ROWS", compared)
        assert from_texts(texts).ascends(may_repeat=True) == (keys == sorted(keys))
        assert from_texts(texts).ascends() == (keys == sorted(set(keys)))


def test_many_texts_are_searched_at_once() -> None:
    texts = sorted(["", "a", "ab", "b" * 300, "é", "z\0", "z\0\0", "zz"], key=str.encode)
    column = from_texts(texts)
    wanted = from_texts(["", "aa", "ab", "b" * 299, "b" * 300, "z", "z\0", "zzz"])
    below, found = column.search(wanted)
    assert below.tolist() == [sum(text.encode() < other.encode() for text in texts) for other in wanted.texts()]
    assert found.tolist() == [text in texts for text in wanted.texts()]


@given(st.lists(st.text(max_size=3), max_size=12), st.lists(st.text(max_size=3), max_size=12))
def test_a_search_counts_the_rows_below(there: list[str], wanted: list[str]) -> None:
    column = from_texts(sorted(there, key=lambda text: text.encode(errors="backslashreplace")))
    keys = [column.bytes(row) for row in range(len(column))]
    asked = from_texts(wanted)
    for right in (False, True):
        below, found = column.search(asked, right=right)
        for row in range(len(asked)):
            text = asked.bytes(row)
            assert below[row] == sum(key < text or (right and key == text) for key in keys)
            assert found[row] == (text in keys)
