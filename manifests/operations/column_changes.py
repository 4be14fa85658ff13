"""What a change did to the label columns as a whole: columns that are new, columns of which values are of several
types or text since, and columns that hide those of the dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from ...arguments import fits_int64
from ...storage.interface import Storage
from ...wording import type_option
from ..dataset_files.snapshot_columns import open_column_kinds
from ..dataset_files.snapshots import open_manifest
from ..dataset_files.video_columns import BUILT_IN, LabelColumns
from ..label_columns import FLOAT_TEXT, INTEGER_TEXT, Kind
from ..ragged import Ragged
from ..shared_memory.host_copies import copies_in
from ..tables import Manifest

# The type of a JSON value is that of its first byte; what begins with another one is a number.
_TYPES = ("number", "text", "list", "object", "boolean")
_TYPE_OF_BYTE = np.zeros(256, dtype=np.int64)
for _bytes, _type in ((b'"', 1), (b"[", 2), (b"{", 3), (b"tf", 4)):
    _TYPE_OF_BYTE[list(_bytes)] = _type
_VALUE_CHARACTERS = 40

_NAMES_SHOWN = 20
# Whether a text is a value of a kind in a list.
_IS_OF: dict[Kind, Callable[[str], bool]] = {
    "integer": lambda text: INTEGER_TEXT.fullmatch(text) is not None and fits_int64(int(text)),
    "float": lambda text: FLOAT_TEXT.fullmatch(text) is not None,
    "boolean": lambda text: text.lower() in {"true", "false"},
}


@dataclass(frozen=True)
class MixedColumn:
    """A column with values of several types: in how many videos each type is, most first, and a video with one of the
    rarest."""

    name: str
    types: tuple[tuple[str, int], ...]
    id: str
    value: Any

    def __str__(self) -> str:
        counts = ", ".join(f"{kind} in {count}" for kind, count in self.types)
        value = repr(self.value)
        value = value if len(value) <= _VALUE_CHARACTERS else f"{value[:_VALUE_CHARACTERS]}..."
        return (
            f"column {self.name!r} has values of several types now, so that a comparison finds those of one type "
            f"alone: {counts} (video {self.id!r} has {value}); give a list that has one type, as with "
            f"{type_option(self.name, '...')}"
        )


@dataclass(frozen=True)
class TextColumn:
    """A column of numbers or truth values that is text now: its kind before, and the first video with a value that is
    none of that kind."""

    name: str
    before: Kind
    id: str
    value: str

    def __str__(self) -> str:
        value = self.value if len(self.value) <= _VALUE_CHARACTERS else f"{self.value[:_VALUE_CHARACTERS]}..."
        return (
            f"column {self.name!r} was {self.before} and is text now, so that comparisons with its former values find "
            f"nothing: video {self.id!r} has {value!r}; if that is not meant, correct the list and give it again"
        )


@dataclass(frozen=True)
class HidingColumn:
    """A column of the lists that has the name of one of the dataset's own."""

    name: str

    def __str__(self) -> str:
        return (
            f"column {self.name!r} of the list takes the place of the dataset's own, which says it of the prepared "
            f"videos: dataset.columns[{self.name!r}] and metadata=[{self.name!r}] are the list's now, and "
            f"dataset.columns.built_in[{self.name!r}] is the dataset's; give it another name in the list if that is "
            f"not meant (`shortgop annotate DATASET --remove {self.name}` takes it back)"
        )


