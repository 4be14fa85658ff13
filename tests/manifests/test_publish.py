"""Snapshots: how they come into a dataset, what happens when that is interrupted, and what damage is noticed."""

import contextlib
import itertools
import shutil
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_paths import snapshot_path
from dataset_places import Places, versions
from datasets import as_folder, current_manifest, timeline_rows
from example_manifests import failure, rows, video
from shortgop import whole_files as commits
from shortgop.errors import CorruptDataError, MissingDataError, NotADatasetError, OutputError, UnreadableDataError
from shortgop.manifests.dataset_files import publish as publish_module
from shortgop.manifests.dataset_files.layout import ROOT_KEY, snapshot_key
from shortgop.manifests.dataset_files.parts import finished_parts, read_part, write_part
from shortgop.manifests.dataset_files.publish import latest_root, publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshot_files import snapshot_attributes
from shortgop.manifests.dataset_files.snapshots import open_current, open_manifest, timeline_of
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.zarr_files import zarr_sizes, zarr_small
from shortgop.manifests.zarr_files import zarr_write as writer
from shortgop.manifests.zarr_files import zarr_zip as zips
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from small_disks import mounted_disk
from sweep import only_in_a_sweep, sample


class Publishing:
    """What holds wherever the dataset lies. `test_killed_edits.py` kills at every change."""

    where: str

    def test_publishing_makes_a_snapshot_of_what_is_finished(self, published_place: Storage) -> None:
        root, manifest = open_current(published_place)
        assert root.snapshot == "000001"
        assert manifest.ids == ["a", "b", "c"]
        assert snapshot_attributes(published_place, "000001")["parts"] == ["u1", "u2"]
        assert manifest.failures.reason.texts() == ["cut short"]
        assert manifest.timeline is None
        assert timeline_rows(published_place, "000001", 9, 12) == [9009, 9000, 10001]

    def test_publishing_nothing_new_writes_nothing(self, published_place: Storage) -> None:
        files = versions(published_place)
        assert publish(published_place) == "000001"
        assert versions(published_place) == files

    def test_a_snapshot_stays_as_it_is_when_the_dataset_grows(self, published_place: Storage) -> None:
        before = rows(open_manifest(published_place, "000001", timeline=True))
        write_part(published_place, "u3", video("aa", shard="u3-0.shard"))
        assert publish(published_place) == "000002"
        assert current_manifest(published_place).ids == ["a", "aa", "b", "c"]
        assert rows(open_manifest(published_place, "000001", timeline=True)) == before

    def test_many_publications_end_with_the_rows_of_one(self, empty_place: Storage, places: Places) -> None:
        found = [video(f"{number * 7 % 5}", shard=f"{number}.shard", frames=9 + number) for number in range(3)]
        at_once = places.new()
        create(at_once, {})
        for number, manifest in enumerate([*found, failure("x", "cut short")]):
            write_part(empty_place, f"u{number}", manifest)
            publish(empty_place)
            write_part(at_once, f"u{number}", manifest)
        publish(at_once)
        assert rows(current_manifest(empty_place)) == rows(current_manifest(at_once))

    @pytest.mark.long
    def test_a_timeline_of_many_files_is_put_together(
        self, empty_place: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in (("CHUNK_ROWS", 8), ("SHARD_CHUNKS", 2), ("BLOCK_ROWS", 16)):
            monkeypatch.setattr(zarr_sizes, name, value)
        found = [video(f"{number * 7 % 5}", shard=f"{number}.shard", frames=20 + number) for number in range(5)]
        for number, manifest in enumerate(found):
            write_part(empty_place, f"u{number}", manifest)
            publish(empty_place)
        whole = merge(found)
        assert whole.timeline is not None
        assert rows(current_manifest(empty_place)) == rows(whole)
        with zipfile.ZipFile(BytesIO(empty_place.read(snapshot_key("000005")))) as archive:
            assert len([name for name in archive.namelist() if name.startswith("timeline/pts/c/")]) == 7
        for start, stop in ((0, 3), (7, 9), (15, 40), (100, 110)):
            expected = whole.timeline.pts[start:stop].tolist()
            assert timeline_rows(empty_place, "000005", start, stop) == expected
        first = whole.first_frames.tolist()
        for videos in ([], [3], [0, 1, 4], [2, 0, 1]):
            expected = [pts for row in videos for pts in whole.timeline.pts[first[row] : first[row + 1]].tolist()]
            assert timeline_of(empty_place, "000005", whole, videos).tolist() == expected

    def test_a_lost_snapshot_is_named(self, published_place: Storage) -> None:
        published_place.remove(snapshot_key("000001"))
        with pytest.raises(MissingDataError, match=r"the manifest .*manifest/000001\.zip is missing"):
            open_current(published_place)

    def test_a_lost_root_is_named(self, published_place: Storage) -> None:
        published_place.remove(ROOT_KEY)
        with pytest.raises(NotADatasetError, match=r"has a folder `manifest` and no zarr\.json.*copy it there, too"):
            open_current(published_place)


class TestPublishingOnADisk(Publishing):
    where = "disk"


# Over a flaky network it is the same store.
@only_in_a_sweep
class TestPublishingInS3(Publishing):
    where = "s3"


@pytest.mark.long
class TestPublishingOverAFlakyNetwork(Publishing):
    where = "flaky"


def test_a_small_snapshot_has_the_rows_of_one_that_zarr_writes(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_folder = tmp_path / "by folder"
    shutil.copytree(published, by_folder)
    for dataset in (published, by_folder):
        write_part(DiskStorage(dataset), "u3", video("aa", shard="u3-0.shard"))
        publish(DiskStorage(dataset))
        # From here on it is too large a manifest for that.
        monkeypatch.setattr(zarr_sizes, "CHUNK_ROWS", 1)
    assert rows(current_manifest(by_folder)) == rows(current_manifest(published))
    names = [zipfile.ZipFile(snapshot_path(dataset, "000002")).namelist() for dataset in (published, by_folder)]
    assert names[0] == names[1]


def test_a_snapshot_is_one_file_that_zarr_opens(published: Path) -> None:
    assert [file.name for file in (published / "manifest").iterdir()] == ["000001.zip"]
    with zarr.storage.ZipStore(published / "manifest" / "000001.zip", mode="r") as store:
        group = zarr.open_group(store, mode="r")
        assert group.attrs["shortgop"]["parts"] == ["u1", "u2"]  # type: ignore[call-overload,index]
        assert group["videos/num_frames"][:].tolist() == [10, 10, 10]  # type: ignore[index,union-attr]


def test_every_lost_member_of_a_snapshot_is_named(published: Path) -> None:
    file = snapshot_path(published, "000001")
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert len(members) > 100
    # Label columns are read by those who ask for them.
    for lost in (name for name in members if not name.startswith("columns/")):
        file.write_bytes(zips.pack({name: data for name, data in members.items() if name != lost}))
        with pytest.raises(MissingDataError, match=f"{lost} is missing; copy it to the dataset again") as caught:
            open_manifest(DiskStorage(published), "000001", timeline=True)
        assert caught.value.file == str(file)


@pytest.fixture(scope="module")
def published_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a dataset of one video and a failure."""
    path = tmp_path_factory.mktemp("published once") / "dataset"
    create(DiskStorage(path), {})
    write_part(DiskStorage(path), "u1", merge([video("a"), failure("b", "cut short")]))
    publish(DiskStorage(path))
    return path


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_in_a_snapshot_is_noticed_or_makes_no_difference(
    published_once: Path, data: st.DataObject
) -> None:
    file = snapshot_path(published_once, "000001")
    whole = file.read_bytes()
    before = rows(open_manifest(DiskStorage(published_once), "000001", timeline=True))
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        file.write_bytes(damaged)
        found = rows(open_manifest(DiskStorage(published_once), "000001", timeline=True))
    except (CorruptDataError, MissingDataError) as error:
        assert error.file == str(file)  # noqa: PT017
    else:
        assert found == before
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.9, -1])
def test_a_snapshot_that_was_cut_is_named(published: Path, keep: float) -> None:
    file = snapshot_path(published, "000001")
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(CorruptDataError, match=r"000001\.zip: not a whole zip file") as caught:
        open_manifest(DiskStorage(published), "000001")
    assert caught.value.file == str(file)


def test_every_lost_file_of_a_version_1_snapshot_is_named(published: Path) -> None:
    folder = as_folder(published, "000001")
    whole = rows(open_manifest(DiskStorage(published), "000001", timeline=True))
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        file.rename(published / "lost")
        with pytest.raises(MissingDataError, match="is missing; copy it to the dataset again") as caught:
            open_manifest(DiskStorage(published), "000001", timeline=True)
        assert caught.value.file == str(file)
        (published / "lost").rename(file)
    assert rows(open_manifest(DiskStorage(published), "000001", timeline=True)) == whole


def test_every_cut_chunk_of_a_version_1_snapshot_is_named(published: Path) -> None:
    folder = as_folder(published, "000001")
    for file in folder.glob("*/*/c/0"):
        data = file.read_bytes()
        for keep in (0, len(data) // 2, len(data) - 1):
            file.write_bytes(data[:keep])
            with pytest.raises(CorruptDataError, match="cannot be decoded") as caught:
                open_manifest(DiskStorage(published), "000001", timeline=True)
            assert caught.value.file == str(file)
        file.write_bytes(data)


# Interruptions


class Killed(BaseException):
    """Stands for SIGKILL: no code catches it, and nothing is tidied up."""


def points_of_publish(
    monkeypatch: pytest.MonkeyPatch, *, by_folder: bool
) -> list[Callable[[Callable[[], None]], None]]:
    """For each thing that publish does, how to have something called before or behind it."""

    def around(owner: Any, name: str, *, count: int, behind: bool) -> Callable[[Callable[[], None]], None]:
        def install(action: Callable[[], None]) -> None:
            original, numbers = getattr(owner, name), itertools.count(1)

            def patched(*arguments: Any, **keywords: Any) -> Any:
                number = next(numbers)
                if number == count and not behind:
                    action()
                result = original(*arguments, **keywords)
                if number == count and behind:
                    action()
                return result

            monkeypatch.setattr(owner, name, patched)

        return install

    array = "_write_array" if by_folder else "array_files"
    return [
        *(around(writer if by_folder else zarr_small, array, count=count, behind=False) for count in (1, 20, 45)),
        *(around(commits, "_named", count=1, behind=behind) for behind in (False, True)),
        *(around(publish_module, "change_root", count=1, behind=behind) for behind in (False, True)),
        *(around(commits, "flush", count=count, behind=True) for count in (1, 2, 3)),
        around(publish_module, "pack_folder" if by_folder else "pack", count=1, behind=True),
    ]


_POINTS = range(11)


@pytest.mark.parametrize(
    ("by_folder", "point"),
    sample(
        [
            *(pytest.param(False, point) for point in _POINTS),
            *(pytest.param(True, point, marks=pytest.mark.long) for point in _POINTS[1::3]),
        ],
        more=[pytest.param(True, point) for point in _POINTS if point % 3 != 1],
    ),
    ids=lambda value: ("in memory", "by folder")[value] if isinstance(value, bool) else None,
)
def test_publishing_goes_on_wherever_it_was_interrupted(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_folder: bool, point: int
) -> None:
    if by_folder:
        monkeypatch.setattr(publish_module, "is_small", lambda *_: False)
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(published, undisturbed)
    before = rows(current_manifest(published))
    for path in (published, undisturbed):
        write_part(DiskStorage(path), "u3", merge([video("aa", shard="u3-0.shard"), failure("e", "no video")]))
    publish(DiskStorage(undisturbed))

    def kill() -> None:
        # A reader that opens the dataset at this moment sees what was there before, or what is there then.
        assert rows(current_manifest(published)) in (before, rows(current_manifest(undisturbed)))
        raise Killed

    with monkeypatch.context() as patch, DiskStorage(published).lock():
        for module in (publish_module, commits):
            patch.setattr(module, "discarding", contextlib.nullcontext)
        points_of_publish(patch, by_folder=by_folder)[point](kill)
        with pytest.raises(Killed):
            publish(DiskStorage(published))

    with DiskStorage(published).lock():
        publish(DiskStorage(published))
    assert rows(current_manifest(published)) == rows(current_manifest(undisturbed))
    assert not (published / ".tmp").exists()
    assert sorted(file.name for file in (published / "manifest").iterdir()) == ["000001.zip", "000002.zip"]


def test_a_later_snapshot_of_which_the_system_refuses_to_look_at_the_shards_is_not_passed_over(published: Path) -> None:
    """Its videos would be lost: without the parts, only that snapshot has them."""
    dataset, root = DiskStorage(published), (published / "zarr.json").read_bytes()
    (published / "shards").mkdir()
    (published / "shards" / "u3-0.shard").write_bytes(b"")
    write_part(dataset, "u3", video("aa", shard="u3-0.shard"))
    assert publish(dataset) == "000002"
    # As of a writer that died before it wrote zarr.json.
    (published / "zarr.json").write_bytes(root)
    shutil.rmtree(published / "parts")
    write_part(dataset, "u4", failure("e", "no video"))
    shutil.rmtree(published / "shards")
    (published / "shards").symlink_to("shards")
    for look in (publish, latest_root):
        with pytest.raises(UnreadableDataError, match=r"u[123]-0.shard cannot be read: Too many levels"):
            look(dataset)
    (published / "shards").unlink()
    publish(dataset)
    assert current_manifest(published).ids == ["a", "aa", "b", "c"]


def test_what_cannot_be_finished_leaves_nothing(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_part(DiskStorage(published), "u3", video("aa", shard="u3-0.shard"))
    files = sorted(published.rglob("*"))

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(commits, "flush", full)
    with pytest.raises(OutputError, match=r"manifest/000002.zip: No space left on device; free some space"):
        publish(DiskStorage(published))
    with pytest.raises(OutputError, match=r"parts/u4.zip: No space left on device; free some space"):
        write_part(DiskStorage(published), "u4", video("bb", shard="u4-0.shard"))
    assert sorted(published.rglob("*")) == files


def test_a_disk_that_takes_no_further_file_is_called_that(tmp_path: Path) -> None:
    """`df` shows room on it, and freeing space would not help."""
    (tmp_path / "disk").mkdir()
    with mounted_disk(tmp_path / "disk", "size=5m,nr_inodes=12") as disk:
        dataset = DiskStorage(disk / "dataset")
        create(dataset, {})
        write_part(dataset, "u0", video("0", shard="0.shard"))
        for number in range(12):
            with contextlib.suppress(OSError):
                (disk / str(number)).touch()
        with pytest.raises(OutputError, match=r"No space left on device; as many files .* takes \(`df -i`\): remove"):
            write_part(dataset, "u1", video("1", shard="1.shard"))


def test_a_full_disk(small_disk: Path) -> None:
    """With ever less room: each part and each snapshot is there whole, or not at all."""
    path = small_disk / "dataset"
    create(DiskStorage(path), {})
    ballast = small_disk / "ballast"
    refused = 0
    for number in range(100):
        free = shutil.disk_usage(small_disk).free
        with contextlib.suppress(OSError), ballast.open("ab") as file:
            file.write(bytes(min(100_000, max(0, free - 150_000))))
        complaint = None
        try:
            write_part(DiskStorage(path), f"u{number}", video(f"{number:03}", shard=f"{number}.shard"))
            publish(DiskStorage(path))
        except OutputError as error:
            complaint = str(error)
        assert complaint is None or "No space left on device" in complaint
        refused += complaint is not None
        assert all(
            read_part(DiskStorage(path), part).ids == [f"{part[1:]:0>3}"] for part in finished_parts(DiskStorage(path))
        )
        assert set(current_manifest(path).ids) <= {f"{part[1:]:0>3}" for part in finished_parts(DiskStorage(path))}
        assert not any((path / ".tmp").iterdir())
        if refused == 3:
            break
    assert refused == 3
    ballast.unlink()
    publish(DiskStorage(path))
    assert len(current_manifest(path).videos) == len(finished_parts(DiskStorage(path))) > 0
