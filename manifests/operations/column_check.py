"""Whether the label columns of a snapshot's file are those that the attributes of its videos make: block by block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..label_columns import Kind, LabelColumn
from ..parsed_columns import Needs, Piece, common_kind, pieces_of
from ..ragged import Ragged
from ..zarr_files.zarr_columns import StoredColumn


def columns_that_differ(attributes: Iterable[Ragged], stored: Mapping[str, StoredColumn]) -> list[str]:
    """What is wrong with the stored columns of the videos that have these attributes, of some videos in each.

    CorruptDataError where something is damaged.
    """
    names: list[str] = []
    needs: dict[str, set[Needs]] = {name: set() for name in stored}
    differ: set[str] = set()
    start = 0
    for block in attributes:
        pieces, here = pieces_of(block, start, stored)
        names = list(dict.fromkeys([*names, *here]))
        for name, piece in pieces.items():
            needs[name].add(piece.needs)
            if name not in differ and not _same(piece, stored[name], start):
                differ.add(name)
        start += len(block)
    if list(stored) != names:
        return [f"it has the columns {list(stored)}, its videos' attributes have {names}"]
    differ |= {
        name for name, column in stored.items() if len(column) != start or column.kind != common_kind(needs[name])
    }
    return [f"its column {name!r} differs from the attributes of its videos" for name in stored if name in differ]


def _same(piece: Piece, stored: StoredColumn, start: int) -> bool:
    """Whether the rows of a column from `start` have the values of a piece."""
    stop = start + len(piece.column.present)
    if stop > len(stored) or not _holds(stored.kind, piece.kind):
        return False
    values = LabelColumn(stored.kind, piece.values_as(stored.kind), piece.column.present)
    return values.same(stored.between(start, stop))


def _holds(kind: Kind, needed: Kind | None) -> bool:
    """Whether a column of a kind can have values of another."""
    return needed in (kind, None) or kind == "json" or (kind, needed) == ("float", "integer")