def column_changes(
    dataset: Storage,
    before: tuple[str | None, Manifest],
    snapshot: str | None,
    set_since: Collection[str] | None = None,
) -> tuple[tuple[MixedColumn, ...], tuple[TextColumn, ...], tuple[HidingColumn, ...]]:
    """The columns of a snapshot whose values are of several types, those that are text in place of numbers, and those
    that hide columns of the dataset; in all cases without those of which that is so in the snapshot `before`.
    `set_since` are the columns that may have got values since, if they are known.

    It reads few bytes where there is none: of what kinds the columns are, a snapshot says.
    """
    old, old_manifest = before
    if snapshot is None or snapshot == old:
        return (), (), ()
    stored = open_column_kinds(dataset, snapshot)
    known = LabelColumns(dataset, old or "", old_manifest)
    mixed: tuple[MixedColumn, ...] = ()
    became_text: tuple[TextColumn, ...] = ()

    def may_differ(names: Iterable[str]) -> list[str]:
        return [name for name in names if set_since is None or name in set_since]

    names = may_differ(stored or ())
    kinds = stored or {}
    if stored is None or any(stored[name] == "json" for name in names):
        manifest = open_manifest(dataset, snapshot, copies=copies_in(None))
        columns = LabelColumns(dataset, snapshot, manifest)
        names = may_differ(columns.names)
        kinds = {name: columns.kind(name) for name in names}
        mixed = tuple(
            found
            for name in names
            if (found := _mixed(columns, name, manifest)) and (old is None or not _mixed(known, name, old_manifest))
        )
    if old is not None:
        texts = [name for name in names if kinds[name] == "text" and name in known.names]
        were = {name: known.kind(name) for name in texts if known.kind(name) in _IS_OF}
        if were:
            manifest = open_manifest(dataset, snapshot, copies=copies_in(None))
            columns = LabelColumns(dataset, snapshot, manifest)
            became_text = tuple(text for name in were if (text := _text(columns, name, were[name], manifest)))
    hiding = [name for name in names if name in BUILT_IN and (old is None or name not in known.names)]
    return mixed, became_text, tuple(map(HidingColumn, hiding))


def not_asked_for(columns: Iterable[TextColumn], types: Mapping[str, str] | None) -> tuple[TextColumn, ...]:
    """Those of the columns that `types`, which the user gave, do not make text."""
    return tuple(column for column in columns if (types or {}).get(column.name) != "text")


def _text(columns: LabelColumns, name: str, before: Kind, manifest: Manifest) -> TextColumn | None:
    """None if all texts can be read as values of the kind that the column had: then it was made text on purpose."""
    column = columns[name]
    texts = column.values
    if not isinstance(texts, Ragged):
        raise TypeError(f"column {name!r} is text without texts")
    for row in np.flatnonzero(column.present).tolist():
        if (text := texts.text(row)) and not _IS_OF[before](text):
            return TextColumn(name, before, manifest.videos.id.text(row), text)
    return None


def _mixed(columns: LabelColumns, name: str, manifest: Manifest) -> MixedColumn | None:
    if name not in columns.names or columns.kind(name) != "json":
        return None
    column = columns[name]
    texts, rows = column.values, np.flatnonzero(column.present)
    if not isinstance(texts, Ragged):
        raise TypeError(f"column {name!r} is of JSON values without their texts")
    # Millions of values take long to parse.
    types = _TYPE_OF_BYTE[texts.values[texts.offsets[rows]]]
    counts = np.bincount(types, minlength=len(_TYPES))
    order = [int(each) for each in np.argsort(-counts, kind="stable") if counts[each]]
    if len(order) < 2:
        return None
    row = int(rows[np.argmax(types == order[-1])])
    named = tuple((_TYPES[each], int(counts[each])) for each in order)
    return MixedColumn(name, named, manifest.videos.id.text(row), json.loads(texts.text(row)))


@dataclass(frozen=True)
class NewColumn:
    """A column that no video had, and one that videos had and that is called nearly the same, if there is one."""

    name: str
    near: str | None


def new_columns(columns: LabelColumns, given: Iterable[str]) -> tuple[NewColumn, ...]:
    """Of the columns that are given, those that no video had."""
    known = columns.names
    names = dict.fromkeys(name for name in given if name not in known)
    return tuple(NewColumn(name, next(iter(get_close_matches(name, known, 1)), None)) for name in names)


def told_new(added: Iterable[NewColumn]) -> str:
    """What to say of new columns."""
    named = [repr(each.name) + (f" (there is {each.near!r})" if each.near else "") for each in added]
    return f"no video had {'this column' if len(named) == 1 else 'these columns'} before: {', '.join(named)}"


@dataclass(frozen=True)
class AbsentColumn:
    """A column that was to be removed and that no video had, and those that videos have."""

    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        more = len(self.known) - _NAMES_SHOWN
        shown = ", ".join(self.known[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        own = " but the dataset's own, which stays" if self.name in {*BUILT_IN, "id", "path"} else ""
        return f"no video has a column {self.name!r}{own}; {f'there are {shown}' if shown else 'no list gave any'}"
