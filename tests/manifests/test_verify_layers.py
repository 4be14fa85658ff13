"""`verify` of a dataset in layers finds what it finds in one without, and takes memory for a block of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale_data import made_up

from dataset_paths import snapshot_path
from datasets import make_dataset
from example_manifests import colliding_parts, drop, edit, failure, video
from large_datasets import OLD, add, published
from layers_everywhere import layers_everywhere
from shortgop.manifests.dataset_files.parts import pack
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import read_root
from shortgop.manifests.dataset_files.snapshot_files import layers_below
from shortgop.manifests.dataset_files.snapshots import (
    open_current,
    open_layer,
    open_manifest,
    open_tables_of_ids,
    open_video_blocks,
)
from shortgop.manifests.layering import layer_blocks, layers
from shortgop.manifests.layering.layer_check import tables_that_differ
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.operations.verify import verify
from shortgop.manifests.ragged import Ragged
from shortgop.manifests.shared_memory.mapped_tables import arrays_of
from shortgop.manifests.stacking import take, with_videos
from shortgop.manifests.tables import Manifest, Timeline
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from synthetic import constant_rate_pts, make_video

RATE = Fraction(25)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos in two shards, of two jobs."""
    folder = tmp_path_factory.mktemp("whole")
    for number, name in enumerate(("a.mp4", "b.mp4", "c.mp4")):
        make_video(folder / name, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=100 * number)
    make_dataset([folder / "a.mp4", folder / "b.mp4"], folder / "dataset")
    make_dataset([folder / "c.mp4"], folder / "dataset")
    return folder / "dataset"


