"""A snapshot that is lost or damaged is made again of the parts, as errors and docs/format.md say: `verify --repair`.

In a folder, with layers, and in S3.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from fractions import Fraction
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
from killed_steps import Killer, killer
from shortgop.cli import app
from shortgop.errors import DatasetBusyError, DatasetError, MissingDataError
from shortgop.manifests.dataset_files.layout import create, part_key, read_root, snapshot_key, snapshots
from shortgop.manifests.dataset_files.parts import finished_parts, read_part, write_part
from shortgop.manifests.dataset_files.publish import publish, write_snapshot
from shortgop.manifests.operations import recovery
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.compact import compact
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.history import history
from shortgop.manifests.operations.recovery import repair_snapshot
from shortgop.manifests.operations.rollback import rollback
from shortgop.manifests.tables import Manifest
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from sweep import SWEEP
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
NAMES = "abcd"
FRAMES = 20


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make four videos whose frames show 0, 100, 200 and 300 on, a file that is none, and a dataset of them, in
    three snapshots: a shard of two videos with a label, in whose unit the other file failed, and two of one each."""
    root = tmp_path_factory.mktemp("lost")
    for number, name in enumerate(NAMES):
        make_video(
            root / f"{name}.mp4", pts=constant_rate_pts(RATE, FRAMES), timebase=1 / RATE, first_number=100 * number
        )
    (root / "broken.mp4").write_text("not a video")
    for chosen in (("a", "b", "broken"), ("c",), ("d",)):
        lines = [f'{{"path": "{name}.mp4", "id": "{name}", "label": 0}}\n' for name in chosen]
        (root / "list.jsonl").write_text("".join(lines))
        make_dataset([root / "list.jsonl"], root / "dataset")
    return root


@pytest.fixture
def dataset(videos: Path, places: Places) -> Storage:
    return copied(videos / "dataset", places.new())


def current_key(dataset: Storage) -> str:
    return snapshot_key(read_root(dataset).snapshot or "")


def lost(dataset: Storage) -> None:
    dataset.remove(current_key(dataset))


def cut(dataset: Storage) -> None:
    key = current_key(dataset)
    overwrite(dataset, key, dataset.read(key)[:100])


def with_a_wrong_byte(dataset: Storage) -> None:
    """One that is not read when the dataset is opened: in the timeline, which with layers is in the oldest."""
    member = b"timeline/pts/c/0"
    keys = [snapshot_key(name) for name in sorted(snapshots(dataset))]
    key = next(key for key in reversed(keys) if member in dataset.read(key))
    data = bytearray(dataset.read(key))
    data[data.index(member) + len(member) + 12] ^= 0xFF
    overwrite(dataset, key, bytes(data))


def edited(dataset: Storage) -> None:
    """Set labels, and take a video out."""
    annotate(dataset, {"a": {"label": 3}, "d": {"label": "é", "split": "train"}})
    drop(dataset, ["b"])


def verified(dataset: Storage, *arguments: str) -> tuple[int, str]:
    """The exit status of `shortgop verify` and all that it prints."""
    done = CliRunner().invoke(app, ["verify", dataset.url, *arguments])
    return done.exit_code, done.output


def shown(dataset: Storage) -> dict[str, list[int]]:
    """The numbers that the first and the last frame of each video show."""
    opened = shortgop.open(dataset.url)
    return {video_id: [read_number(frame) for frame in opened[video_id][:: FRAMES - 1]] for video_id in opened.ids}


def cleaned(dataset: Storage) -> None:
    """Take what was dropped out of shards and parts, and remove all earlier snapshots."""
    edited(dataset)
    collect(dataset)


def went_back(dataset: Storage) -> None:
    """Store `b` again and drop `d`, in one part, and then put the shards together. The shard that this part names is
    gone then, and so is the one of the part that says what failed."""
    drop(dataset, ["b"])
    annotate(dataset, {"c": {"label": 5}})
    rollback(dataset, "000002")
    compact(dataset, keep_snapshots_seconds=0)


HISTORIES = [edited, cleaned, went_back]


class LostSnapshots:
    where: str

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
        assert status == 1
        assert f"shortgop verify {dataset} --repair" in said

        status, said = verified(dataset, "--repair")
        assert status == 0, said
        assert f"snapshot {damaged} was lost or damaged" in said
        assert rows_of(dataset) == before
        assert names(dataset, "shards") == shards
        assert shown(dataset) == {"a": [0, 19], "c": [200, 219], "d": [300, 319]}
        assert make_dataset([videos / "list.jsonl"], dataset).frames_added == 0
        assert verified(dataset, "--repair") == verified(dataset)

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


