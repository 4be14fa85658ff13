"""A dataset's files: its root, its parts and its shards, and what damage to them is noticed."""

import errno
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_paths import part_path, shard_path, snapshot_path
from datasets import current_manifest
from dead_mount import dead_mount
from example_manifests import failure, rows, video
from shortgop.errors import (
    CorruptDataError,
    FormatVersionError,
    MissingDataError,
    NotADatasetError,
    OutputError,
    UnreadableDataError,
)
from shortgop.manifests.dataset_files import parts
from shortgop.manifests.dataset_files.parts import finished_parts, finished_units, read_part, write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create, is_dataset, read_root
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.operations.lost import lost_shards
from shortgop.manifests.operations.lost_root import restore_root
from shortgop.manifests.operations.shard_bytes import ShardBytes, gop_piece
from shortgop.manifests.operations.verify import verify
from shortgop.manifests.tables import empty
from shortgop.storage.disk import DiskStorage

PROFILE = {"gop_frames": 4}


# The root


def test_a_new_dataset_has_its_profile_and_no_snapshot(empty_dataset: Path) -> None:
    root = read_root(DiskStorage(empty_dataset))
    assert (root.profile, root.snapshot) == (PROFILE, None)
    assert rows(current_manifest(empty_dataset)) == rows(empty())
    with pytest.raises(NotADatasetError, match="no snapshot yet"):
        open_current(DiskStorage(empty_dataset))


def test_the_root_is_a_zarr_group(empty_dataset: Path) -> None:
    group = zarr.open_group(empty_dataset, mode="r")
    assert group.attrs["shortgop"] == {"format_version": 4, "profile": PROFILE, "snapshot": None}


def test_an_empty_folder_may_become_a_dataset_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    create(DiskStorage(tmp_path / "empty"), PROFILE)
    (tmp_path / "file").write_text("precious")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/.DS_Store").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for path, complaint in (
        (tmp_path, "holds files but no dataset"),
        (tmp_path / "hidden", r"holds files but no dataset, '\.DS_Store' for one; choose an empty or new folder"),
        (tmp_path / "link", "link is a link to 'nowhere', which does not exist; make that folder"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "below", "a part of that path is a file"),
    ):
        with pytest.raises(OutputError, match=complaint):
            create(DiskStorage(path), PROFILE)
    assert (tmp_path / "file").read_text() == "precious"


def test_a_dataset_that_another_job_has_made_meanwhile_stays_as_it_is(empty_dataset: Path) -> None:
    """A job that stood still before it made one goes on with it, and need not be given another folder."""
    before = (empty_dataset / "zarr.json").read_bytes()
    assert create(DiskStorage(empty_dataset), {"gop_frames": 999}).profile == PROFILE
    assert (empty_dataset / "zarr.json").read_bytes() == before


ROOT: dict[str, Any] = {"format_version": 1, "profile": PROFILE, "snapshot": "000001"}


@pytest.mark.parametrize(
    ("content", "kind", "complaint"),
    [
        (None, NotADatasetError, r"holds no dataset; give the folder that `shortgop prep --out` wrote"),
        ({"zarr_format": 3, "node_type": "group", "attributes": {}}, NotADatasetError, "is not the root"),
        ([], NotADatasetError, "is not the root"),
        ({**ROOT, "format_version": 6}, FormatVersionError, "this shortgop reads versions 1, 2, 3, 4 and 5; upgrade"),
        ({**ROOT, "format_version": 0}, FormatVersionError, "version 0, .*; prepare it again"),
        ({**ROOT, "snapshot": "../../etc"}, CorruptDataError, "is damaged"),
        ({**ROOT, "snapshot": 1}, CorruptDataError, "is damaged"),
        ({**ROOT, "profile": None}, CorruptDataError, "is damaged"),
        (b"", CorruptDataError, "is damaged"),
        (b'{"zarr_format": 3, "node_ty', CorruptDataError, "is damaged"),
        (b"\xff\xfe\x00", CorruptDataError, "is damaged"),
    ],
    ids=str,
)
def test_a_root_that_is_not_as_it_should_be(
    tmp_path: Path, content: Any, kind: type[Exception], complaint: str
) -> None:
    file = tmp_path / "zarr.json"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        document = {"attributes": {"shortgop": content}} if "format_version" in content else content
        file.write_text(json.dumps(document))
    with pytest.raises(kind, match=complaint) as caught:
        read_root(DiskStorage(tmp_path))
    assert str(file) in str(caught.value)


