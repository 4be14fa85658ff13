"""What a LeRobot dataset says of each frame: states, actions and the like, for processes to share."""

from __future__ import annotations

import io
import json
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import torch

from ...errors import ToolError, UsageError
from ...manifests.ragged import Array
from ...manifests.shared_memory.mapped_tables import MappedFile, NewTables, Place
from ...storage.interface import Storage, Stored
from ...storage.local_copy import local_copy
from ...unnamed_files import unnamed_file
from ...wording import counted

_INFO = "meta/info.json"
_TASKS, _LINES_OF_TASKS = "meta/tasks.parquet", "meta/tasks.jsonl"
# In version 2 each episode has a file of its own.
_OF_ONE_EPISODE = re.compile(r"episode_(\d+)\.parquet")
# Of a larger file in a store only the columns are fetched that are read: most of it may be pictures.
_LARGE_BYTES = 1 << 23


class RobotRows:
    """A row for each frame of the chosen episodes, one episode after the other.

    `columns` are numpy arrays, (rows, ...), that cannot be written to. Pickled for a process that is being started they
    lie in memory that both share.
    """

    def __init__(self, columns: Mapping[str, Array], file: MappedFile | None = None) -> None:
        self._shapes = {name: column.shape[1:] for name, column in columns.items()}
        if file is None:
            descriptor = unnamed_file(0)
            tables = NewTables(descriptor)
            file = MappedFile(descriptor, tables.places)
            tables.add({name: column.reshape(-1) for name, column in columns.items()})
            columns = _mapped(file, self._shapes)
        self._file, self.columns = file, dict(columns)

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None:
            return RobotRows, ({name: np.array(column) for name, column in self.columns.items()},)
        return _received, (reduction.DupFd(self._file.descriptor), dict(self._file.places), self._shapes)


def _received(descriptor: Any, places: Mapping[str, Place], shapes: Mapping[str, tuple[int, ...]]) -> RobotRows:
    file = MappedFile(descriptor.detach(), places)
    return RobotRows(_mapped(file, shapes), file)


