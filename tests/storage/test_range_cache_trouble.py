"""The local cache of byte ranges after a restart, with a damaged index, and where nothing can be written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from file_permissions import modes_count
from range_cache_items import ONE, after_a_restart, bytes_on_disk, content, entry, files_of, item
from shortgop.errors import DatasetWarning
from shortgop.storage.range_cache import RangeCache


def test_files_that_the_index_does_not_know_are_removed_after_a_restart_of_the_machine(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1), item(2)])
    cache.close()
    index = sqlite3.connect(cache.folder / "index.sqlite", isolation_level=None)
    index.execute("DELETE FROM entries WHERE name = ?", (entry(2).name,))
    index.execute("UPDATE state SET value = ? WHERE name = 'bytes'", (ONE,))
    cache.put([item(1)])
    assert cache.has(entry(2)), "without a restart nothing looks for such files"
    index.execute("UPDATE state SET value = 'another' WHERE name = 'boot'")
    index.close()
    RangeCache(tmp_path, 10 * ONE).put([item(3)])
    assert [number for number in range(4) if cache.has(entry(number))] == [1, 3]


def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    (kept,) = files_of(cache)
    others = [kept.parent / name for name in (".nfs123", ".DS_Store", "0" * 29)]
    for other in others:
        other.write_bytes(b"not of the cache")
    unknown = kept.parent / ("0" * 30)
    unknown.write_bytes(b"of the cache, and without a row")
    (kept.parent / ("1" * 30)).mkdir()
    after_a_restart(cache)
    again = RangeCache(tmp_path, 10 * ONE)
    again.put([item(2)])
    assert again.stopped is None
    assert [again.get(entry(number)) for number in (1, 2)] == [content(1), content(2)]
    assert all(other.exists() for other in others)
    assert not unknown.exists()


def test_a_folder_that_cannot_be_looked_at_has_nothing_and_is_told_once(tmp_path: Path) -> None:
    """Both were an error of Python: of the command that fills the cache, and on a thread, where nobody saw it."""
    (tmp_path / "closed").mkdir(mode=0)
    with modes_count():
        assert RangeCache(tmp_path / "closed/cache", 10 * ONE).used_bytes == 0
    cache = RangeCache(tmp_path / ("long" * 100), 10 * ONE)
    assert cache.used_bytes == 0
    with pytest.warns(DatasetWarning, match="nothing more is kept in .*: File name too long"):
        cache.put([item(1)])
    assert cache.get(entry(1)) is None


@pytest.mark.parametrize("is_open", [True, False])
def test_the_total_is_counted_again_where_its_row_is_lost(tmp_path: Path, is_open: bool) -> None:
    cache = RangeCache(tmp_path, 2 * ONE)
    cache.put([item(1)])
    with contextlib.closing(sqlite3.connect(cache.folder / "index.sqlite")) as index, index:
        index.execute("DELETE FROM state")
    if not is_open:
        cache = RangeCache(tmp_path, 2 * ONE)
    assert cache.used_bytes == ONE
    cache.put([item(2)])
    cache.put([item(3)])
    assert cache.stopped is None
    assert cache.used_bytes == bytes_on_disk(cache) == 2 * ONE


def test_an_index_that_makes_no_sense_ends_with_one_warning(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 10 * ONE)
    cache.put([item(1)])
    with contextlib.closing(sqlite3.connect(cache.folder / "index.sqlite")) as index, index:
        index.execute("UPDATE state SET value = 'many' WHERE name = 'bytes'")
    with pytest.warns(DatasetWarning, match="nothing more is kept in"):
        cache.put([item(2)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put([item(3)])
    assert cache.get(entry(1)) == content(1)


def test_an_index_that_is_no_index_is_one_warning(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, 1 << 20)
    cache.folder.mkdir()
    (cache.folder / "index.sqlite").write_bytes(b"no database" * 1000)
    with pytest.warns(DatasetWarning, match="file is not a database"):
        cache.put([item(1)])
    assert cache.get(entry(1)) is None


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = RangeCache(tmp_path / "file", 1 << 20)
    with pytest.warns(DatasetWarning, match=r"nothing more is kept in .*file/ranges-1: Not a directory"):
        cache.put([item(1)])
    cache.put([item(2)])
    assert cache.get(entry(1)) is None


FULL = """
import json, resource, sys, warnings
from pathlib import Path
sys.path.insert(0, {tests!r})
from range_cache_items import entry, item
from shortgop.storage.range_cache import RangeCache
cache = RangeCache(Path({folder!r}), 1 << 30)
cache.put([item(1)])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for number in (2, 3, 4):
        cache.put([item(number, 400_000)])
print(json.dumps([[str(each.message) for each in caught], cache.get(entry(1)) is not None]))
"""


def test_a_full_disk_is_one_warning_and_reading_goes_on(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    code = FULL.format(tests=str(Path(__file__).parents[1] / "shared"), folder=str(tmp_path))
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    warned, hit = json.loads(said.stdout)
    assert warned == [
        f"nothing more is kept in {tmp_path}/ranges-1: File too large; what was kept is still used. To go on keeping, "
        "free some space, or give another folder, as cache_dir on a local disk"
    ]
    assert hit
    # Others go on.
    cache = RangeCache(tmp_path, 1 << 30)
    cache.put([item(5)])
    assert cache.get(entry(5)) == content(5)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_may_not_be_written_needs_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Root may write to any folder, so the system's answer is a given one."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    cache = RangeCache(tmp_path / "folder", 1 << 30)
    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.warns(DatasetWarning, match="give another folder, which can be written to") as caught:
        cache.put([item(1)])
    assert "space" not in str(caught[0].message)


def test_a_disk_that_is_full_is_one_warning_and_reading_goes_on(small_disk: Path) -> None:
    """The cache may take more than the disk has: 5 MB."""
    cache = RangeCache(small_disk, 1 << 30)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for number in range(10):
            cache.put([item(number, 1_000_000)])
    assert ["nothing more is kept in" in str(each.message) for each in warned] == [True]
    there = [number for number in range(10) if cache.get(entry(number, 1_000_000)) is not None]
    assert there == list(range(len(there)))
    assert 3 <= len(there) <= 5
