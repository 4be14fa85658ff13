"""What a new snapshot holds: the rows that came, and those of the layers that are merged with them.

The rows that came are merged in memory. Layers are put together block by block, so memory grows with what came and
hardly with what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..merging.frame_runs import FrameRuns, ReadRows, timeline_blocks, timeline_rows
from ..merging.merge import merge_tables
from ..ragged import Array
from ..shared_memory.new_arrays import NewArray
from ..tables import Manifest
from ..zarr_files import zarr_sizes
from . import layers

# Gives the timeline of some of a dataset's videos: of the name of a snapshot, and a manifest of these videos.
TimelineOf = Callable[[str, Manifest], ReadRows]


@dataclass(frozen=True, eq=False)
class NewSnapshot:
    """The tables of a new snapshot, its timeline in blocks, and how many of the layers stay below it."""

    tables: Manifest
    timeline: Iterator[Array]
    layers_that_stay: int


def grown(
    there: Sequence[tuple[str, Manifest]],
    came: Sequence[Manifest],
    timelines: Sequence[ReadRows],
    *,
    whole: bool,
    timeline_of: TimelineOf,
    new_array: NewArray,
) -> NewSnapshot:
    """What to write when the manifests that `came`, with their `timelines`, are added to the layers that are `there`,
    oldest first, each with the name of its snapshot; with `whole` no layer stays.

    Long columns lie in arrays that `new_array` makes.
    """
    tables = [table for _, table in there]
    if there:
        # All that is known of the ids that came.
        known = layers.of_ids(tables, layers.mentioned(came))
        came = [*came, known]
        timelines = [*timelines, timeline_of(there[-1][0], known)]
    new, runs = merge_tables(came, timelines)
    # Of an id that came, all rows are written: one label of each video takes a layer as long as the dataset.
    rows = [layers.num_rows(table) for table in tables]
    stay = 0 if whole else layers.layers_that_stay(rows, layers.num_rows(new), min_rows=layers.MIN_ROWS)
    if stay < len(there):
        of_new = partial(timeline_rows, runs, new.first_frames, timelines)
        timelines = [*(timeline_of(*layer) for layer in there[stay:]), of_new]
        new = layers.combined([*tables[stay:], new], new_array)
        runs = _frames_of(new)
    return NewSnapshot(new, timeline_blocks(runs, timelines, block_rows=zarr_sizes.BLOCK_ROWS), stay)


def _frames_of(manifest: Manifest) -> FrameRuns:
    if manifest.origins is None:
        raise ValueError("the manifest was not put together from others")
    return FrameRuns(manifest.origins.layer, manifest.origins.first_frame, manifest.videos.num_frames)
