"""Lists with the columns of Kinetics: `youtube_id`, `time_start`, `time_end`, and others such as `label` and `split`.

The files lie anywhere below the list's folder, or below `--list-root`, also in linked and hidden folders. They are
cut already, as the tools that download Kinetics name them (`<youtube_id>_<start, 6 digits>_<end, 6 digits>.mp4`), or
whole (`<youtube_id>.mp4`).
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from ....arguments import exact
from ....errors import UsageError
from ....prep.timing.stretch import Stretch
from ....wording import counted
from ..addresses import is_store_url
from ..line_values import attributes_of_line
from ..list_lines import refuse_repeated
from ..plain_values import valid_text
from ..source_parts import Imported, Recognised
from ..video_names import is_video_name
from ..walking import walk_once

_COLUMNS = {"youtube_id", "time_start", "time_end"}


def is_kinetics(path: Path) -> bool:
    """Whether a file is a CSV list with the columns of Kinetics, and without a column `path`."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            header = {name.strip() for name in next(csv.reader(stream, skipinitialspace=True), [])}
    except (csv.Error, OSError):
        # Read as an ordinary list, it says what is wrong.
        return False
    return header >= _COLUMNS and "path" not in header


def rows_of(path: Path, list_root: str | None = None) -> Recognised:
    """The videos of a list on a disk. Files lie below `list_root`, by default below the list's own folder."""
    if list_root is not None and is_store_url(list_root):
        raise UsageError(
            f"the Kinetics list {str(path)!r} is on a disk, and --list-root is {list_root}; copy the list to that "
            "store, and give that",
            file=str(path),
        )
    folder = path.parent if list_root is None else Path(list_root)
    return rows_among(path, str(path), folder, _videos_below(folder))


def rows_among(path: Path, shown: str, folder: Path, files: Mapping[str, Path]) -> Recognised:
    """The videos of a list: id `<youtube_id>_<start>_<end>`, with all columns. A file that is cut already is taken
    whole, from a whole file the stretch is cut. A row whose file is missing becomes a failure.

    `shown` is what messages call the list. `files` are those below `folder`, by their names without the suffix.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        # Strict: a quote that is never closed would make one cell of all lines behind it.
        reader = csv.DictReader(stream, skipinitialspace=True, strict=True)
        try:
            refuse_repeated(shown, [name.strip() for name in reader.fieldnames or () if name.strip()])
            sources = [_source(folder, shown, f"line {reader.line_num} of {shown!r}", row, files) for row in reader]
        except csv.Error as error:
            # The reader counts a line once all of its row was read.
            raise UsageError(
                f"line {reader.line_num + 1} of {shown!r} is malformed: {error}; a double quote may be missing at the "
                "end of a cell; if not, put text that holds quotes in double quotes, and write each quote in it twice",
                file=shown,
            ) from None
    if not sources:
        raise UsageError(f"the list {shown!r} is empty; add a line for each video", file=shown)
    return Recognised(f"a Kinetics list of {counted(len(sources), 'video')}", tuple(sources))


def _videos_below(folder: Path) -> dict[str, Path]:
    """The videos below a folder by their names without the suffix: of two with one name the first one of the last
    folder."""
    return {
        Path(name).stem: below / name
        for below, names in sorted(walk_once(folder), key=lambda walked: str(walked[0]))
        for name in sorted(names, reverse=True)
        if is_video_name(name)
    }


def _source(folder: Path, shown: str, place: str, row: dict[str, Any], files: Mapping[str, Path]) -> Imported:
    # csv puts the cells that no column has under None.
    if None in row:
        raise UsageError(
            f"{place} has more cells than the header; put text that holds the separator in double quotes", file=shown
        )
    values = attributes_of_line(place, {(name or "").strip(): value for name, value in row.items()})
    key = str(values["youtube_id"] or "").strip()
    start, end = (_seconds(values[name]) for name in ("time_start", "time_end"))
    if not key or start is None or end is None or not 0 <= start < end:
        raise UsageError(
            f"{place} has no `youtube_id`, or no stretch from `time_start` to a later `time_end` in seconds; correct "
            "it, or take the line out",
            file=shown,
        )
    name = f"{key}_{int(start):06d}_{int(end):06d}"
    is_whole = name not in files and key in files
    file = files.get(name) or files.get(key) or folder / f"{name}.mp4"
    numbers = {name: int(time) if time.denominator == 1 else float(time) for name, time in
               (("time_start", start), ("time_end", end))}  # fmt: skip
    return Imported(
        id=valid_text(name),
        path=file,
        given=os.path.relpath(file, folder),
        attributes={**values, "youtube_id": key, **numbers},
        part=Stretch(start, end, place) if is_whole else None,
        place=place,
    )


def _seconds(value: Any) -> Fraction | None:
    try:
        return exact(str(value).strip())
    except ValueError:
        return None
