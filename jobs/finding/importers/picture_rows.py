"""Pictures in a column of a Parquet file, as LeRobot has them: each row has the bytes of a PNG or the like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import NotAVideoError, SourceError, SourceNotFoundError, ToolError
from ....storage.local_copy import LocalCopy, Range
from ....whole_files import writing
from ....wording import counted
from ..source_parts import PictureRows

_EPISODE, _FRAME = "episode_index", "frame_index"
# A Parquet file ends with the length of the table of what lies where, in 4 bytes, and 4 more.
_END_BYTES = 8
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


def fetch_pictures(copy: LocalCopy, part: PictureRows) -> None:
    """Fetch what the pictures of an episode need of a file in a store: its table of what lies where, and of the groups
    of rows that may have some of the episode the columns that are read. Raises what `LocalCopy.fetch` raises."""
    size = copy.num_bytes
    end = max(0, size - _END_BYTES)
    copy.fetch([(end, size)])
    copy.fetch([(max(0, end - int.from_bytes(copy.read(end, size)[:4], "little")), size)])
    copy.fetch(_needed(copy.path, part))


def _needed(file: Path, part: PictureRows) -> list[Range]:
    """Where the columns of the episode lie, as ranges of bytes. None of a file that cannot be read: reading it says
    why."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return []
    try:
        metadata = pq.read_metadata(file)
    except (pa.ArrowException, OSError):
        return []
    ranges = []
    for number in range(metadata.num_row_groups):
        if not _may_have(metadata, number, part):
            continue
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            # A column of structs has a name for each part of them.
            if any(f"{column.path_in_schema}.".startswith(f"{name}.") for name in (part.column, _EPISODE, _FRAME)):
                first = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
                ranges.append((first, first + column.total_compressed_size))
    return ranges


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
