"""What NFS does otherwise than a disk, imitated on a disk: files named .nfs..., stale handles, and late news of another
host. `scripts/nfs_hosts.sh` starts hosts with a real NFS."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from example_manifests import failure
from range_cache_items import ONE, content, entry, item
from shortgop.errors import DatasetBusyError, DatasetWarning, NotADatasetError
from shortgop.manifests.dataset_files.layout import ROOT_KEY, snapshots
from shortgop.manifests.dataset_files.parts import finished_parts, write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import (
    change_root,
    create,
    is_dataset,
    make_place,
    read_root,
    root_document,
)
from shortgop.manifests.shared_memory import host_copies
from shortgop.manifests.shared_memory.host_copies import copies_in
from shortgop.storage import disk_lock, range_cache
from shortgop.storage.disk import DiskStorage
from shortgop.storage.network_folders import shared_between_hosts
from shortgop.storage.range_cache import RangeCache

SILLY = ".nfs00000000000201270000000b"


@pytest.fixture
def dataset(tmp_path: Path) -> DiskStorage:
    storage = DiskStorage(tmp_path / "dataset")
    create(storage, {})
    return storage


def failing(call: Callable[..., Any], number: int, times: int) -> Callable[..., Any]:
    """The call, which fails with this error so many times first."""
    left = [number] * times

    def called(*arguments: Any, **options: Any) -> Any:
        if left:
            raise OSError(left.pop(), os.strerror(number))
        return call(*arguments, **options)

    return called


def test_a_file_that_is_replaced_is_not_open(dataset: DiskStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else NFS renames it to .nfs... before, and other hosts find no zarr.json for a moment."""
    opened: list[str] = []
    rename = Path.replace

    def looking(self: Path, target: Path) -> Path:
        for each in Path("/proc/self/fd").iterdir():
            # The one through which they are listed is closed by then.
            with contextlib.suppress(FileNotFoundError):
                opened.append(str(each.readlink()))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", looking)
    change_root(dataset, lambda root: replace(root, id_roots=("videos",)))
    assert opened
    assert dataset.place(ROOT_KEY) not in opened
    assert read_root(dataset).id_roots == ("videos",)


