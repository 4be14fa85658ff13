"""Lists of labels in a folder of videos, as in Hugging Face's VideoFolder. A folder stands for its video files alone:
whoever gives it is told of the lists."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ...errors import ToolError, UsageError
from ...storage.locate import from_home
from ...wording import counted
from .addresses import is_store_url, parse
from .list_lines import FILE_NAME, batches_of, is_list, names_of
from .places import can_be_a_path

_NAMES = frozenset(("metadata.csv", "metadata.jsonl", "metadata.parquet"))
_NO_LABELS = frozenset(("id", "path", FILE_NAME))

Opened = Callable[[str], AbstractContextManager[Path]]
"""Gives the list of a place as a file of this machine, in the block."""


def may_have_labels(name: str) -> bool:
    """Whether a file of this name may be such a list."""
    return name in _NAMES


def lists_among(arguments: Sequence[str]) -> frozenset[str]:
    """The absolute paths and the URLs of the lists that a job is given itself."""
    lists = (each for each in arguments if is_list(each))
    return frozenset(
        parse(each).url if is_store_url(each) else os.path.abspath(from_home(each))  # noqa: PTH100  # as it is written
        for each in lists
        if is_store_url(each) or can_be_a_path(each)
    )


def what_is_lost(places: Iterable[str], opened: Opened) -> str:
    """What is said of the lists whose labels the videos around them do not get; "" if there is nothing to say. Of
    several the first one with labels is named, and only as many are read."""
    in_order = sorted(places, key=lambda place: (place.count("/"), place))
    for number, place in enumerate(in_order):
        columns = _label_columns(place, opened)
        if columns:
            more = len(in_order) - number - 1
            others = f", like {counted(more, 'other list')} below the folder" if more else ""
            return (
                f"{place}: not read{others}, as a folder stands for its video files alone; "
                f"`shortgop prep {shlex.quote(place)} --out DATASET`, now or later, gives the videos its columns "
                f"({names_of(columns)}) and encodes none again"
            )
    return ""


def _label_columns(place: str, opened: Opened) -> set[str]:
    """The columns of labels that a list has by its first line. Empty if it is no list of videos, or cannot be read."""
    with contextlib.suppress(UsageError, ToolError, OSError), opened(place) as file:
        first = next(batches_of(str(file), ("path", "id")), None)
        return first[0][1].keys() - _NO_LABELS if first else set()
    return set()
