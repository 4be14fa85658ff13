"""Numbers that callers pass: those of Python, numpy and torch.

Booleans are refused, although Python, numpy and torch accept them as 0 and 1: a boolean is not an index, a count or a
time. Text is a number only where a function says so: in frame rates, times in seconds and sizes in bytes.
"""

from __future__ import annotations

import operator
import re
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from .errors import UsageError, WrongTypeError

# Common decimal forms of the NTSC rates -> the exact rates (SMPTE ST 12-1).
_NTSC = {
    "23.976": Fraction(24000, 1001),
    "23.98": Fraction(24000, 1001),
    "29.97": Fraction(30000, 1001),
    "47.952": Fraction(48000, 1001),
    "59.94": Fraction(60000, 1001),
    "119.88": Fraction(120000, 1001),
}
LARGEST_INT64 = (1 << 63) - 1
# No float has so large an exponent. Exact arithmetic on larger ones could take all memory.
_MAX_DECIMAL_EXPONENT = 400


def integer(value: Any, what: str, *, video: str | None = None) -> int:
    """`value` as an int. WrongTypeError for anything else; its message calls the value `what`."""
    if not is_boolean(value):
        try:
            return operator.index(value)
        except (TypeError, ValueError, RuntimeError):
            pass
    raise WrongTypeError(f"{what} is {_shown(value)}; it has to be an integer", video=video)


def fits_int64(value: int) -> bool:
    """Whether 64 bits hold an integer, as numpy and torch have it."""
    return -LARGEST_INT64 - 1 <= value <= LARGEST_INT64


def number(value: Any, what: str, *, video: str | None = None) -> float | Fraction:
    """`value` as a Fraction if its type is exact (int, Fraction, Decimal, longdouble), else as a float.

    The result may be infinite or NaN. Scalars of numpy and torch of any precision become floats first, so that a value
    means the same alone as in a list. WrongTypeError for anything that is not a single real number; its message calls
    the value `what`.
    """
    if type(value) is float:
        return value
    try:
        return _number(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise WrongTypeError(f"{what} is {_shown(value)}; it has to be a number", video=video) from None


def exact(text: str) -> Fraction:
    """The number that a text spells: 29.97, 30000/1001, 1e-3. ValueError if it spells no number, or one so large or
    small that its exact value would take all memory."""
    power = re.search(r"[eE]([+-]?\d[\d_]*)\s*$", text)
    if len(text) > _MAX_DECIMAL_EXPONENT or (power and abs(int(power[1])) > _MAX_DECIMAL_EXPONENT):
        raise ValueError("the number is too long, too large or too small")
    try:
        return Fraction(text)
    except ZeroDivisionError as error:
        raise ValueError("a division by zero") from error


def spelled_rate(text: str) -> Fraction:
    """The frame rate that a text spells: 30, 30000/1001, and 29.97 for the same. ValueError if it spells no number."""
    return _NTSC.get(text.strip()) or exact(text)


def frame_rate(value: Any, what: str, *, video: str | None = None) -> float | Fraction:
    """A frame rate: a number as `number` takes it, or a text that spells one."""
    if not isinstance(value, str):
        return number(value, what, video=video)
    try:
        return spelled_rate(value)
    except ValueError:
        raise WrongTypeError(
            f"{what} is {_shown(value)}; it has to be a number, or a text such as '30000/1001'", video=video
        ) from None


def exact_number(value: Any, what: str) -> Fraction:
    """A finite number, as `number` takes it, as a Fraction: a float counts as the decimal number that Python prints it
    as, so 0.1 is 1/10. UsageError names `what`."""
    return finite(number(value, what), what)


def finite(given: float | Fraction, what: str) -> Fraction:
    """What `number` or `frame_rate` gave as a Fraction, as `exact_number` does."""
    if isinstance(given, Fraction):
        return given
    try:
        return Fraction(repr(given))
    except ValueError:
        raise UsageError(f"{what} is {given!r}; it has to be finite") from None


def exact_seconds(value: Any, option: str) -> Fraction:
    """The seconds that a number, as `exact_number` takes it, or a text stands for. UsageError names `option`."""
    try:
        return exact(value if isinstance(value, str) else str(exact_number(value, option)))
    except WrongTypeError:
        error: type[UsageError] = WrongTypeError
    except ValueError:
        error = UsageError
    raise error(f"{option} is {_shown(value)}; it takes a number of seconds")


def byte_count(text: str, option: str) -> int:
    """The number of bytes that a text such as 1000000, 500MB, 1.5 GiB or 2T stands for: of the units, those with an i
    are powers of 1024, the others of 1000. UsageError names `option`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgtp])(i?)b?|b)?", text.strip().lower())
    if match is None or len(text) > _MAX_DECIMAL_EXPONENT:
        raise UsageError(f"{option} is {text!r}; it takes a number of bytes, such as 500MB, 32GiB or 1000000")
    base = 1024 if match[3] else 1000
    return int(Fraction(match[1]) * base ** ("kmgtp".index(match[2]) + 1 if match[2] else 0))


def _number(value: Any) -> float | Fraction:
    if is_boolean(value) or isinstance(value, (str, bytes, bytearray, memoryview)):
        raise TypeError
    # A tensor or an array. `item` raises ValueError or RuntimeError if it has more than one element.
    if hasattr(value, "ndim") and hasattr(value, "item"):
        value = value if isinstance(value, np.longdouble) else value.item()
        if is_boolean(value) or isinstance(value, (str, bytes)):
            raise TypeError
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, Decimal):
        small = value.is_finite() and abs(value.adjusted()) < _MAX_DECIMAL_EXPONENT
        return Fraction(value) if small else float(value)
    if isinstance(value, np.longdouble) and np.isfinite(value):
        return Fraction(*value.as_integer_ratio())
    return float(value)


def is_boolean(value: Any) -> bool:
    """Whether a value is True or False, of Python, numpy or torch."""
    # Booleans of numpy and torch are known by the name of their dtype, since this module does not import torch.
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}... ({type(value).__name__})"
