"""What a read task does on its node: it opens the dataset, reads its clips block by block, and makes tables of them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from ..errors import DatasetError, MissingDataError, NotADatasetError
from ..training.datasets.clip_dataset import ClipDataset
from ..training.pixels.transforms import seeded
from ..training.which_clips.draws import Draw
from ..training.which_clips.keyed import key
from .clip_columns import Column
from .clip_ranges import block_ranges
from .clip_tables import Item, table_of

_SAME_PATH = "all nodes of the cluster have to see the dataset at this path"


def read_function(
    pickled: Any, columns: Sequence[Column], epoch: int, places: range, clips_per_block: int
) -> Callable[[], Iterator[pa.Table]]:
    """A function that calls `read_blocks` on any node of the cluster. `pickled` is a ClipDataset as bytes, or a
    reference to these."""
    plain_columns = [(column.name, column.dtype, column.shape) for column in columns]

    # Ray sends this function itself, and not only its name, and what it holds is no object of shortgop's: so it can say
    # what is wrong on a node that has no shortgop.
    def read_clips() -> Iterator[pa.Table]:
        import signal
        import threading

        # Ray interrupts a task that is not needed any more, and uses its process again. torch that was imported by half
        # makes each later task fail; and if a task is repeated because its worker was killed, Ray (2.60) takes such an
        # error for the end of the task's blocks.
        interruptions: list[int] = []
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, lambda number, _: interruptions.append(number)) if is_main else None
        try:
            from .clip_columns import Column
            from .clip_reading import read_blocks
        except ImportError as error:
            import socket

            raise RuntimeError(
                f"the cluster's node {socket.gethostname()} cannot run shortgop: {error}; install the same version of "
                "shortgop[ray] on every node, in the Python that runs its Ray"
            ) from error
        finally:
            if is_main:
                signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if interruptions:
            raise KeyboardInterrupt
        columns = [Column(*each) for each in plain_columns]
        yield from read_blocks(pickled, columns, epoch, places, clips_per_block)

    return read_clips


def read_blocks(
    pickled: Any, columns: Sequence[Column], epoch: int, places: range, clips_per_block: int
) -> Iterator[pa.Table]:
    """The clips at these places in the order of videos, as tables of `clips_per_block` rows.

    The clips of a table are read together. DatasetError names the node.
    """
    try:
        dataset = _opened(pickled if isinstance(pickled, bytes) else ray.get(pickled))
        for block in block_ranges(places, clips_per_block):
            yield table_of(read_items(dataset, epoch, block), columns)
    except DatasetError as error:
        raise _on_this_node(error) from error


def read_items(dataset: ClipDataset, epoch: int, places: Sequence[int]) -> list[Item]:
    """The items of clips at these places in the order of videos.

    Random numbers that a subclass draws for them are the same each time.
    """
    index = dataset.clip_index
    numbers = index.clip_numbers(np.asarray(places, dtype=np.int64))
    draws = [Draw(epoch * len(index) + number) for number in numbers.tolist()]
    with seeded(key(*dataset.seeds, "items", *map(int, draws))):
        return dataset.__getitems__(draws)


@lru_cache(maxsize=1)
def _opened(pickled: bytes) -> ClipDataset:
    """Ray runs one task after the other in a process, so that most of them find the dataset open."""
    dataset: ClipDataset = ray.cloudpickle.loads(pickled)
    return dataset


def _on_this_node(error: DatasetError) -> DatasetError:
    machine = f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"  # type: ignore[no-untyped-call]
    remedy = f"; {_SAME_PATH}" if isinstance(error, (NotADatasetError, MissingDataError)) else ""
    return type(error)(
        f"on the cluster's node {machine}: {error.message}{remedy}",
        video=error.video,
        frame=error.frame,
        segment=error.segment,
        file=error.file,
        byte_range=error.byte_range,
    )
