"""Scenario 5: the time from `shortgop.open` to the first batch in a new process, by number of videos."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import footage
import numpy as np
from results import OURS, Case, Row
from zarr.storage import LocalStore

from shortgop.comparison.timing import alternate
from shortgop.manifests.dataset_files.layout import shard_key, snapshot_key
from shortgop.manifests.dataset_files.root_file import create, read_root
from shortgop.manifests.dataset_files.snapshots import open_manifest
from shortgop.manifests.parsed_columns import derived_columns
from shortgop.manifests.ragged import Array, Ragged, from_texts
from shortgop.manifests.tables import Manifest, Table
from shortgop.manifests.zarr_files.zarr_sizes import BLOCK_ROWS
from shortgop.manifests.zarr_files.zarr_write import write_manifest
from shortgop.manifests.zarr_files.zarr_zip import pack_folder
from shortgop.storage.disk import DiskStorage

SECONDS = 3
BATCH, FRAMES = 8, 16


def repeated(manifest: Manifest, count: int) -> Manifest:
    """A manifest that has the only video of `manifest` `count` times, under ids of its own, without a timeline."""

    def rows(table: Table, **others: Any) -> Any:
        columns = {field.name: getattr(table, field.name) for field in dataclasses.fields(table)}
        return type(table)(
            **{name: others[name] if name in others else _tiled(columns[name], count) for name in columns}
        )

    if len(manifest.videos) != 1:
        raise ValueError(f"the manifest has {len(manifest.videos)} videos, not one")
    return dataclasses.replace(
        manifest,
        videos=rows(
            manifest.videos,
            id=from_texts(f"{number:08}.mp4" for number in range(count)),
            identity=np.arange(count, dtype="<u8"),
        ),
        segments=rows(manifest.segments),
        gops=rows(manifest.gops),
        timeline=None,
    )


def _tiled(column: Any, count: int) -> Any:
    if isinstance(column, Ragged):
        step = column.offsets[-1]
        offsets = (column.offsets[:-1] + step * np.arange(count)[:, None]).ravel()
        return Ragged(values=np.tile(column.values, count), offsets=np.append(offsets, step * count))
    return np.tile(column, count)


def make_repeated(count: int, labelled: Callable[[int], Ragged] | None = None) -> Path:
    """A dataset of `count` videos that all lie in the same bytes of one small shard.

    `labelled` makes the attributes of so many videos.
    """
    source = footage.make_sources("cold", 1, 256, SECONDS)
    small = footage.make_dataset(source, "source", "--runner", "inline")
    out = small.with_name(f"{'labelled' if labelled else 'cold'}-{count}")
    if (out / "complete").exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    root = read_root(DiskStorage(small))
    snapshot = str(root.snapshot)
    manifest = open_manifest(DiskStorage(small), snapshot, timeline=True)
    create(DiskStorage(out), root.profile)
    (out / "shards").mkdir()
    for name in manifest.shards.name.texts():
        shutil.copy(small / shard_key(name), out / shard_key(name))
    timeline = manifest.timeline
    if timeline is None:
        raise AssertionError("it was asked for")
    many = repeated(manifest, count)
    if labelled is not None:
        many = dataclasses.replace(many, videos=dataclasses.replace(many.videos, attributes=labelled(count)))
    folder, blocks = out / ".tmp" / snapshot, _blocks(timeline.pts, count)
    attributes = {"format_version": 3, "parts": []}
    write_manifest(LocalStore(folder), many, attributes, blocks, derived_columns(many.videos.attributes))
    (out / "manifest").mkdir()
    pack_folder(folder, out / snapshot_key(snapshot))
    shutil.copy(small / "zarr.json", out / "zarr.json")
    (out / "complete").touch()
    return out


def _blocks(pts: Array, count: int) -> Iterator[Array]:
    """The timeline `count` times over, in whole videos as they fit the writer's blocks."""
    total = len(pts) * count
    for start in range(0, total, BLOCK_ROWS):
        yield pts[np.arange(start, min(start + BLOCK_ROWS, total)) % len(pts)]


def child(dataset: Path) -> None:
    """In the new process: import, open, read a batch; print what each took."""
    start = time.perf_counter()
    import shortgop

    imported = time.perf_counter()
    opened = shortgop.open(dataset)
    ready = time.perf_counter()
    rng = np.random.default_rng(os.getpid())
    opened.get_clips([(number, range(FRAMES)) for number in rng.integers(len(opened), size=BATCH).tolist()])
    end = time.perf_counter()
    sys.stdout.write(json.dumps({"import": imported - start, "open": ready - imported, "batch": end - ready}))


def first_batch(counts: tuple[int, ...], processes: int, note: Callable[[str], object]) -> list[Case]:
    """5. By number of videos: whole processes, and the part of each that is `open` and the batch."""
    datasets = {}
    for count in counts:
        note(f"5. making a dataset of {count} videos")
        datasets[f"{count:,} videos"] = make_repeated(count)
    inside: dict[str, list[float]] = {name: [] for name in datasets}

    def run(name: str, _number: int) -> None:
        argv = [sys.executable, __file__, str(datasets[name])]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        took = json.loads(done.stdout)
        inside[name].append(took["open"] + took["batch"])

    note("5. new processes")
    result = alternate({name: partial(run, name) for name in datasets}, requests=processes)
    if result.problems:
        raise RuntimeError(f"{result.problems}")
    # The first run of each is the one that `alternate` does not count either.
    parts = dataclasses.replace(result, seconds={name: np.array(values[1:]) for name, values in inside.items()})
    group = f"A new process to its first batch of {BATCH} clips of {FRAMES} frames"
    return [
        Case(5, group, name, tuple(Row.of(OURS, each.name, each) for each in of.figures()))
        for name, of in (("open and first batch", parts), ("whole process", result))
    ]


if __name__ == "__main__":
    child(Path(sys.argv[1]))