def test_a_folder_that_does_not_exist_or_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(NotADatasetError, match="nowhere does not exist"):
        read_root(DiskStorage(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("no dataset")
    with pytest.raises(NotADatasetError, match="is a file"):
        read_root(DiskStorage(tmp_path / "file"))


# Parts


def test_a_part_holds_what_its_unit_found(empty_dataset: Path) -> None:
    found = merge([video("a"), failure("b", "cut short")])
    write_part(DiskStorage(empty_dataset), "u1", found)
    assert rows(read_part(DiskStorage(empty_dataset), "u1")) == rows(found)
    assert finished_units(DiskStorage(empty_dataset)) == {"u1"}


def test_zarr_opens_a_part(published: Path) -> None:
    with zarr.storage.ZipStore(part_path(published, "u1"), mode="r") as store:
        group = zarr.open_group(store, mode="r")
        assert group.attrs["shortgop"] == {"format_version": 4, "unit": "u1"}
        lengths = group["gops/length"]
        assert isinstance(lengths, zarr.Array)
        assert lengths[:].tolist() == [1000] * 6  # type: ignore[union-attr]


def test_the_same_rows_make_the_same_part() -> None:
    assert parts.pack(video("a"), {}) == parts.pack(video("a"), {})


def test_a_unit_done_again_with_the_same_outcome_leaves_its_part_alone(empty_dataset: Path) -> None:
    write_part(DiskStorage(empty_dataset), "u1", failure("a", "cut short", attempted_ns=1))
    write_part(DiskStorage(empty_dataset), "u1", failure("a", "cut short", attempted_ns=2))
    assert finished_parts(DiskStorage(empty_dataset)) == {"u1"}


def test_a_unit_done_again_with_another_outcome_gets_another_part(empty_dataset: Path) -> None:
    outcomes = [failure("a", "no such file", 1), failure("a", "cut short", 2), failure("a", "cut short", 3), video("a")]
    for outcome in outcomes:
        write_part(DiskStorage(empty_dataset), "u1", outcome)
    assert finished_parts(DiskStorage(empty_dataset)) == {"u1", "u1.1", "u1.2"}
    assert finished_units(DiskStorage(empty_dataset)) == {"u1"}
    publish(DiskStorage(empty_dataset))
    assert current_manifest(empty_dataset).ids == ["a"]
    assert len(current_manifest(empty_dataset).failures) == 0


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, -1])
def test_a_part_that_was_cut_is_named_with_what_to_do(published: Path, keep: float) -> None:
    file = part_path(published, "u1")
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(CorruptDataError, match=r"u1\.zip: not a whole zip file.*; copy it to the dataset again$"):
        read_part(DiskStorage(published), "u1")
    # Of a part that no snapshot has, a command can give the rows again.
    file.rename(part_path(published, "u3"))
    with pytest.raises(CorruptDataError, match=r"u3\.zip: not a whole zip file.* or remove it and run the command"):
        publish(DiskStorage(published))


def test_a_part_that_is_not_there(published: Path) -> None:
    with pytest.raises(MissingDataError, match=r"u9\.zip: No such file"):
        read_part(DiskStorage(published), "u9")


@pytest.fixture(scope="module")
def packed() -> bytes:
    return parts.pack(merge([video("a"), failure("b", "cut short")]), {})


