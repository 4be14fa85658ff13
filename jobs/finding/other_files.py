"""What lies in a folder that holds no videos, in words: a message that lists all suffixes of videos helps nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

from ...wording import plain

_SHOWN = 3
# What is longer is no suffix, but a name with a dot in it.
_MAX_SUFFIX = 10


def what_else(names: Iterable[str], *, are_all: bool = True) -> str:
    """How many files these are, and how their names end most often. `are_all` is False if there may be more files."""
    counts: Counter[str] = Counter()
    name = ""
    for name in names:
        suffix = PurePath(name).suffix.lower()
        counts[suffix if len(suffix) <= _MAX_SUFFIX else ""] += 1
    number = counts.total()
    if not number:
        return "no file is there that is not hidden"
    if number == 1 and are_all:
        return f"the only file there is {name!r}"
    most = counts.most_common(_SHOWN)
    kinds = [f"{count} {f'with {plain(suffix)}' if suffix else 'without a suffix'}" for suffix, count in most]
    if rest := number - sum(count for _, count in most):
        kinds.append(f"{rest} with others")
    return f"{number} files {'' if are_all else 'and perhaps more '}are there, {', '.join(kinds)}"
