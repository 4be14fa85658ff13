"""Pictures in a column of a Parquet file, as LeRobot has them: each row has the bytes of a PNG or the like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import NotAVideoError, SourceError, SourceNotFoundError, ToolError
from ....whole_files import writing
from ....wording import counted
from ..source_parts import PictureRows

_EPISODE, _FRAME = "episode_index", "frame_index"
# Pictures that are in memory at a time.
_ROWS_AT_ONCE = 32


def write_pictures(file: Path, part: PictureRows, folder: Path) -> None:
    """Write the pictures of an episode into a new folder, each to a file that is called by its frame's number: 0, 1, 2.

    SourceError where the file cannot be read, or has other rows for the episode than one for each frame.
    """
    with writing(folder):
        folder.mkdir()
    written = set()
    for frame, picture in _pictures(file, part):
        if picture is None:
            raise NotAVideoError(
                f"{part.place}, frame {frame} has no bytes in {part.column!r} of {file}: pictures that lie in files of "
                "their own are not read from here; give their folder with --image-fps",
                file=str(file),
            )
        with writing(folder):
            (folder / str(frame)).write_bytes(picture)
        written.add(frame)
    if written != set(range(part.length)):
        raise NotAVideoError(
            f"{part.place} has {counted(part.length, 'frame')}, and {counted(len(written), 'row')} in {file}; copy the "
            "dataset again",
            file=str(file),
        )


def _pictures(file: Path, part: PictureRows) -> Iterator[tuple[int, bytes | None]]:
    """The numbers of frames of the episode, and their pictures, in the order of the rows."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ToolError(f"reading {str(file)!r} needs pyarrow ({error}); run `pip install pyarrow`") from error
    try:
        with pq.ParquetFile(file) as table:
            groups = [number for number in range(table.num_row_groups) if _may_have(table.metadata, number, part)]
            columns = [part.column, _EPISODE, _FRAME]
            for rows in table.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=columns):
                ours = np.flatnonzero(rows.column(_EPISODE).to_numpy(zero_copy_only=False) == part.episode)
                pictures, frames = rows.column(part.column), rows.column(_FRAME)
                for row in ours.tolist():
                    picture = pictures[row].as_py()
                    yield frames[row].as_py(), picture["bytes"] if isinstance(picture, dict) else picture
    except FileNotFoundError as error:
        raise SourceNotFoundError(f"{file} does not exist; put it there, or take it out", file=str(file)) from error
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise SourceError(
            f"cannot read the pictures in {part.column!r} of {file}: {error}; copy it again", file=str(file)
        ) from error


def _may_have(metadata: Any, number: int, part: PictureRows) -> bool:
    """Whether a group of rows may have some of the episode, by its statistics: others are not read."""
    group = metadata.row_group(number)
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == _EPISODE and column.is_stats_set and column.statistics.has_min_max:
            return bool(column.statistics.min <= part.episode <= column.statistics.max)
    return True
