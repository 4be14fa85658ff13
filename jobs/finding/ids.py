"""Which id a source gets: its path below one of the folders that the dataset remembers, its id roots.

A dataset remembers the folders that its jobs were given. The oldest one that holds a file gives the file's id. So a
file has the same id whether a job is given the file, its folder or the folder above. docs/ids.md says it for users.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path

from ...errors import UsageError
from ...storage.locate import from_home
from .addresses import is_store_url, parse
from .plain_values import valid_text

Folder = Path | str
"""A folder of this machine, or the URL of one in a store."""


def paths_of(folder: Folder) -> tuple[str, ...]:
    """The absolute paths of a folder: as it is written, and with the links in it resolved from the left, up to each of
    its parts. "" is the root of the file system; no path ends with a slash. A folder in a store has one, its URL."""
    if isinstance(folder, str):
        return (valid_text(folder).rstrip("/"),)
    real = Path(os.path.realpath(folder))
    # `a/..` need not be the folder that `a` is in, if `a` is a link.
    path = real if ".." in folder.parts else folder.absolute()
    paths = [path]
    if path != real:
        paths += [Path(os.path.realpath(above)) / path.relative_to(above) for above in (path, *path.parents)]
    return tuple(dict.fromkeys(valid_text(str(each)).rstrip("/") for each in paths))


def id_roots(known: Sequence[str], bases: Iterable[Folder], given: str | None = None) -> tuple[str, ...]:
    """The id roots of a job whose sources lie in the folders `bases`, for a dataset that remembers the roots `known`.

    A folder becomes a root if no other root holds it. `given`, the user's --id-root, comes before all others.
    UsageError if it is not a folder, or does not hold all of `bases`.
    """
    places = {base: paths_of(base) for base in bases}
    if given is not None:
        folder: Folder = parse(given).url if is_store_url(given) else Path(from_home(given))
        if isinstance(folder, Path) and not os.path.isdir(folder):  # noqa: PTH112  # Path.is_dir raises for some names
            raise UsageError(f"--id-root {given} is not a folder; give one that holds all sources", file=given)
        root = _resolved(folder)
        for base, paths in places.items():
            if path_below({root: 0}, paths) is None:
                raise UsageError(
                    f"--id-root {given} does not hold {str(base)!r}; give a folder that holds all sources", file=given
                )
        return tuple(dict.fromkeys((root, *known)))
    roots = {root: age for age, root in enumerate(known)}
    # A folder comes before those in it, so the order of the arguments makes no difference.
    for base in sorted(places, key=_resolved):
        if path_below(roots, places[base]) is None:
            roots[_resolved(base)] = len(roots)
    return tuple(roots)


def path_below(roots: Mapping[str, int], paths: Iterable[str]) -> str | None:
    """The path of a folder below the root with the least number, "" for the root itself. None if no root holds it.

    `paths` are the folder's absolute paths; of two below the same root the first one counts. All paths are in the form
    of `paths_of`.
    """
    held = (
        (roots[path[:end]], number, path[end + 1 :])
        for number, path in enumerate(paths)
        for end in (*(at for at, letter in enumerate(path) if letter == "/"), len(path))
        if path[:end] in roots
    )
    found = min(held, default=None)
    return None if found is None else found[2]


def common_folder(one: str, other: str) -> str:
    """The folder, or the folder in a store, that holds both files; "" without one."""
    if not is_store_url(one) and not is_store_url(other):
        return os.path.commonpath([one, other])
    pairs = zip(one.split("/"), other.split("/"), strict=False)
    parts = [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return "/".join(parts) if is_store_url(one) and is_store_url(other) and len(parts) > 2 else ""


def prefixes_below(base: Path, roots: Mapping[str, int]) -> Callable[[Path], str]:
    """The function that gives what the ids of the files in a folder at or below `base`, which one of `roots` holds,
    begin with. The rest is a file's name."""
    bases = paths_of(base)

    @cache
    def prefix(folder: Path) -> str:
        below = valid_text(folder.relative_to(base).as_posix())
        below = "" if below == "." else below
        found = path_below(roots, [f"{path}/{below}".rstrip("/") for path in bases])
        # A file that came since the roots were looked for has the id of a new dataset.
        found = below if found is None else found
        return f"{found}/" if found else ""

    return prefix


def folder_of(url: str) -> str:
    """The URL of the folder in which the file at a URL lies."""
    return url.rpartition("/")[0]


def id_of_url(roots: Mapping[str, int], folder: str, url: str) -> str:
    """The id of a file in a store: its path below the first of the roots that holds it, else below `folder`."""
    below = path_below(roots, [folder_of(valid_text(url))])
    if below is None:
        return valid_text(url[len(folder) :].lstrip("/"))
    return f"{below}/{valid_text(url).rpartition('/')[2]}".lstrip("/")


def id_of_place(roots: Mapping[str, int], place: str) -> str:
    """The id of the file at an absolute path or a URL, in a folder that a job was given."""
    folder = folder_of(place)
    # A disk is asked only where links may matter: there may be a million folders.
    if is_store_url(place) or ("/../" not in place and path_below(roots, [valid_text(folder)]) is not None):
        return id_of_url(roots, folder, place)
    path = Path(place)
    return prefixes_below(path.parent, roots)(path.parent) + valid_text(path.name)


def _resolved(folder: Folder) -> str:
    if isinstance(folder, str):
        return paths_of(folder)[0]
    return valid_text(os.path.realpath(folder)).rstrip("/")
