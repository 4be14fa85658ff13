"""Makes few manifests of many, in bounded memory, so that a snapshot can be merged from a hundred thousand parts.

A part's arrays are short, so its objects take more memory than its rows, and its timeline takes more than all other
tables. So parts are merged in groups as they come, and the timelines of groups go to a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...whole_files import writing
from ..ragged import Array
from ..tables import Manifest
from ..zarr_files import zarr_sizes
from .frame_runs import ReadRows, timeline_blocks
from .merge import merge_tables


class Folding:
    """Takes manifests with their timelines, and keeps fewer manifests, which merge to the same result.

    The file of timelines lies at the path that `scratch` gives. It loses its name as soon as it is open. A group has at
    most `group_manifests`, and is complete when it has `group_frames`.
    """

    def __init__(
        self, scratch: Callable[[], Path], *, group_manifests: int = 1_000, group_frames: int = 1 << 24
    ) -> None:
        self._scratch = scratch
        self._group_manifests, self._group_frames = group_manifests, group_frames
        self._file: BinaryIO | None = None
        self._folded: list[tuple[Manifest, ReadRows]] = []
        self._waiting: list[Manifest] = []
        self._frames_waiting = 0

    def add(self, manifest: Manifest) -> None:
        """Take a manifest. OutputError if the disk has no room for timelines."""
        self._waiting.append(manifest)
        self._frames_waiting += int(manifest.first_frames[-1])
        if len(self._waiting) >= self._group_manifests or self._frames_waiting >= self._group_frames:
            self._fold()

    def result(self) -> tuple[list[Manifest], list[ReadRows]]:
        """What to merge, as `merge_tables` takes it, until `close` is called."""
        manifests = [manifest for manifest, _ in self._folded]
        return [*manifests, *self._waiting], [*(rows for _, rows in self._folded), *_readers(self._waiting)]

    def close(self) -> None:
        # Closing flushes, which fails again on a full disk.
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()

    def _fold(self) -> None:
        timelines = _readers(self._waiting)
        tables, runs = merge_tables(self._waiting, timelines)
        if self._file is None:
            path = self._scratch()
            with writing(path):
                # Closed by `close`.
                self._file = path.open("w+b")
                path.unlink()
        start = self._file.tell()
        for block in timeline_blocks(runs, timelines, block_rows=zarr_sizes.BLOCK_ROWS):
            with writing(Path(self._file.name)):
                self._file.write(block.tobytes())
                self._file.flush()
        rows = np.memmap(self._file, "<i8", "r", start, len(runs)) if len(runs) else np.zeros(0, "<i8")
        self._folded.append((tables, partial(_rows, rows)))
        self._waiting, self._frames_waiting = [], 0


def _readers(manifests: Sequence[Manifest]) -> list[ReadRows]:
    return [partial(_rows, manifest.timeline.pts) for manifest in manifests if manifest.timeline is not None]


def _rows(timeline: Array, start: int, stop: int) -> Array:
    return timeline[start:stop]
