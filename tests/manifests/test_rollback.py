"""rollback: the videos and columns of an earlier snapshot come back, on a disk and in a store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shortgop
from dataset_places import Places, copied
from datasets import current_manifest, make_dataset
from moved_datasets import CONTENT, current, is_whole, make_original, make_sources, numbers_of
from shortgop.cli import app
from shortgop.errors import MissingDataError, UsageError
from shortgop.jobs.prepare import Where, prepare
from shortgop.manifests.dataset_files.tidy import remove_old_snapshots
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.compact import compact
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.rollback import rollback
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from sweep import only_in_a_sweep


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sources(tmp_path_factory.mktemp("videos"))


@pytest.fixture(scope="module")
def original(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_original(videos, tmp_path_factory.mktemp("original") / "dataset")


@pytest.fixture
def dataset(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "dataset")


class GoingBack:
    """What holds wherever the dataset lies."""

    where: str

    @pytest.fixture
    def place(self, original: Path, places: Places) -> Storage:
        return copied(original, places.new())

    def test_a_dataset_goes_back_to_a_snapshot_and_forth_again(self, place: Storage, videos: Path) -> None:
        then = current(place)
        make_dataset([videos / "d.mp4"], place)
        drop(place, ["a.mp4"])
        annotate(place, {"b.mp4": {"label": "y", "more": 1}})
        now = current(place)
        changed = numbers_of(place)
        foreseen = rollback(place, then, dry_run=True)
        done = rollback(place, then)
        assert (done.dropped, done.restored, done.relabelled) == (("d.mp4",), ("a.mp4",), ("b.mp4",))
        assert (foreseen.dropped, foreseen.restored) == (done.dropped, done.restored)
        assert foreseen.relabelled == done.relabelled
        assert numbers_of(place) == CONTENT
        assert shortgop.open(place.url)["b.mp4"].attributes == {"label": "x"}
        assert is_whole(place)
        assert rollback(place, then).dropped == ()
        rollback(place, now)
        assert numbers_of(place) == changed
        assert shortgop.open(place.url)["b.mp4"].attributes == {"label": "y", "more": 1}
        # What went with it is left out by jobs, as what was dropped.
        rollback(place, then)
        assert make_dataset([videos / "d.mp4"], place).dropped == ("d.mp4",)


class TestGoingBackOnADisk(GoingBack):
    where = "disk"


class TestGoingBackInS3(GoingBack):
    where = "s3"


# It is the same store.
@only_in_a_sweep
class TestGoingBackOverAFlakyNetwork(GoingBack):
    where = "flaky"


def test_a_source_that_was_replaced_comes_back(videos: Path, tmp_path: Path) -> None:
    place = DiskStorage(tmp_path / "dataset")
    source = tmp_path / "a.mp4"
    shutil.copy(videos / "a.mp4", source)
    make_dataset([source], tmp_path / "dataset")
    then = current(place)
    shutil.copy(videos / "d.mp4", source)
    prepare([str(source)], place, Profile(), where=Where("inline"), changed="replace")
    assert numbers_of(place) == {"a.mp4": (None, 300)}
    assert rollback(place, then).restored == ("a.mp4",)
    assert numbers_of(place) == {"a.mp4": (None, 0)}
    assert is_whole(place)


def test_a_source_that_was_replaced_and_then_dropped_comes_back_as_a_later_revision(
    videos: Path, tmp_path: Path
) -> None:
    """Later than any that copies of the dataset may have; also where other videos get back columns."""
    place = DiskStorage(tmp_path / "dataset")
    sources = [tmp_path / "a.mp4", tmp_path / "b.mp4"]
    for source in sources:
        shutil.copy(videos / source.name, source)
    make_dataset(sources, tmp_path / "dataset")
    annotate(place, {"b.mp4": {"label": 1}})
    then, content = current(place), numbers_of(place)
    for name in ("d.mp4", "b.mp4"):
        shutil.copy(videos / name, sources[0])
        prepare([str(sources[0])], place, Profile(), where=Where("inline"), changed="replace")
    replaced = current_manifest(tmp_path / "dataset").videos.revision[0]
    annotate(place, {"b.mp4": {"more": 2}})
    drop(place, ["a.mp4"])
    done = rollback(place, then)
    assert (done.restored, done.relabelled) == (("a.mp4",), ("b.mp4",))
    assert numbers_of(place) == content
    assert current_manifest(tmp_path / "dataset").videos.revision[0] > replaced
    assert is_whole(place)


def test_videos_that_moved_to_other_shards_are_as_they_were(dataset: Path) -> None:
    place, then = DiskStorage(dataset), current(DiskStorage(dataset))
    collect(place, keep_snapshots_seconds=3600)
    compact(place)
    assert rollback(place, then, dry_run=True).restored == ()


def test_a_snapshot_that_is_gone_is_named(dataset: Path) -> None:
    with pytest.raises(UsageError, match="has no snapshot '000099'; it has 000001, 000002"):
        rollback(DiskStorage(dataset), "000099")


def test_a_snapshot_is_named_by_how_far_back_it_is(dataset: Path) -> None:
    place = DiskStorage(dataset)
    then = current(place)
    annotate(place, {"b.mp4": {"label": "y"}})
    annotate(place, {"b.mp4": {"label": "z"}})
    changed = current(place)
    invoke = CliRunner().invoke
    assert f"as it was in snapshot {then}" in invoke(app, ["rollback", str(dataset), "--back", "2", "--dry-run"]).stdout
    assert current(place) == changed
    went = invoke(app, ["rollback", str(dataset), "--back", "2"])
    assert went.exit_code == 0
    assert f"as it was in snapshot {then}" in went.stdout
    assert shortgop.open(place.url)["b.mp4"].attributes == {"label": "x"}
    # That was a snapshot too.
    assert rollback(place, 1).to == changed
    assert shortgop.open(place.url)["b.mp4"].attributes == {"label": "z"}
    with pytest.raises(UsageError, match=r"has \d snapshots before the current one, 0\d+, and 99 back is none of them"):
        rollback(place, 99)
    remove_old_snapshots(place, 0)
    with pytest.raises(
        UsageError, match=r"has no snapshot before the current one, 0\d+; `shortgop gc` removes earlier"
    ):
        rollback(place, 1)
    for arguments in ([], [then, "--back", "1"]):
        refused = invoke(app, ["rollback", str(dataset), *arguments])
        assert refused.exit_code == 2
        assert "rollback takes the name of one snapshot, or --back N" in refused.stderr


def test_videos_whose_shards_are_gone_cannot_come_back(dataset: Path) -> None:
    place, then = DiskStorage(dataset), current(DiskStorage(dataset))
    drop(place, ["a.mp4"])
    named = current_manifest(dataset).shards.name.texts()
    for file in (dataset / "shards").iterdir():
        if file.name not in named:
            file.unlink()
    with pytest.raises(MissingDataError, match=f"shards of snapshot {then} of .* are gone"):
        rollback(place, then)
