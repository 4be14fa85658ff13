"""Several writers of one dataset: locks that work and locks that do not, jobs that died, and other options. In a
folder, and in S3."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dataset_paths import LOCK_FILE
from dataset_places import Places, temporary_files
from datasets import current_manifest, make_dataset
from example_manifests import failure, video
from shortgop.errors import DatasetBusyError, UsageError
from shortgop.jobs.dataset_profile import existing_profile
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.units_of_work.units import Item, plan_units
from shortgop.jobs.working.work import run_unit
from shortgop.manifests.dataset_files.layout import snapshot_key, snapshots
from shortgop.manifests.dataset_files.parts import finished_parts, write_part
from shortgop.manifests.dataset_files.publish import catch_up, publish
from shortgop.manifests.dataset_files.root_file import change_root, create, read_root
from shortgop.manifests.dataset_files.snapshot_files import snapshot_attributes
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.prep.options import Options
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from source_arguments import find_sources
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

RATE = Fraction(25)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for number, name in enumerate(("a.mp4", "b.mp4")):
        make_video(folder / name, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=100 * number)
    (folder / "broken.mp4").write_text("not a video")
    return folder


def finish_unit(dataset: Storage, source: Path, profile: Profile) -> None:
    """Encode a source as a worker does, without publishing it: its job was killed, or it outlived its job."""
    (found,) = find_sources([str(source)])
    item = Item(found, *identity_of(found.path))
    (unit,) = plan_units([item], profile_key=profile.key(), done={}, shard_bytes=10**9)
    run_unit(dataset, unit, Options(profile), lambda _: None)


_PUBLISH_OFTEN = """
import sys, time
from example_manifests import failure
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.errors import DatasetBusyError
from shortgop.storage.locate import storage_at
from shortgop.manifests.dataset_files.publish import publish
dataset, me, lost = storage_at(sys.argv[1]), sys.argv[2], 0
print("ready", flush=True)
sys.stdin.readline()
for number in range(6):
    write_part(dataset, f"{me}{number}", failure(f"{me}{number}", "cut short"))
    try:
        publish(dataset)
    except DatasetBusyError as error:
        assert "published snapshot 0000" in str(error) and "is kept" in str(error), error
        lost += 1
