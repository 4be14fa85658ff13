"""Which clip was which, written down: a table that can be kept beside an experiment, and used as a policy."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import numpy as np

from ...arguments import fits_int64
from ...errors import ToolError, UsageError, WrongTypeError
from ...lazy import lazy
from ...manifests.operations.output_files import check_output, new_file
from ...manifests.ragged import Array
from ...wording import counted, missing
from .clips import Clip, OfTable
from .draws import split_draws
from .own_values import own
from .video_table import VideoTable

_BLACK = "shortgop.black"


@dataclass(frozen=True, eq=False)
class ClipTable:
    """Clips, each with its video's id, the frame where it starts, and its frames.

        val = shortgop.ClipDataset("DATASET", shortgop.RandomClips(16), videos=held_out).clip_table()
        val.to_parquet("val.parquet")
        dataset = shortgop.ClipDataset("DATASET", shortgop.ClipTable.from_parquet("val.parquet"))

    `starts` is int64, (clips,); `frames` int64, (clips, frames); `mask` bool, (clips, frames), True where a frame is
    the one that was called for, or None where none was replaced. Lists become such arrays. With `black`, frames whose
    mask is False are black.
    """

    videos: Sequence[str]
    starts: Array
    frames: Array
    mask: Array | None = None
    black: bool = False

    def __post_init__(self) -> None:
        for name in ("starts", "frames", "mask"):
            object.__setattr__(self, name, _array(getattr(self, name), name))
        object.__setattr__(self, "videos", own(self.videos))
        self._check_lengths()

    def _check_lengths(self) -> None:
        if (len(self.videos),) != self.starts.shape or self.frames.ndim != 2 or len(self.starts) != len(self.frames):
            raise UsageError(
                f"the table has {counted(len(self.videos), 'video')}, starts of shape {self.starts.shape} and frames "
                f"of shape {self.frames.shape}; each clip has one of each, and all have as many frames"
            )
        if self.mask is not None and self.mask.shape != self.frames.shape:
            raise UsageError(
                f"the mask has shape {self.mask.shape}, and the frames {self.frames.shape}; each frame has a boolean"
            )

    def __len__(self) -> int:
        return len(self.videos)

    def __repr__(self) -> str:
        return f"<ClipTable of {len(self)} clips of {self.frames.shape[1]} frames>"

    def to_parquet(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the table: columns video, start, frames and, where there is one, mask; one row a clip.

        The file's name ends in .parquet. A file that exists is replaced only with `overwrite`, and nothing is written
        within a dataset: UsageError. OutputError when it cannot be written, ToolError without pyarrow.
        """
        out = Path(path)
        check_output(out, suffixes=[".parquet"], overwrite=overwrite)
        arrow, parquet = _pyarrow()
        number = next((each for each in self.videos if not isinstance(each, str)), None)
        if number is not None:
            raise UsageError(
                f"the table has {number!r} for a video, and a file has ids, which other datasets have, too: write the "
                "table that ClipDataset(dataset, table).clip_table() makes of it, which has these"
            )
        columns: dict[str, Any] = {
            "video": arrow.array(list(self.videos), arrow.string()),
            "start": arrow.array(self.starts, arrow.int64()),
            "frames": _lists(arrow, self.frames),
        }
        if self.mask is not None:
            columns["mask"] = _lists(arrow, self.mask)
        table = arrow.table(columns).replace_schema_metadata({_BLACK: str(int(self.black))})
        with new_file(out, overwrite=overwrite) as temporary:
            parquet.write_table(table, temporary)

    @staticmethod
    def from_parquet(path: str | os.PathLike[str]) -> ClipTable:
        """Read a table that `to_parquet` wrote, or that has such columns, also with numbers for videos. UsageError when
        there is none.

        A folder stands for all files in it and below it that end in .parquet, in the order of their paths, as pyarrow
        reads it; those whose names begin with "." or "_" are left out. UsageError where their clips do not go together.
        """
        if Path(path).is_dir():
            files = _files_below(Path(path))
            return _joined([ClipTable.from_parquet(file) for file in files], files)
        arrow, parquet = _pyarrow()
        if not Path(path).exists():
            raise UsageError(
                f"{path} {missing(os.fspath(path), 'give the file that ClipTable.to_parquet wrote')}", file=str(path)
            )
        try:
            table = parquet.read_table(path)
        except (OSError, arrow.ArrowInvalid) as error:
            raise UsageError(f"{path} cannot be read as a Parquet file: {error}", file=str(path)) from error
        lacking = {"video", "start", "frames"} - set(table.column_names)
        if lacking:
            raise UsageError(
                f"{path} has no column {min(lacking)!r}, so it is no table of clips; give the file that "
                "ClipTable.to_parquet wrote",
                file=str(path),
            )
        videos = table["video"].to_pylist()
        row = next((row for row, each in enumerate(videos) if type(each) not in (str, int)), None)
        if row is not None:
            raise _refused("video", f"{shortened(videos[row])} in row {row}", path)
        return table_of_own(
            videos=videos,
            starts=_whole(table["start"].to_numpy(), "start", path),
            frames=_rectangle(table, "frames", path),
            mask=_rectangle(table, "mask", path).astype(np.bool_) if "mask" in table.column_names else None,
            black=(table.schema.metadata or {}).get(_BLACK.encode()) == b"1",
        )


