"""The copies of a host of snapshots in layers, and layers that are damaged."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from dataset_paths import snapshot_path
from example_manifests import drop, rows, video
from large_datasets import MANY, add
from shortgop.errors import CorruptDataError
from shortgop.manifests.dataset_files.snapshots import open_layer, open_manifest, timeline_of
from shortgop.manifests.layering.layer_tables import ReusedOffsets
from shortgop.manifests.ragged import Array
from shortgop.manifests.schema import OFFSETS, SCHEMA
from shortgop.manifests.shared_memory.host_copies import HostCopies
from shortgop.manifests.shared_memory.mapped_tables import arrays_of
from shortgop.manifests.tables import DERIVED
from shortgop.manifests.zarr_files.zarr_small import array_files
from shortgop.manifests.zarr_files.zarr_zip import pack
from shortgop.storage.interface import Storage

pytestmark = pytest.mark.usefixtures("small_datasets_have_layers")


def test_the_copy_of_a_host_is_that_of_all_layers(large: Storage, tmp_path: Path) -> None:
    add(large, "new", video("v07b", shard="new.shard"), drop("v08", 1))
    copies = HostCopies(tmp_path / "copies", min_bytes=0)
    expected = open_manifest(large, "000002")
    # Put together with the columns: working them out takes one processor, and memory for each.
    assert vars(expected).keys() >= set(DERIVED)
    for _ in range(2):
        copied = open_manifest(large, "000002", copies=copies)
        assert rows(copied) == rows(expected)
        assert all(np.array_equal(array, arrays_of(expected)[name]) for name, array in arrays_of(copied).items())
        assert (
            timeline_of(large, "000002", copied, [7, 8]).tolist()
            == timeline_of(large, "000002", expected, [7, 8]).tolist()
        )
    # One of the new layer, and one of all rows: the oldest layer is decoded right into that.
    assert len([path for path in copies.folder.iterdir() if path.is_dir()]) == 2


def test_the_copy_is_the_same_where_the_oldest_layer_has_one(large: Storage, tmp_path: Path) -> None:
    add(large, "new", video("v07b", shard="new.shard"), drop("v08", 1))
    copies = [HostCopies(tmp_path / name, min_bytes=0) for name in ("decoded", "from-a-copy")]
    open_layer(large, "000001", copies=copies[1])
    one, other = (open_manifest(large, "000002", copies=each) for each in copies)
    assert rows(one) == rows(other) == rows(open_manifest(large, "000002"))


@pytest.mark.parametrize("column", ["videos/id", "videos/num_frames", "videos/path", "gops/pattern", "gops/crc32"])
def test_a_damaged_layer_has_no_copy_and_is_named(large: Storage, tmp_path: Path, column: str) -> None:
    add(large, "new", video("w1", shard="w1.shard"))
    damage(snapshot_path(Path(large.url), "000001"), f"{column}/c/0")
    copies = HostCopies(tmp_path / "copies", min_bytes=0)
    with pytest.raises(CorruptDataError, match=rf"000001\.zip: {column}/c/0 cannot be decoded"):
        open_manifest(large, "000002", copies=copies)
    # Nothing is left of what was begun.
    assert not list(copies.folder.glob("making-*"))


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("gops/pattern", np.full(120, 7, "<i4"), "gops/pattern refers to rows that do not exist"),
        ("gops/crc32", np.zeros(119, "<u4"), "column gops/crc32 has 119 rows, but needs 120"),
        ("videos/num_frames", np.zeros(MANY, "<i8"), "videos/num_frames has a value below 1"),
        ("videos/fps_den", np.zeros(MANY, "<i8"), "videos/fps_den has a value below 1"),
        ("videos/num_frames", np.full(MANY - 1, 9, "<i8"), "column videos/num_frames has 39 rows, but needs 40"),
        ("videos/path_offsets", np.zeros(MANY + 1, "<i8"), "offsets do not fit"),
    ],
)
def test_a_layer_whose_tables_do_not_go_together_is_named(
    large: Storage, tmp_path: Path, column: str, values: Array, said: str
) -> None:
    add(large, "new", video("w1", shard="w1.shard"))
    table, name = column.removesuffix("_offsets").split("/")
    schema = OFFSETS if column.endswith("_offsets") else SCHEMA[table][name]
    rewrite(snapshot_path(Path(large.url), "000001"), array_files(column, schema, values))
    with pytest.raises(CorruptDataError, match=rf"000001\.zip: .*{said}"):
        open_manifest(large, "000002", copies=HostCopies(tmp_path / "copies", min_bytes=0))


def test_offsets_of_a_layer_that_fall_are_named(large: Storage, tmp_path: Path) -> None:
    add(large, "new", video("w1", shard="w1.shard"))
    offsets = open_layer(large, "000001").videos.source.offsets.copy()
    offsets[[1, 2]] = offsets[[2, 1]]
    rewrite(snapshot_path(Path(large.url), "000001"), array_files("videos/source_offsets", OFFSETS, offsets))
    with pytest.raises(CorruptDataError, match="videos/source: offsets do not fit"):
        open_manifest(large, "000002", copies=HostCopies(tmp_path / "copies", min_bytes=0))


def test_offsets_are_compared_across_the_pieces_that_they_come_in() -> None:
    offsets = ReusedOffsets(4)
    for second, falls in (([7, 8], False), ([2, 8], True), ([3, 8], False)):
        column = offsets.new("", 4, "<i8")
        column.put(2, np.array(second))
        column.put(0, np.array([0, 3]))
        assert column.ever_falls == falls
        assert column.made().tolist() == [0, 3, *second]


def damage(file: Path, member: str) -> None:
    """Change a byte in the middle of a member of a zip file, so that the directory is as it was."""
    with zipfile.ZipFile(file) as archive:
        data = archive.read(member)
    content = file.read_bytes()
    at = content.index(data) + len(data) // 2
    file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def rewrite(file: Path, members: dict[str, bytes]) -> None:
    """Replace members of a zip file."""
    with zipfile.ZipFile(file) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    file.write_bytes(pack(files | members))
