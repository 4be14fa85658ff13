"""Snapshots in layers: a large dataset that grows by little gets a small file, and its rows are those of one that was
written whole."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from pathlib import Path

import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_paths import snapshot_path
from datasets import timeline_rows
from example_manifests import colliding_parts, drop, edit, failure, rows, video
from large_datasets import MANY, OLD, add, published
from shortgop.errors import MissingDataError
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import read_root
from shortgop.manifests.dataset_files.snapshot_files import layers_below, parts_in, snapshot_attributes
from shortgop.manifests.dataset_files.snapshots import open_failures, open_layer, open_manifest, timeline_of
from shortgop.manifests.dataset_files.tidy import remove_old_snapshots
from shortgop.manifests.dataset_files.video_columns import LabelColumns
from shortgop.manifests.layering import layers
from shortgop.manifests.layering.layers import combined, layers_that_stay
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.compact import compact
from shortgop.manifests.operations.history import history
from shortgop.manifests.operations.verify import verify
from shortgop.manifests.parsed_columns import derived_columns
from shortgop.manifests.shared_memory.host_copies import HostCopies
from shortgop.manifests.tables import Manifest
from shortgop.manifests.zarr_files import zarr_sizes
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from sweep import SWEEP

pytestmark = pytest.mark.usefixtures("small_datasets_have_layers")


def in_memory() -> Storage:
    """A new place that ends with the process: nothing waits for a disk."""
    return storage_at(f"memory://{uuid.uuid4().hex}")


def problems(dataset: Storage, snapshot: str) -> list[str]:
    """What `verify` finds in the manifest. There are no shards."""
    manifest = open_manifest(dataset, snapshot)
    return [each.what for each in verify(dataset, manifest, snapshot=snapshot) if "shards" not in each.file]


def test_a_snapshot_of_a_large_dataset_has_the_new_rows_alone(large: Storage) -> None:
    assert add(large, "new", video("v07b", shard="new.shard")) == "000002"
    assert layers_below(large, "000002") == ("000001",)
    assert open_layer(large, "000002").ids == ["v07b"]
    manifest = open_manifest(large, "000002")
    assert manifest.ids == sorted([*(f"v{number:02}" for number in range(MANY)), "v07b"])
    assert rows(open_manifest(large, "000002", timeline=True)) == rows(merge([*OLD, video("v07b", shard="new.shard")]))
    assert snapshot_attributes(large, "000002")["parts"] == ["newu00"]
    assert parts_in(large, "000002") == {"newu00", "s0u00"}


def test_the_first_snapshot_that_was_layered_stays_as_it_is(large: Storage) -> None:
    before = rows(open_manifest(large, "000001", timeline=True))
    add(large, "new", video("v07", shard="0.shard", revision=1), drop("v08", 1), edit("v09", 1, label=1000))
    assert rows(open_manifest(large, "000001", timeline=True)) == before


def test_a_video_that_was_made_again_hides_the_one_below(large: Storage) -> None:
    again = video("v07", shard="again.shard", frames=4, revision=1)
    add(large, "new", again)
    manifest = open_manifest(large, "000002")
    assert len(manifest.videos) == MANY
    assert manifest.videos.num_frames[manifest.row_of("v07")] == 4
    assert timeline_of(large, "000002", manifest, [manifest.row_of("v07")]).tolist() == [0, 1001, 2002, 3003]


def test_a_dropped_video_is_hidden_until_it_comes_back(large: Storage) -> None:
    add(large, "drop", drop("v07", 1))
    assert "v07" not in open_manifest(large, "000002").ids
    add(large, "back", video("v07", shard="back.shard", revision=1, after_edit=1))
    assert "v07" in open_manifest(large, "000003").ids


def test_an_edit_stores_its_video_again_and_no_other(large: Storage) -> None:
    add(large, "edit", edit("v07", 1, label=70), edit("v09", 1, "split"))
    assert open_layer(large, "000002").ids == ["v07", "v09"]
    manifest = open_manifest(large, "000002")
    assert json.loads(manifest.video(manifest.row_of("v07")).attributes_json) == {"label": 70, "split": "train"}
    assert json.loads(manifest.video(manifest.row_of("v09")).attributes_json) == {"label": 9}
    # The bytes are where they were.
    assert manifest.shards.name.texts() == open_manifest(large, "000001").shards.name.texts()


def test_labels_of_all_videos_leave_no_layer_whose_rows_are_all_hidden() -> None:
    ids = [f"v{number}" for number in range(10)]
    # Videos of many GOPs: an edit is one row of many that their layer takes.
    dataset = published(in_memory(), [[video(each, frames=100) for each in ids]])
    for number in range(1, 4):
        add(dataset, f"edit{number}", *(edit(each, number, label=number) for each in ids))
        assert layers_below(dataset, f"{number + 1:06}") == ()


def test_few_videos_with_long_labels_are_as_large_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MIN_ROWS", 1_000)

    def labelled(num_numbers: int) -> Storage:
        embedding = json.dumps({"embedding": [0.123456789] * num_numbers})
        videos = [video(f"v{number}", attributes=embedding) for number in range(10)]
        return published(in_memory(), [videos, [edit("v3", 1, label=3)]])

    assert layers_below(labelled(num_numbers=1), "000002") == ()
    long = labelled(num_numbers=1_000)
    assert layers_below(long, "000002") == ("000001",)
    assert open_layer(long, "000002").ids == ["v3"]
    columns = LabelColumns(long, "000002", open_manifest(long, "000002"))
    assert columns["label"].present.tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert columns["embedding"].present.tolist() == [1] * 10


def test_a_failure_goes_when_its_source_comes(large: Storage) -> None:
    add(large, "new", video("x", shard="new.shard"), failure("y", "cut short"))
    assert open_failures(large, "000002").id.texts() == ["v99", "y"]
    assert open_manifest(large, "000002").failures.id.texts() == ["v99", "y"]
    add(large, "again", failure("y", "no video", attempted_ns=1))
    assert open_failures(large, "000003").reason.texts() == ["no video", "no video"]


def test_a_late_part_of_a_video_that_is_there_changes_nothing(large: Storage) -> None:
    before = rows(open_manifest(large, "000001", timeline=True))
    # Another attempt at the same unit, whose worker was thought dead. The shard that sorts first counts.
    add(large, "late", video("v07", shard="zz.shard", frames=9))
    assert rows(open_manifest(large, "000002", timeline=True)) == before


def test_layers_of_like_length_become_one() -> None:
    dataset = published(in_memory(), [OLD, *([video(f"new{number}")] for number in range(9))])
    below = [layers_below(dataset, f"{number:06}") for number in range(1, 11)]
    assert below[:3] == [(), ("000001",), ("000001",)]
    # Never more than a few, however often something is published, and in the end there is one again.
    assert max(len(each) for each in below) <= 2
    add(dataset, "many", merge([video(f"many{number}") for number in range(10)]))
    assert layers_below(dataset, "000011") == ()


def test_which_layers_stay() -> None:
    assert layers_that_stay([], 5, min_rows=10) == 0
    assert layers_that_stay([9], 1, min_rows=10) == 0
    assert layers_that_stay([100], 1, min_rows=10) == 1
    assert layers_that_stay([100], 25, min_rows=10) == 0
    assert layers_that_stay([100, 5], 1, min_rows=10) == 2
    assert layers_that_stay([100, 4], 1, min_rows=10) == 1
    # What is merged with the newest layer may be too much for the one below.
    assert layers_that_stay([100, 21, 4], 1, min_rows=10) == 2
    assert layers_that_stay([100, 20, 4], 1, min_rows=10) == 0


@given(st.lists(st.integers(1, 10**6), max_size=8), st.integers(1, 10**6))
def test_each_layer_has_several_times_the_rows_of_all_above(lengths: list[int], new: int) -> None:
    stay = layers_that_stay(lengths, new, min_rows=1)
    on_top = [*lengths[:stay], new + sum(lengths[stay:])]
    if stay:
        assert on_top[-2] > 4 * on_top[-1]


_PARTS = colliding_parts("v03", "v03é", "v20", "z" * 200, "x")


@pytest.mark.long
@given(st.lists(st.lists(_PARTS, min_size=1, max_size=3), max_size=5))
@settings(max_examples=400 if SWEEP else 10)
def test_layers_have_the_rows_of_a_snapshot_that_was_written_whole(steps: list[list[Manifest]]) -> None:
    dataset = published(in_memory(), [OLD])
    so_far = OLD
    for number, parts in enumerate(steps):
        so_far = [*so_far, *parts]
        snapshot = add(dataset, f"step{number}", *parts)
        whole = merge(so_far)
        assert rows(open_manifest(dataset, snapshot, timeline=True)) == rows(whole)
        with tempfile.TemporaryDirectory() as folder:
            copies = HostCopies(Path(folder), min_bytes=0)
            copied = open_manifest(dataset, snapshot, copies=copies)
            assert list(copies.folder.glob("*/tables"))
            assert rows(copied) == rows(open_manifest(dataset, snapshot))
        assert open_failures(dataset, snapshot).same_rows(whole.failures)
        assert problems(dataset, snapshot) == []
    manifest = open_manifest(dataset, read_root(dataset).snapshot or "")
    columns = LabelColumns(dataset, read_root(dataset).snapshot or "", manifest)
    derived = derived_columns(manifest.videos.attributes)
    assert set(columns.names) == set(derived)
    for name, column in derived.items():
        found, expected = columns[name].array().tolist(), column.array().tolist()
        assert [value for value in found if value == value] == [value for value in expected if value == value]  # noqa: PLR0124
    publish(dataset, whole=True)
    whole_again = open_manifest(dataset, read_root(dataset).snapshot or "", timeline=True)
    assert whole_again.origins is None
    assert rows(whole_again) == rows(merge(so_far))


def test_rows_of_the_timeline_come_from_the_layers(large: Storage) -> None:
    add(large, "new", video("v00b", shard="new.shard", frames=5), video("v01", shard="0.shard", frames=3, revision=1))
    whole = open_manifest(large, "000002", timeline=True)
    assert whole.timeline is not None
    for start, stop in ((0, 9), (8, 10), (9, 17), (12, 14), (0, len(whole.timeline))):
        assert timeline_rows(large, "000002", start, stop) == whole.timeline.pts[start:stop].tolist()


def test_label_columns_are_put_together(large: Storage) -> None:
    add(
        large,
        "new",
        video("v00b", shard="new.shard", attributes='{"label": 7.5, "extra": "e"}'),
        edit("v01", 1, label=8),
    )
    manifest = open_manifest(large, "000002")
    columns = LabelColumns(large, "000002", manifest)
    assert columns.names == ("label", "split", "extra")
    assert columns.kind("label") == "float"
    assert columns["label"].array()[:4].tolist() == [0.0, 7.5, 8.0, 2.0]
    assert columns["extra"].array()[1] == "e"
    assert columns["extra"].present.sum() == 1
    assert columns["split"].array()[0] == "test"


@pytest.mark.long
def test_a_column_that_only_hidden_rows_have_is_not_listed(large: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr_sizes, "CHUNK_ROWS", 4)
    odd = [f"v{number:02}" for number in range(MANY) if number % 2]
    whose_split_goes = [*(f"v{number:02}" for number in range(MANY) if number % 2 == 0), *odd[:-1]]
    add(large, "edit", merge([edit(each, 1, "split") for each in whose_split_goes]))
    columns = LabelColumns(large, "000002", open_manifest(large, "000002"))
    # One video has it still.
    assert columns.names == ("label", "split")
    assert columns["split"].present.sum() == 1
    add(large, "last", edit(odd[-1], 2, "split"))
    columns = LabelColumns(large, "000003", open_manifest(large, "000003"))
    assert columns.names == ("label",)
    with pytest.raises(KeyError):
        columns["split"]
    # A null has no value, and names a column.
    add(large, "null", edit("v03", 3, split=None))
    columns = LabelColumns(large, "000004", open_manifest(large, "000004"))
    assert columns.names == ("label", "split")
    add(large, "other", edit("v04", 4, label=5))
    assert LabelColumns(large, "000005", open_manifest(large, "000005")).names == ("label", "split")
    add(large, "back", edit("v03", 5, split="val"))
    columns = LabelColumns(large, "000006", open_manifest(large, "000006"))
    assert columns.names == ("label", "split")
    assert columns["split"].array()[3] == "val"


def test_a_column_is_not_listed_because_its_name_is_in_a_value(large: Storage) -> None:
    add(large, "edit", *(edit(f"v{number:02}", 1, "split") for number in range(MANY)))
    add(large, "other", edit("v03", 2, kind="split", of={"split": 1}))
    columns = LabelColumns(large, "000003", open_manifest(large, "000003"))
    assert "split" not in columns.names
    assert columns["kind"].present.sum() == 1


def test_columns_of_other_kinds_are_derived(large: Storage) -> None:
    add(large, "new", video("v00b", shard="new.shard", attributes='{"label": "seven"}'))
    columns = LabelColumns(large, "000002", open_manifest(large, "000002"))
    assert columns["label"].array()[:3].tolist() == [0, "seven", 1]


@pytest.mark.parametrize("frames", [10, 4000])
def test_integers_that_are_no_floats_are_not_rounded(large: Storage, frames: int) -> None:
    """Also where they are in another layer than the floats, as the rows of a long video are."""
    add(large, "big", video("v00a", shard="new.shard", frames=frames, attributes=f'{{"label": {2**53 + 1}}}'))
    add(large, "new", video("v00b", shard="new.shard", attributes='{"label": 0.5}'))
    columns = LabelColumns(large, "000003", open_manifest(large, "000003"))
    assert columns["label"].array()[:3].tolist() == [0, 2**53 + 1, 0.5]


def test_layers_are_kept_as_long_as_a_snapshot_needs_them(large: Storage) -> None:
    add(large, "one", video("w1", shard="w1.shard"))
    add(large, "two", video("w2", shard="w2.shard"))
    assert layers_below(large, "000003") == ("000001",)
    assert remove_old_snapshots(large, 0) == ["000002"]
    assert open_manifest(large, "000003").ids[-2:] == ["w1", "w2"]
    publish(large, whole=True)
    assert remove_old_snapshots(large, 0) == ["000003", "000001"]
    assert open_manifest(large, "000004").ids[-2:] == ["w1", "w2"]


def test_a_snapshot_that_cannot_be_read_keeps_what_may_be_its_layers(large: Storage) -> None:
    add(large, "one", video("w1", shard="w1.shard"))
    path = snapshot_path(Path(large.url), "000002")
    data = path.read_bytes()
    path.write_bytes(data[:100])
    assert remove_old_snapshots(large, 0) == []
    path.write_bytes(data)
    assert open_manifest(large, "000002").ids[-1] == "w1"


def test_gc_leaves_no_row_of_what_was_dropped(large: Storage) -> None:
    add(large, "drop", drop("v07", 1))
    assert b"v07" in unpacked_ids(large, "000001")
    foreseen = collect(large, dry_run=True)
    done = collect(large)
    assert done.snapshots == foreseen.snapshots == ("000001", "000002")
    assert layers_below(large, done.snapshot) == ()
    assert "v07" not in open_manifest(large, done.snapshot).ids


def test_compacting_leaves_one_layer(large: Storage) -> None:
    add(large, "new", video("w1", shard="w1.shard"))
    before = rows(open_manifest(large, "000002", timeline=True))
    # There are no shards that could be put together.
    foreseen, done = compact(large, dry_run=True), compact(large)
    assert (foreseen.layers, done.layers, done.shards) == (2, 2, 0)
    assert layers_below(large, done.snapshot) == ()
    assert rows(open_manifest(large, done.snapshot, timeline=True)) == before
    assert compact(large).layers == 0


def unpacked_ids(dataset: Storage, snapshot: str) -> bytes:
    return open_layer(dataset, snapshot).videos.id.values.tobytes()


def test_the_history_counts_all_rows_of_layers(large: Storage) -> None:
    add(large, "new", video("w1", shard="w1.shard"), drop("v07", 1), edit("v08", 1, label=0))
    last = history(large)[-1]
    assert (last.num_videos, last.difference and last.difference.added) == (MANY, 1)
    assert last.difference is not None
    assert (last.difference.dropped, last.difference.relabelled) == (1, 1)


def test_a_missing_layer_is_named(large: Storage) -> None:
    add(large, "new", video("w1", shard="w1.shard"))
    snapshot_path(Path(large.url), "000001").unlink()
    with pytest.raises(MissingDataError, match=r"000001\.zip"):
        open_manifest(large, "000002")


def test_verify_finds_a_layer_of_another_dataset(large: Storage, tmp_path: Path) -> None:
    add(large, "new", edit("v07", 1, label=70))
    assert problems(large, "000002") == []
    other = published(tmp_path / "other", [OLD, [edit("v07", 1, label=71), edit("v08", 2, label=9)]])
    shutil.copy(snapshot_path(Path(other.url), "000002"), snapshot_path(Path(large.url), "000002"))
    # It fits the layer below, so it is the state of the other dataset.
    assert problems(large, "000002") == []
    third = published(tmp_path / "third", [[*OLD, video("v07", shard="a.shard", revision=5)]])
    shutil.copy(snapshot_path(Path(third.url), "000001"), snapshot_path(Path(large.url), "000001"))
    assert "its table videos differs from what merging its layers gives" in problems(large, "000002")


def test_zarr_opens_a_layer_and_sees_what_is_below(large: Storage) -> None:
    add(large, "new", video("w1", shard="w1.shard"))
    store = zarr.storage.ZipStore(snapshot_path(Path(large.url), "000002"), mode="r")
    group = zarr.open_group(store, mode="r")
    assert group["layers"].attrs["shortgop"] == {"snapshots": ["000001"]}
    assert group["videos"].attrs.asdict() == {}


def test_rows_of_layers_can_be_put_together_whatever_they_hold() -> None:
    # The newest layer takes a video out and has none.
    assert combined([merge(OLD), merge([drop("v00", 1)])]).ids == [f"v{number:02}" for number in range(1, MANY)]
    assert combined([merge([]), merge([video("a")])]).ids == ["a"]
    assert combined([merge([video("a")])]).ids == ["a"]