def _mapped(file: MappedFile, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    size = os.fstat(file.descriptor).st_size
    memory = mmap.mmap(file.descriptor, size, access=mmap.ACCESS_READ) if size else b""
    return {
        name: (np.frombuffer(memory, dtype, rows, start) if rows else np.zeros(0, dtype)).reshape(-1, *shapes[name])
        for name, (dtype, start, rows) in file.places.items()
    }


def rate_of(robot: Storage) -> float:
    """The frames per second of a LeRobot dataset. UsageError where there is none."""
    with _telling(robot, _INFO):
        return float(json.loads(robot.read(_INFO))["fps"])


def tasks_of(robot: Storage) -> dict[int, str]:
    """The tasks of a LeRobot dataset by their numbers; none where it names none."""
    if robot.find(_TASKS) is not None:
        with _telling(robot, _TASKS):
            with _parquet_file(robot, _TASKS) as file:
                table = file.read().to_pydict()
            numbers = table.pop("task_index")
            # A data frame's index, which has had several names.
            (texts,) = (values for values in table.values() if all(isinstance(value, str) for value in values))
            return dict(zip(numbers, texts, strict=True))
    if robot.find(_LINES_OF_TASKS) is not None:
        with _telling(robot, _LINES_OF_TASKS):
            lines = [json.loads(line) for line in robot.read(_LINES_OF_TASKS).splitlines() if line.strip()]
            return {int(line["task_index"]): str(line["task"]) for line in lines}
    return {}


def rows_of(robot: Storage, episodes: Array, lengths: Array) -> RobotRows:
    """The rows of these episodes, in ascending order, which have so many frames. Columns that are no numbers, or are
    not of one shape in all rows, are left out. UsageError where the files are not those of such a dataset."""
    files = _files(robot, set(episodes.tolist()))
    found = [part for file in files for part in _of_file(robot, file.key, episodes, file.num_bytes)]
    if not found:
        raise UsageError(f"{robot}/data has no rows of the episodes; give the LeRobot dataset that was prepared")
    names = [name for name in found[0] if all(_go_together(found[0][name], part.get(name)) for part in found)]
    columns = {name: _signed(np.concatenate([part[name] for part in found])) for name in names}
    for name in ("episode_index", "frame_index"):
        if name not in columns:
            raise UsageError(f"the files in {robot}/data have no column {name!r}, which those of LeRobot have")
    counts = np.bincount(np.searchsorted(episodes, columns["episode_index"]), minlength=len(episodes))
    for episode, count, length in zip(episodes.tolist(), counts.tolist(), lengths.tolist(), strict=True):
        if count != length:
            raise UsageError(
                f"episode {episode} has {counted(count, 'row')} in {robot}/data and {counted(length, 'frame')} in the "
                "dataset; give the LeRobot dataset that was prepared. If this is it, leave the episode out by "
                "episodes=, or take out its videos with `shortgop drop` and prepare them again with --include-dropped"
            )
    order = np.lexsort((columns["frame_index"], columns["episode_index"]))
    return RobotRows({name: column[order] for name, column in columns.items()})


def _signed(column: Array) -> Array:
    """A column of uint64 as int64 if it has no larger number, so that its entries are those of LeRobot."""
    fits = column.dtype == np.uint64 and column.max(initial=0) <= np.iinfo(np.int64).max
    return column.astype(np.int64) if fits else column


def _go_together(column: Array, other: Array | None) -> bool:
    return other is not None and other.shape[1:] == column.shape[1:]


def _files(robot: Storage, episodes: set[int]) -> Iterable[Stored]:
    files = [stored for stored in robot.files("data") if stored.key.endswith(".parquet")]
    for file in sorted(files, key=lambda stored: stored.key):
        alone = _OF_ONE_EPISODE.fullmatch(file.key.split("/")[-1])
        if alone is None or int(alone[1]) in episodes:
            yield file


def _of_file(robot: Storage, key: str, episodes: Array, num_bytes: int) -> Iterator[dict[str, Array]]:
    with _telling(robot, key):
        with _parquet_file(robot, key, num_bytes) as file:
            names = [field.name for field in file.schema_arrow if _is_numeric(field.type)]
            # A file in a store is read by one thread.
            table = file.read(names, use_threads=robot.folder is not None)
        kept = np.isin(table["episode_index"].to_numpy(), episodes)
        if kept.any():
            columns = {name: _array(table[name]) for name in names}
            yield {name: column[kept] for name, column in columns.items() if column is not None}


def _is_numeric(kind: Any) -> bool:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _array(column: Any) -> Array | None:
    """A column as an array, (rows, ...); None where its lists are not all as long, or values are missing."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        # LeRobot writes matrices as a type of the package datasets, which pyarrow knows where that was imported.
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    values, shape = column.combine_chunks(), [len(column)]
    while not (pa.types.is_primitive(values.type)):
        if values.null_count:
            return None
        inner = values.flatten()
        length = len(inner) // max(1, len(values))
        if not pa.types.is_fixed_size_list(values.type):
            lengths = values.value_lengths().to_numpy(zero_copy_only=False)
            if (lengths != length).any():
                return None
        values = inner
        shape.append(length)
    if values.null_count:
        return None
    array: Array = values.to_numpy(zero_copy_only=False).reshape(shape)
    return array


def as_item(values: Any) -> torch.Tensor:
    """Values of a column as an entry of items, which is a copy. Floats become float32 and integers int64, as LeRobot
    has them, since it makes tensors of Python's numbers."""
    array = np.asarray(values)
    if array.dtype.kind == "f":
        # A number that is too large becomes infinite, as with torch.
        with np.errstate(over="ignore"):
            return torch.from_numpy(array.astype(np.float32))
    # One of uint64 may be too large.
    if array.dtype.kind in "iu" and np.can_cast(array.dtype, np.int64):
        return torch.from_numpy(array.astype(np.int64))
    return torch.from_numpy(array.copy())


@contextmanager
def _parquet_file(robot: Storage, key: str, num_bytes: int = 0) -> Iterator[Any]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ToolError("the rows of LeRobot datasets are Parquet files: pip install pyarrow") from error
    if robot.folder is not None:
        yield pq.ParquetFile(robot.place(key))
    elif num_bytes < _LARGE_BYTES:
        yield pq.ParquetFile(io.BytesIO(robot.read(key)))
    else:
        with local_copy(robot, key, "rows.parquet") as copy:
            yield pq.ParquetFile(copy.reader())


@contextmanager
def _telling(robot: Storage, key: str) -> Iterator[None]:
    try:
        yield
    except (UsageError, ToolError):
        raise
    # pyarrow's errors are ValueErrors and OSErrors.
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(
            f"{robot.place(key)} cannot be read as a file of a LeRobot dataset: {type(error).__name__}: {told}; give "
            "the folder of one, of version 2 or 3",
            file=robot.place(key),
        ) from error
