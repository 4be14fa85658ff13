"""Files beside videos that say something of them: `a.txt` of `a.mp4`. The rule is that of samples in tars."""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

from ...errors import UsageError
from .label_lists import Labels
from .list_lines import RepeatedKeyError, json_value
from .plain_values import plain, valid_text
from .source_lists import id_of_path
from .video_names import is_video_name
from .walking import walk

# The endings that the library `webdataset` writes as whole numbers and as text.
_NUMBERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript")
_KINDS = frozenset(("json", *_NUMBERS, *_TEXTS))

# These say which video it is: the dataset has columns of these names itself, and lists have no labels in them.
_OWN = frozenset(("id", "path"))

GivenColumns = dict[str, tuple[str, Any]]
"""The columns of a video: name -> the file that gives it, and its value."""

MAX_COLUMN_BYTES = 1_000_000
"""A column is for a label or a caption: larger files make none."""


def has_columns(ending: str) -> bool:
    """Whether a file of this ending, what follows the name of its video and a dot, makes columns."""
    return ending.rpartition(".")[2] in _KINDS


def columns_of(ending: str, data: bytes, place: str, file: str) -> dict[str, Any]:
    """The columns that the contents of such a file make.

    The entries of an object in a `.json` are columns. The contents of all others are one: a text without the white
    space around it, or a whole number. It has the name of the ending, of a longer one (`left.json`) that of its first
    part. None is called `id` or `path`. UsageError names the `place` of contents that are of another kind; `file` is
    the file that they are in.
    """
    name, _, kind = ending.rpartition(".")
    try:
        value = plain(_value(data, kind))
    except UnicodeDecodeError as error:
        raise UsageError(f"{place} is not UTF-8; write it in UTF-8", file=file) from error
    except RepeatedKeyError as error:
        raise UsageError(f"{place} has {error.key!r} twice; take one of them out, or rename it", file=file) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is no {kind}: {error}; write it again", file=file) from error
    values = value if kind == "json" and not name and isinstance(value, dict) else {valid_text(name or kind): value}
    return {column: each for column, each in values.items() if column not in _OWN}


def _value(data: bytes, kind: str) -> Any:
    # Editors of Windows begin a text with a mark.
    text = data.decode("utf-8-sig").strip()
    if kind == "json":
        return json_value(text)
    if kind not in _NUMBERS:
        return text
    try:
        return int(text)
    except ValueError:
        # Of a number of thousands of digits, Python tells how it could be made to take it.
        raise ValueError(f"it has {shortened(text)}, and a whole number is due") from None


def add_columns(columns: GivenColumns, new: Mapping[str, Any], file: str) -> tuple[str, str] | None:
    """Add the columns that a file gives to those that other files of the same video give. The later file wins. Returns
    the first column to which another file gave another value, and that file: one of the two values is lost. The order
    of keys makes no other value, nor does white space around a text."""
    twice: tuple[str, str] | None = None
    for column, value in new.items():
        other, known = columns.get(column, (file, value))
        columns[column] = file, value
        if twice is None and other != file and _stripped(known) != _stripped(value):
            twice = column, other
    return twice


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def video_beside(name: str, videos: Collection[str]) -> tuple[str, str] | None:
    """Which video's file this is, by the names of the videos in its folder with and without their suffixes, and its
    ending. None if it is of none, or its ending makes no columns."""
    stem, _, ending = name.rpartition(".")
    if not has_columns(ending.lower()):
        return None
    if stem not in videos:
        stem, _, longer = stem.rpartition(".")
        ending = f"{longer}.{ending}"
    return (stem, ending.lower()) if stem in videos else None


def labels_beside(top: Path, on_large: Callable[[str], None] = lambda _file: None) -> list[Labels]:
    """What the files beside the videos in a folder, and in those below it, say of them: a line for each video that gets
    a column. Paths are those below the folder. `on_large` is called with each file that is too large for a label.

    UsageError where no video has such a file, where two of them give a column of a video different values, and names
    one that cannot be read.
    """
    found = [line for folder, files in walk(top) for line in _labels_in(top, folder, files, on_large)]
    if not found:
        raise UsageError(
            f"no video in the folder {str(top)!r} has a file with its name that ends in .txt, .json or .cls beside it; "
            "give another folder, or a list of labels",
            file=str(top),
        )
    return [line for line in found if line.columns]


def _labels_in(top: Path, folder: Path, files: list[str], on_large: Callable[[str], None]) -> Iterator[Labels]:
    videos: dict[str, list[str]] = {}
    whole = [name for name in files if is_video_name(name)]
    for name in whole:
        videos.setdefault(name.rpartition(".")[0], []).append(name)
    # `a.mp4.txt` is of `a.mp4` alone.
    videos |= {name: [name] for name in whole}
    columns: dict[str, GivenColumns] = {}
    for name in files:
        beside = video_beside(name, videos)
        if beside is None:
            continue
        values = _columns_at(folder / name, beside[1], on_large)
        for video in videos[beside[0]]:
            twice = add_columns(columns.setdefault(video, {}), values, name)
            if twice is not None:
                column, other = twice
                raise UsageError(
                    f"{str(folder / other)!r} and {str(folder / name)!r} both give {video!r} the column {column!r}; "
                    "move one of them out of the folder, or rename it",
                    file=str(folder / name),
                )
    for video, given in columns.items():
        path = (folder / video).relative_to(top).as_posix()
        yield Labels(str(folder / video), id_of_path(path), {name: value for name, (_, value) in given.items()}, path)


def _columns_at(path: Path, ending: str, on_large: Callable[[str], None]) -> dict[str, Any]:
    try:
        status = path.stat()
        # Opening a pipe waits for a writer.
        if not stat.S_ISREG(status.st_mode):
            return {}
        if status.st_size > MAX_COLUMN_BYTES:
            on_large(str(path))
            return {}
        return columns_of(ending, path.read_bytes(), repr(str(path)), str(path))
    except OSError as error:
        raise UsageError(
            f"{str(path)!r} cannot be read: {error.strerror or error}; mend that, or take the file away",
            file=str(path),
        ) from error