@pytest.fixture(scope="module")
def layered(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same dataset, with the second job's videos in a layer on top."""
    copy = tmp_path_factory.mktemp("layered") / "dataset"
    shutil.copytree(whole, copy)
    snapshot_path(copy, "000002").unlink()
    (copy / "zarr.json").write_text((copy / "zarr.json").read_text().replace('"000002"', '"000001"'))
    with layers_everywhere():
        publish(DiskStorage(copy))
    assert layers_below(DiskStorage(copy), "000002") == ("000001",)
    return copy


def findings(dataset: Path) -> list[str]:
    place = DiskStorage(dataset)
    root, manifest = open_current(place)
    assert root.snapshot == "000002"
    return [str(each).replace(str(dataset), "DATASET") for each in verify(place, manifest, snapshot=root.snapshot)]


@pytest.mark.long
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_damaged_bytes_are_found_as_in_a_dataset_without_layers(
    whole: Path, layered: Path, data: st.DataObject
) -> None:
    shard = data.draw(st.sampled_from(sorted(file.name for file in (whole / "shards").iterdir())))
    content = (whole / "shards" / shard).read_bytes()
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(content) - 1))] ^= 1
    length = data.draw(st.sampled_from([len(content), len(content) // 2]))
    try:
        for dataset in (whole, layered):
            (dataset / "shards" / shard).write_bytes(damaged[:length])
        found = findings(layered)
        assert found == findings(whole)
        assert found or bytes(damaged) == content
    finally:
        for dataset in (whole, layered):
            (dataset / "shards" / shard).write_bytes(content)


def test_neither_has_problems_as_it_was_written(whole: Path, layered: Path) -> None:
    assert findings(whole) == findings(layered) == []


def test_labels_that_differ_are_found_in_their_layer(layered: Path, tmp_path: Path) -> None:
    copy = tmp_path / "dataset"
    shutil.copytree(layered, copy)
    layer = with_timeline(open_layer(DiskStorage(copy), "000001"))
    texts = layer.videos.attributes.take(np.zeros(len(layer.videos), np.int64))
    assert texts.texts() == ["{}", "{}"]
    labelled = replace(layer, videos=replace(layer.videos, attributes=of_bytes([b'{"label": 1}', b"{}"])))
    snapshot_path(copy, "000001").write_bytes(packed(labelled))
    file = "DATASET/manifest/000001.zip"
    assert findings(copy) == [f"{file}: it has the columns [], its videos' attributes have ['label']"]


def of_bytes(rows: list[bytes]) -> Ragged:
    return Ragged(np.frombuffer(b"".join(rows), "u1"), np.cumsum([0, *map(len, rows)]))


def with_timeline(rows: Manifest) -> Manifest:
    return replace(rows, timeline=Timeline(pts=512 * np.arange(int(rows.first_frames[-1]), dtype="<i8")))


def packed(rows: Manifest) -> bytes:
    """The file of a snapshot with these rows."""
    assert rows.timeline is not None
    return pack(rows, {"format_version": 4, "parts": [], "profile": {}}, iter([rows.timeline.pts]), {}, layers=())


def different_tables(dataset: Storage, manifest: Manifest) -> list[str]:
    snapshot = str(read_root(dataset).snapshot)
    names = (*layers_below(dataset, snapshot), snapshot)
    return tables_that_differ(
        manifest, [(open_tables_of_ids(dataset, name), open_video_blocks(dataset, name)) for name in names]
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """A dataset with rows in every table, in two layers, without shards."""
    with layers_everywhere():
        dataset = published(tmp_path_factory.mktemp("small") / "dataset", [OLD])
        new = video("v07", shard="again.shard", frames=5, revision=1, attributes='{"label": 7}')
        add(dataset, "new", new, edit("v09", 1, label=70), drop("v08", 1), failure("w", "cut short"))
    return dataset


COLUMNS = [
    f"{table.name}/{column.name}"
    for table in fields(merge(OLD))
    if table.name not in ("timeline", "origins")
    for column in fields(getattr(merge(OLD), table.name))
]


@pytest.mark.first_case_short
@pytest.mark.parametrize("path", COLUMNS)
def test_a_changed_value_is_found_in_its_table(small: Storage, path: str) -> None:
    manifest = open_manifest(small, "000002")
    assert path.partition("/")[0] in different_tables(small, with_other_value(manifest, path))


def with_other_value(manifest: Manifest, path: str) -> Manifest:
    """The manifest with another value in a row of a column."""
    table_name, column_name = path.split("/")
    # The only video in which segments of three GOPs are as many as those of two.
    at = manifest.row_of("v07") if column_name == "segment_gops" else -1
    table = getattr(manifest, table_name)
    column = getattr(table, column_name)
    if isinstance(column, Ragged):
        rows: list[Any] = [column.row(row).copy() for row in range(len(column))]
        rows[-1] = np.append(rows[-1], column.values.dtype.type(1))
        changed: Any = Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
    else:
        changed = column.copy()
        # References must stay within their table, and numbers of GOPs as they are.
        others = {"num_frames": 10, "gop_frames": 3, "segment_gops": 3}
        changed[at] = others.get(column_name, int(changed[at]) ^ 1)
        if path == "videos/config":
            configs = take(manifest.configs, np.array([0, 0]))
            manifest = replace(manifest, configs=replace(configs, width=np.array([320, 640], "<i4")))
    made: Any = {table_name: replace(table, **{column_name: changed})}
    return replace(manifest, **made)


def test_numbers_in_another_order_are_found(small: Storage) -> None:
    manifest = open_manifest(small, "000002")
    backwards = np.arange(len(manifest.shards))[::-1]
    segments = replace(manifest.segments, shard=backwards[manifest.segments.shard].astype("<i4"))
    other = replace(manifest, shards=take(manifest.shards, backwards), segments=segments)
    # Each video lies where it lay.
    assert different_tables(small, other) == ["shards"]


def test_a_missing_video_is_found_wherever_it_is_missing(small: Storage) -> None:
    manifest = open_manifest(small, "000002")
    for row in (0, len(manifest.videos) // 2, len(manifest.videos) - 1):
        rows = np.delete(np.arange(len(manifest.videos)), row)
        assert "videos" in different_tables(small, with_videos(manifest, rows))


_PARTS = colliding_parts("v03", "v03é", "v20", "z" * 200, "x")


@pytest.mark.long
@given(st.lists(st.lists(_PARTS, min_size=1, max_size=3), min_size=1, max_size=3), st.sampled_from([1, 300, 1 << 20]))
@settings(max_examples=12, deadline=None)
def test_layers_that_were_written_by_the_rules_have_no_problems(steps: list[list[Manifest]], block_bytes: int) -> None:
    with layers_everywhere(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_blocks, "_BLOCK_BYTES", block_bytes)
        dataset = published(storage_at(f"memory://{uuid.uuid4().hex}"), [OLD])
        for number, parts in enumerate(steps):
            add(dataset, f"step{number}", *parts)
        assert different_tables(dataset, open_manifest(dataset, str(read_root(dataset).snapshot))) == []


def test_ids_that_do_not_ascend_are_damage(small: Storage, tmp_path: Path) -> None:
    copy = tmp_path / "dataset"
    shutil.copytree(small.url, copy)
    layer = with_timeline(open_layer(small, "000001"))
    backwards = replace(layer.videos, id=layer.videos.id.take(np.arange(len(layer.videos))[::-1]))
    snapshot_path(copy, "000001").write_bytes(packed(replace(layer, videos=backwards)))
    place = DiskStorage(copy)
    problems = [each.what for each in verify(place, open_manifest(place, "000002"), snapshot="000002")]
    assert any("the ids of its table videos do not ascend" in each for each in problems)


CHECK = """
import json, resource, sys
from pathlib import Path
from shortgop.manifests.layering import layer_blocks
from shortgop.manifests.operations import snapshot_check, verify
from shortgop.manifests.shared_memory.scratch_arrays import ScratchArrays
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.storage.disk import DiskStorage

layer_blocks._BLOCK_BYTES, snapshot_check._TIMELINE_ROWS = 1 << 20, 1 << 16
dataset, limit_bytes = DiskStorage(Path(sys.argv[1])), int(sys.argv[2])
before = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) * 1024
# All memory that is not that of files. The peak that rusage gives would contain that of the process that started this.
resource.setrlimit(resource.RLIMIT_DATA, (before + limit_bytes, resource.RLIM_INFINITY))
root, manifest = open_current(dataset, new_array=ScratchArrays(lambda: Path(sys.argv[3])).new)
found = verify.verify(dataset, manifest, snapshot=root.snapshot)
print(json.dumps([len(manifest.videos), *(problem.what for problem in found if "manifest" in problem.file)]))
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the memory of a process as Linux does")
def test_verify_takes_memory_for_a_block_of_the_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MIN_ROWS", 1)
    numbers = np.arange(150_000)
    newer = numbers % 100 == 7
    old, new = (with_timeline(made_up(numbers[which], name=name)) for which, name in ((~newer, "u"), (newer, "v")))
    dataset = published(tmp_path / "dataset", [[old], [new]])
    assert layers_below(dataset, "000002") == ("000001",)
    tables_bytes = sum(each.nbytes for each in arrays_of(open_manifest(dataset, "000002")).values())
    # Threads and whole chunks, however long the tables are, are most of it. All layers merged in memory take four times
    # the tables.
    argv = [sys.executable, "-c", CHECK, dataset.url, str(2 * tables_bytes), str(tmp_path / "scratch")]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, "MALLOC_ARENA_MAX": "1"}
    )
    assert (done.returncode, done.stderr[-2000:]) == (0, "")
    assert json.loads(done.stdout) == [150_000]