def test_who_replaces_a_file_waits_for_who_is_about_to(dataset: DiskStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    with dataset.open(ROOT_KEY) as opened:
        version = opened.stored.version
    with disk_lock.replace_lock(dataset.folder):
        waiting = threading.Thread(target=lambda: dataset.replace(ROOT_KEY, b"new", version))
        waiting.start()
        time.sleep(0.1)
        assert dataset.read(ROOT_KEY) != b"new"
        monkeypatch.setattr(disk_lock, "_SECONDS_TO_REPLACE", 0.05)
        with pytest.raises(DatasetBusyError, match="remove .replace-lock there"):
            dataset.replace(ROOT_KEY, b"newer", version)
    waiting.join()
    assert dataset.read(ROOT_KEY) == b"new"


def test_a_root_that_another_host_replaces_while_it_is_read(
    dataset: DiskStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handle is stale, at first or when it is read."""
    monkeypatch.setattr(os, "fstat", failing(os.fstat, errno.ESTALE, 3))
    assert read_root(dataset).snapshot is None
    monkeypatch.setattr(os, "pread", failing(os.pread, errno.ESTALE, 3))
    assert read_root(dataset).snapshot is None
    monkeypatch.setattr(os, "stat", failing(os.stat, errno.ESTALE, 3))
    assert dataset.find(ROOT_KEY) is not None


def test_a_dataset_that_another_host_has_made_since(dataset: DiskStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS says for some seconds that there is none, until the folder above it is opened."""
    look_up, above = os.open, dataset.folder.parent
    has_looked = False

    def late(path: Any, *arguments: Any, **options: Any) -> int:
        nonlocal has_looked
        has_looked = has_looked or Path(path) == above
        if above in Path(path).parents and not has_looked:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return look_up(path, *arguments, **options)

    monkeypatch.setattr(os, "open", late)
    assert read_root(dataset).snapshot is None
    assert DiskStorage(above / "none" / "there").find(ROOT_KEY) is None


def test_a_root_that_is_missing_for_a_moment(dataset: DiskStorage) -> None:
    """As while a host replaces it, of which another process has it open."""
    write_part(dataset, "unit", failure("a", "cut short"))
    publish(dataset)
    root, aside = dataset.folder / ROOT_KEY, dataset.folder / SILLY

    def with_a_moment_without(look: Callable[[DiskStorage], Any]) -> Any:
        root.rename(aside)
        later = threading.Timer(0.1, lambda: aside.rename(root))
        later.start()
        found = look(dataset)
        later.join()
        return found

    assert with_a_moment_without(read_root).snapshot == "000001"
    assert with_a_moment_without(is_dataset)


def test_a_root_that_is_missing_is_missed_at_last(dataset: DiskStorage) -> None:
    write_part(dataset, "unit", failure("a", "cut short"))
    publish(dataset)
    (dataset.folder / ROOT_KEY).unlink()
    assert not is_dataset(dataset)
    with pytest.raises(NotADatasetError, match="a dataset that lacks this file; copy it there, too"):
        read_root(dataset)


def test_files_that_nfs_keeps_for_a_while_belong_to_no_dataset(dataset: DiskStorage, tmp_path: Path) -> None:
    write_part(dataset, "unit", failure("a", "cut short"))
    publish(dataset)
    before = sorted(each.key for each in dataset.files(""))
    for folder in (".", "parts", "manifest", "shards"):
        (dataset.folder / folder).mkdir(exist_ok=True)
        (dataset.folder / folder / SILLY).write_bytes(root_document(read_root(dataset)))
    assert sorted(each.key for each in dataset.files("")) == before
    assert finished_parts(dataset) == {"unit"}
    assert list(snapshots(dataset)) == ["000001"]
    empty = DiskStorage(tmp_path / "empty")
    empty.make()
    (empty.folder / SILLY).touch()
    make_place(empty)


def test_a_hidden_file_of_the_users_is_a_file(tmp_path: Path) -> None:
    (tmp_path / ".nfs-notes").touch()
    assert [each.key for each in DiskStorage(tmp_path).files("")] == [".nfs-notes"]


def test_other_hosts_see_at_once_who_has_the_lock(dataset: DiskStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS sends what was written when it is flushed, or the file is closed."""
    flushed = []
    flush = os.fsync

    def noting(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed.append((str(path), os.pread(descriptor, 1 << 10, 0)))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    with dataset.lock():
        assert [(path, b'"host"' in content) for path, content in flushed] == [(dataset.place(".lock"), True)]


def test_a_cache_that_several_hosts_have_is_read_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its index would wait for another host, or break."""
    RangeCache(tmp_path, 10 * ONE).put([item(1)])
    monkeypatch.setattr(range_cache, "shared_between_hosts", lambda _folder: "nfs4")
    cache = RangeCache(tmp_path, 10 * ONE)
    with pytest.warns(DatasetWarning, match="it is on nfs4, .* give another folder, as cache_dir on a local disk"):
        cache.put([item(2)])
    cache.put([item(3)])
    assert [cache.get(entry(number)) for number in (1, 2, 3)] == [content(1), None, None]


def test_copies_of_tables_are_not_where_another_host_may_remove_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has mapped them would end."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    at_home = copies_in(None)
    monkeypatch.setattr(host_copies, "shared_between_hosts", lambda _folder: "nfs")
    elsewhere, of_a_cache = copies_in(None), copies_in(tmp_path / "cache")
    assert at_home is not None
    assert elsewhere is not None
    assert at_home.folder == tmp_path / "home" / "shortgop" / "tables"
    assert elsewhere.folder.parent.name.startswith(f"shortgop-{os.getuid()}-")
    assert elsewhere == of_a_cache


MOUNTS = r"""
22 1 8:1 / / rw,relatime - ext4 /dev/vda1 rw
31 22 0:40 / /home rw,relatime shared:7 - nfs4 server:/home rw,vers=4.2
32 31 0:41 / /home/my\040disk rw,relatime - xfs /dev/vdb rw
33 22 0:42 / /data rw,relatime - xfs /dev/vdc rw
34 33 0:43 / /data rw,relatime - nfs server:/data rw,vers=3
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", None),
        ("/homeless", None),
        ("/home", "nfs4"),
        ("/home/someone/.cache/not/there", "nfs4"),
        ("/home/my disk/cache", None),
        ("/data/x", "nfs"),
    ],
)
def test_which_folders_other_hosts_may_have_too(folder: str, kind: str | None) -> None:
    assert shared_between_hosts(Path(folder), MOUNTS.strip()) == kind
