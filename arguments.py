"""Numbers as callers give them: Python's, numpy's and torch's, and nothing that only looks like one.

A boolean is neither an index nor a count nor a time, though Python, numpy and torch would take it for 0 or 1; a text
that holds a number is no number either.
"""

from __future__ import annotations

import operator
import re
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from .errors import WrongTypeError

# Beyond any float: exact arithmetic on these would take all memory for nothing.
_MAX_DECIMAL_EXPONENT = 400


def integer(value: Any, what: str, *, video: str | None = None) -> int:
    """`value` as an integer; WrongTypeError, which says that it was given as `what`, for anything else."""
    if not _is_boolean(value):
        try:
            return operator.index(value)
        except (TypeError, ValueError, RuntimeError):
            pass
    raise WrongTypeError(f"{what} is {_shown(value)}; it has to be an integer", video=video)


def number(value: Any, what: str, *, video: str | None = None) -> float | Fraction:
    """`value` as it is: exact where its type is (Fraction, Decimal, longdouble), and a float otherwise.

    It may be infinite or not a number. Scalars of numpy and torch of any precision become floats first, so that one
    of them means the same alone as in a list. WrongTypeError, which says that it was given as `what`, for anything
    that is no single real number.
    """
    if type(value) is float:
        return value
    try:
        return _number(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise WrongTypeError(f"{what} is {_shown(value)}; it has to be a number", video=video) from None


def exact(text: str) -> Fraction:
    """The number that a text stands for: 29.97, 30000/1001, 1e-3. ValueError where it stands for none, or for one so
    large or small that working it out would take all memory."""
    power = re.search(r"[eE]([+-]?\d[\d_]*)\s*$", text)
    if len(text) > _MAX_DECIMAL_EXPONENT or (power and abs(int(power[1])) > _MAX_DECIMAL_EXPONENT):
        raise ValueError("a number beyond any use")
    try:
        return Fraction(text)
    except ZeroDivisionError as error:
        raise ValueError("a division by zero") from error


def _number(value: Any) -> float | Fraction:
    if _is_boolean(value) or isinstance(value, (str, bytes, bytearray, memoryview)):
        raise TypeError
    # A tensor or an array with a single element; more raise ValueError or RuntimeError.
    if hasattr(value, "ndim") and hasattr(value, "item"):
        value = value if isinstance(value, np.longdouble) else value.item()
        if _is_boolean(value) or isinstance(value, (str, bytes)):
            raise TypeError
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, Decimal):
        small = value.is_finite() and abs(value.adjusted()) < _MAX_DECIMAL_EXPONENT
        return Fraction(value) if small else float(value)
    if isinstance(value, np.longdouble) and np.isfinite(value):
        return Fraction(*value.as_integer_ratio())
    return float(value)


def _is_boolean(value: Any) -> bool:
    # numpy's and torch's say so in their dtype; torch is not known here.
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}... ({type(value).__name__})"
