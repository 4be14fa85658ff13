"""Datasets for tests: made by the real job, in this process, and compared row for row."""

from __future__ import annotations

import dataclasses
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dataset_paths import shard_path, snapshot_path
from dataset_places import place_of, steady_name
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.manifests.dataset_files.layout import shard_key
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create, read_root
from shortgop.manifests.dataset_files.snapshots import open_manifest, open_timeline
from shortgop.manifests.ragged import Ragged, from_texts
from shortgop.manifests.tables import Manifest, empty
from shortgop.prep.profile import changed_profile
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage


def make_dataset(sources: Sequence[Path | str], out: Path | Storage, **options: Any) -> Report:
    """Prepare `sources` into `out`, one unit after the other; `options` are fields of Profile."""
    return prepare(
        [str(source) for source in sources], place_of(out), changed_profile(None, options), where=Where(runner="inline")
    )


def current_manifest(dataset: Path | Storage) -> Manifest:
    """All tables of the current snapshot, timeline included; an empty manifest before the first one."""
    place = place_of(dataset)
    snapshot = read_root(place).snapshot
    return empty() if snapshot is None else open_manifest(place, snapshot, timeline=True)


def timeline_rows(dataset: Storage, snapshot: str, start: int, stop: int) -> list[int]:
    """Rows [start, stop) of a snapshot's timeline."""
    with open_timeline(dataset, snapshot, open_manifest(dataset, snapshot)) as rows:
        found: list[int] = rows(start, stop).tolist()
    return found


def copied_shards(few: Path, many: Path, copies: int) -> None:
    """Make a dataset of so many copies of another one's videos and shards."""
    create(DiskStorage(many), {})
    (many / "shards").mkdir()
    rows = current_manifest(few)
    for copy in range(copies):
        names = [f"{copy}-{name}" for name in rows.shards.name.texts()]
        for old, new in zip(rows.shards.name.texts(), names, strict=True):
            shutil.copy(shard_path(few, old), shard_path(many, new))
        videos = dataclasses.replace(
            rows.videos,
            id=from_texts(f"{copy}/{name}" for name in rows.videos.id.texts()),
            identity=rows.videos.identity + np.uint64(copy + 1),
        )
        shards = dataclasses.replace(rows.shards, name=from_texts(names))
        write_part(DiskStorage(many), f"unit{copy:06d}", dataclasses.replace(rows, videos=videos, shards=shards))
    publish(DiskStorage(many))


def rows_of(dataset: Path | Storage) -> dict[str, Any]:
    """Every column of the current snapshot as plain lists, and the bytes of every shard. Names of shards are without
    what is random in them."""
    place = place_of(dataset)
    rows: dict[str, Any] = {}
    manifest = current_manifest(dataset)
    for table_field in dataclasses.fields(manifest):
        table = getattr(manifest, table_field.name)
        # One without its timeline, and not in layers.
        if table is None:
            continue
        for column_field in dataclasses.fields(table):
            column = getattr(table, column_field.name)
            rows[f"{table_field.name}.{column_field.name}"] = (
                [column.bytes(row) for row in range(len(column))]
                if isinstance(column, Ragged)
                else np.asarray(column).tolist()
            )
    # The only column that tells when, and not what.
    del rows["failures.attempted_ns"]
    shards = manifest.shards.name.texts()
    rows["shards.name"] = [steady_name(place, name) for name in shards]
    for name in shards:
        rows[f"bytes of {steady_name(place, name)}"] = place.read(shard_key(name))
    return rows


def as_folder(dataset: Path, snapshot: str) -> Path:
    """Unpack a snapshot into a folder, as version 1 of the format has it; returns the folder."""
    file, folder = snapshot_path(dataset, snapshot), dataset / "manifest" / snapshot
    with zipfile.ZipFile(file) as archive:
        # That version knew no label columns.
        archive.extractall(folder, [name for name in archive.namelist() if not name.startswith("columns/")])
    file.unlink()
    return folder
