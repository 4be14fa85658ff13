"""Which ids of a dataset the words of a command mean. They may be patterns, as in `shortgop drop 'kitchen/*'`: those of
prep's sources."""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from .row_of_id import RowOfId
from .tables import Manifest


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


def meant_ids(manifests: Iterable[Manifest], words: Sequence[str]) -> Sequence[str]:
    """The ids that are meant, as `ids_that_fit` has them, of all that the datasets know; see `known_ids`."""
    if not any(map(glob.has_magic, words)):
        return words
    columns = [table.id for manifest in manifests for table in (manifest.videos, manifest.failures, manifest.drops)]
    return ids_that_fit(words, [each for column in columns for each in column.texts()])


def known_ids(manifests: Iterable[Manifest], ids: Collection[str]) -> set[str]:
    """Those of these ids that one of the datasets knows: of videos, of sources that could not be prepared, and of what
    was dropped."""
    known: set[str] = set()
    for manifest in manifests:
        for rows in (manifest.row_of_id, RowOfId(manifest.failures.id), RowOfId(manifest.drops.id)):
            known |= rows.of(ids).keys()
    return known


def pattern_of_folder(unknown: Sequence[str], near: Sequence[str]) -> str:
    """What to say where the first id that no dataset knows is a folder of the ids `near` it: the pattern for them."""
    folder = unknown[0].rstrip("/") if unknown else ""
    is_folder = any(each.startswith(f"{folder}/") for each in near)
    return f"; {glob.escape(folder) + '/**'!r} stands for those below {folder}" if is_folder else ""


def _fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    if not parts or not names:
        return not names and all(part == "**" for part in parts)
    if parts[0] == "**":
        return _fits(names, parts[1:]) or _fits(names[1:], parts)
    return fnmatchcase(names[0], parts[0]) and _fits(names[1:], parts[1:])
