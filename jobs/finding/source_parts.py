"""Sources that are a part of a file: what the part is, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...arguments import exact
from ...errors import SourceNotFoundError, UsageError
from ...prep.timing.stretch import Stretch
from .identity import identity_of
from .importing import Importing
from .plain_values import valid_text
from .source_lists import Row

# Of a sequence of pictures so many are read for its fingerprint.
_IMAGES_READ = 16


@dataclass(frozen=True)
class Member:
    """A file in a tar: its name, and where its bytes lie in the tar."""

    name: str
    offset: int
    length: int


@dataclass(frozen=True)
class Images:
    """Pictures that are the frames of a video at `fps` frames per second. `files` are relative to the source's folder;
    with `is_ordered` in the order of the frames, else they are ordered by the numbers in their names."""

    files: tuple[str, ...]
    fps: Fraction
    is_ordered: bool


@dataclass(frozen=True)
class PictureRows:
    """The pictures that a column of a Parquet file has for the frames of an episode, whose `length` rows are those with
    this `episode_index`. `place` is what messages call the episode; it has about this `share` of the file's bytes."""

    column: str
    episode: int
    length: int
    fps: Fraction
    place: str = field(default="", compare=False)
    share: Fraction = field(default=Fraction(1), compare=False)


# 1:02:03.5, 00:00:12.500, 02:03: below 60 seconds, and below 60 minutes where there are hours.
_CLOCK = re.compile(
    r"(?:(?P<hours>\d{1,9}):(?=[0-5]?\d:))?(?P<minutes>\d{1,9}):(?P<seconds>[0-5]?\d(?:\.\d{0,30})?)", re.ASCII
)

SourcePart = Stretch | Member | Images | PictureRows
Fingerprint = tuple[int, int]


@dataclass(frozen=True)
class Imported:
    """A source that an importer found. `path` is that of its file; in a store, the file's key. `place` says where it
    was found, for messages; `given` is the name that the user knows."""

    id: str
    path: Path
    given: str
    attributes: dict[str, Any]
    part: SourcePart | None
    place: str

    @property
    def attributes_text(self) -> str:
        """The attributes as a JSON object, as `Source` has them."""
        return valid_text(json.dumps(self.attributes, ensure_ascii=False, allow_nan=False))


@dataclass(frozen=True)
class Recognised:
    """What an argument was taken for, in words, and the sources in it."""

    what: str
    sources: tuple[Imported, ...]


def identity_of_part(path: str, part: SourcePart | None, of_file: Callable[[str], Fingerprint]) -> Fingerprint:
    """The 64-bit fingerprint of a source, and how many bytes its video is made from.

    A file in a tar has the fingerprint of the same file outside. That of a stretch covers the file's and the times, and
    its size is that of the file. That of pictures covers their names and sizes, their rate, and the contents of up to
    16 of them; in a Parquet file, the file's, and which these are.
    """
    if isinstance(part, Member):
        return identity_of(path, part.offset, part.length)
    if isinstance(part, Images):
        return _identity_of_images(path, part)
    identity, size = of_file(path)
    if isinstance(part, PictureRows):
        return _hashed(identity, part.column, part.episode, part.length, part.fps), max(1, round(size * part.share))
    return (identity, size) if part is None else (_hashed(identity, str(part)), size)


def _identity_of_images(path: str, part: Images) -> Fingerprint:
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    try:
        sizes = [(folder / file).stat().st_size for file in part.files]
    except OSError as error:
        raise SourceNotFoundError(
            f"cannot read the picture {str(error.filename)!r}: {error.strerror}; put it there, or take it out",
            file=str(error.filename),
        ) from error
    read = part.files[:: -(-len(part.files) // _IMAGES_READ)]
    contents = [identity_of(str(folder / file))[0] for file in read]
    return _hashed(part.fps, part.is_ordered, part.files, sizes, contents), sum(sizes)


def _hashed(*values: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(values).encode(errors="surrogateescape"), digest_size=8).digest(), "big")


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
    read = _frame if importing.in_frames else _seconds
    start, end = (read(row.place, column, values[column]) for column in importing.cuts)
    start = start or Fraction(0)
    if end is not None and end <= start:
        times = f"from {float(start):g} s to {float(end):g} s"
        numbers = f"from frame {start} to before frame {end}"
        raise UsageError(
            f"{row.place} has an empty stretch, {numbers if importing.in_frames else times}; correct it, or take the "
            "line out"
        )
    return Stretch(start, end, row.place, in_frames=importing.in_frames)


def _frame(place: str, column: str, value: Any) -> Fraction | None:
    if value is None or value == "":
        return None
    text = "" if isinstance(value, bool) else str(value).strip()
    # Floats too: a column of integers of which some are missing has them in pandas.
    whole = text.removesuffix(".0")
    if not (whole.isascii() and whole.isdigit()):
        raise UsageError(
            f"{place} has {_shown(value)} as its `{column}`; give the number of a frame, from 0 on: the first one of a "
            "stretch, and the one after its last"
        )
    return Fraction(int(whole))


def _seconds(place: str, column: str, value: Any) -> Fraction | None:
    if value is None or value == "":
        return None
    text = "" if isinstance(value, bool) else str(value).strip()
    clock = _CLOCK.fullmatch(text)
    try:
        seconds = exact(text) if clock is None else _of_clock(clock)
    except ValueError:
        raise UsageError(
            f"{place} has {_shown(value)} as its `{column}`; give a time in seconds, such as 12.5, or as 0:00:12.5"
        ) from None
    if seconds < 0:
        raise UsageError(
            f"{place} has {_shown(value)} as its `{column}`; times count from the file's first frame, from 0 on"
        )
    return seconds


def _of_clock(clock: re.Match[str]) -> Fraction:
    return (int(clock["hours"] or 0) * 60 + int(clock["minutes"])) * 60 + Fraction(clock["seconds"])


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else repr(value)
