"""A dataset of any number of videos without footage: tables of plausible content, and shards that are holes.

A video has 100 frames on average, in GOPs of 16: ten million videos are a billion frames in 62.5 million GOPs.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from shortgop.manifests.dataset_files.layout import shard_key, snapshot_key
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.root_file import change_root, create
from shortgop.manifests.label_columns import LabelColumn
from shortgop.manifests.merging.edits import drops_table, edits_table
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.ragged import Array, Ragged, from_rows, from_texts, offsets_of
from shortgop.manifests.tables import (
    Configs,
    Gops,
    Manifest,
    Segments,
    Shards,
    Timeline,
    Videos,
    failures_table,
    patterns_table,
)
from shortgop.manifests.zarr_files.zarr_sizes import BLOCK_ROWS
from shortgop.manifests.zarr_files.zarr_write import write_manifest
from shortgop.manifests.zarr_files.zarr_zip import pack_folder
from shortgop.storage.disk import DiskStorage

GOP_FRAMES, SEGMENT_GOPS = 16, 19
GOP_BYTES = (15_000, 45_000)
INIT_BYTES = 800
SHARD_BYTES = 256_000_000
PATTERNS = 4
DIGITS = 9
PART_VIDEOS = 1_000


def numbered(prefix: str, numbers: Array, suffix: str) -> Ragged:
    """The texts `prefix`, number in nine digits, `suffix`, without a Python string for each."""
    digits = numbers[:, None] // 10 ** np.arange(DIGITS - 1, -1, -1) % 10 + ord("0")
    texts = np.empty((len(numbers), len(prefix) + DIGITS + len(suffix)), dtype="u1")
    texts[:, : len(prefix)] = np.frombuffer(prefix.encode(), dtype="u1")
    texts[:, len(prefix) : len(prefix) + DIGITS] = digits
    texts[:, len(prefix) + DIGITS :] = np.frombuffer(suffix.encode(), dtype="u1")
    return Ragged(texts.ravel(), np.arange(len(numbers) + 1, dtype=np.int64) * texts.shape[1])


def made_up(numbers: Array, *, name: str = "u") -> Manifest:
    """A manifest of the videos with these numbers, ascending, in shards whose names start with `name`, without a
    timeline."""
    count = len(numbers)
    rng = np.random.default_rng([0, int(numbers[0]), count])
    gops = np.where(numbers % 4 == 3, 7, 6)
    first_gops = offsets_of(gops)
    lengths = rng.integers(*GOP_BYTES, int(first_gops[-1]), dtype="<i4")
    before = offsets_of(lengths)
    # Where each video would start if all were in one shard.
    starts = before[first_gops] + INIT_BYTES * np.arange(count + 1)
    shard = (starts[:-1] // SHARD_BYTES).astype("<i4")
    first_video = np.searchsorted(shard, np.arange(shard[-1] + 2))
    shard_starts = starts[first_video]
    offsets = starts[:-1] - shard_starts[shard]
    gop_offsets = before[:-1] + np.repeat(offsets + INIT_BYTES - before[first_gops[:-1]], gops)

    def full(value: int, dtype: str) -> Array:
        return np.full(count, value, dtype=dtype)

    nothing = Ragged(np.zeros(0, dtype="u1"), np.zeros(count + 1, dtype=np.int64))
    return Manifest(
        videos=Videos(
            id=numbered("", numbers, ".mp4"),
            source=numbered("videos/", numbers, ".mp4"),
            attributes=numbered('{"label": 1', numbers, "}"),
            identity=rng.integers(1 << 63, size=count, dtype="<u8"),
            fps_num=full(30, "<i8"),
            fps_den=full(1, "<i8"),
            num_frames=(GOP_FRAMES * gops).astype("<i8"),
            gop_frames=full(GOP_FRAMES, "<i4"),
            segment_gops=full(SEGMENT_GOPS, "<i4"),
            config=full(0, "<i4"),
            timebase_num=full(1, "<i8"),
            timebase_den=full(15360, "<i8"),
            path=numbered("/corpus/videos/", numbers, ".mp4"),
            given_up=nothing,
            dropped=full(0, "<i8"),
            repeated=full(0, "<i8"),
            salvaged=Ragged(np.zeros(0, dtype="<i8"), nothing.offsets),
            revision=full(0, "<i4"),
            after_edit=full(0, "<i8"),
        ),
        segments=Segments(
            shard=shard,
            offset=offsets,
            init_length=full(INIT_BYTES, "<i4"),
            init_crc32=rng.integers(1 << 32, size=count, dtype="<u4"),
        ),
        gops=Gops(
            offset=gop_offsets,
            length=lengths,
            crc32=rng.integers(1 << 32, size=len(lengths), dtype="<u4"),
            pattern=rng.integers(PATTERNS, size=len(lengths), dtype="<i4"),
        ),
        patterns=patterns_table(
            [
                (range(GOP_FRAMES), [frame % (number + 1) == 0 for frame in range(GOP_FRAMES)])
                for number in range(PATTERNS)
            ]
        ),
        configs=Configs(
            codec=from_texts(["h264"]),
            extradata=from_rows([bytes(40)]),
            width=np.array([340], dtype="<i4"),
            height=np.array([256], dtype="<i4"),
            primaries=np.ones(1, dtype="u1"),
            transfer=np.ones(1, dtype="u1"),
            matrix=np.ones(1, dtype="u1"),
            full_range=np.ones(1, dtype="u1"),
            pipeline=from_texts([""]),
        ),
        shards=Shards(
            name=from_texts(f"{name}{number:08x}-0.shard" for number in range(len(shard_starts) - 1)),
            length=np.diff(shard_starts),
        ),
        failures=failures_table([]),
        edits=edits_table([]),
        drops=drops_table({}),
        timeline=None,
    )


def make(out: Path, count: int, *, timeline: bool = False) -> Path:
    """A dataset of so many videos, unless it is there. Without `timeline` its snapshot lacks that table, which nothing
    that is measured here reads."""
    if (out / "complete").exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    manifest = made_up(np.arange(count))
    create(DiskStorage(out), {})
    (out / "shards").mkdir()
    for name, length in zip(manifest.shards.name.texts(), manifest.shards.length.tolist(), strict=True):
        with (out / shard_key(name)).open("wb") as file:
            file.truncate(length)
    snapshot = "000001"
    folder = out / ".tmp" / snapshot
    frames = int(manifest.first_frames[-1]) if timeline else 0
    blocks = (512 * np.arange(start, min(start + BLOCK_ROWS, frames)) for start in range(0, frames, BLOCK_ROWS))
    labels = LabelColumn("integer", 1_000_000_000 + np.arange(count), np.ones(count, dtype="u1"))
    attributes: dict[str, Any] = {"format_version": 3, "parts": [], "profile": {}}
    write_manifest(LocalStore(folder), manifest, attributes, blocks, {"label": labels})
    (out / "manifest").mkdir()
    pack_folder(folder, out / snapshot_key(snapshot))
    shutil.rmtree(out / ".tmp")
    change_root(DiskStorage(out), lambda root: replace(root, snapshot=snapshot))
    (out / "complete").touch()
    return out


def with_timeline(rows: Manifest) -> Manifest:
    """The same with a time for each frame."""
    timeline = Timeline(pts=512 * np.arange(int(rows.first_frames[-1]), dtype="<i8"))
    return replace(rows, timeline=timeline)


def write_more(dataset: Path, count: int) -> None:
    """Write the parts of 1 % more videos, in parts of 1,000, to a dataset of `count`."""
    numbers = np.arange(count, count + count // 100)
    for start in range(0, len(numbers), PART_VIDEOS):
        rows = made_up(numbers[start : start + PART_VIDEOS], name=f"v{start:07x}")
        write_part(DiskStorage(dataset), f"{start:016x}", merge([with_timeline(rows)]), {})
