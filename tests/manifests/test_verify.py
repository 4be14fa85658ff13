"""`verify` finds every damage, says where it is, and goes on."""

import os
import shutil
import zipfile
import zlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dataset_paths import shard_path, snapshot_path
from datasets import make_dataset
from shortgop.cli import app
from shortgop.manifests.dataset_files.parts import read_part, write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.mp4 import restamp_fragment
from shortgop.manifests.operations.problem import Problem
from shortgop.manifests.operations.verify import stray_files, verify
from shortgop.manifests.ragged import from_texts
from shortgop.manifests.tables import Drops, Edits, Manifest, Timeline, failures_table
from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import storage_at
from store_helpers import put
from synthetic import SyntheticVideo


@pytest.fixture(scope="module")
def original(
    constant_video: SyntheticVideo, variable_video: SyntheticVideo, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Make a dataset of two videos, in segments of two or three GOPs."""
    dataset = tmp_path_factory.mktemp("verify") / "dataset"
    make_dataset([constant_video.path, variable_video.path], dataset, segment_seconds=Fraction(1))
    return dataset


@pytest.fixture
def dataset(original: Path, tmp_path: Path) -> Path:
    """Copy the dataset, for damaging it."""
    shutil.copytree(original, tmp_path / "dataset")
    return tmp_path / "dataset"


def opened(dataset: Path) -> Manifest:
    return open_current(DiskStorage(dataset))[1]


def only_shard(dataset: Path) -> Path:
    (shard,) = (dataset / "shards").iterdir()
    return shard


def problems(dataset: Path, manifest: Manifest | None = None) -> list[Problem]:
    return list(verify(DiskStorage(dataset), manifest or opened(dataset)))


def with_value(manifest: Manifest, column: str, row: int, value: int) -> Manifest:
    table_name, column_name = column.split("/")
    table = getattr(manifest, table_name)
    values = getattr(table, column_name).copy()
    values[row] = value
    changes: dict[str, Any] = {table_name: replace(table, **{column_name: values})}
    return replace(manifest, **changes)


def test_a_dataset_as_it_was_written_has_no_problems(original: Path) -> None:
    root, manifest = open_current(DiskStorage(original))
    seen = []
    assert list(verify(DiskStorage(original), manifest, snapshot=root.snapshot, on_gop=lambda: seen.append(1))) == []
    assert len(seen) == len(manifest.gops) > 10
    assert stray_files(DiskStorage(original), manifest) == []


@pytest.mark.parametrize("codec", ["hevc", "av1"])
def test_other_codecs_have_no_problems_either(codec: str, constant_video: SyntheticVideo, tmp_path: Path) -> None:
    make_dataset([constant_video.path], tmp_path / "dataset", codec=codec)
    assert problems(tmp_path / "dataset") == []


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_anywhere_is_found_and_only_there(original: Path, data: st.DataObject) -> None:
    manifest, file = opened(original), only_shard(original)
    content = file.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        file.write_bytes(damaged)
        (found,) = problems(original, manifest)
    finally:
        file.write_bytes(content)
    assert found.byte_range is not None
    assert found.byte_range[0] <= at < found.byte_range[1]
    assert found.file == str(file)
    assert found.video in manifest.ids
    assert "CRC-32" in found.what


def test_a_problem_says_which_frames_of_which_video(dataset: Path) -> None:
    manifest, file = opened(dataset), only_shard(dataset)
    row = manifest.row_of("constant.mp4")
    gop = int(manifest.first_gops[row]) + 6
    start = int(manifest.gops.offset[gop])
    stop = start + int(manifest.gops.length[gop])
    content = bytearray(file.read_bytes())
    content[stop - 1] ^= 1
    file.write_bytes(content)
    segment = int(manifest.first_segments[row]) + 6 // manifest.video(row).segment_gops
    (problem,) = problems(dataset)
    assert str(problem) == (
        f"{file}, bytes {start} to {stop}: the bytes are not those that were written: their CRC-32 differs "
        f"(frames 96 to 99 of video 'constant.mp4', segment {segment})"
    )


def test_all_problems_are_found(dataset: Path) -> None:
    file = only_shard(dataset)
    content = bytearray(file.read_bytes())
    for start in opened(dataset).gops.offset.tolist():
        content[start + 100] ^= 1
    file.write_bytes(content)
    assert len(problems(dataset)) == len(opened(dataset).gops)


def test_a_missing_shard(dataset: Path) -> None:
    file = only_shard(dataset)
    file.unlink()
    seen = []
    found = list(verify(DiskStorage(dataset), opened(dataset), on_gop=lambda: seen.append(1)))
    assert found == [Problem("is missing", str(file))]
    assert len(seen) == len(opened(dataset).gops)


def test_a_missing_shard_in_a_store_is_one_problem_too(dataset: Path, s3_url: str) -> None:
    for file in dataset.glob("*/*.zip"):
        put(f"{s3_url}/{file.relative_to(dataset)}", file)
    put(f"{s3_url}/zarr.json", dataset / "zarr.json")
    place, name = storage_at(s3_url), only_shard(dataset).name
    assert list(verify(place, open_current(place)[1])) == [Problem("is missing", f"{s3_url}/shards/{name}")]


def test_a_shard_that_was_cut(dataset: Path) -> None:
    file, length = only_shard(dataset), int(opened(dataset).shards.length[0])
    os.truncate(file, length - 10)
    first, second = problems(dataset)
    assert first == Problem(f"has {length - 10} bytes, the manifest says {length}", str(file))
    assert "it was cut" in second.what


def test_a_shard_with_something_behind_it(dataset: Path) -> None:
    file, length = only_shard(dataset), int(opened(dataset).shards.length[0])
    os.truncate(file, length + 10)
    assert problems(dataset) == [Problem(f"has {length + 10} bytes, the manifest says {length}", str(file))]


def test_bytes_that_belong_to_nothing_or_to_two(dataset: Path) -> None:
    manifest, file = opened(dataset), only_shard(dataset)
    offset = int(manifest.gops.offset[3])
    found = problems(dataset, with_value(manifest, "gops/offset", 3, offset + 4))
    assert [problem.what for problem in found] == [
        "no segment or GOP covers these bytes",
        "the bytes are not those that were written: their CRC-32 differs",
        "two segments or GOPs cover these bytes",
    ]
    assert found[0].byte_range == (offset, offset + 4)
    shorter = with_value(manifest, "shards/length", 0, int(manifest.shards.length[0]) - 4)
    os.truncate(file, int(shorter.shards.length[0]))
    assert problems(dataset, shorter)[-1].what == "two segments or GOPs cover these bytes"


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("gops/length", 0, "are no range: the manifest is damaged"),
        ("gops/offset", -5, "are no range: the manifest is damaged"),
        ("gops/pattern", 1, "its samples do not follow pattern 1"),
        ("gops/crc32", 0, "their CRC-32 differs"),
        ("segments/init_crc32", 0, "the init: the bytes are not those that were written"),
        ("configs/width", 98, "the init: it does not match codec configuration 0 of the video"),
        ("videos/fps_num", 31, "the init: a frame at 31 frames/s does not last a whole number of ticks"),
    ],
)
def test_a_manifest_that_does_not_fit_its_shards(dataset: Path, column: str, value: int, complaint: str) -> None:
    found = problems(dataset, with_value(opened(dataset), column, 0, value))
    assert any(complaint in problem.what for problem in found)


@pytest.mark.parametrize(
    ("sequence_number", "decode_ticks", "complaint"),
    [(7, 0, "the fragment has sequence number 7, not 1"), (1, 512, "the GOP starts at tick 512, not 0 as planned")],
)
def test_bytes_that_are_as_written_but_not_as_they_must_be(
    dataset: Path, sequence_number: int, decode_ticks: int, complaint: str
) -> None:
    manifest, file = opened(dataset), only_shard(dataset)
    content = bytearray(file.read_bytes())
    start, stop = int(manifest.gops.offset[0]), int(manifest.gops.offset[0] + manifest.gops.length[0])
    content[start:stop] = restamp_fragment(bytes(content[start:stop]), sequence_number, decode_ticks)
    file.write_bytes(content)
    (found,) = problems(dataset, with_value(manifest, "gops/crc32", 0, zlib.crc32(content[start:stop])))
    assert found.what == complaint


def test_a_timeline_that_runs_backwards(dataset: Path) -> None:
    (unit,) = [file.stem for file in (dataset / "parts").iterdir()]
    found = read_part(DiskStorage(dataset), unit)
    assert found.timeline is not None
    pts = found.timeline.pts.copy()
    row = found.row_of("constant.mp4")
    at = int(found.first_frames[row]) + 50
    pts[at] = pts[at - 1] - 1
    write_part(DiskStorage(dataset), unit, replace(found, timeline=Timeline(pts=pts)))
    # What is in a snapshot stays; so this one is made from the new part alone.
    shutil.rmtree(dataset / "manifest")
    (dataset / "parts" / f"{unit}.zip").unlink()
    root = (dataset / "zarr.json").read_text()
    (dataset / "zarr.json").write_text(root.replace('"000001"', "null"))
    publish(DiskStorage(dataset))
    current, manifest = open_current(DiskStorage(dataset))
    (problem,) = verify(DiskStorage(dataset), manifest, snapshot=current.snapshot)
    assert (problem.what, problem.video, problem.frames) == (
        "the source pts is below that of the frame before",
        "constant.mp4",
        (50, 51),
    )


@pytest.mark.parametrize(("table", "ids", "is_sound"), [
    ("videos", ["a", "b"], True), ("videos", ["b", "a"], False), ("videos", ["a", "a"], False),
    ("failures", ["a", "b"], True), ("failures", ["b", "a"], False),
    ("drops", ["a", "a"], False), ("edits", ["a", "a"], True), ("edits", ["b", "a"], False),
])  # fmt: skip
def test_ids_that_are_not_in_order(original: Path, table: str, ids: list[str], is_sound: bool) -> None:
    """Binary search would not find them."""
    root, manifest = open_current(DiskStorage(original))
    tables = {
        "videos": replace(manifest.videos, id=from_texts(ids)),
        "failures": failures_table([(each, "", "why", 0, "") for each in ids]),
        "drops": Drops(id=from_texts(ids), number=np.ones(2, "<i8"), revision=np.zeros(2, "<i4")),
        "edits": Edits(from_texts(ids), np.array([1, 2]), from_texts(["{}"] * 2), from_texts(["[]"] * 2)),
    }
    changes: dict[str, Any] = {table: tables[table]}
    found = list(verify(DiskStorage(original), replace(manifest, **changes), snapshot=root.snapshot))
    expected = [] if is_sound else [f"the ids of its table {table} do not ascend"]
    assert [(each.what, each.file) for each in found] == [
        (what, str(snapshot_path(original, root.snapshot or ""))) for what in expected
    ]


def test_a_damaged_timeline(dataset: Path) -> None:
    file = snapshot_path(dataset, "000001")
    with zipfile.ZipFile(file) as archive:
        start = archive.getinfo("timeline/pts/c/0").header_offset
    data = bytearray(file.read_bytes())
    data[start + 60] ^= 1
    file.write_bytes(data)
    root, manifest = open_current(DiskStorage(dataset))
    (problem,) = verify(DiskStorage(dataset), manifest, snapshot=root.snapshot)
    assert problem.file == str(file)


def test_files_that_the_manifest_does_not_know_are_no_problem(dataset: Path) -> None:
    stray = shard_path(dataset, "0123456789abcdef-0.shard")
    stray.write_bytes(b"of a unit that was never finished")
    assert problems(dataset) == []
    assert stray_files(DiskStorage(dataset), opened(dataset)) == [str(stray)]


def test_many_files_that_the_manifest_does_not_know_are_told_in_one_line(dataset: Path) -> None:
    """As after `compact`: there was a line for each."""
    strays = [shard_path(dataset, f"{number:016}-0.shard") for number in range(3)]
    for stray in strays:
        stray.write_bytes(b"of an earlier snapshot")
    done = CliRunner().invoke(app, ["verify", str(dataset)])
    assert done.exit_code == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"note: 3 files not in the current snapshot, such as {strays[0]}; earlier snapshots, or a job that "
    )
