"""Edits and drops: corrections of what a dataset says of its videos, and how they are merged. Pure.

Every edit and every drop has a number, and a later one has a greater number. A video has the number of the last of them
that came before it was stored, `after_edit`: later edits change its attributes, and a later drop removes it. The result
does not depend on the order in which parts are merged; docs/design/manifests.md says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..ragged import from_texts
from ..stacking import stack, take
from ..tables import Drops, Edits, Manifest


@dataclass(frozen=True)
class Edit:
    """Columns of one video that are set, with their values in the types of JSON, and columns that are removed."""

    id: str
    number: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    removed: Sequence[str] = ()


@dataclass(frozen=True)
class Drop:
    """The number of the last drop of an id, and the greatest revision that a video of that id had before."""

    number: int
    revision: int


# A column's last edit: its number, then 1 and the value as JSON, or 0 and nothing if it was removed. The greatest
# counts, so two edits of one number give the same result in any order.
_Column = tuple[int, int, str]


def changes_between(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What turns a video's present columns into those that are wanted: the columns to set, and the names of those to
    remove.

    Values are compared with their types: 3 is not "3", 3.0 or true.
    """
    new = {name: value for name, value in wanted.items() if name not in now or not _is_same(now[name], value)}
    return new, [name for name in now if name not in wanted]


def _is_same(one: Any, other: Any) -> bool:
    # Most columns that are wanted are the present ones themselves.
    return one is other or to_json(one) == to_json(other)


def edits_table(edits: Iterable[Edit]) -> Edits:
    """A table of edits in the form that merging keeps: of each column of a video the last edit, sorted by id and
    number."""
    edits_of_id: dict[str, list[Edit]] = {}
    for edit in edits:
        edits_of_id.setdefault(edit.id, []).append(edit)
    rows = [row for video_id in sorted(edits_of_id) for row in _rows(edits_of_id[video_id])]
    return Edits(
        id=from_texts(row[0] for row in rows),
        number=np.array([row[1] for row in rows], dtype="<i8"),
        attributes=from_texts(row[2] for row in rows),
        removed=from_texts(row[3] for row in rows),
    )


def _rows(edits: Sequence[Edit]) -> Iterable[tuple[str, int, str, str]]:
    """The rows of one video."""
    columns: dict[str, _Column] = {}
    for edit in edits:
        for name, value in edit.attributes.items():
            column = (edit.number, 1, to_json(value))
            columns[name] = max(columns.get(name, column), column)
        for name in edit.removed:
            column = (edit.number, 0, "")
            columns[name] = max(columns.get(name, column), column)
    for number in sorted({column[0] for column in columns.values()}):
        names = sorted(name for name, column in columns.items() if column[0] == number)
        values = ", ".join(f"{to_json(name)}: {columns[name][2]}" for name in names if columns[name][1])
        yield edits[0].id, number, f"{{{values}}}", to_json([name for name in names if not columns[name][1]])


def edits_of(table: Edits) -> list[Edit]:
    """The rows of a table of edits."""
    columns = (table.id.texts(), table.number.tolist(), table.attributes.texts(), table.removed.texts())
    return [Edit(row[0], row[1], json.loads(row[2]), json.loads(row[3])) for row in zip(*columns, strict=True)]


def drops_table(drops: Mapping[str, Drop]) -> Drops:
    """A table of drops, sorted by id."""
    ids = sorted(drops)
    return Drops(
        id=from_texts(ids),
        number=np.array([drops[video_id].number for video_id in ids], dtype="<i8"),
        revision=np.array([drops[video_id].revision for video_id in ids], dtype="<i4"),
    )


def drops_of(table: Drops) -> dict[str, Drop]:
    """The drop of each id. Of several rows with one id, the greatest number and the greatest revision count."""
    drops: dict[str, Drop] = {}
    for video_id, number, revision in zip(
        table.id.texts(), table.number.tolist(), table.revision.tolist(), strict=True
    ):
        known = drops.get(video_id, Drop(number, revision))
        drops[video_id] = Drop(max(number, known.number), max(revision, known.revision))
    return drops


def merged_edits(table: Edits, part_of_row: Sequence[int], drops: Mapping[str, Drop]) -> tuple[Edits, dict[str, int]]:
    """The edits of many parts in the form of `edits_table`, without those that a later drop of their id ended; and of
    each id the part that has all its edits, or -1 if they come from several.

    `part_of_row` has the number of the part that each row comes from. Each part has its edits in the form of
    `edits_table`. So only the rows of ids from several parts are read: there may be as many edits as videos.
    """
    ids, numbers = table.id.texts(), table.number.tolist()
    owner: dict[str, int] = {}
    for video_id, part in zip(ids, part_of_row, strict=True):
        if owner.setdefault(video_id, part) != part:
            owner[video_id] = -1
    rows = [row for row, video_id in enumerate(ids) if video_id not in drops or numbers[row] > drops[video_id].number]
    whole = [row for row in rows if owner[ids[row]] >= 0]
    mixed = [row for row in rows if owner[ids[row]] < 0]
    both = stack([table, edits_table(edits_of(take(table, np.array(mixed, dtype=np.int64))))])
    names = ids + both.id.texts()[len(ids) :]
    # Rows of one id are in the order of their numbers already, and sorting keeps it.
    order = sorted([*whole, *range(len(ids), len(names))], key=names.__getitem__)
    return take(both, np.array(order, dtype=np.int64)), owner


def edited(attributes: str, edits: Sequence[Edit], *, after: int) -> str:
    """A video's attributes with all edits whose number is greater than `after`: a JSON object. It is sorted by column
    if any edit counts, and otherwise as it was.

    `edits` are those of the video, in the order of their numbers, each column at most once.
    """
    later = [edit for edit in edits if edit.number > after]
    if not later:
        return attributes
    columns = json.loads(attributes or "{}")
    for edit in later:
        columns.update(edit.attributes)
        for name in edit.removed:
            columns.pop(name, None)
    return sorted_json(columns)


def joined(attributes: Sequence[str]) -> str:
    """One JSON object of all columns, of each the value that is the greatest as JSON.

    For videos that are the same in everything else. Edits of the result are the same as the result of edits.
    """
    if len(set(attributes)) == 1:
        return attributes[0]
    columns: dict[str, str] = {}
    for text in attributes:
        for name, value in json.loads(text or "{}").items():
            columns[name] = max(columns.get(name, ""), to_json(value))
    return sorted_json({name: json.loads(text) for name, text in columns.items()})


def last_number(manifest: Manifest) -> int:
    """The greatest number of an edit or a drop that the manifest knows of; 0 before the first one."""
    numbers = (manifest.edits.number, manifest.drops.number, manifest.videos.after_edit)
    return max((int(column.max()) for column in numbers if len(column)), default=0)


def dropped(manifest: Manifest) -> dict[str, Drop]:
    """The ids that were dropped and not taken in again."""
    drops = drops_of(manifest.drops)
    there = manifest.row_of_id.of(drops)
    return {video_id: drop for video_id, drop in drops.items() if video_id not in there}


def to_json(value: Any) -> str:
    """The JSON text of a value. ValueError for NaN and infinities."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def sorted_json(columns: Mapping[str, Any]) -> str:
    """The JSON text of an object whose keys are sorted; keys inside its values stay in their order."""
    return to_json({name: columns[name] for name in sorted(columns)})
