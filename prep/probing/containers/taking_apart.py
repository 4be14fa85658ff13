"""The commands that take a file of several apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

# The last command makes a file of all that is left, which may be several again.
_MOST_PARTS = 9


def parts_remedy(begins: Sequence[int], suffix: str) -> str:
    """What to do with a file in which others begin at these positions, rising, behind the first one: a sentence without
    its end. Its commands call the file FILE."""
    begins = [0, *begins][:_MOST_PARTS]
    return _remedy([*pairwise(begins), (begins[-1], None)], suffix)


def remedy_without(start: int, stop: int, suffix: str) -> str:
    """The same for a file in which what lies from one position to another is to be left out."""
    return _remedy([(0, start), (stop, None)], suffix)


def _remedy(parts: Sequence[tuple[int, int | None]], suffix: str) -> str:
    names = [f"OUT{number}{_plain(suffix)}" for number in range(1, len(parts) + 1)]
    *made, last = [f"{name} of `{_bytes(*part)} > {name}`" for name, part in zip(names, parts, strict=True)]
    which = "both by themselves" if len(parts) == 2 else "each by itself"
    return f"give {which}: {', '.join(made)} and {last}"


def _plain(suffix: str) -> str:
    """As much of a suffix as shells take for a name: of "x.mp4 (1)", which browsers write, ".mp4"."""
    match = re.match(r"\.\w+", suffix)
    return match[0] if match else ""


def _bytes(start: int, stop: int | None) -> str:
    """The command that prints these bytes of FILE."""
    if not start:
        return f"head -c {stop} FILE"
    rest = f"tail -c +{start + 1} FILE"
    return rest if stop is None else f"{rest} | head -c {stop - start}"
