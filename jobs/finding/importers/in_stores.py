"""Formats of other tools in stores, where few files say what the others are. Tars and pictures are read from disks."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ....errors import SourceNotFoundError, UsageError
from ....storage.odd_keys import is_odd
from ..addresses import Address, is_on_the_web, is_store_url, parse
from ..ids import folder_of
from ..importing import Importing
from ..other_files import what_else
from ..source_parts import Imported, Recognised
from ..store_files import StoreFile, content, files_below, has_files, of_argument
from ..video_names import is_tar_name, is_video_name
from .images import is_image_name
from .kinetics import is_kinetics, rows_among
from .lerobot import EPISODES, INFO, episodes_in, is_info, is_table_of_episodes

# A store lists so many files in one answer.
_MOST_LISTED = 1000


@dataclass(frozen=True)
class RecognisedInStore:
    """What a URL was taken for, in words, and the sources there, each with its file."""

    what: str
    sources: tuple[tuple[Imported, StoreFile], ...]


def lerobot_at(folder: Address) -> RecognisedInStore | None:
    """The episodes of a LeRobot dataset; None for any other folder, at the price of one request."""
    prefix = f"{folder.key}/" if folder.key else ""

    def opened(name: str) -> io.BytesIO:
        with of_argument(folder):
            return io.BytesIO(content(folder.below(f"{prefix}{name}")))

    with of_argument(folder):
        try:
            info = content(folder.below(f"{prefix}{INFO}"))
        except SourceNotFoundError:
            return None

    def has_episodes() -> bool:
        return any(key.startswith(f"{prefix}{EPISODES}") for key in _files_below(folder, lambda _: True))

    if not is_info(info, folder.below(f"{prefix}{INFO}").url, has_episodes):
        return None
    files = _files_below(folder, lambda name: is_video_name(name) or name.endswith(".parquet"))
    tables = [key.removeprefix(prefix) for key in files if is_table_of_episodes(key.removeprefix(prefix))]
    found = episodes_in(Path(folder.key), folder.url, tables, opened)
    return _with_files(found, folder, files)


def kinetics_at(address: Address, copy: Path, list_root: str | None = None) -> RecognisedInStore | None:
    """The videos of a Kinetics list, of which `copy` is a local copy; None for any other list. Files lie below
    `list_root`, by default below the list's own folder."""
    if not is_kinetics(copy):
        return None
    if list_root is not None and not is_store_url(list_root):
        raise UsageError(
            f"the Kinetics list {address.url} is in a store, and --list-root {list_root!r} on a disk; copy the list to "
            "a disk, and give that",
            file=address.url,
        )
    root = folder_of(address.url) if list_root is None else list_root
    if is_on_the_web(root):
        raise UsageError(
            f"{address.url} is a Kinetics list with videos on a web server, which does not say what lies there; give a "
            "list with the URLs of the files in a column `path`, and --cuts time_start,time_end",
            file=address.url,
        )
    folder = parse(root)
    files = _files_below(folder, is_video_name)
    # As on a disk: of two files with one name the first one of the last folder counts.
    in_order = sorted(map(Path, files), key=lambda file: file.name, reverse=True)
    named = {file.stem: file for file in sorted(in_order, key=lambda file: str(file.parent))}
    return _with_files(rows_among(copy, address.url, Path(folder.key), named), folder, files)


def refuse_pictures(address: Address, importing: Importing) -> None:
    """UsageError if sources of a job with `--image-fps` lie in a folder or a list in a store."""
    if importing.image_fps is not None:
        raise UsageError(
            f"--image-fps is for pictures, which are read from disks, and {address.url} is in a store; copy it to a "
            "disk, and give that, or if it stands for videos, leave --image-fps out",
            file=address.url,
        )


def no_videos(folder: Address) -> UsageError:
    """The error for a folder without videos: what lies there, and what to do."""
    url = folder.url
    if not has_files(folder):
        return UsageError(f"nothing lies at or below {url!r}; check the URL, or put the videos there", file=url)
    other = next(files_below(folder, lambda name: is_tar_name(name) or is_image_name(name)), None)
    if other is not None:
        kind, option = ("tars", "") if is_tar_name(other.address.name) else ("pictures", " with --image-fps RATE")
        return UsageError(
            f"the folder {url!r} holds {kind} and no videos, and {kind} are read from disks; copy it to one, and give "
            f"that{option}",
            file=url,
        )
    names = [file.address.name for file in islice(files_below(folder, lambda _: True), _MOST_LISTED)]
    there = what_else(names, are_all=len(names) < _MOST_LISTED)
    return UsageError(
        f"the folder {url!r} holds no videos by their names, such as .mp4: {there}; give another URL, or a list of "
        "files of another kind",
        file=url,
    )


def _files_below(folder: Address, is_wanted: Callable[[str], bool]) -> dict[str, StoreFile]:
    """The files below a folder by their keys."""
    return {file.address.key: file for file in files_below(folder, is_wanted) if not is_odd(file.address.key)}


def _with_files(found: Recognised, folder: Address, files: dict[str, StoreFile]) -> RecognisedInStore:
    """With the files as they were listed. One that is missing is asked for once more, and is a failure."""

    def pairs() -> Iterable[tuple[Imported, StoreFile]]:
        for each in found.sources:
            key = each.path.as_posix()
            yield each, files.get(key) or StoreFile(folder.below(key))

    return RecognisedInStore(found.what, tuple(pairs()))
