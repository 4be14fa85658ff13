"""How a source is kept in a row of the table of all sources: most of it in columns of its own, the rest pickled."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...prep.timing.stretch import Stretch
from ..finding.source import Found, Source

# What most sources have is in columns of its own, since pickling a million sources takes long; `rest` is pickled.
# `given` is null where it is the path, `attributes` where it is an empty object. `flags` are those below. `leader` is
# the least id of the stretches of a file: where they stand in the order of ids. `number` says in which order sources
# were found; SQLite itself would give numbers again that were removed. Texts are bytes, because names of files need
# not be Unicode.
TABLE = """
CREATE TABLE sources (
    number INTEGER PRIMARY KEY, id BLOB, path BLOB, given BLOB, attributes BLOB, flags INTEGER, rest BLOB, place BLOB,
    file BLOB, leader BLOB
)
"""
# What `unpacked` takes.
SOURCE = "sources.id, path, given, attributes, flags, rest"
# Python binds numbers, text and byte arrays several times as fast as None, booleans and bytes, which it first tries to
# adapt to other types. So a column that is null has a value that stands for it here: the path, which comes twice, for
# `given`. Python 3.12 warns of parameters with numbers.
INSERT = """
INSERT INTO sources (id, path, given, attributes, flags, rest, place, file, number) VALUES (
    CAST(? AS BLOB), CAST(? AS BLOB), CAST(nullif(?, ?) AS BLOB), CAST(nullif(?, '{}') AS BLOB), ?,
    CAST(nullif(?, '') AS BLOB), CAST(? AS BLOB), CAST(nullif(?, '') AS BLOB), ?
)
"""

# The flags of a source, and where they are among its columns. Another find gave one that is LABELLED_LATER its
# attributes, after it was planned.
LABELLED_LATER, IS_PART, ID_IS_GIVEN, IS_LISTED, LISTED = 16, 8, 4, 2, 1
FLAGS = 4

_Bound = str | int | bytearray


def packed(found: Found, number: int) -> tuple[_Bound, ...]:
    """The values of INSERT for a source that is found as the one with this number."""
    source, place, listed = found
    source_id, path, given, attributes, id_is_given, is_listed, part, in_store = source
    rest: _Bound = ""
    file: _Bound = ""
    if part is not None or in_store is not None:
        rest = bytearray(pickle.dumps((part, in_store)))
        if isinstance(part, Stretch):
            file = _bound(repr(source.file))
    is_part = part is not None and not source.is_whole_file
    flags = IS_PART * is_part | ID_IS_GIVEN * id_is_given | IS_LISTED * is_listed | LISTED * listed
    if not f"{source_id}{path}{given}{attributes}{place}".isascii():
        return (
            _bound(source_id), _bound(path), _bound(given), _bound(path), _bound(attributes), flags, rest,
            _bound(place), file, number,
        )  # fmt: skip
    return source_id, path, given, path, attributes, flags, rest, place, file, number


def unpacked(columns: Sequence[Any]) -> Source:
    source_id, path, given, attributes, flags, rest = columns
    part, in_store = (None, None) if rest is None else pickle.loads(rest)  # noqa: S301  # of this process
    return Source(
        id=decoded(source_id),
        path=decoded(path),
        given=decoded(path if given is None else given),
        attributes="{}" if attributes is None else decoded(attributes),
        id_is_given=bool(flags & ID_IS_GIVEN),
        is_listed=bool(flags & IS_LISTED),
        part=part,
        in_store=in_store,
    )


class Named(NamedTuple):
    """What little of a source says whether it has to be looked at. The fields are those of `Source`."""

    id: str
    path: str
    id_is_given: bool
    is_named_by_path: bool


def named(source_id: bytes, path: bytes, flags: int) -> Named:
    by_path, kinds = IS_LISTED, IS_LISTED | ID_IS_GIVEN | IS_PART
    return Named(decoded(source_id), decoded(path), bool(flags & ID_IS_GIVEN), flags & kinds == by_path)


def encoded(content: str) -> bytes:
    # The order of UTF-8 is that of code points, in which Python sorts text.
    return content.encode("utf-8", "surrogatepass")


def decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


def _bound(content: str) -> _Bound:
    return content if content.isascii() else bytearray(encoded(content))