class TestWhatIsLostAsWell:
    """What the parts do not hold is named, and is left out only by a user who says so."""

    where = "disk"

    def test_a_shard_that_no_part_names(self, videos: Path, dataset: Storage) -> None:
        """As in a dataset whose snapshot and whose part of `c` were not copied."""
        part = next(part for part in finished_parts(dataset) if read_part(dataset, part).ids == ["c"])
        shard = read_part(dataset, part).shards.name.text(0)
        for each in snapshots(dataset):
            dataset.remove(snapshot_key(each))
        dataset.remove(part_key(part))
        root = read_root(dataset)

        status, said = verified(dataset, "--repair")
        assert status == 1
        assert f"no part tells which videos are in {dataset.place(f'shards/{shard}')}" in said
        assert f"`shortgop verify {dataset} --repair --accept-loss` makes a snapshot without" in said
        assert (read_root(dataset), snapshots(dataset)) == (root, {})

        status, said = verified(dataset, "--repair", "--accept-loss")
        assert status == 0, said
        assert "without what was in 2 lost files: 1 part more of the 3 of the snapshot" in said
        assert shown(dataset) == {"a": [0, 19], "b": [100, 119], "d": [300, 319]}

    def test_a_part_of_a_drop_that_no_file_names_any_more(self, dataset: Storage) -> None:
        """How many parts there were is in zarr.json. Without it, what was dropped would come back unnoticed."""
        edited(dataset)
        part = next(part for part in finished_parts(dataset) if len(read_part(dataset, part).drops))
        for each in snapshots(dataset):
            dataset.remove(snapshot_key(each))
        dataset.remove(part_key(part))
        with pytest.raises(MissingDataError, match="1 part more of the 5 of the snapshot, of unknown names"):
            repair_snapshot(dataset)
        assert repair_snapshot(dataset, accept_loss=True) is not None
        assert sorted(shown(dataset)) == ["a", "b", "c", "d"]
        lost(dataset)
        assert repair_snapshot(dataset) is not None

    def test_a_damaged_part_gets_another_name(self, dataset: Storage) -> None:
        """Every later publication would read it under its own."""
        edited(dataset)
        part = next(part for part in finished_parts(dataset) if len(read_part(dataset, part).drops))
        data = dataset.read(part_key(part))
        overwrite(dataset, part_key(part), data[:50])
        for each in snapshots(dataset):
            dataset.remove(snapshot_key(each))
        with pytest.raises(MissingDataError, match=f"{re.escape(part_key(part))}: not a whole zip file"):
            repair_snapshot(dataset)

        done = repair_snapshot(dataset, accept_loss=True)
        assert done is not None
        assert done.kept == (dataset.place(f"{part_key(part)}.damaged"),)
        assert dataset.read(f"{part_key(part)}.damaged") == data[:50]
        assert sorted(shown(dataset)) == ["a", "b", "c", "d"]
        annotate(dataset, {"a": {"label": 4}})
        assert shortgop.open(dataset.url).columns["label"].tolist()[0] == 4

    def test_no_parts_at_all(self, dataset: Storage) -> None:
        """As in a dataset that was copied for readers alone."""
        lost(dataset)
        for part in finished_parts(dataset):
            dataset.remove(part_key(part))
        for accept_loss in (False, True):
            with pytest.raises(MissingDataError, match="its folder `parts`.*has no files; copy .*3.zip or `parts`"):
                repair_snapshot(dataset, accept_loss=accept_loss)

    @pytest.mark.parametrize("is_damaged", [False, True], ids=["lost", "damaged"])
    def test_what_an_earlier_snapshot_has_of_lost_parts_is_taken_from_it(
        self, dataset: Storage, is_damaged: bool
    ) -> None:
        edited(dataset)
        part = next(part for part in finished_parts(dataset) if len(read_part(dataset, part).edits))
        before = rows_of(dataset)
        lost(dataset)
        if is_damaged:
            overwrite(dataset, part_key(part), b"nothing")
        else:
            dataset.remove(part_key(part))
        assert repair_snapshot(dataset) is not None
        assert rows_of(dataset) == before
        annotate(dataset, {"a": {"label": 4}})

    def test_lost_parts_that_an_unreadable_snapshot_names(self, dataset: Storage) -> None:
        """What the damaged snapshot still says of itself counts: a part of its that is lost is named."""
        edited(dataset)
        part = next(part for part in finished_parts(dataset) if len(read_part(dataset, part).drops))
        with_a_wrong_byte(dataset)
        dataset.remove(part_key(part))
        with pytest.raises(MissingDataError, match=f"{re.escape(part_key(part))} is missing. Copy them"):
            repair_snapshot(dataset)

    def test_videos_whose_shard_is_lost_too_keep_their_rows(self, videos: Path, dataset: Storage) -> None:
        """So prep makes them again with their labels, or the shard is copied back."""
        edited(dataset)
        before = rows_of(dataset)
        shard = next(name for name in names(dataset, "shards") if name in before["shards.name"])
        data = dataset.read(f"shards/{shard}")
        dataset.remove(f"shards/{shard}")
        lost(dataset)
        status, said = verified(dataset, "--repair")
        assert status == 1
        assert f"{shard}: is missing" in said
        dataset.put_new(f"shards/{shard}", data)
        assert rows_of(dataset) == before
        assert verified(dataset)[0] == 0


class TestCopies:
    where = "disk"

    def test_a_copy_and_a_merge_hold_all_that_they_brought(self, dataset: Storage, places: Places) -> None:
        edited(dataset)
        copy = places.new()
        copy_videos([dataset], copy)
        annotate(copy, {"c": {"label": 7}})
        before = rows_of(copy)
        lost(copy)
        assert repair_snapshot(copy) is not None
        assert rows_of(copy) == before


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


@pytest.fixture(scope="class")
def killed_copies(places: Places) -> Iterator[Killer]:
    """Start the process that has operations killed, where the URLs of these places mean the same as here."""
    with killer() as run:
        yield run


class TestRacesAndKillsOnADisk(RacesAndKills):
    where = "disk"
    stride = 1 if SWEEP else 4


class TestRacesAndKillsInS3(RacesAndKills):
    where = "s3"
    stride = 1 if SWEEP else 3
