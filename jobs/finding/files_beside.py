"""Files beside videos that say something of them: `a.txt` of `a.mp4`. The rule is that of samples in tars."""

from __future__ import annotations

import json
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from ...errors import UsageError
from .label_lists import Labels
from .plain_values import plain, valid_text
from .source_lists import id_of_path
from .video_names import is_video_name
from .walking import walk

# The endings that the library `webdataset` writes as whole numbers and as text.
_NUMBERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript")
_KINDS = frozenset(("json", *_NUMBERS, *_TEXTS))

MAX_COLUMN_BYTES = 1_000_000
"""A column is for a label or a caption: larger files make none."""


def has_columns(ending: str) -> bool:
    """Whether a file of this ending, what follows the name of its video and a dot, makes columns."""
    return ending.rpartition(".")[2] in _KINDS


def columns_of(ending: str, data: bytes, place: str) -> dict[str, Any]:
    """The columns that the contents of such a file make.

    The entries of an object in a `.json` are columns. The contents of all others are one: a text without the white
    space around it, or a whole number. It has the name of the ending, of a longer one (`left.json`) that of its first
    part. UsageError names the `place` of contents that are of another kind.
    """
    name, _, kind = ending.rpartition(".")
    try:
        # Editors of Windows begin a text with a mark.
        text = data.decode("utf-8-sig")
        value: Any = json.loads(text) if kind == "json" else int(text) if kind in _NUMBERS else text.strip()
        value = plain(value)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is no {kind}: {error}; write it again") from error
    if kind == "json" and not name and isinstance(value, dict):
        return value
    return {valid_text(name or kind): value}


def video_beside(name: str, videos: Collection[str]) -> tuple[str, str] | None:
    """Which video's file this is, by the names of the videos in its folder without their suffixes, and its ending. None
    if it is of none, or its ending makes no columns."""
    stem, _, ending = name.rpartition(".")
    if not has_columns(ending.lower()):
        return None
    if stem not in videos:
        stem, _, longer = stem.rpartition(".")
        ending = f"{longer}.{ending}"
    return (stem, ending.lower()) if stem in videos else None


def labels_beside(top: Path) -> list[Labels]:
    """What the files beside the videos in a folder, and in those below it, say of them: a line for each video that has
    one. Paths are those below the folder.

    UsageError where no video has such a file, and names one that cannot be read, or is too large for a label.
    """
    found = [line for folder, files in walk(top) for line in _labels_in(top, folder, files)]
    if not found:
        raise UsageError(
            f"no video in the folder {str(top)!r} has a file with its name that ends in .txt, .json or .cls beside it; "
            "give another folder, or a list of labels",
            file=str(top),
        )
    return found


def _labels_in(top: Path, folder: Path, files: list[str]) -> Iterator[Labels]:
    videos: dict[str, list[str]] = {}
    for name in filter(is_video_name, files):
        videos.setdefault(name.rpartition(".")[0], []).append(name)
    columns: dict[str, dict[str, Any]] = {}
    for name in files:
        beside = video_beside(name, videos)
        if beside is not None:
            stem, ending = beside
            columns.setdefault(stem, {}).update(_columns_at(folder / name, ending))
    for stem, values in columns.items():
        for name in videos[stem]:
            path = (folder / name).relative_to(top).as_posix()
            yield Labels(str(folder / name), id_of_path(path), values, path)


def _columns_at(path: Path, ending: str) -> dict[str, Any]:
    try:
        status = path.stat()
        # Opening a pipe waits for a writer.
        if not stat.S_ISREG(status.st_mode):
            return {}
        if status.st_size > MAX_COLUMN_BYTES:
            raise UsageError(
                f"{str(path)!r} has more than {MAX_COLUMN_BYTES:,} bytes, too many for a label; move it out of the "
                "folder, or give a list of labels",
                file=str(path),
            )
        return columns_of(ending, path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be read: {error.strerror or error}; mend that, or take the file away",
            file=str(path),
        ) from error
