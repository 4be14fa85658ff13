"""The sources that a list names: what the path of each row means, and which id it has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ...errors import UsageError
from .addresses import Address, is_store_url, parse, shown
from .ids import folder_of
from .importers.images import picture_of_row
from .importing import Importing
from .places import is_shortest, place_of_listed, without_scheme
from .source import Found, Source
from .source_lists import Row, id_of_path
from .source_parts import SourcePart, stretch_of_row
from .store_files import StoreFile

ReadList = Callable[[str], Iterable[Row]]
"""Reads the rows of a list on a disk."""


def found_in_list(file: str, read: ReadList, importing: Importing) -> Iterator[Found]:
    """The sources of a list on a disk."""
    rows = _rows(file, read, refuse_other_folder=importing.list_root is None)
    return _found(rows, importing, file, importing.list_root or str(Path(file).parent.absolute()))


def found_in_list_at(address: Address, copy: Path, read: ReadList, importing: Importing) -> Iterator[Found]:
    """The sources of a list in a store, of which `copy` is a local copy."""
    rows = _rows_of_copy(address, str(copy), read)
    return _found(rows, importing, address.url, importing.list_root or folder_of(address.url))


def _rows(file: str, read: ReadList, *, refuse_other_folder: bool) -> Iterator[Row]:
    is_first = refuse_other_folder
    for row in read(file):
        if is_first:
            _refuse_other_folder(file, row)
            is_first = False
        yield _with_path(row)


def _with_path(row: Row) -> Row:
    """The row, with the path that a file:// URL means."""
    return row._replace(path=without_scheme(row.path)) if "://" in row.path else row


def _refuse_other_folder(file: str, first: Row) -> None:
    """UsageError if the paths of a list are relative to the current folder, by its first row: the file lies there, and
    nothing of its path in the list's own folder."""
    path, folder = Path(first.path), Path(file).absolute().parent
    if is_store_url(first.path) or path.is_absolute() or not path.parts or os.path.lexists(folder / path.parts[0]):
        return
    if os.path.isfile(path):  # noqa: PTH113  # Path.is_file raises for some names
        raise UsageError(
            f"{first.place} has {first.path!r}, which is there from the current folder on; paths in a list begin in "
            f"the list's own folder, {str(folder)!r}; --list-root . lets them begin in the current one",
            file=file,
        )


def _rows_of_copy(address: Address, copy: str, read: ReadList) -> Iterator[Row]:
    """The rows of a list in a store. Messages name its URL in place of the copy."""
    try:
        for row in read(copy):
            yield _with_path(row._replace(place=row.place.replace(copy, address.url)))
    except UsageError as error:
        error.message = error.message.replace(copy, address.url)
        error.file = address.url
        raise


def _found(rows: Iterable[Row], importing: Importing, file: str, root: str) -> Iterator[Found]:
    """The sources of the rows of a list. `file` is what messages call it, and `root` is the folder, or the URL of one,
    in which its relative paths begin."""
    is_in_store = is_store_url(root)
    below = f"{root.rstrip('/')}/"
    for row in rows:
        place, given, given_id, attributes = row
        part: SourcePart | None = None if importing.cuts is None else stretch_of_row(row, importing)
        row_id = given_id or id_of_path(given) + (f"@{part}" if part else "")
        if row_id in ("", ".", ".."):
            what = f"{row_id!r} as its `id`; give another" if given_id else f"the folder {given!r} as its `path`"
            raise UsageError(f"{place} has {what}; lists name files", file=file)
        if importing.image_fps is not None and part is None:
            part = picture_of_row(row, importing.image_fps, file, importing.list_root)
        in_store = None
        if not is_in_store and is_shortest(given) and given[0] != "~":
            # Most are: no URL, which has two slashes, and with nothing to resolve.
            path = given if given[0] == "/" else below + given
        else:
            path = place_of_listed(root, given)
            if is_store_url(path):
                in_store = StoreFile(parse(path))
                given, path = shown(given), in_store.address.url
        # Ids of rows and of paths are valid text; arguments by position take half the time of those by name.
        source = Source(row_id, path, given, attributes, given_id is not None, True, part, in_store)
        yield Found(source, place, True)
