"""Sources that are a part of a file: what the part is, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..arguments import exact
from ..errors import UsageError
from ..prep.stretch import Stretch
from .importing import Importing
from .lists import Row

SourcePart = Stretch
Fingerprint = tuple[int, int]


@dataclass(frozen=True)
class Imported:
    """A source that an importer found. `place` says where, for messages; `given` is the name that the user knows."""

    id: str
    path: Path
    given: str
    attributes: dict[str, Any]
    part: SourcePart | None
    place: str


@dataclass(frozen=True)
class Recognised:
    """What an argument was taken for, in words, and the sources in it."""

    what: str
    sources: tuple[Imported, ...]


def identity_of_part(path: str, part: SourcePart | None, of_file: Callable[[str], Fingerprint]) -> Fingerprint:
    """The 64-bit fingerprint of a source, and the size of its file in bytes. That of a stretch covers its times."""
    identity, size = of_file(path)
    if part is None:
        return identity, size
    digest = hashlib.blake2b(identity.to_bytes(8, "big") + str(part).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big"), size


def stretch_of_row(row: Row, importing: Importing) -> Stretch | None:
    """The stretch that a row of a list names, None if rows name whole files. Without a start it begins at the start of
    the file, without an end it goes on to the end. UsageError names the row and says what is wrong."""
    if importing.cuts is None:
        return None
    # Decimals keep the number as it was written.
    values = json.loads(row.attributes, parse_float=Decimal)
    for column in importing.cuts:
        if column not in values:
            known = ", ".join(map(repr, values)) or "none besides `path`"
            raise UsageError(f"{row.place} has no column {column!r}, which --cuts names; its columns are: {known}")
    start, end = (_seconds(row.place, column, values[column]) for column in importing.cuts)
    start = start or Fraction(0)
    if end is not None and end <= start:
        raise UsageError(
            f"{row.place} has an empty stretch, from {float(start):g} s to {float(end):g} s; correct it, or take the "
            "line out"
        )
    return Stretch(start, end, row.place)


def _seconds(place: str, column: str, value: Any) -> Fraction | None:
    if value is None or value == "":
        return None
    try:
        seconds = exact("" if isinstance(value, bool) else str(value).strip())
    except ValueError:
        raise UsageError(f"{place} has {value!r} as its `{column}`; give a time in seconds, such as 12.5") from None
    if seconds < 0:
        raise UsageError(f"{place} has {value!r} as its `{column}`; times count from the file's first frame, from 0 on")
    return seconds