print(lost)
"""


class Writers:
    where: str

    # Other options

    def test_a_job_killed_before_its_first_video_was_published_leaves_its_options_behind(
        self, sources: Path, places: Places
    ) -> None:
        dataset = places.new()
        make_dataset([sources / "broken.mp4"], dataset)
        finish_unit(dataset, sources / "a.mp4", Profile())
        assert existing_profile(dataset) == Profile()
        with pytest.raises(UsageError, match=r"prepared with other options \(gop_frames 16 there and 8 here"):
            make_dataset([sources / "b.mp4"], dataset, gop_frames=8)
        make_dataset([sources / "b.mp4"], dataset)
        assert set(open_current(dataset)[1].videos.gop_frames.tolist()) == {16}
        assert open_current(dataset)[1].ids == ["a.mp4", "b.mp4"]

    def test_a_worker_that_outlived_its_job_brings_no_videos_of_other_options(
        self, sources: Path, places: Places
    ) -> None:
        dataset = places.new()
        make_dataset([sources / "broken.mp4"], dataset)
        # Other options are fine: there is no video yet.
        make_dataset([sources / "broken.mp4"], dataset, gop_frames=8)
        finish_unit(dataset, sources / "a.mp4", Profile())
        make_dataset([sources / "b.mp4"], dataset, gop_frames=8)
        assert open_current(dataset)[1].ids == ["b.mp4"]
        make_dataset([sources / "a.mp4"], dataset, gop_frames=8)
        assert set(open_current(dataset)[1].videos.gop_frames.tolist()) == {8}

    def test_two_jobs_that_make_a_dataset_at_the_same_moment_do_not_mix_their_options(
        self, sources: Path, places: Places
    ) -> None:
        dataset = places.new()
        command = [sys.executable, "-m", "shortgop", "prep", str(sources / "a.mp4"), "--runner", "inline"]
        jobs = [
            subprocess.Popen([*command, "--out", dataset.url, "--gop", gop], stderr=subprocess.PIPE, text=True)
            for gop in ("8", "16")
        ]
        ended = {gop: (job.communicate()[1], job.returncode) for gop, job in zip((8, 16), jobs, strict=True)}
        (winner,) = [gop for gop, (_, code) in ended.items() if code == 0]
        ((said, code),) = [end for gop, end in ended.items() if gop != winner]
        assert ("another job is writing" in said and code == 5) or ("other options" in said and code == 2)
        assert read_root(dataset).profile["gop_frames"] == winner
        assert open_current(dataset)[1].videos.gop_frames.tolist() == [winner]

    def test_a_dataset_that_somebody_else_makes_at_the_same_moment_is_not_replaced(
        self, places: Places, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from shortgop.manifests.dataset_files import root_file as files

        place = places.new()
        create(place, {"gop_frames": 4})
        # As it looked a moment ago.
        monkeypatch.setattr(files, "is_dataset", lambda _: False)
        monkeypatch.setattr(files, "make_place", lambda _: None)
        assert create(place, {"gop_frames": 8}).profile == {"gop_frames": 4}

    def test_publishing_into_a_dataset_that_was_given_other_options_is_refused(self, empty_place: Storage) -> None:
        write_part(empty_place, "u1", video("a"), {"gop_frames": 8})
        # No waiting helps: the status is not that of a dataset that another job writes to.
        with pytest.raises(UsageError, match="another job has given .* other options"):
            publish(empty_place, {"gop_frames": 8})
        assert publish(empty_place, {"gop_frames": 4, "a setting of a later version": 1}) is None
        assert finished_parts(empty_place) == {"u1"}

    # Without locks, as between two hosts on some file systems

    def test_two_writers_without_a_lock_never_make_the_same_snapshot_and_lose_nothing(
        self, empty_place: Storage
    ) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "shared")}
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", _PUBLISH_OFTEN, empty_place.url, me],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
            )
            for me in ("left", "right")
        ]  # fmt: skip
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        lost = [int(writer.communicate()[0]) for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0]
        # Each number has one writer, whose snapshot holds all that was in those before it.
        chain = [set(snapshot_attributes(empty_place, name)["parts"]) for name in sorted(snapshots(empty_place))]
        assert all(earlier < later for earlier, later in zip(chain, chain[1:], strict=False))
        assert len(chain) <= 12 - sum(lost)
        publish(empty_place)
        everything = [f"{me}{number}" for me in ("left", "right") for number in range(6)]
        assert current_manifest(empty_place).failures.id.texts() == everything

    @pytest.mark.parametrize("step", ["unpublished", "grown", "write_snapshot"])
    def test_who_comes_second_is_told_who_won(
        self, empty_place: Storage, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        """Wherever the other comes in between, from the moment at which the root was read."""
        from shortgop.manifests.dataset_files import publish as module

        write_part(empty_place, "u1", failure("a", "cut short"))
        original = getattr(module, step)

        def overtaken(*arguments: object, **named: object) -> object:
            monkeypatch.setattr(module, step, original)
            result: Any = None if step == "write_snapshot" else original(*arguments, **named)
            result = list(result) if step == "unpublished" else result
            write_part(empty_place, "u2", failure("b", "cut short"))
            assert publish(empty_place) == "000001"
            return original(*arguments, **named) if step == "write_snapshot" else result

        monkeypatch.setattr(module, step, overtaken)
        with pytest.raises(DatasetBusyError, match=f"process {os.getpid()} on .* published snapshot 000001 first"):
            publish(empty_place)
        assert publish(empty_place) == "000001"
        assert current_manifest(empty_place).failures.id.texts() == ["a", "b"]
        assert temporary_files(empty_place) == []

    def test_a_writer_that_went_back_to_an_earlier_snapshot_is_caught_up_with(self, published_place: Storage) -> None:
        """It read the root, slept, and wrote it after another had gone on from its snapshot."""
        write_part(published_place, "u3", video("x", shard="u3-0.shard"))
        assert publish(published_place) == "000002"
        change_root(published_place, lambda root: replace(root, snapshot="000001"))
        assert catch_up(published_place).snapshot == "000002"
        assert read_root(published_place).snapshot == "000002"

    def test_a_later_snapshot_that_came_along_damaged_is_passed_over(self, published_place: Storage) -> None:
        published_place.put_new(snapshot_key("000002"), published_place.read(snapshot_key("000001"), 0, 1000))
        write_part(published_place, "u3", video("x", shard="u3-0.shard"))
        assert publish(published_place) == "000003"
        assert open_current(published_place)[1].ids == ["a", "b", "c", "x"]


class TestWritersOnADisk(Writers):
    where = "disk"


@only_in_a_sweep
class TestWritersOverAFlakyNetwork(Writers):
    where = "flaky"


class TestWritersInS3(Writers):
    where = "s3"


# The lock of a disk; test_lease.py has that of a store


def test_who_holds_the_lock_is_named_while_it_is_held(empty_dataset: Path) -> None:
    with DiskStorage(empty_dataset).lock():
        assert json.loads((empty_dataset / LOCK_FILE).read_text())["pid"] == os.getpid()
        with (
            pytest.raises(DatasetBusyError, match=f"it is process {os.getpid()} on "),
            DiskStorage(empty_dataset).lock(),
        ):
            pass
    assert (empty_dataset / LOCK_FILE).read_text() == ""


def test_what_a_job_on_another_host_may_be_writing_is_spared(empty_dataset: Path) -> None:
    """The lock was granted, but where locks do not work that says nothing."""
    (empty_dataset / LOCK_FILE).write_text(json.dumps({"host": "elsewhere", "pid": 1, "since": "now"}))
    (empty_dataset / ".tmp").mkdir(exist_ok=True)
    old, new = empty_dataset / ".tmp" / "old", empty_dataset / ".tmp" / "new"
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    # That job is not over because two others are.
    for _ in range(2):
        with DiskStorage(empty_dataset).lock():
            assert not old.exists()
            assert new.exists()
        assert new.exists()


def test_jobs_of_hosts_whose_locks_do_not_reach_each_other_spare_each_others_files(
    empty_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system without locks: each is granted its own."""

    def no_lock(_file: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def lock_of(host: str) -> contextlib.AbstractContextManager[None]:
        monkeypatch.setattr("socket.gethostname", lambda: host)
        return DiskStorage(empty_dataset).lock()

    monkeypatch.setattr("fcntl.flock", no_lock)
    with lock_of("first"):
        own = empty_dataset / ".tmp" / "shard"
        own.parent.mkdir(exist_ok=True)
        own.touch()
        for host in ("second", "third"):
            with lock_of(host):
                assert own.exists()
            assert own.exists()
        monkeypatch.setattr("socket.gethostname", lambda: "first")
    assert not own.exists()
