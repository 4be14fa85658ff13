"""A snapshot that is lost or damaged is made again of the parts, as errors and docs/format.md say: `verify --repair`.

In a folder, with layers, and in a sweep in S3.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import shortgop
from dataset_places import Places, copied, names, overwrite
from datasets import current_manifest, make_dataset, rows_of
from example_manifests import colliding_parts, failure, rows, video
from file_permissions import modes_count
from killed_steps import Killer
from lost_snapshots import (
    HISTORIES,
    current_key,
    cut,
    edited,
    lost,
    make_four_videos,
    shown,
    verified,
    with_a_wrong_byte,
)
from shortgop.cli import app
from shortgop.errors import DatasetBusyError, DatasetError, MissingDataError
from shortgop.manifests.dataset_files.layout import snapshot_key, snapshots
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish, write_snapshot
from shortgop.manifests.dataset_files.root_file import create, read_root
from shortgop.manifests.dataset_files.snapshots import open_once
from shortgop.manifests.operations import recovery
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.history import history
from shortgop.manifests.operations.recovery import repair_snapshot
from shortgop.manifests.operations.rollback import rollback
from shortgop.manifests.tables import Manifest
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from sweep import SWEEP, only_in_a_sweep


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_four_videos(tmp_path_factory.mktemp("lost"))


@pytest.fixture
def dataset(videos: Path, places: Places) -> Storage:
    return copied(videos / "dataset", places.new())


class LostSnapshots:
    where: str

    @pytest.mark.first_case_short
    @pytest.mark.parametrize("damage", [lost, cut, with_a_wrong_byte])
    def test_it_is_made_of_the_parts_and_nothing_is_encoded(
        self, videos: Path, dataset: Storage, damage: Callable[[Storage], None]
    ) -> None:
        edited(dataset)
        before, shards, damaged = rows_of(dataset), names(dataset, "shards"), read_root(dataset).snapshot
        damage(dataset)
        if damage is not with_a_wrong_byte:
            with pytest.raises(
                DatasetError, match=f"or run `shortgop verify {dataset} --repair`, which makes it again"
            ):
                make_dataset([videos / "list.jsonl"], dataset)
        status, said = verified(dataset)
        assert status == 3
        assert f"shortgop verify {dataset} --repair" in said

        status, said = verified(dataset, "--repair")
        assert status == 0, said
        assert f"snapshot {damaged} was lost or damaged" in said
        assert rows_of(dataset) == before
        assert names(dataset, "shards") == shards
        assert shown(dataset) == {"a": [0, 19], "c": [200, 219], "d": [300, 319]}
        assert make_dataset([videos / "list.jsonl"], dataset).frames_added == 0
        assert verified(dataset, "--repair") == verified(dataset)

    @pytest.mark.first_case_short
    @pytest.mark.parametrize("happened", HISTORIES)
    def test_all_rows_are_as_they_were(self, dataset: Storage, happened: Callable[[Storage], None]) -> None:
        """Also those of parts whose shards are gone, because their videos were written into others since."""
        happened(dataset)
        before = rows_of(dataset)
        for each in snapshots(dataset):
            dataset.remove(snapshot_key(each))
        assert repair_snapshot(dataset) is not None
        assert rows_of(dataset) == before


class TestOnADisk(LostSnapshots):
    where = "disk"


class TestWithLayers(LostSnapshots):
    where = "layered"


# `TestRacesAndKillsInS3` makes some again there.
@only_in_a_sweep
class TestInS3(LostSnapshots):
    where = "s3"


@settings(max_examples=500 if SWEEP else 10)
@given(st.lists(st.lists(colliding_parts("a", "b"), max_size=3), min_size=1, max_size=4), st.sets(st.integers(1, 2)))
def test_whatever_came_in_whatever_order(steps: list[list[Manifest]], lost_shards: set[int]) -> None:
    """Also where shards are lost as well. Then of two attempts at a video the one counts whose shard is there."""
    dataset = in_memory()
    dataset.put_new("shards/other", b"")
    for step, parts in enumerate(steps):
        for number, part in enumerate(parts):
            write_part(dataset, f"s{step}u{number}", part)
        publish(dataset)
    if read_root(dataset).snapshot is None:
        return
    before = current_manifest(dataset)
    for number in lost_shards:
        dataset.remove(f"shards/{number}.shard")
    lost(dataset)

    assert repair_snapshot(dataset) is not None
    after = current_manifest(dataset)
    if not lost_shards:
        assert rows(after) == rows(before)
    for table in ("failures", "edits", "drops"):
        assert getattr(after, table).same_rows(getattr(before, table))
    for column in ("id", "after_edit", "revision"):
        assert rows(after)[f"videos.{column}"] == rows(before)[f"videos.{column}"]


def in_memory(*parts: Manifest, profile: dict[str, Any] | None = None) -> Storage:
    """A dataset of these parts, with two shards of which nobody reads a byte, before its first snapshot."""
    dataset = storage_at(f"memory://{uuid.uuid4().hex}")
    create(dataset, {} if profile is None else profile)
    for number in (1, 2):
        dataset.put_new(f"shards/{number}.shard", b"")
    for number, part in enumerate(parts):
        write_part(dataset, f"u{number}", part, profile)
    return dataset


def test_of_two_attempts_at_a_video_the_one_counts_whose_shard_is_there() -> None:
    dataset = in_memory(video("a", shard="1.shard"), video("a", shard="2.shard"))
    publish(dataset)
    assert current_manifest(dataset).shards.name.texts() == ["1.shard"]
    dataset.remove("shards/1.shard")
    lost(dataset)
    repair_snapshot(dataset)
    assert current_manifest(dataset).shards.name.texts() == ["2.shard"]


def test_a_part_with_other_options_is_left_out_as_before() -> None:
    dataset = in_memory(video("a", shard="1.shard"), profile={"gop_frames": 4})
    write_part(dataset, "late", video("b", shard="2.shard"), {"gop_frames": 8})
    publish(dataset)
    lost(dataset)
    assert repair_snapshot(dataset) is not None
    assert current_manifest(dataset).ids == ["a"]


class TestAfterwards:
    where = "disk"

    def test_the_damaged_snapshot_stays_until_gc(self, dataset: Storage) -> None:
        edited(dataset)
        cut(dataset)
        damaged = current_key(dataset)
        assert repair_snapshot(dataset) is not None
        assert repair_snapshot(dataset) is None
        found = history(dataset)
        assert [bool(each.trouble) for each in found][-2:] == [True, False]
        assert (found[-1].num_videos, found[-1].difference.dropped if found[-1].difference else None) == (3, 1)
        done = CliRunner().invoke(app, ["snapshots", dataset.url])
        assert done.exit_code == 0
        assert "cannot be read" in done.output
        assert f"{dataset.place(damaged)}: " in done.output
        collect(dataset, keep_snapshots_seconds=3600)
        assert dataset.find(damaged) is not None
        collect(dataset)
        assert dataset.find(damaged) is None

    def test_an_earlier_snapshot_that_is_damaged_is_not_made_again(self, dataset: Storage) -> None:
        """The command that the error names would not help."""
        overwrite(dataset, snapshot_key("000001"), b"nothing")
        with pytest.raises(DatasetError, match=r"copy it to the dataset again$"):
            shortgop.open(dataset.url, snapshot="000001")
        assert repair_snapshot(dataset) is None

    @pytest.mark.parametrize("damage", [lost, cut])
    @pytest.mark.parametrize("to", ["000002", 2])
    def test_a_rollback_makes_it_again_first(
        self, dataset: Storage, damage: Callable[[Storage], None], to: str | int
    ) -> None:
        annotate(dataset, {"a": {"label": 3}})
        damage(dataset)
        assert read_root(dataset).snapshot == "000004"
        with pytest.raises(DatasetError, match="--repair"):
            rollback(dataset, to, dry_run=True)
        done = rollback(dataset, to)
        assert (done.to, done.dropped, done.relabelled) == ("000002", ("d",), ("a",))
        assert shown(dataset) == {"a": [0, 19], "b": [100, 119], "c": [200, 219]}
        assert shortgop.open(dataset.url).columns["label"].tolist() == [0, 0, 0]

    @pytest.mark.parametrize("damage", [lost, cut])
    def test_a_rollback_after_a_repair_counts_what_can_be_read(
        self, dataset: Storage, damage: Callable[[Storage], None]
    ) -> None:
        annotate(dataset, {"a": {"label": 3}})
        damage(dataset)
        repair_snapshot(dataset)
        assert rollback(dataset, 1, dry_run=True).to == "000003"


class TestLostLayers:
    where = "layered"

    @pytest.mark.parametrize("layer", ["000003", "000004", "000005"])
    def test_each_layer_can_be_lost(self, dataset: Storage, layer: str) -> None:
        edited(dataset)
        before = rows_of(dataset)
        key = snapshot_key(layer)
        dataset.remove(key)
        with pytest.raises(MissingDataError, match=f"{dataset.place(key)} is missing; .*--repair"):
            shortgop.open(dataset.url)
        assert repair_snapshot(dataset) is not None
        assert rows_of(dataset) == before

    def test_one_that_cannot_be_read_is_not_made_again(self, dataset: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        """As where a disk does not answer in the middle of the check."""
        edited(dataset)
        before, root = rows_of(dataset), read_root(dataset)
        layer = Path(dataset.place(snapshot_key("000003")))

        def not_read_again(*arguments: Any) -> Manifest:
            manifest = open_once(*arguments)
            layer.chmod(0)
            return manifest

        monkeypatch.setattr(recovery, "open_once", not_read_again)
        with modes_count():
            assert repair_snapshot(dataset) is None
        layer.chmod(0o600)
        assert (rows_of(dataset), read_root(dataset)) == (before, root)


class RacesAndKills:
    where: str
    # It is killed before this change, and before every so many later ones.
    first = 4
    stride: int

    def test_of_two_at_the_same_time_one_publishes(self, dataset: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where locks do not work."""
        edited(dataset)
        before, snapshot = current_manifest(dataset), int(read_root(dataset).snapshot or 0)
        lost(dataset)
        original = write_snapshot

        def overtaken(*arguments: Any, **named: Any) -> None:
            monkeypatch.setattr(recovery, "write_snapshot", original)
            write_part(dataset, "more", failure("more", "cut short"))
            recovery.made_again(dataset, read_root(dataset), snapshots(dataset))
            original(*arguments, **named)

        monkeypatch.setattr(recovery, "write_snapshot", overtaken)
        with pytest.raises(DatasetBusyError, match=f"it published snapshot {snapshot + 1:06} first"):
            repair_snapshot(dataset)
        assert read_root(dataset).snapshot == f"{snapshot + 1:06}"
        assert current_manifest(dataset).videos.same_rows(before.videos)
        assert current_manifest(dataset).failures.id.texts() == ["broken", "more"]

    @pytest.mark.long
    def test_killed_anywhere_it_is_as_before_or_whole(
        self, dataset: Storage, places: Places, killed_copies: Killer
    ) -> None:
        edited(dataset)
        before = rows_of(dataset)
        cut(dataset)
        damaged, copies = current_key(dataset), places.new().url
        killed = killed_copies(dataset.url, copies, "recovered", self.first, self.stride, True)
        seen = set()
        for number in killed:
            copy = storage_at(f"{copies}/{number}")
            assert copy.read(damaged) == dataset.read(damaged)
            is_whole = current_key(copy) != damaged
            seen.add(is_whole)
            if not is_whole:
                repair_snapshot(copy)
            assert rows_of(copy) == before, number
        assert seen == {False, True}


class TestRacesAndKillsOnADisk(RacesAndKills):
    where = "disk"
    stride = 1 if SWEEP else 4


class TestRacesAndKillsInS3(RacesAndKills):
    where = "s3"
    stride = 1 if SWEEP else 3
