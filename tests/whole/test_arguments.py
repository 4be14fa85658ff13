"""Numbers as callers give them: one means the same in every type, and what only looks like one is refused."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shortgop.arguments import byte_count, exact, exact_seconds, integer, number
from shortgop.errors import UsageError, WrongTypeError

INTEGER_TYPES = [int, np.int8, np.uint64, np.array, torch.tensor, lambda value: torch.tensor([value])]
BOOLEANS = [True, np.bool_(True), np.array(True), torch.tensor(True), torch.tensor([True])]


@pytest.mark.parametrize("kind", INTEGER_TYPES)
def test_an_integer_of_any_type(kind: Any) -> None:
    assert integer(kind(7), "it") == 7
    assert type(integer(kind(7), "it")) is int
    assert number(kind(7), "it") == 7


@pytest.mark.parametrize("value", BOOLEANS, ids=repr)
def test_a_boolean_is_no_number(value: Any) -> None:
    for read in (integer, number):
        with pytest.raises(WrongTypeError, match=r"step is .*True.*; it has to be a"):
            read(value, "step")


@pytest.mark.parametrize("value", [1.0, "1", b"1", None, [1], 1j, Fraction(1), torch.tensor([1, 2])], ids=repr)
def test_anything_else_is_no_integer(value: Any) -> None:
    with pytest.raises(WrongTypeError, match="it has to be an integer"):
        integer(value, "a frame")


@pytest.mark.parametrize(
    "value", ["1", b"1", bytearray(b"1"), None, [1], 1j, torch.tensor([1.0, 2.0]), np.array(["1"])], ids=repr
)
def test_anything_else_is_no_number(value: Any) -> None:
    with pytest.raises(WrongTypeError, match="it has to be a number"):
        number(value, "a time")


def test_a_wrong_type_is_wrong_usage_and_a_type_error() -> None:
    for kind in (UsageError, ValueError, TypeError):
        with pytest.raises(kind, match="snapshot"):
            integer("1", "snapshot", video="a.mp4")


@given(st.floats(0, 60_000, width=16))
def test_a_float_means_the_same_at_any_precision(value: float) -> None:
    for kind in (np.float16, np.float32, np.float64, np.array):
        assert number(kind(value), "a time") == float(kind(value))
    for dtype in (torch.float16, torch.float32, torch.float64, torch.bfloat16):
        scalar = torch.tensor(value, dtype=dtype, device="cpu")
        assert type(number(scalar, "a time")) is float
        assert number(scalar, "a time") == scalar.item()


def test_exact_types_stay_exact() -> None:
    assert number(Fraction(16, 10), "a time") == Fraction(8, 5)
    assert number(Decimal("1.6"), "a time") == Fraction(8, 5)
    third = np.longdouble(1) / 3
    assert number(third, "a time") == Fraction(*third.as_integer_ratio())
    assert number(np.longdouble("inf"), "a time") == float("inf")


def test_a_decimal_beyond_all_floats_takes_no_memory() -> None:
    assert number(Decimal("1e999999999"), "a time") == float("inf")
    assert number(Decimal("-1e-999999999"), "a time") == 0
    assert number(Decimal("inf"), "a time") == float("inf")


def test_a_text_stands_for_an_exact_number() -> None:
    assert exact("29.97") == Fraction(2997, 100)
    assert exact(" 30000/1001 ") == Fraction(30000, 1001)
    assert exact("1e-3") == Fraction(1, 1000)


@pytest.mark.parametrize("text", ["", "x", "1/0", "inf", "nan", "1e999999999", "1e-999999999", "1E+9_9_9_9", "9" * 500])
def test_a_text_that_no_arithmetic_can_hold_is_no_number(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # each of them has other words for it
        exact(text)


@pytest.mark.parametrize("kind", [str, float, Fraction, Decimal, np.float32, torch.tensor])
def test_seconds_of_any_type(kind: Any) -> None:
    assert exact_seconds(kind("2.5") if kind in (str, Decimal) else kind(2.5), "--max-gap") == Fraction(5, 2)
    assert exact_seconds(0.1, "--max-gap") == Fraction(1, 10)


@pytest.mark.parametrize("value", ["soon", "1/0", float("inf"), np.nan, None, True, [1], np.timedelta64(5, "s")])
def test_seconds_that_make_no_sense(value: Any) -> None:
    with pytest.raises(UsageError, match="--max-gap is .*; it takes a number of seconds") as caught:
        exact_seconds(value, "--max-gap")
    assert isinstance(caught.value, WrongTypeError) == (not isinstance(value, (str, float)))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1000000", 10**6), ("0", 0), ("500B", 500), ("2k", 2000), ("500MB", 5 * 10**8), ("1.5 GiB", 3 << 29),
        ("32gib", 32 << 30), ("2T", 2 * 10**12), ("1PiB", 1 << 50),
    ],
)  # fmt: skip
def test_sizes_as_people_write_them(text: str, count: int) -> None:
    assert byte_count(text, "--cache-bytes") == count


@pytest.mark.parametrize("text", ["", "GB", "-1", "1e9", "1 Gb s", "1XB", "1iB", "1,5GB", "9" * 500])
def test_sizes_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--cache-bytes is .* such as 500MB, 32GiB or 1000000"):
        byte_count(text, "--cache-bytes")
