"""Ids that fit patterns, as `shortgop drop 'kitchen/*'` has them: the patterns of prep's sources."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase


def ids_that_fit(words: Iterable[str], ids: Sequence[str]) -> list[str]:
    """The ids that are meant: each word that is one of `ids`, or no pattern, is the id of this name. Any other stands
    for those of `ids` that fit it, each once, and for itself if none fits.

    `*` and `?` stand for characters of a name between slashes, `[a-c]` for one of these, and `**` for any folders.
    """
    known = set(ids)
    meant: dict[str, None] = {}
    for word in words:
        is_pattern = glob.has_magic(word) and word not in known
        fitting = [each for each in ids if _fits(each.split("/"), word.split("/"))] if is_pattern else []
        meant.update(dict.fromkeys(fitting or [word]))
    return list(meant)


def has_patterns(words: Iterable[str]) -> bool:
    """Whether a word may be a pattern, so that `ids_that_fit` has to see the ids."""
    return any(map(glob.has_magic, words))


def _fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not parts or not names:
        return not names and all(part == "**" for part in parts)
    if parts[0] == "**":
        return _fits(names, parts[1:]) or _fits(names[1:], parts)
    return fnmatchcase(names[0], parts[0]) and _fits(names[1:], parts[1:])
