"""Expressions that ffmpeg evaluates for each frame."""

from __future__ import annotations

from collections.abc import Iterable

# FFmpeg's parser nests each further term of a sum, and takes no more than a hundred levels.
_TERMS = 16


def sum_of(terms: Iterable[str]) -> str:
    """The sum of any number of terms, as an expression that may stand beside others; "0" for none. A term is a product,
    a call or a number that is not negative, or stands in parentheses."""
    nested = list(terms)
    while len(nested) > 1:
        nested = [f"({'+'.join(nested[first : first + _TERMS])})" for first in range(0, len(nested), _TERMS)]
    return nested[0] if nested else "0"
