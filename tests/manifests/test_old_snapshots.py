"""Snapshots that others took the place of: how long they stay, and what their readers are told afterwards."""

from __future__ import annotations

import os
import pickle
import shutil
import time
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from dataset_paths import LOCK_FILE, snapshot_path
from datasets import as_folder, make_dataset
from example_manifests import failure
from shortgop.errors import UsageError
from shortgop.jobs.prepare import Where, prepare
from shortgop.manifests.dataset_files.layout import snapshots, time_there
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import Root, read_root
from shortgop.manifests.dataset_files.snapshots import open_current, open_manifest
from shortgop.manifests.dataset_files.tidy import parse_duration, remove_old_snapshots
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.drop import drop
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from shortgop.storage.locate import storage_at
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)


def aged(dataset: Path, snapshot: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(snapshot_path(dataset, snapshot), (then, then))


@pytest.fixture
def grown(published: Path) -> Path:
    """Make a dataset that had three snapshots before its current one."""
    for number in range(3):
        write_part(DiskStorage(published), f"f{number}", failure(f"f{number}", "cut short"))
        publish(DiskStorage(published))
    assert set(snapshots(DiskStorage(published))) == {"000001", "000002", "000003", "000004"}
    return published


def test_a_snapshot_stays_for_the_grace_time_after_another_took_its_place(grown: Path) -> None:
    # The first was the current one for a week, until half an hour ago.
    aged(grown, "000001", 7 * 86400)
    aged(grown, "000002", 1800)
    assert remove_old_snapshots(DiskStorage(grown), 3600) == []
    assert remove_old_snapshots(DiskStorage(grown), 1700) == ["000001"]
    assert remove_old_snapshots(DiskStorage(grown), 0) == ["000003", "000002"]
    assert set(snapshots(DiskStorage(grown))) == {"000004"}
    assert open_current(DiskStorage(grown))[1].ids == ["a", "b", "c"]


def test_a_machine_whose_clock_is_days_ahead_removes_no_snapshot_too_early(grown: Path) -> None:
    """The disk's own clock counts: by that of the machine all files are two days old here, though the first snapshot
    was replaced an hour ago."""
    storage, two_days = DiskStorage(grown), 2 * 86400
    for number, snapshot in enumerate(sorted(snapshots(storage))):
        aged(grown, snapshot, two_days + 5400 - 1800 * number)
    with storage.lock():
        then = time.time() - two_days
        os.utime(grown / LOCK_FILE, (then, then))
        assert remove_old_snapshots(storage, 86400) == []
        assert remove_old_snapshots(storage, 1900) == ["000001"]
    # By a lock that was taken now they are old.
    with storage.lock():
        assert remove_old_snapshots(storage, 86400) == ["000003", "000002"]


def test_a_lock_in_a_store_tells_the_time_there(s3_url: str) -> None:
    storage = storage_at(s3_url)
    assert time_there(storage) == 0
    with storage.lock():
        assert abs(time_there(storage) - time.time()) < 60


def test_snapshots_of_version_1_go_too(grown: Path) -> None:
    as_folder(grown, "000002")
    remove_old_snapshots(DiskStorage(grown), 0)
    assert [file.name for file in (grown / "manifest").iterdir()] == ["000004.zip"]


def test_the_current_snapshot_never_goes(grown: Path) -> None:
    aged(grown, "000004", 10**8)
    remove_old_snapshots(DiskStorage(grown), 0)
    assert set(snapshots(DiskStorage(grown))) == {"000004"}


def test_a_later_snapshot_may_be_about_to_become_current(grown: Path) -> None:
    later = snapshot_path(grown, "000005")
    later.write_bytes(b"of another host")
    assert "000005" not in remove_old_snapshots(DiskStorage(grown), 0)
    aged(grown, "000005", 2 * 86400)
    assert remove_old_snapshots(DiskStorage(grown), 0) == ["000005"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for number, name in enumerate(("a.mp4", "b.mp4", "c.mp4")):
        make_video(folder / name, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=100 * number)
    return folder


def test_a_job_removes_old_snapshots_and_their_readers_are_told(sources: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    make_dataset([sources / "a.mp4"], dataset)
    reader = shortgop.open(dataset)
    copy = pickle.dumps(reader)
    make_dataset([sources / "b.mp4"], dataset)
    assert set(snapshots(DiskStorage(dataset))) == {"000001", "000002"}
    prepare(
        [str(sources / "c.mp4")],
        DiskStorage(dataset),
        Profile(),
        where=Where(runner="inline"),
        keep_snapshots_seconds=0,
    )
    assert set(snapshots(DiskStorage(dataset))) == {"000003"}
    # What it has in memory, and the shards, are enough for frames.
    assert [read_number(frame) for frame in reader["a.mp4"][::19]] == [0, 19]
    gone = (
        "snapshot 000001 of .* is gone.*--keep-snapshots.*open the dataset again to read the current snapshot, 000003"
    )
    with pytest.raises(shortgop.MissingDataError, match=gone):
        reader["a.mp4"].source_pts([0])
    with pytest.raises(shortgop.MissingDataError, match=gone):
        pickle.loads(copy)
    with pytest.raises(UsageError, match="has no snapshot '000001'; its current one is '000003', and jobs remove"):
        shortgop.open(dataset, snapshot="000001")


def test_gc_names_no_snapshot_that_it_has_written(sources: Path, tmp_path: Path) -> None:
    """The one that it writes takes the number of one that was left over, and that it has removed before."""
    dataset = tmp_path / "dataset"
    make_dataset([sources], dataset)
    drop(DiskStorage(dataset), ["a.mp4"])
    snapshot_path(dataset, "000003").write_bytes(bytes(10**6))
    aged(dataset, "000003", 2 * 86400)
    num_bytes = sum(file.stat().st_size for file in (dataset / "manifest").iterdir())
    done = collect(DiskStorage(dataset))
    assert (done.snapshot, len(done.rewritten)) == ("000003", 1)
    assert done.snapshots == ("000001", "000002")
    assert done.snapshot_bytes_freed == num_bytes


def test_a_reader_that_opens_while_the_snapshot_goes_gets_the_next(
    grown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shortgop.manifests.dataset_files import snapshots as files

    old = Root(profile={}, snapshot="000001")
    remove_old_snapshots(DiskStorage(grown), 0)
    answers = iter([old])
    monkeypatch.setattr(files, "read_root", lambda path: next(answers, None) or read_root(path))
    assert open_current(DiskStorage(grown))[0].snapshot == "000004"


def test_a_current_snapshot_that_is_missing_is_not_said_to_be_old(published: Path) -> None:
    snapshot_path(published, "000001").unlink()
    with pytest.raises(shortgop.MissingDataError, match="the manifest .* is missing; copy it"):
        open_manifest(DiskStorage(published), "000001")


def test_a_snapshot_can_be_read_while_its_name_goes_away(grown: Path) -> None:
    """To a process that looks at the name, removing is one step."""
    shutil.rmtree(grown / ".tmp", ignore_errors=True)
    remove_old_snapshots(DiskStorage(grown), 0)
    assert not any((grown / ".tmp").iterdir())


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("7d", 604800)])
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "1y", "h", "1e9", "5", "90", f"{'9' * 400}d"])
def test_times_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--keep-snapshots is .* a time with its unit, such as 30m, 12h or 7d, or 0"):
        parse_duration(text)