def table_of_own(videos: list[str], starts: Array, frames: Array, mask: Array | None, *, black: bool) -> ClipTable:
    """A table of a list and arrays, int64 and bool, that were made for it: unlike those that users give, they are not
    copied."""
    table = object.__new__(ClipTable)
    vars(table).update(videos=videos, starts=starts, frames=frames, mask=mask, black=black)
    table._check_lengths()
    return table


def _array(values: Any, name: str) -> Any:
    """What a ClipTable is given, lists too, as an array of its own, int64 or bool; WrongTypeError for other numbers and
    uneven lists."""
    if name == "mask" and values is None:
        return None
    kind, wanted = ("b", np.bool_) if name == "mask" else ("iu", np.int64)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in kind and (array.size or array.dtype.kind == "O"):
        raise WrongTypeError(
            f"{name} of a ClipTable is {shortened(values)}; it has to be an array or a list of "
            f"{'booleans' if name == 'mask' else 'integers of 64 bits'}, as long for each clip"
        )
    if array.dtype.kind == "u" and array.size and not fits_int64(int(array.max())):
        raise UsageError(f"{name} of a ClipTable has {array.max()}, and a frame's number has 63 bits")
    # An array of a list is new. All others may share the memory of what was given.
    return array.astype(wanted, copy=not isinstance(values, list | tuple))


@dataclass(frozen=True, eq=False)
class ListedIndex(OfTable):
    """The clips of a table, in its order."""

    table: ClipTable
    videos: VideoTable
    places: Array

    @property
    def too_short(self) -> Array:
        """None: the table says which frames to take."""
        return np.zeros(0, dtype=np.int64)

    @property
    def pads(self) -> bool:
        return self.table.mask is not None

    @lazy
    def fingerprint(self) -> str:
        """A hash of the clips themselves."""
        digest = hashlib.blake2b(repr(list(self.table.videos)).encode(), digest_size=8)
        for column in (self.table.starts, self.table.frames, self.table.mask):
            digest.update(b"" if column is None else np.ascontiguousarray(column, dtype="<i8").data)
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.table)

    def clips(self, draws: Sequence[int]) -> list[Clip]:
        _, indices = split_draws(draws, len(self))
        return [self._clip(draw, index) for draw, index in zip(draws, indices.tolist(), strict=True)]

    def _clip(self, draw: int, index: int) -> Clip:
        table = self.table
        mask = None if table.mask is None else table.mask[index]
        return self.clip_of(draw, int(self.places[index]), int(table.starts[index]), table.frames[index], mask)


