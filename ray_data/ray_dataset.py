"""`shortgop.ray_dataset`: the clips of a dataset in Ray Data, for inference over a corpus."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ToolError, UsageError
from ..readers.dataset import Dataset
from ..training.datasets.clip_dataset import ClipDataset, OnError
from ..training.datasets.mixed import MixedClips
from ..training.pixels.opened import OpenedDataset
from ..training.pixels.outputs import Output
from ..training.pixels.transforms import Transform
from ..training.which_clips.draws import checked_epoch
from ..training.which_clips.offsets import at_least_one
from ..training.which_clips.policy_index import Policy

if TYPE_CHECKING:
    import ray.data

_DEFAULT_BLOCK_BYTES = 128 << 20
# A task reads several blocks, so that starting it and opening the dataset are a small part of it.
_BLOCKS_PER_TASK = 8
_MIN_TASKS = 200
_TASKS_PER_CPU = 2
# Videos of other codec configurations may have frames of other sizes; so many of these are tried beforehand.
_MAX_TRIED = 8


def ray_dataset(
    path: str | os.PathLike[str] | Dataset | ClipDataset,
    clips: Policy | None = None,
    *,
    epoch: int = 0,
    outputs: Mapping[str, Output] | None = None,
    videos: Iterable[str | int] | None = None,
    seed: int = 0,
    metadata: Sequence[str] = (),
    transform: Transform | None = None,
    transform_batch: bool = False,
    on_error: OnError = "raise",
    max_skipped: int = 100,
    block_bytes: int | None = None,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    **reading: Any,
) -> ray.data.Dataset:
    """Clips of a prepared dataset as a ray.data.Dataset, for inference over a corpus on a Ray cluster.

        clips = shortgop.ray_dataset("DATASET", shortgop.UniformClips(16, stride=4), size=(224, 224), metadata=["id"])
        actors = ray.data.ActorPoolStrategy(size=4)
        clips.map_batches(Embed, compute=actors, batch_size=32, num_gpus=1).write_parquet("/shared/embeddings")

    `path` is that of a prepared dataset, or a shortgop.Dataset, with `clips`; or a ClipDataset alone, whose clips these
    are. A subclass of ClipDataset that makes items of its own, in `items` or `__getitem__`, is asked for them.

    Each row is a clip. Every clip of the epoch comes once. Columns are those of ClipDataset's items:

    - `frames`: a tensor, (frames, 3, height, width), uint8, or as the dataset was told to read; with `outputs`, each of
      them under its name in place of `frames`, and `crop` and `flip` where they were drawn;
    - `pts_seconds`: float64, (frames,); `frame_numbers`: int64, (frames,); `video`, `start`, `draw`: int64; where the
      policy pads `mask`: bool, (frames,);
    - the columns named in `metadata`: int64, float64, bool or text; null where the source list has None.

    `clips`, `outputs`, `videos`, `seed`, `metadata`, `transform`, `transform_batch`, `on_error`, `max_skipped` and what
    is passed on to shortgop.open are those of ClipDataset. All frames of a column have one shape, so videos of
    different sizes need `size=(height, width)`. A transform is called here too, on a few clips, to learn what it
    returns. With on_error="skip", the clip that comes in place of a damaged one comes twice, and each process counts up
    to `max_skipped`. `epoch` is that of random clips.

    - `block_bytes`: the bytes of tensors and numbers in a block are at most this, unless a single clip has more; by
      default the `target_max_block_size` of Ray's DataContext, 128 MiB. The clips of a block are read together: each
      GOP that they share is decoded once. Ray 2.40 goes by the DataContext alone.
    - `override_num_blocks`: the number of read tasks, each of them a range of clips; at most one for each clip. By
      default 200, or more: 2 for each CPU of the cluster, and 1 for each 8 blocks. Ranges end where a shard or a video
      ends, if one ends nearby.
    - `concurrency`: how many read tasks run at a time; by default Ray decides.
    - `ray_remote_args`: what Ray takes for each read task, such as `memory`; `num_cpus` is by default the `threads`
      that are given here, else 1.

    With `DataContext.execution_options.preserve_order` rows come in the order of videos, in the order of draws for each
    video: this is the order of draws, except that a table (ClipsAt, ClipTable) is sorted by videos.

    A read task takes a path, a snapshot, a policy and a range along, and all nodes have to see the dataset at that
    path. Blocks of a killed worker are read again, and are the same.

    UsageError for options that make no sense, and frames or metadata that no column can hold. ToolError when Ray Data
    or what it needs is not installed.
    """
    remote_args = {"num_cpus": reading.get("threads", 1), **(ray_remote_args or {})}
    _check_ray_data()
    from ray.data import DataContext

    from .clip_columns import columns_of, metadata_columns
    from .clip_datasource import ClipDatasource, read_datasource
    from .clip_reading import read_items
    from .clip_tables import table_of

    if block_bytes is None:
        block_bytes = DataContext.get_current().target_max_block_size or _DEFAULT_BLOCK_BYTES
    block_bytes = at_least_one(block_bytes, "block_bytes")
    options = {
        "outputs": outputs,
        "videos": videos,
        "seed": seed,
        "metadata": metadata,
        "transform": transform,
        "transform_batch": transform_batch,
        "on_error": on_error,
        "max_skipped": max_skipped,
    }
    if not isinstance(path, (Dataset, ClipDataset)):
        # A worker has the block that it reads, and the last one, which Ray may not have stored yet.
        reading.setdefault("pool_bytes", 2 * block_bytes)
    dataset = _clip_dataset(path, clips, options, reading)
    epoch = checked_epoch(epoch, len(dataset))
    opened, names = OpenedDataset(dataset.source), dataset.metadata_names
    rows = opened.rows_at(dataset.video_numbers).tolist() if names else ()
    listed = metadata_columns(names, (opened.values(row, names) for row in rows))
    tried = read_items(dataset, epoch, _places_to_try(dataset))
    columns = columns_of(tried[0], listed)
    # Errors of shapes and types come now, and not in a task.
    table_of(tried, columns)
    row_bytes = max(1, sum(column.row_bytes for column in columns))
    clips_per_block = max(1, block_bytes // row_bytes)
    num_tasks = _num_tasks(-(-len(dataset) // clips_per_block)) if override_num_blocks is None else override_num_blocks
    datasource = ClipDatasource(dataset, columns, epoch=epoch, row_bytes=row_bytes, clips_per_block=clips_per_block)
    return read_datasource(
        datasource,
        num_tasks=min(len(dataset), at_least_one(num_tasks, "override_num_blocks")),
        concurrency=concurrency,
        remote_args=remote_args,
        target_block_bytes=clips_per_block * row_bytes,
    )


def _clip_dataset(
    path: str | os.PathLike[str] | Dataset | ClipDataset,
    clips: Policy | None,
    options: Mapping[str, Any],
    reading: Mapping[str, Any],
) -> ClipDataset:
    """The dataset that was given, or one of these clips. UsageError where both were given, or neither."""
    if isinstance(path, MixedClips):
        raise UsageError(
            "ray_dataset takes one dataset, and not MixedClips; call it for each, and join what it returns: "
            "shortgop.ray_dataset(one).union(shortgop.ray_dataset(other))"
        )
    if not isinstance(path, ClipDataset):
        if clips is None:
            raise UsageError("clips is missing: give a policy, such as shortgop.UniformClips(16), or a ClipDataset")
        return ClipDataset(path, clips, **options, **reading)
    defaults = inspect.signature(ray_dataset).parameters
    given = [name for name, value in options.items() if value is not defaults[name].default]
    others = ([] if clips is None else ["clips"]) + given + list(reading)
    if others:
        raise UsageError(f"{', '.join(others)}: a ClipDataset has its own; give these where it is made")
    return path


def _check_ray_data() -> None:
    try:
        import pandas as pd  # noqa: F401
        import pyarrow as pa  # noqa: F401
        import ray.data  # noqa: F401
    except ImportError as error:
        raise ToolError(
            f"ray_dataset needs Ray Data, which cannot be imported: {error}; pip install 'shortgop[ray]'"
        ) from error


def _places_to_try(dataset: ClipDataset) -> list[int]:
    """The first clip, and the first one of each further codec configuration, up to a few."""
    firsts = dataset.clip_index.firsts
    videos = np.flatnonzero(np.diff(firsts))
    if not len(videos):
        return [0]
    opened = OpenedDataset(dataset.source)
    configs = opened.codec_configs(opened.rows_at(dataset.video_numbers[videos]))
    _, first_of_each = np.unique(configs, return_index=True)
    places: list[int] = firsts[videos[np.sort(first_of_each)]].tolist()
    return places[:_MAX_TRIED]


def _num_tasks(blocks: int) -> int:
    import ray

    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    cpus = int(resources.get("CPU", 1))
    return max(_MIN_TASKS, _TASKS_PER_CPU * cpus, blocks // _BLOCKS_PER_TASK)
