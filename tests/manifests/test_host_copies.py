"""The tables of a large snapshot are decoded once for a host: a copy that all its processes map."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale_data import make

import shortgop
from example_manifests import drop, edit, failure, video
from shortgop.errors import CorruptDataError
from shortgop.manifests.dataset_files.layout import snapshot_key
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshots import open_manifest
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.shared_memory.host_copies import HostCopies
from shortgop.manifests.shared_memory.mapped_tables import arrays_of, file_of
from shortgop.manifests.shared_memory.shared_tables import TablesToShare
from shortgop.manifests.tables import Manifest
from shortgop.storage.disk import DiskStorage

SNAPSHOT = "000001"
# Makes or opens the copy of a dataset, for other processes.
OPEN = """
import sys
from pathlib import Path
from shortgop.manifests.shared_memory.host_copies import HostCopies
from shortgop.manifests.dataset_files.snapshots import open_manifest
from shortgop.storage.disk import DiskStorage
manifest = open_manifest(DiskStorage(Path(sys.argv[1])), "000001", copies=HostCopies(Path(sys.argv[2]), min_bytes=0))
print(len(manifest.videos))
"""
# Is killed while the copy is half made.
STOP_HALFWAY = """
import os, signal, sys
from pathlib import Path
import numpy as np
from shortgop.manifests.shared_memory.host_copies import HostCopies
def read(new_array):
    new_array("videos/num_frames", 100_000, "<i8").put(0, np.full(100_000, 7))
    print("halfway", flush=True)
    signal.pause()
