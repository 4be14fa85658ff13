"""Clips as a Datasource of Ray Data, in terms of the Ray that is installed: 2.40 and later."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import ray
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from ..training.datasets.clip_dataset import ClipDataset
from ..training.pixels.opened import OpenedDataset
from .clip_columns import Column
from .clip_ranges import task_ranges
from .clip_reading import read_function
from .clip_tables import schema_of

# Larger datasets (long tables of clips, long lists of videos) are stored once, and tasks refer to them.
_MAX_IN_TASK_BYTES = 1 << 16


class ClipDatasource(Datasource):
    """The clips of one epoch of a ClipDataset. A read task is a range of clips, and gives several blocks.

    `columns` are those of all rows, `row_bytes` is what a row takes, and `clips_per_block` rows make a block.
    """

    def __init__(
        self, dataset: ClipDataset, columns: tuple[Column, ...], *, epoch: int, row_bytes: int, clips_per_block: int
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._columns = columns
        self._epoch = epoch
        self._row_bytes = row_bytes
        self._clips_per_block = clips_per_block
        self._firsts = dataset.clip_index.firsts
        opened = OpenedDataset(dataset.source)
        self._shards = opened.shards(opened.rows_at(dataset.video_numbers))
        self._schema = schema_of(columns)
        self._pickled: Any = ray.cloudpickle.dumps(dataset)  # type: ignore[no-untyped-call]

    def get_name(self) -> str:
        """The name of its tasks in Ray's reports: ReadClips."""
        return "Clips"

    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all rows."""
        return int(self._firsts[-1]) * self._row_bytes

    # Ray 2.50 and later pass a limit of rows, and other versions may pass more.
    def get_read_tasks(self, parallelism: int, *args: Any, **kwargs: Any) -> list[ReadTask]:
        """`parallelism` tasks, or one for each clip if there are fewer. With `per_task_row_limit`, of so many rows."""
        limit = kwargs.get("per_task_row_limit", args[0] if args else None)
        if isinstance(self._pickled, bytes) and len(self._pickled) > _MAX_IN_TASK_BYTES:
            self._pickled = ray.put(self._pickled)
        return [
            self._read_task(places if limit is None else places[:limit])
            for places in task_ranges(self._firsts, self._shards, parallelism)
        ]

    def _read_task(self, places: range) -> ReadTask:
        known = {
            "num_rows": len(places),
            "size_bytes": len(places) * self._row_bytes,
            "schema": self._schema,
            "input_files": None,
            "exec_stats": None,
        }
        function = read_function(self._pickled, self._columns, self._epoch, places, self._clips_per_block)
        metadata = BlockMetadata(**accepted(BlockMetadata, known))
        return ReadTask(function, metadata, **accepted(ReadTask, {"schema": self._schema}))


def accepted(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that the function has parameters for, in the Ray that is installed."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in parameters}


def read_datasource(
    datasource: ClipDatasource,
    *,
    num_tasks: int,
    concurrency: int | None,
    remote_args: Mapping[str, Any],
    target_block_bytes: int,
) -> ray.data.Dataset:
    """The Ray dataset that reads `datasource` by `num_tasks` tasks, in blocks of `target_block_bytes`."""
    # Newer versions have a parameter for each argument of a task, and warn of the dict.
    named = accepted(ray.data.read_datasource, remote_args)
    others = {name: value for name, value in remote_args.items() if name not in named}
    dataset: ray.data.Dataset = ray.data.read_datasource(
        datasource,
        concurrency=concurrency,
        override_num_blocks=num_tasks,
        **named,
        **({"ray_remote_args": others} if others else {}),
    )
    # Ray hands a block on as soon as it has more bytes than this, and otherwise joins it with the next.
    dataset.context.target_max_block_size = max(1, target_block_bytes - 1)
    return dataset