def listed_index(table: ClipTable, videos: VideoTable, places: Array) -> ListedIndex:
    """The index over a table's clips; `places` are their videos' places in the table of videos.

    UsageError for a clip that starts at a frame, or has one, that its video does not have.
    """
    num_frames = videos.num_frames[places]
    starts_outside = np.flatnonzero((table.starts < 0) | (table.starts >= num_frames))
    if len(starts_outside):
        clip = int(starts_outside[0])
        raise UsageError(
            f"clip {clip} of the table starts at frame {int(table.starts[clip])} of video "
            f"{videos.name(int(places[clip]))!r}, which has {counted(int(num_frames[clip]), 'frame')}: correct the "
            "row, or take the dataset that the table is of"
        )
    outside = (table.frames < 0) | (table.frames >= num_frames[:, None])
    if outside.any():
        clip, column = np.argwhere(outside)[0].tolist()
        raise UsageError(
            f"clip {clip} of the table has frame {int(table.frames[clip, column])} of video "
            f"{videos.name(int(places[clip]))!r}, which has {counted(int(num_frames[clip]), 'frame')}: it is the "
            "table of another dataset, or was made of a column of the list, such as num_frames of sources "
            "(columns.built_in has the dataset's own)"
        )
    return ListedIndex(table, videos, places)


def _files_below(folder: Path) -> list[Path]:
    """The Parquet files in a folder and below it. UsageError when there is none."""
    found = [
        file
        for file in sorted(folder.rglob("*.parquet"))
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    ]
    if not found:
        raise UsageError(
            f"{folder} is a folder without files that end in .parquet; give the file that ClipTable.to_parquet wrote, "
            "or a folder of such files",
            file=str(folder),
        )
    return found


def _joined(tables: Sequence[ClipTable], files: Sequence[Path]) -> ClipTable:
    """The clips of all tables, one after the other. UsageError where they differ in the number of frames, or in whether
    frames that stand in are black."""
    padded = [table.mask is not None for table in tables]
    for table, file, pads in zip(tables, files, padded, strict=True):
        if table.frames.shape[1] != tables[0].frames.shape[1]:
            raise UsageError(
                f"{file} has clips of {table.frames.shape[1]} frames, {files[0]} of {tables[0].frames.shape[1]}: all "
                "clips of a table have as many, so read them one by one",
                file=str(file),
            )
        first = padded.index(True) if pads else 0
        if pads and table.black != tables[first].black:
            raise UsageError(
                f"of {file} and {files[first]}, only one has black frames where a video has none: read them one by one",
                file=str(file),
            )
    masks = [np.ones(table.frames.shape, dtype=bool) if table.mask is None else table.mask for table in tables]
    return table_of_own(
        videos=[video for table in tables for video in table.videos],
        starts=np.concatenate([table.starts for table in tables]),
        frames=np.concatenate([table.frames for table in tables]),
        mask=np.concatenate(masks) if any(padded) else None,
        black=any(table.black for table, pads in zip(tables, padded, strict=True) if pads),
    )


def _lists(arrow: Any, rows: Array) -> Any:
    return arrow.FixedSizeListArray.from_arrays(arrow.array(rows.ravel()), rows.shape[1])


def _rectangle(table: Any, name: str, path: Any) -> Array:
    """The lists of a column as (rows, length); UsageError when their lengths differ, or one is missing."""
    rows = [row for chunk in table[name].chunks for row in chunk.to_numpy(zero_copy_only=False)]
    if any(not isinstance(row, np.ndarray) for row in rows):
        raise _refused(name, "a value that is no list", path)
    if len({len(row) for row in rows}) > 1:
        raise UsageError(
            f"{path} has clips with different numbers of frames, and all clips of a table have as many; make a table "
            "for each number",
            file=str(path),
        )
    return _whole(np.array(rows).reshape(len(rows), len(rows[0]) if rows else 0), name, path)


def _whole(values: Array, name: str, path: Any) -> Array:
    """Values of a column as int64, also floats that are whole, as pandas makes them. UsageError for any others."""
    if values.dtype.kind == "f" and np.isfinite(values).all() and (values == np.rint(values)).all():
        values = values.astype(np.int64)
    if values.dtype.kind not in "iub" and len(values):
        raise _refused(name, shortened(values.tolist()), path)
    return values.astype(np.int64, copy=False)


def _refused(name: str, found: str, path: Any) -> UsageError:
    what = {"mask": "booleans", "video": "ids or numbers of videos"}.get(name, "frame numbers")
    return UsageError(
        f"column {name!r} of {path} has {found}, and not {what} alone: correct these rows or leave them out",
        file=str(path),
    )


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ToolError("tables of clips are Parquet files, which pyarrow writes: pip install pyarrow") from error
    return pa, pq
