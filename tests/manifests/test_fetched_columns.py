"""Opening a snapshot in a store fetches its columns in groups, of which one is in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scale_data import make

from example_manifests import rows
from shortgop.manifests.dataset_files.layout import snapshot_key
from shortgop.manifests.dataset_files.root_file import read_root
from shortgop.manifests.layering.layer_tables import EncodedTables, read_first, read_whole
from shortgop.manifests.layering.layers import combined_tables
from shortgop.manifests.shared_memory.new_arrays import in_memory
from shortgop.manifests.tables import Manifest
from shortgop.manifests.zarr_files import zarr_zip
from shortgop.manifests.zarr_files.fetched_columns import fetching_in_turn, grouped
from shortgop.manifests.zarr_files.zarr_read import column_paths, read_manifest
from shortgop.storage import opened_objects
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at


@given(
    st.lists(st.integers(0, 20)).map(lambda lengths: {f"column {n}": each for n, each in enumerate(lengths)}),
    st.integers(0, 50),
)
def test_groups_are_runs_of_columns_that_are_as_long_as_they_may_be(sizes: dict[str, int], max_bytes: int) -> None:
    def num_bytes(names: Sequence[str]) -> int:
        return sum(sizes[name] for name in names)

    groups = grouped(sizes, max_bytes)
    assert [name for group in groups for name in group] == list(sizes)
    assert all(len(group) == 1 or num_bytes(group) <= max_bytes for group in groups)
    assert all(
        num_bytes([*group, following[0]]) > max_bytes for group, following in zip(groups, groups[1:], strict=False)
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> DiskStorage:
    """Twenty thousand videos: columns of many lengths."""
    return DiskStorage(make(tmp_path_factory.mktemp("made up") / "dataset", 20_000))


def key_of(dataset: Storage) -> str:
    return snapshot_key(str(read_root(dataset).snapshot))


@pytest.fixture
def in_store(dataset: DiskStorage, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """The same in S3. Of a large file the end is next to nothing, and ranges are of many pieces."""
    store = storage_at(s3_url)
    store.put_new_file(key_of(dataset), Path(dataset.place(key_of(dataset))))
    monkeypatch.setattr(opened_objects, "TAIL_BYTES", 32 * 1024)
    monkeypatch.setattr(opened_objects, "PIECE_BYTES", 100_000)
    monkeypatch.setattr(opened_objects, "MAX_GAP_BYTES", 0)
    return store


def all_tables(members: zarr_zip.Members, max_bytes: int) -> Manifest:
    """As a snapshot without layers is read."""
    columns = column_paths(timeline=False)
    before = fetching_in_turn(members, columns, max_bytes=max_bytes)
    return read_manifest(members, timeline=False, before=before)


def oldest_layer(members: zarr_zip.Members, max_bytes: int) -> Manifest:
    """As the oldest layer of a snapshot is read while it is put together with the others."""
    before = fetching_in_turn(members, read_whole(), first=read_first(), max_bytes=max_bytes)
    return combined_tables([EncodedTables(members, before)], in_memory)


@pytest.mark.first_case_short
@pytest.mark.parametrize("read", [all_tables, oldest_layer])
@pytest.mark.parametrize("max_bytes", [1, 50_000, 1 << 30])
def test_whatever_is_fetched_together_nothing_is_asked_for_by_itself(
    dataset: DiskStorage, in_store: Storage, monkeypatch: pytest.MonkeyPatch, read: Any, max_bytes: int
) -> None:
    key, fetched = key_of(dataset), [0]
    fetch = zarr_zip.Members.will_need

    def watched(members: zarr_zip.Members, soon: Callable[[str], bool]) -> None:
        had = in_store.counts().bytes_read
        fetch(members, soon)
        fetched.append(in_store.counts().bytes_read - had)

    monkeypatch.setattr(zarr_zip.Members, "will_need", watched)
    with zarr_zip.reading(in_store, key) as members:
        started = in_store.counts()
        found = read(members, max_bytes)
        ended = in_store.counts()
        lengths = dict.fromkeys(column_paths(timeline=False), 0)
        for name, (length, _) in members.contents().items():
            column = "/".join(name.split("/")[:2]).removesuffix("_offsets")
            lengths[column] = lengths.get(column, 0) + length
    with zarr_zip.reading(dataset, key) as members:
        assert rows(found) == rows(read(members, max_bytes))
    assert ended.bytes_read - started.bytes_read == sum(fetched)
    first = sum(lengths[column] for column in read_first()) if read is oldest_layer else 0
    # What else is fetched with a column is the headers of its members.
    assert max(fetched) <= 1.1 * max(max_bytes, first, *lengths.values())
    # A column lies in one run of the file, and the documents of tables lie between these.
    assert ended.requests - started.requests <= sum(fetched) // 100_000 + len(lengths) + 20
