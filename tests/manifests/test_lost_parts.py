"""What is lost besides a snapshot, so that the parts do not hold all of it, and what they hold of copies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shortgop
from dataset_places import Places, copied, names, overwrite
from datasets import rows_of
from lost_snapshots import (
    edited,
    lost,
    make_four_videos,
    shown,
    verified,
    with_a_wrong_byte,
)
from shortgop.cli import app
from shortgop.errors import MissingDataError
from shortgop.manifests.dataset_files.layout import part_key, shard_key, snapshot_key, snapshots
from shortgop.manifests.dataset_files.parts import finished_parts, read_part
from shortgop.manifests.dataset_files.root_file import read_root
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.copying import copy_videos
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.recovery import repair_snapshot
from shortgop.storage.interface import Storage


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_four_videos(tmp_path_factory.mktemp("lost"))


@pytest.fixture
def dataset(videos: Path, places: Places) -> Storage:
    return copied(videos / "dataset", places.new())


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
        assert status == 3
        assert f"no part tells which videos are in {dataset.place(f'shards/{shard}')}" in said
        assert f"`shortgop verify {dataset} --repair --accept-loss` makes a snapshot without" in said
        assert (read_root(dataset), snapshots(dataset)) == (root, {})

        status, said = verified(dataset, "--repair", "--accept-loss")
        assert status == 0, said
        assert "without what was in 2 lost files: 1 part more of the 3 of the snapshot" in said
        assert shown(dataset) == {"a": [0, 19], "b": [100, 119], "d": [300, 319]}

    @pytest.mark.parametrize("options", [[], ["--dry-run"]])
    def test_a_part_that_may_hold_what_was_dropped(self, dataset: Storage, options: list[str]) -> None:
        """A takedown is not said to be done as long as a part cannot be looked through: labels can be read in it."""
        drop(dataset, ["c"])
        part = next(part for part in finished_parts(dataset) if "c" in read_part(dataset, part).ids)
        (shard,) = (shard_key(name) for name in read_part(dataset, part).shards.name.texts())
        data = dataset.read(part_key(part))
        overwrite(dataset, part_key(part), data[:50])
        done = CliRunner().invoke(app, ["gc", dataset.url, *options])
        assert done.exit_code == 3
        for what in (dataset.place(part_key(part)), dataset.place(shard)):
            assert f"may hold more than is needed stays as it is: {what}: " in done.stderr
        # No command writes it again.
        assert "; copy it to the dataset again\n" in done.stderr
        assert "remove it" not in done.stderr

        overwrite(dataset, part_key(part), data)
        assert CliRunner().invoke(app, ["gc", dataset.url]).exit_code == 0
        assert dataset.find(shard) is None

    @pytest.mark.parametrize("options", [[], ["--dry-run"]])
    def test_sections_that_cannot_be_listed(self, dataset: Storage, options: list[str]) -> None:
        """They may name any shard."""
        drop(dataset, ["c"])
        sections = Path(dataset.url) / "sections"
        sections.symlink_to("sections")
        done = CliRunner().invoke(app, ["gc", dataset.url, *options])
        assert done.exit_code == 3
        assert "what may need it cannot be read: " in done.stderr
        assert f"{sections} cannot be read: Too many levels" in done.stderr

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
        assert status == 3
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
