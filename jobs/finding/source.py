"""A source of a job, where it was named, and whether two finds are one source."""

from __future__ import annotations

import os
from typing import NamedTuple

from ...errors import UsageError
from ...prep.timing.stretch import Stretch
from .ids import common_folder
from .source_parts import Images, Member, SourcePart
from .store_files import StoreFile


class Source(NamedTuple):
    """One video to prepare. The file need not exist: a list may name one that does not.

    `id` is the path below an id root (see `ids`), or what a list says; it is always valid Unicode. `path` is absolute.
    `given` is the name that the user knows. `attributes` is a JSON object of a list's other columns. `id_is_given`
    says that the id is from the `id` column of a list, `is_listed` that it is what a list says, with or without that
    column. `part`: what of the file the video is made from; None for the whole file. `in_store`: where a file in a
    store lies; its `path` and `given` are its URL without what may be a secret.
    """

    id: str
    path: str
    given: str
    attributes: str
    id_is_given: bool = False
    is_listed: bool = False
    part: SourcePart | None = None
    in_store: StoreFile | None = None

    @property
    def is_named_by_path(self) -> bool:
        """Whether it is a whole file that a list names without an id."""
        return self.is_listed and not self.id_is_given and self.is_whole_file

    @property
    def is_whole_file(self) -> bool:
        """Whether the video has all of one file. A picture in a list of videos is a video of one frame."""
        return self.part is None or (isinstance(self.part, Images) and len(self.part.files) == 1)

    @property
    def file(self) -> tuple[str, str]:
        """What identifies its file. On the web that includes the query, which is not in `path`."""
        return (self.path, "" if self.in_store is None else self.in_store.address.query)


class Found(NamedTuple):
    """A source and where it was named, for a message about two sources that disagree. `listed`: it comes from a list or
    from another tool's format, and so has attributes; its id may be a path all the same, unlike with
    `Source.is_listed`."""

    source: Source
    place: str
    listed: bool


def same(first: Found, second: Found) -> Found:
    """Of two finds of one source, the one from a list, which has attributes. UsageError if they are not the same
    source."""
    one, other = first.source, second.source
    if isinstance(one.part, Member) and isinstance(other.part, Member) and one != other:
        raise UsageError(
            f"{one.given!r} and {other.given!r} are two samples with the same key {one.id!r}; write the tars again "
            "with keys that differ, or prepare them into datasets of their own"
        )
    in_store = one.in_store is not None or other.in_store is not None
    if one.file != other.file if in_store else not _is_same_path(one.path, other.path):
        both = common_folder(one.path, other.path)
        root = f"add --id-root {both}, a folder that both lie in, or " if both else ""
        raise UsageError(
            f"{one.given!r} ({first.place}) and {other.given!r} ({second.place}) are two files with the same "
            f"id {one.id!r}; {'' if one.is_listed or other.is_listed else root}give a list with an `id` column in "
            "which they differ, or rename one"
        )
    if one.part != other.part:
        what = "two stretches of a file" if isinstance(one.part, Stretch) else "two sources"
        raise UsageError(
            f"{one.given!r} ({first.place}) and {other.given!r} ({second.place}) are {what} with the same id "
            f"{one.id!r}; give them ids that differ, or leave out the column `id`"
        )
    if first.listed and second.listed and one.attributes != other.attributes:
        is_cut = isinstance(one.part, Stretch)
        cuts = "; if they are stretches of the file, name the columns of their times with --cuts START,END"
        raise UsageError(
            f"{one.given!r} is listed twice {'from the same start to the same end, ' if is_cut else ''}with different "
            f"attributes ({first.place} and {second.place}); remove one line, add an `id` column in which they differ, "
            f"or put what differs into one line, as a list{'' if is_cut else cuts}"
        )
    return second if second.listed and not first.listed else first


def _is_same_path(one: str, other: str) -> bool:
    # Most finds of a source have the same path, and a list may have a million.
    return one == other or os.path.realpath(one) == os.path.realpath(other)