@given(st.data())
@settings(deadline=None)
def test_a_flipped_bit_in_a_part_is_noticed_or_makes_no_difference(packed: bytes, data: st.DataObject) -> None:
    damaged = bytearray(packed)
    damaged[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found, _ = parts.unpack(bytes(damaged))
    except (CorruptDataError, MissingDataError):
        return
    assert rows(found) == rows(parts.unpack(packed)[0])


# Shards


@pytest.fixture
def with_shards(published: Path) -> Path:
    """Give the dataset shards of the right lengths, full of zeros."""
    (published / "shards").mkdir()
    for name in ("u1-0.shard", "u2-0.shard"):
        with shard_path(published, name).open("wb") as file:
            file.truncate(1 << 20)
    return published


def test_shards_of_the_right_length_pass(with_shards: Path) -> None:
    assert lost_shards(DiskStorage(with_shards), current_manifest(with_shards)) == {}


@pytest.mark.parametrize(
    ("length", "kind", "complaint"),
    [
        (None, MissingDataError, r"u2-0\.shard is missing; run `shortgop prep` on the same sources again, or "),
        (1000, MissingDataError, r"u2-0\.shard has 1000 bytes, the manifest says 1048576; .* copy the shard"),
        (1 << 21, CorruptDataError, r"u2-0\.shard has 2097152 bytes, the manifest says 1048576"),
    ],
)
def test_a_shard_of_another_length_is_named(
    with_shards: Path, length: int | None, kind: type[Exception], complaint: str
) -> None:
    file = shard_path(with_shards, "u2-0.shard")
    if length is None:
        file.unlink()
    else:
        os.truncate(file, length)
    (error,) = lost_shards(DiskStorage(with_shards), current_manifest(with_shards)).values()
    assert type(error) is kind
    assert re.search(complaint, str(error))


def test_a_part_is_an_ordinary_zip_file(published: Path) -> None:
    with zipfile.ZipFile(part_path(published, "u1")) as archive:
        assert archive.testzip() is None
        assert "videos/num_frames/zarr.json" in archive.namelist()


# What the system refuses


def test_a_process_that_has_too_many_files_open_is_told_so(published: Path, tmp_path: Path) -> None:
    """Nothing in the dataset is called damaged or missing, and nothing is to be removed or copied."""
    code = (
        "import os, resource, sys; from pathlib import Path\n"
        "from shortgop.manifests.dataset_files.root_file import read_root\n"
        "from shortgop.manifests.dataset_files.snapshots import open_current, open_manifest\n"
        "from shortgop.manifests.dataset_files.parts import read_part\n"
        "from shortgop.storage.disk import DiskStorage\n"
        "dataset = DiskStorage(sys.argv[1]); open_current(dataset)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "held = []\n"
        "try:\n"
        "    while True: held.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError: pass\n"
        "for read in (read_root, open_current, lambda path: read_part(path, 'u1')):\n"
        "    try: read(dataset)\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
        "os.close(held.pop())\n"
        "root = read_root(dataset); held.append(os.open('/dev/null', os.O_RDONLY))\n"
        "try: open_manifest(dataset, root.snapshot)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(published)], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done
    for line in lines:
        assert line.startswith("UnreadableDataError")
        assert "Too many open files; raise the number of files that a process may have open" in line
        assert "remove it" not in line
        assert "copy it" not in line


def test_a_path_that_the_system_refuses_is_an_error_of_the_dataset(tmp_path: Path) -> None:
    too_long = tmp_path / ("x" * 300)
    for look in (read_root, is_dataset):
        with pytest.raises(UnreadableDataError, match="cannot be read: File name too long"):
            look(DiskStorage(too_long))


def test_a_file_that_the_system_refuses_to_look_at_is_named_and_not_its_folder(published: Path) -> None:
    loop = part_path(published, "u3")
    loop.symlink_to(loop)
    with pytest.raises(UnreadableDataError, match=f"{loop} cannot be read: Too many levels") as caught:
        publish(DiskStorage(published))
    assert caught.value.file == str(loop)


def test_without_its_root_a_dataset_whose_snapshots_cannot_be_listed_is_not_taken_for_none(published: Path) -> None:
    """`verify --repair` said that there was no dataset."""
    (published / "zarr.json").unlink()
    (published / "manifest").rename(published / "elsewhere")
    (published / "manifest").symlink_to("manifest")
    for look in (open_current, restore_root):
        with pytest.raises(UnreadableDataError, match="manifest cannot be read: Too many levels"):
            look(DiskStorage(published))
    (published / "manifest").unlink()
    (published / "elsewhere").rename(published / "manifest")
    assert restore_root(DiskStorage(published)) is not None


def _replace_member(file: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(file) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, data if member == name else content)


def test_a_copy_without_its_root_says_what_it_lacks(published: Path) -> None:
    """A copy that was cut short: `zarr.json` is the last file by name."""
    (published / "zarr.json").unlink()
    lacks = "has a folder `manifest` and no zarr.json.*copy it there, too"
    with pytest.raises(NotADatasetError, match=lacks):
        open_current(DiskStorage(published))
    with pytest.raises(OutputError, match=lacks):
        create(DiskStorage(published), PROFILE)


@pytest.mark.parametrize("key", ["zarr.json", "videos/zarr.json", "videos/id/zarr.json"])
def test_a_malformed_document_of_a_snapshot_is_damaged_and_not_missing(published: Path, key: str) -> None:
    file = snapshot_path(published, "000001")
    _replace_member(file, key, b"{}")
    with pytest.raises(
        CorruptDataError, match=f"{key} cannot be decoded: KeyError.*copy it to the dataset again"
    ) as caught:
        open_current(DiskStorage(published))
    assert caught.value.file == str(file)


def test_a_part_with_a_malformed_document_is_damaged(published: Path) -> None:
    _replace_member(part_path(published, "u1"), "videos/id/zarr.json", b"{}")
    with pytest.raises(CorruptDataError, match="videos/id/zarr.json cannot be decoded: KeyError"):
        read_part(DiskStorage(published), "u1")


def test_a_disk_that_fails_is_not_called_damage(published: Path, tmp_path: Path) -> None:
    """Neither where tables are read, nor where shards are."""
    folder = tmp_path / "failing"
    folder.mkdir()
    with dead_mount(folder, size=1 << 20, error=errno.EIO) as mounted:
        if mounted is None:
            pytest.skip("mounting a file system takes rights that are missing here")
        (published / "shards").mkdir()
        for name in ("u1-0.shard", "u2-0.shard"):
            shard_path(published, name).symlink_to(mounted / name)
        root, manifest = open_current(DiskStorage(published))
        problems = list(verify(DiskStorage(published), manifest))
        assert {problem.what for problem in problems if problem.frames} == {
            "cannot be read: Input/output error; repair its disk or its server and try again"
        }
        with pytest.raises(UnreadableDataError):
            ShardBytes(DiskStorage(published)).piece("shards/u1-0.shard", gop_piece(manifest, 0))
        snapshot = snapshot_path(published, str(root.snapshot))
        snapshot.unlink()
        snapshot.symlink_to(mounted / "0")
        with pytest.raises(UnreadableDataError, match="repair its disk or its server and try again"):
            open_current(DiskStorage(published))
