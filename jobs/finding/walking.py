"""Walking folders of this machine, and matching globs in them."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ...errors import UsageError

# What systems keep on a disk of their own accord: few may look into the first, and the second has what was thrown away.
_OF_SYSTEMS = frozenset(("lost+found", "$RECYCLE.BIN", "System Volume Information"))


def fixed_part(pattern: str) -> tuple[Path, list[str]]:
    """The folder in front of the first wildcard of a glob, and the parts below it."""
    root, parts = Path(), list(Path(pattern).parts)
    # A folder whose name looks like a glob is a folder.
    while len(parts) > 1 and (not glob.has_magic(parts[0]) or os.path.lexists(root / parts[0])):
        root /= parts.pop(0)
    return root, parts


def matching(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The paths below `folder` that match the parts of a pattern. A path may come twice."""
    if not parts:
        yield folder
    elif not is_local_folder(folder):
        return
    elif parts[0] == "**":
        for below, _ in walk(folder):
            yield from matching(below, parts[1:])
    elif not glob.has_magic(parts[0]):
        if os.path.lexists(folder / parts[0]):
            yield from matching(folder / parts[0], parts[1:])
    else:
        for name, _ in _entries(folder, hidden=parts[0].startswith(".")):
            if fnmatchcase(name, parts[0]):
                yield from matching(folder / name, parts[1:])


def walk(top: Path) -> Iterator[tuple[Path, list[str]]]:
    """`top` and all folders below it, with the files in each. A link to a folder above it is not followed."""
    waiting: list[tuple[Path, frozenset[tuple[int, int]]]] = [(top, frozenset())]
    while waiting:
        folder, around = waiting.pop()
        with _reading(folder):
            status = folder.stat()
        here = (status.st_dev, status.st_ino)
        if here not in around:
            entries = _entries(folder)
            yield folder, [name for name, is_folder in entries if not is_folder]
            waiting += [(folder / name, around | {here}) for name, is_folder in entries if is_folder]


def walk_once(top: Path) -> Iterator[tuple[Path, list[str]]]:
    """`top` and all folders below it, also hidden and linked ones, with the files in each. A folder comes once, and by
    a link only if it does not lie below `top`. UsageError where one cannot be read, unless it is hidden, or is gone
    meanwhile, as temporary folders of downloads."""
    seen, waiting = set[tuple[int, int]](), [top]

    def refuse(error: OSError) -> None:
        parts = Path(error.filename).relative_to(top).parts
        if parts and isinstance(error, FileNotFoundError):
            return
        if not any(part[0] == "." or part in _OF_SYSTEMS for part in parts):
            raise _cannot_be_read(Path(error.filename), error) from error

    while waiting:
        links: list[Path] = []
        for start in waiting:
            for below, folders, files in os.walk(start, onerror=refuse):
                folder = Path(below)
                try:
                    status = folder.stat()
                except FileNotFoundError as error:
                    refuse(error)
                    continue
                if (status.st_dev, status.st_ino) in seen:
                    folders.clear()
                    continue
                seen.add((status.st_dev, status.st_ino))
                yield folder, files
                links += [folder / name for name in folders if (folder / name).is_symlink()]
        waiting = sorted(links)


def _entries(folder: Path, *, hidden: bool = False) -> list[tuple[str, bool]]:
    """The names in a folder in order, each with whether it is a folder or a link to one. Without `hidden` those that
    begin with a dot are left out, and folders that systems keep."""
    with _reading(folder), os.scandir(folder) as entries:
        return sorted(
            (entry.name, is_local_folder(Path(entry)) if entry.is_symlink() else entry.is_dir())
            for entry in entries
            if hidden or (entry.name[0] != "." and entry.name not in _OF_SYSTEMS)
        )


def is_local_folder(path: Path) -> bool:
    with _reading(path):
        return path.is_dir()


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _cannot_be_read(folder, error) from error


def _cannot_be_read(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot read the folder {str(folder)!r}: {error.strerror or error}; fix that, or list the videos in a file",
        file=str(folder),
    )
