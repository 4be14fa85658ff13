"""A zarr.json that is lost or damaged is made again of the snapshots, as errors and docs/format.md say: `verify
--repair`.

In a folder, with layers, and in S3.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import shortgop
from dataset_places import Places, copied, names, overwrite
from datasets import current_manifest, make_dataset, rows_of
from example_manifests import failure
from killed_steps import Killer
from lost_snapshots import HISTORIES, cut, edited, lost, make_four_videos, shown, verified
from shortgop.errors import CorruptDataError, DatasetError, FormatVersionError, NotADatasetError, OutputError
from shortgop.manifests.dataset_files.layout import ROOT_KEY, part_key, snapshot_key, snapshots
from shortgop.manifests.dataset_files.parts import finished_parts, write_part
from shortgop.manifests.dataset_files.root_file import Root, create, read_root
from shortgop.manifests.operations import lost_root
from shortgop.manifests.operations.lost_root import restore_root
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from sweep import SWEEP

pytestmark = pytest.mark.usefixtures("no_other_hosts")


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_four_videos(tmp_path_factory.mktemp("roots"))


@pytest.fixture
def dataset(videos: Path, places: Places) -> Storage:
    return copied(videos / "dataset", places.new())


def removed(dataset: Storage) -> None:
    dataset.remove(ROOT_KEY)


def emptied(dataset: Storage) -> None:
    overwrite(dataset, ROOT_KEY, b"")


def halved(dataset: Storage) -> None:
    overwrite(dataset, ROOT_KEY, dataset.read(ROOT_KEY)[:100])


def without_its_profile(dataset: Storage) -> None:
    document = json.loads(dataset.read(ROOT_KEY))
    del document["attributes"]["shortgop"]["profile"]
    overwrite(dataset, ROOT_KEY, json.dumps(document).encode())


class LostRootsAnywhere:
    where: str

    def test_parts_alone_are_enough(self, dataset: Storage) -> None:
        edited(dataset)
        before = rows_of(dataset)
        for each in snapshots(dataset):
            dataset.remove(snapshot_key(each))
        removed(dataset)
        with pytest.raises(NotADatasetError, match="has a folder `parts` and no zarr.json.*--repair"):
            read_root(dataset)
        status, said = verified(dataset, "--repair")
        assert status == 0, said
        assert rows_of(dataset) == before

    @pytest.mark.long
    def test_killed_anywhere_it_is_as_before_or_whole(
        self, dataset: Storage, places: Places, killed_copies: Killer
    ) -> None:
        before, root = rows_of(dataset), read_root(dataset)
        halved(dataset)
        half, copies = dataset.read(ROOT_KEY), places.new().url
        seen = set()
        for number in killed_copies(dataset.url, copies, "with_its_root", 1, 1 if SWEEP else 2, True):
            copy = storage_at(f"{copies}/{number}")
            is_whole = copy.read(ROOT_KEY) != half
            seen.add(is_whole)
            if not is_whole:
                restore_root(copy)
            assert read_root(copy) == root, number
            assert rows_of(copy) == before, number
        assert seen == {False, True}


class LostRoots(LostRootsAnywhere):
    @pytest.mark.first_case_short
    @pytest.mark.parametrize("damage", [removed, emptied, halved, without_its_profile])
    def test_it_is_as_it_was(self, videos: Path, dataset: Storage, damage: Callable[[Storage], None]) -> None:
        edited(dataset)
        before, root, files = rows_of(dataset), read_root(dataset), names(dataset, "")
        damage(dataset)
        remedy = f"or run `shortgop verify {dataset} --repair`, which makes it again"
        with pytest.raises(DatasetError, match=remedy):
            shortgop.open(dataset.url)
        with pytest.raises((DatasetError, OutputError), match=remedy):
            make_dataset([videos / "list.jsonl"], dataset)
        assert verified(dataset)[0] == 3

        status, said = verified(dataset, "--repair")
        assert status == 0, said
        assert f"{dataset.place(ROOT_KEY)} is {'missing' if damage is removed else 'damaged'}" in said
        assert f"made again: it names snapshot {root.snapshot}" in said
        assert read_root(dataset) == root
        assert rows_of(dataset) == before
        assert shown(dataset) == {"a": [0, 19], "c": [200, 219], "d": [300, 319]}
        assert set(names(dataset, "")) - set(files) == (set() if damage is removed else {"zarr.json.damaged"})
        assert make_dataset([videos / "list.jsonl"], dataset).frames_added == 0
        assert restore_root(dataset) is None

    @pytest.mark.first_case_short
    @pytest.mark.parametrize("happened", HISTORIES)
    @pytest.mark.parametrize("damage", [lost, cut])
    def test_the_snapshot_that_it_named_is_made_again_too(
        self, dataset: Storage, happened: Callable[[Storage], None], damage: Callable[[Storage], None]
    ) -> None:
        """The one before it, without the latest labels and drops, was taken for the current one."""
        happened(dataset)
        before, root = rows_of(dataset), read_root(dataset)
        damage(dataset)
        removed(dataset)
        status, said = verified(dataset, "--repair")
        assert status == 0, said
        assert rows_of(dataset) == before
        assert read_root(dataset).profile == root.profile
        assert read_root(dataset).num_parts == root.num_parts

    def test_without_a_readable_snapshot_parts_say_the_profile(self, dataset: Storage) -> None:
        before, root = rows_of(dataset), read_root(dataset)
        for each in snapshots(dataset):
            overwrite(dataset, snapshot_key(each), b"damaged")
        removed(dataset)
        assert verified(dataset, "--repair")[0] == 0
        assert rows_of(dataset) == before
        assert read_root(dataset).profile == root.profile

    def test_without_parts_either_nothing_is_written(self, dataset: Storage) -> None:
        for each in snapshots(dataset):
            overwrite(dataset, snapshot_key(each), b"damaged")
        for part in finished_parts(dataset):
            dataset.remove(part_key(part))
        removed(dataset)
        with pytest.raises(
            CorruptDataError, match=r"cannot be made again: no snapshot and no part .* that can be read"
        ):
            restore_root(dataset)
        assert dataset.find(ROOT_KEY) is None

    def test_a_document_of_another_kind_is_left_alone(self, dataset: Storage) -> None:
        other = b'{"zarr_format": 3, "node_type": "group", "attributes": {}}'
        overwrite(dataset, ROOT_KEY, other)
        status, said = verified(dataset, "--repair")
        assert (status, dataset.read(ROOT_KEY)) == (1, other)
        assert "is not the root of a shortgop dataset" in said

    def test_one_that_somebody_brings_meanwhile_stays(self, dataset: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        root, made = dataset.read(ROOT_KEY), lost_root._root
        removed(dataset)

        def overtaken(place: Storage) -> Root:
            dataset.put_new(ROOT_KEY, root + b"\n")
            return made(place)

        monkeypatch.setattr(lost_root, "_root", overtaken)
        assert restore_root(dataset) is None
        assert dataset.read(ROOT_KEY) == root + b"\n"

    def test_a_place_without_snapshots_is_no_dataset(self, places: Places) -> None:
        place = places.new()
        create(place, {"gop_frames": 4})
        removed(place)
        with pytest.raises(NotADatasetError, match="holds no dataset"):
            read_root(place)
        assert restore_root(place) is None
        assert place.find(ROOT_KEY) is None


class TestOnADisk(LostRoots):
    where = "disk"


@pytest.mark.long
class TestWithLayers(LostRoots):
    where = "layered"


@pytest.mark.long
class TestInS3(LostRootsAnywhere):
    where = "s3"


@pytest.fixture
def kitchen(videos: Path, tmp_path: Path) -> Path:
    """A folder of videos, and one in it."""
    (tmp_path / "videos" / "kitchen").mkdir(parents=True)
    for name in ("a.mp4", "b.mp4", "kitchen/c.mp4"):
        shutil.copy(videos / Path(name).name, tmp_path / "videos" / name)
    return tmp_path / "videos" / "kitchen"


@pytest.mark.first_case_short
@pytest.mark.parametrize("given", [["."], [".."], [".", ".."], ["link"], ["../kitchen/.."], ["c.mp4", ".."]])
def test_sources_get_the_ids_that_they_had(kitchen: Path, tmp_path: Path, given: list[str]) -> None:
    """Whichever folders the jobs were given, in whichever order; nothing is encoded again."""
    (kitchen / "link").symlink_to(kitchen.parent)
    dataset = storage_at(str(tmp_path / "dataset"))
    for each in given:
        make_dataset([kitchen / each], dataset)
    root, ids = read_root(dataset), shortgop.open(dataset.url).ids
    removed(dataset)
    said = verified(dataset, "--repair")[1]
    assert f"files get their ids below {', '.join(root.id_roots)}" in said
    assert read_root(dataset) == root
    for each in given:
        assert make_dataset([kitchen / each], dataset).frames_added == 0
    assert shortgop.open(dataset.url).ids == ids


def test_a_list_of_absolute_paths_has_no_folder_of_ids(kitchen: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"{kitchen / 'c.mp4'}\n")
    dataset = storage_at(str(tmp_path / "dataset"))
    make_dataset([tmp_path / "list.txt"], dataset)
    removed(dataset)
    assert "files get their ids" not in verified(dataset, "--repair")[1]
    assert read_root(dataset).id_roots == ()


def test_what_a_killed_job_left_is_published_or_left_alone(videos: Path, tmp_path: Path) -> None:
    """No snapshot had it, so none is taken for lost: a part, and a shard without a part."""
    dataset = copied(videos / "dataset", storage_at(str(tmp_path / "dataset")))
    write_part(dataset, "0123456789abcdef", failure("left", "no video"))
    dataset.put_new("shards/fedcba9876543210-0-0123456789abcdef.shard", b"left")
    root = read_root(dataset)
    removed(dataset)
    status, said = verified(dataset, "--repair")
    assert status == 0, said
    assert "made again: it names snapshot 000004" in said
    assert "was lost" not in said
    assert read_root(dataset).num_parts == (root.num_parts or 0) + 1
    assert "left" in current_manifest(dataset).failures.id.texts()


def test_no_command_is_advised_that_would_not_help(tmp_path: Path) -> None:
    dataset = storage_at(str(tmp_path / "dataset"))
    create(dataset, {"gop_frames": 4})
    emptied(dataset)
    assert "--repair" not in verified(dataset, "--repair")[1]
    other = tmp_path / "other"
    (other / "parts").mkdir(parents=True)
    (other / "parts" / "gears.zip").write_bytes(b"")
    with pytest.raises(OutputError, match="holds files but no dataset"):
        create(storage_at(str(other)), {})


def test_a_snapshot_of_a_later_format_is_not_taken_for_a_damaged_one(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = copied(videos / "dataset", storage_at(str(tmp_path / "dataset")))
    removed(dataset)

    def refused(place: Storage, snapshot: str) -> dict[str, object]:
        raise FormatVersionError(f"{place.place(snapshot_key(snapshot))} has format version 5")

    with monkeypatch.context() as patched:
        patched.setattr(lost_root, "snapshot_attributes", refused)
        with pytest.raises(FormatVersionError):
            restore_root(dataset)
    assert dataset.find(ROOT_KEY) is None
    assert restore_root(dataset) is not None