HostCopies(Path(sys.argv[1])).tables(sys.argv[2], read)
"""


def dataset_of(path: Path, *manifests: Manifest) -> Path:
    storage = DiskStorage(path)
    create(storage, {})
    write_part(storage, "0" * 16, merge(manifests), {})
    publish(storage)
    return path


def opened_at(path: Path, copies: HostCopies | None = None) -> Manifest:
    return open_manifest(DiskStorage(path), SNAPSHOT, copies=copies)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    videos = [video(f"{number}.mp4", offset=9000 * number, frames=3 + number) for number in range(5)]
    return dataset_of(tmp_path_factory.mktemp("copies") / "dataset", *videos, failure("x.mp4", "lost"))


@pytest.fixture
def copies(tmp_path: Path) -> HostCopies:
    return HostCopies(tmp_path / "copies", min_bytes=0)


def content(manifest: Manifest) -> dict[str, Any]:
    """All columns but the timeline, and what is worked out of them, with their types."""
    return {name: (array.dtype.str, array.tolist()) for name, array in arrays_of(manifest).items()}


def made(copies: HostCopies) -> list[Path]:
    """The files with tables."""
    return sorted(copies.folder.glob("*/tables"))


def when_made(copies: HostCopies) -> list[int]:
    return [file.stat().st_mtime_ns for file in made(copies)]


PARTS = st.one_of(
    st.builds(video, st.sampled_from("abcd"), offset=st.sampled_from([0, 9000]), frames=st.integers(1, 20)),
    st.builds(failure, st.sampled_from("abcd"), st.just("lost")),
    st.builds(edit, st.sampled_from("abcd"), st.integers(1, 9), label=st.integers(0, 9)),
    st.builds(drop, st.sampled_from("abcd"), st.integers(1, 9)),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=6))
def test_a_copy_has_what_the_snapshot_has(tmp_path_factory: pytest.TempPathFactory, parts: list[Manifest]) -> None:
    """When it is made, and when it is there."""
    path = tmp_path_factory.mktemp("example")
    dataset = dataset_of(path / "dataset", *parts)
    copies = HostCopies(path / "copies", min_bytes=0)
    expected = content(opened_at(dataset))
    for _ in range(2):
        opened = opened_at(dataset, copies)
        assert file_of(opened) is not None
        assert content(opened) == expected
        assert not any(array.flags.writeable for array in arrays_of(opened).values() if len(array))
        assert [opened.row_of(video_id) for video_id in opened.ids] == list(range(len(opened.videos)))


def test_a_copy_is_made_once(dataset: Path, copies: HostCopies) -> None:
    opened_at(dataset, copies)
    first = when_made(copies)
    opened_at(dataset, copies)
    assert when_made(copies) == first
    assert len(first) == 1


def test_another_place_of_the_same_snapshot_has_the_same_copy(
    dataset: Path, copies: HostCopies, tmp_path: Path
) -> None:
    """The name of a copy is a hash of what is in it."""
    opened_at(dataset, copies)
    shutil.copytree(dataset, tmp_path / "elsewhere")
    opened_at(tmp_path / "elsewhere", copies)
    assert len(made(copies)) == 1
    other = dataset_of(tmp_path / "other", video("0.mp4"))
    assert opened_at(other, copies).ids == ["0.mp4"]
    assert len(made(copies)) == 2


def cut(copies: HostCopies) -> None:
    (file,) = made(copies)
    os.truncate(file, file.stat().st_size - 1)


def flip_a_bit(copies: HostCopies) -> None:
    (file,) = made(copies)
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size - 1)
        last = opened.read(1)[0]
        opened.seek(-1, os.SEEK_END)
        opened.write(bytes([last ^ 1]))


def spoil_the_stamp(copies: HostCopies) -> None:
    (file,) = made(copies)
    stamp = file.with_name("stamp")
    stamp.write_bytes(stamp.read_bytes().replace(b"videos", b"frames", 1))


def empty_the_stamp(copies: HostCopies) -> None:
    (file,) = made(copies)
    file.with_name("stamp").write_bytes(b"")


def lose_the_checksums(copies: HostCopies) -> None:
    (file,) = made(copies)
    file.with_name("checksums").unlink()
    # Anything may have written to it.
    os.utime(file, (1, 1))


def spoil_the_checksums(copies: HostCopies) -> None:
    (file,) = made(copies)
    checksums = file.with_name("checksums")
    checksums.write_bytes(checksums.read_bytes().replace(b"videos", b"frames", 1))
    os.utime(file, (1, 1))


@pytest.mark.parametrize(
    "damage", [cut, flip_a_bit, spoil_the_stamp, empty_the_stamp, lose_the_checksums, spoil_the_checksums]
)
def test_a_damaged_copy_is_made_again(dataset: Path, copies: HostCopies, damage: Any) -> None:
    expected = content(opened_at(dataset, copies))
    before = when_made(copies)
    damage(copies)
    again = opened_at(dataset, copies)
    assert content(again) == expected
    assert when_made(copies) != before
    assert content(opened_at(dataset, copies)) == expected


def test_a_copy_from_before_the_system_started_is_compared_and_used(dataset: Path, copies: HostCopies) -> None:
    """So is one whose times a backup changed: what counts is its content."""
    expected = content(opened_at(dataset, copies))
    (file,) = made(copies)
    inode = file.stat().st_ino
    os.utime(file, (1, 1))
    stamp = file.with_name("stamp").read_bytes()
    assert content(opened_at(dataset, copies)) == expected
    assert file.stat().st_ino == inode
    assert file.with_name("stamp").read_bytes() != stamp


def test_a_process_that_is_killed_leaves_nothing_that_counts(dataset: Path, copies: HostCopies, tmp_path: Path) -> None:
    """The next one that makes a copy removes what it left."""
    opened_at(dataset, copies)
    (file,) = made(copies)
    key = file.parent.name
    shutil.rmtree(file.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", STOP_HALFWAY, str(copies.folder), key], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "halfway\n"
    assert len(made(copies)) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    # Another one was killed before it had a file.
    (copies.folder / "making-0123456789ab").mkdir()
    assert content(opened_at(dataset, copies)) == content(opened_at(dataset))
    assert [copy.parent.name for copy in made(copies)] == [key]
    assert list(copies.folder.glob("making-*")) == []


def test_processes_that_open_at_once_make_one_copy(dataset: Path, copies: HostCopies) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", OPEN, str(dataset), str(copies.folder)], stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    assert [process.communicate()[0] for process in processes] == [b"5\n"] * 3
    assert len(made(copies)) == 1


def test_copies_take_no_more_than_their_limit(dataset: Path, tmp_path: Path) -> None:
    """Those that were opened longest ago go first, and processes that have opened them keep them."""
    one = HostCopies(tmp_path / "copies", min_bytes=0)
    first = opened_at(dataset, one)
    (file,) = made(one)
    num_bytes = file.stat().st_size
    two = HostCopies(one.folder, max_bytes=5 * num_bytes // 2, min_bytes=0)
    for number in range(3):
        time.sleep(0.01)
        other = dataset_of(
            tmp_path / str(number), *(video(f"{number}{each}.mp4", frames=3 + each) for each in range(5))
        )
        opened_at(other, two)
        assert sum(each.stat().st_size for each in made(two)) <= 5 * num_bytes // 2
    assert len(made(two)) == 2
    assert not file.exists()
    assert content(first) == content(opened_at(dataset))


def test_a_snapshot_beyond_the_limit_has_no_copy(dataset: Path, tmp_path: Path) -> None:
    copies = HostCopies(tmp_path / "copies", max_bytes=10_000, min_bytes=0)
    opened = opened_at(dataset, copies)
    assert content(opened) == content(opened_at(dataset))
    assert list(copies.folder.iterdir()) == [copies.folder / ".lock"]


def test_a_small_snapshot_has_no_copy(dataset: Path, tmp_path: Path) -> None:
    with pytest.warns(shortgop.errors.DatasetWarning):
        opened = shortgop.open(dataset, cache_dir=tmp_path / "cache")
    assert len(opened) == 5
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_cannot_be_written_is_done_without(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/self/copies")):
        opened = opened_at(dataset, HostCopies(folder, min_bytes=0))
        assert content(opened) == content(opened_at(dataset))


def test_a_copy_in_a_read_only_folder_is_used(dataset: Path, copies: HostCopies) -> None:
    opened_at(dataset, copies)
    (file,) = made(copies)
    for path in (file.parent, copies.folder):
        path.chmod(0o500)
    try:
        assert file_of(opened_at(dataset, copies)) is not None
    finally:
        for path in (copies.folder, file.parent):
            path.chmod(0o700)


def test_a_damaged_snapshot_is_an_error_with_copies_too(dataset: Path, copies: HostCopies, tmp_path: Path) -> None:
    shutil.copytree(dataset, tmp_path / "damaged")
    file = tmp_path / "damaged" / snapshot_key(SNAPSHOT)
    data = bytearray(file.read_bytes())
    data[data.index(b"videos/num_frames/c/0") + 40] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptDataError, match="num_frames"):
        opened_at(tmp_path / "damaged", copies)
    assert made(copies) == []


def send_content(queue: Any, tables: Any) -> None:
    queue.put((content(tables), file_of(tables) is not None))


def test_a_process_that_is_started_maps_the_same_copy(dataset: Path, copies: HostCopies) -> None:
    """Even if it is removed meanwhile."""
    manifest = opened_at(dataset, copies)
    shutil.rmtree(copies.folder)
    context = multiprocessing.get_context("spawn")
    queue: Any = context.SimpleQueue()
    process = context.Process(target=send_content, args=(queue, TablesToShare(manifest)))
    process.start()
    assert queue.get() == (content(manifest), True)
    process.join()


def test_a_large_dataset_is_opened_from_its_copy(tmp_path: Path) -> None:
    """By id too, without a dict of all ids."""
    dataset = make(tmp_path / "large", 250_000)
    for _ in range(2):
        opened = shortgop.open(dataset, cache_dir=tmp_path / "cache")
        assert len(opened) == 250_000
        assert len(opened["000123456.mp4"]) == 96
        assert len(opened["000000003.mp4"]) == 112
        for missing in ("", "000123456.mp", "000123456.mp4x", "\udcff", "zzz"):
            assert missing not in opened
    assert len(list((tmp_path / "cache" / "tables").glob("*/tables"))) == 1
