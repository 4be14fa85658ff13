"""`shortgop gc`: what nothing needs is removed, what is needed keeps its bytes. And what `shortgop snapshots` shows.

In a folder, and in a sweep all of it in S3.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import shortgop
from dataset_places import Places, copied, overwrite, versions
from datasets import current_manifest, make_dataset
from example_manifests import video
from shortgop.cli import app
from shortgop.errors import MissingDataError
from shortgop.jobs.dataset_profile import existing_profile
from shortgop.jobs.prepare import Where, prepare
from shortgop.manifests.dataset_files.layout import shard_key, snapshots
from shortgop.manifests.dataset_files.parts import finished_parts, read_part, write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshots import open_current, open_manifest
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.history import Difference, history
from shortgop.manifests.operations.rewrite import plan_rewrites
from shortgop.manifests.operations.stored_bytes import gops_of_segments, live_bytes, segment_bytes
from shortgop.manifests.operations.verify import verify
from shortgop.manifests.stacking import with_videos
from shortgop.manifests.tables import Manifest, shards_table
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
IDS = ("private/a.mp4", "private/b.mp4", "c.mp4", "d.mp4")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("collect")
    (root / "private").mkdir()
    for number, name in enumerate(IDS):
        make_video(root / name, pts=constant_rate_pts(RATE, 60), timebase=1 / RATE, first_number=100 * number)
    rows = "".join(f"{name},{name},owner-{number}\n" for number, name in enumerate(IDS[:3]))
    (root / "list.csv").write_text(f"path,id,owner\n{rows}")
    options = {"segment_seconds": Fraction(1)}
    # One shard of three videos, and one of its own.
    make_dataset([root / "list.csv"], root / "dataset", **options)
    make_dataset([root / "d.mp4"], root / "dataset", **options)
    return root


@pytest.fixture
def dataset(sources: Path, places: Places) -> Storage:
    return copied(sources / "dataset", places.new())


def gop_bytes(dataset: Storage) -> dict[str, list[bytes]]:
    """The bytes of each video's GOPs, read as the manifest says."""
    manifest = open_current(dataset)[1]
    found = {}
    for row, video_id in enumerate(manifest.ids):
        gops = []
        for gop in range(*manifest.first_gops[row : row + 2].tolist()):
            segment = int(np.searchsorted(gops_of_segments(manifest), gop, side="right")) - 1
            name = manifest.shards.name.text(int(manifest.segments.shard[segment]))
            start, length = int(manifest.gops.offset[gop]), int(manifest.gops.length[gop])
            gops.append(dataset.read(shard_key(name), start, start + length))
            assert zlib.crc32(gops[-1]) == int(manifest.gops.crc32[gop])
        found[video_id] = gops
    return found


def assert_whole(dataset: Storage) -> None:
    root, manifest = open_current(dataset)
    assert list(verify(dataset, manifest, snapshot=root.snapshot)) == []
    assert live_bytes(manifest).tolist() == manifest.shards.length.tolist()
    opened = shortgop.open(dataset.url)
    for video_id in opened.ids:
        first = 100 * IDS.index(video_id)
        assert [read_number(frame) for frame in opened[video_id][::59]] == [first, first + 59]


def metadata(dataset: Storage) -> str:
    """All text of videos and failures in all parts and snapshots."""
    manifests = [read_part(dataset, part) for part in finished_parts(dataset)]
    manifests += [open_manifest(dataset, name) for name in snapshots(dataset)]
    columns = [column for m in manifests for column in (m.videos.attributes, m.videos.path, m.edits.attributes)]
    return " ".join(text for column in columns for text in column.texts())


def _length(dataset: Storage, video_id: str) -> int:
    manifest = open_current(dataset)[1]
    first, stop = manifest.first_segments[manifest.row_of(video_id) : manifest.row_of(video_id) + 2].tolist()
    return int(segment_bytes(manifest)[first:stop].sum())


def in_two_shards(dataset: Storage, out: Storage) -> None:
    """Make a dataset of the same videos, with the first segments of all videos in one shard and the others in another.

    A real one has a video in several shards if the video is longer than a shard.
    """
    root, manifest = open_current(dataset)
    starts = gops_of_segments(manifest)
    is_first = np.isin(np.arange(len(manifest.segments)), manifest.first_segments[:-1])
    offset, files = np.zeros(len(is_first), dtype="<i8"), [b"", b""]
    for segment, length in enumerate(segment_bytes(manifest).tolist()):
        name = manifest.shards.name.text(int(manifest.segments.shard[segment]))
        start, which = int(manifest.segments.offset[segment]), 1 - int(is_first[segment])
        offset[segment] = len(files[which])
        files[which] += dataset.read(shard_key(name), start, start + length)
    create(out, root.profile)
    names = ["u-0-1.shard", "u-1-2.shard"]
    for name, data in zip(names, files, strict=True):
        out.put_new(shard_key(name), data)
    shift = np.repeat(offset - manifest.segments.offset, np.diff(starts))
    rows = replace(
        current_manifest(dataset),
        segments=replace(manifest.segments, shard=(~is_first).astype("<i4"), offset=offset),
        gops=replace(manifest.gops, offset=manifest.gops.offset + shift),
        shards=shards_table([(name, len(data)) for name, data in zip(names, files, strict=True)]),
    )
    write_part(out, "u", rows, root.profile)
    publish(out)


class Collecting:
    """What holds wherever the dataset lies."""

    where: str

    def test_a_takedown_leaves_nothing_of_a_video_but_its_id(self, sources: Path, dataset: Storage) -> None:
        before = gop_bytes(dataset)
        (untouched,) = (each for each in dataset.files("shards") if each.num_bytes == _length(dataset, "d.mp4"))
        drop(dataset, ["private/a.mp4"])
        done = collect(dataset)
        assert (len(done.rewritten), len(done.shards), len(done.parts), done.skipped) == (1, 1, 1, ())
        assert done.bytes_kept == 0
        after = gop_bytes(dataset)
        assert after == {video_id: gops for video_id, gops in before.items() if video_id != "private/a.mp4"}
        # The text of snapshots and parts is compressed, so its tables are read.
        everything = b"".join(dataset.read(each.key) for each in dataset.files(""))
        assert not any(gop in everything for gop in before["private/a.mp4"])
        assert "owner-0" not in metadata(dataset)
        assert "owner-1" in metadata(dataset)
        assert dataset.find(untouched.key) == untouched
        assert_whole(dataset)
        # Nothing is left to do, and a later job finds nothing to do either.
        again = collect(dataset)
        assert (again.snapshots, again.shards, again.rewritten, again.parts, again.bytes_freed) == ((), (), (), (), 0)
        report = make_dataset([sources / "list.csv", sources / "d.mp4"], dataset, segment_seconds=Fraction(1))
        assert (report.already_there, report.dropped, report.videos_added) == (3, ("private/a.mp4",), 0)

    def test_all_videos_of_a_shard_may_be_dropped(self, sources: Path, dataset: Storage) -> None:
        drop(dataset, IDS[:3])
        done = collect(dataset)
        assert (len(done.rewritten), len(done.shards)) == (0, 1)
        assert list(shortgop.open(dataset.url).ids) == ["d.mp4"]
        assert "owner" not in metadata(dataset)
        assert_whole(dataset)
        # They can come back.
        profile = existing_profile(dataset)
        assert profile is not None
        listed = [str(sources / "list.csv")]
        report = prepare(listed, dataset, profile, where=Where(runner="inline"), include_dropped=True)
        assert report.videos_added == 3
        assert_whole(dataset)

    def test_a_video_in_several_shards_moves_as_a_whole(self, dataset: Storage, places: Places) -> None:
        split = places.new()
        in_two_shards(dataset, split)
        before = gop_bytes(split)
        assert before == gop_bytes(dataset)
        assert len(open_current(split)[1].shards) == 2
        drop(split, ["c.mp4"])
        done = collect(split)
        assert (len(done.rewritten), len(done.shards)) == (2, 2)
        before.pop("c.mp4")
        assert gop_bytes(split) == before
        assert_whole(split)

    def test_the_readers_of_an_earlier_snapshot_go_on_for_as_long_as_it_is_kept(self, dataset: Storage) -> None:
        reader = shortgop.open(dataset.url)
        drop(dataset, ["private/a.mp4"])
        done = collect(dataset, keep_snapshots_seconds=3600)
        assert (done.snapshots, done.shards, len(done.rewritten)) == ((), (), 1)
        assert done.bytes_kept > -done.bytes_freed > 0
        assert [read_number(reader[video_id][59]) for video_id in IDS] == [59, 159, 259, 359]
        assert_whole(dataset)
        done = collect(dataset)
        assert (len(done.snapshots), len(done.shards), done.rewritten, done.bytes_kept) == (3, 1, (), 0)
        with pytest.raises(MissingDataError, match="was removed together with the snapshot.*; open the dataset again"):
            reader["private/a.mp4"].get_all_frames()
        assert_whole(dataset)

    @pytest.mark.first_case_short
    @pytest.mark.parametrize("keep", [0.0, 3600.0])
    def test_a_dry_run_foretells_what_is_done(self, dataset: Storage, keep: float) -> None:
        drop(dataset, ["private/a.mp4", "d.mp4"])
        files = versions(dataset)
        foreseen = collect(dataset, dry_run=True, keep_snapshots_seconds=keep)
        assert versions(dataset) == files

        done = collect(dataset, keep_snapshots_seconds=keep)
        assert done.rewritten
        assert done.snapshot > foreseen.snapshot
        assert replace(done, snapshot=foreseen.snapshot) == foreseen

    def test_a_shard_that_is_damaged_stays_and_is_named(self, sources: Path, dataset: Storage) -> None:
        manifest = open_current(dataset)[1]
        gop = int(manifest.first_gops[manifest.row_of("c.mp4")])
        segment = int(manifest.first_segments[manifest.row_of("c.mp4")])
        shard = manifest.shards.name.text(int(manifest.segments.shard[segment]))
        data = bytearray(dataset.read(shard_key(shard)))
        data[int(manifest.gops.offset[gop]) + 9] ^= 1
        overwrite(dataset, shard_key(shard), bytes(data))
        drop(dataset, ["private/a.mp4"])
        result = CliRunner().invoke(app, ["gc", dataset.url])
        assert result.exit_code == 3
        assert "CRC-32 differs" in result.stderr
        assert shard in result.stderr
        assert dataset.find(shard_key(shard)) is not None
        # `verify` finds the one GOP that is damaged, and takes the rest for what it is.
        root, manifest = open_current(dataset)
        assert len(list(verify(dataset, manifest, snapshot=root.snapshot))) == 1
        # Repaired, it can be collected.
        source = str(sources / "list.csv")
        assert CliRunner().invoke(app, ["verify", dataset.url, "--repair", source, "--runner", "inline"]).exit_code == 0
        assert CliRunner().invoke(app, ["gc", dataset.url]).exit_code == 0
        assert dataset.find(shard_key(shard)) is None
        assert_whole(dataset)

    def test_bytes_of_a_video_that_was_made_again_go_too(self, sources: Path, dataset: Storage) -> None:
        manifest = open_current(dataset)[1]
        segment = int(manifest.first_segments[manifest.row_of("c.mp4")])
        shard = manifest.shards.name.text(int(manifest.segments.shard[segment]))
        data = bytearray(dataset.read(shard_key(shard)))
        data[int(manifest.segments.offset[segment]) + int(manifest.segments.init_length[segment]) + 9] ^= 1
        overwrite(dataset, shard_key(shard), bytes(data))
        arguments = ["verify", dataset.url, "--repair", str(sources / "list.csv"), "--runner", "inline"]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        before = gop_bytes(dataset)
        done = collect(dataset)
        assert (done.rewritten, done.shards) == ((shard,), (shard,))
        assert gop_bytes(dataset) == before
        assert_whole(dataset)

    def test_gc_and_snapshots_on_the_command_line(self, dataset: Storage) -> None:
        shortgop.annotate(dataset.url, {"d.mp4": {"label": 1}, "c.mp4": {"label": 2}})
        drop(dataset, ["private/a.mp4"])
        found = json.loads(CliRunner().invoke(app, ["snapshots", dataset.url, "--json"]).stdout)
        assert [each["num_videos"] for each in found] == [3, 4, 4, 3]
        assert [each["current"] for each in found] == [False, False, False, True]
        nothing = dict.fromkeys(("added", "relabelled", "replaced", "stored_again", "dropped"), 0)
        assert [each["difference"] for each in found] == [
            None,
            {**nothing, "added": 1},
            {**nothing, "relabelled": 2},
            {**nothing, "dropped": 1},
        ]
        result = CliRunner().invoke(app, ["gc", dataset.url])
        assert "4 snapshots and 1 shard removed, 1 shard written again" in result.stdout
        table = CliRunner().invoke(app, ["snapshots", dataset.url]).stdout
        assert "000005 (current)" in table
        assert (
            json.loads(CliRunner().invoke(app, ["gc", dataset.url, "--dry-run", "--json"]).stdout)["bytes_freed"] == 0
        )

    def test_a_snapshot_says_what_was_stored_again(self, dataset: Storage) -> None:
        drop(dataset, ["private/a.mp4"])
        collect(dataset, keep_snapshots_seconds=3600)
        assert history(dataset)[-1].difference == Difference(stored_again=2)

    def test_pts_move_with_the_videos(self, dataset: Storage) -> None:
        before = current_manifest(dataset)
        drop(dataset, ["private/a.mp4"])
        collect(dataset)
        after = current_manifest(dataset)
        assert before.timeline is not None and after.timeline is not None  # noqa: PT018
        for row, video_id in enumerate(after.ids):
            old = before.row_of(video_id)
            pts = before.timeline.pts[slice(*before.first_frames[old : old + 2])]
            assert after.timeline.pts[slice(*after.first_frames[row : row + 2])].tolist() == pts.tolist()


class TestCollectingOnADisk(Collecting):
    where = "disk"


@pytest.mark.long
class TestCollectingInLayers(Collecting):
    where = "layered"


@only_in_a_sweep
class TestCollectingOverAFlakyNetwork(Collecting):
    where = "flaky"


class TestTakedownInS3:
    where = "s3"
    test_a_takedown = Collecting.test_a_takedown_leaves_nothing_of_a_video_but_its_id


# `test_killed_edits.py` and `test_corpus_life.py` have the rest of it in S3 in the suite.
@only_in_a_sweep
class TestCollectingInS3(Collecting):
    where = "s3"


# The plan


@st.composite
def shared_shards(draw: st.DrawFn) -> Manifest:
    """Videos in few shards, back to back, of which some are left out."""
    ends: dict[str, int] = {}
    videos = []
    for number in range(draw(st.integers(1, 6))):
        shard = draw(st.sampled_from(["1.shard", "2.shard", "3.shard"]))
        found = video(f"{number}", shard=shard, offset=ends.get(shard, 0), frames=draw(st.integers(1, 20)))
        ends[shard] = ends.get(shard, 0) + int(segment_bytes(found).sum())
        videos.append(found)
    whole = merge(videos)
    lengths = np.array([ends[name] for name in whole.shards.name.texts()], dtype="<i8")
    whole = replace(whole, shards=replace(whole.shards, length=lengths))
    assert live_bytes(whole).tolist() == lengths.tolist()
    kept = draw(st.sets(st.integers(0, len(videos) - 1)))
    return with_videos(whole, np.array(sorted(kept), dtype=np.int64))


@given(shared_shards())
def test_just_the_shards_that_hold_more_than_is_needed_are_written_again(manifest: Manifest) -> None:
    plans = plan_rewrites(manifest)
    planned = [shard for plan in plans for shard in plan.shards]
    more = live_bytes(manifest) < manifest.shards.length
    assert sorted(planned) == np.flatnonzero(more).tolist()
    for plan in plans:
        assert plan.groups == tuple((shard,) for shard in plan.shards)
        in_shards = np.isin(manifest.segments.shard, plan.shards)
        owners = np.repeat(np.arange(len(manifest.videos)), manifest.segment_counts)
        assert plan.videos.tolist() == np.unique(owners[in_shards]).tolist()
    assert plan_rewrites(manifest, lost=set(planned)) == []


def test_segments_are_inits_and_gops() -> None:
    # GOPs of 4 frames, two in a segment: 10 frames are three GOPs in two segments; 3 frames are one.
    manifest = merge([video("a", frames=10), video("b", frames=3, offset=9000)])
    assert gops_of_segments(manifest).tolist() == [0, 2, 3, 4]
    assert segment_bytes(manifest).tolist() == [2100, 1100, 1100]


# Clocks


def test_a_full_disk_has_room_for_what_is_written_again_once_whole_files_are_gone(
    sources: Path, small_disk: Path
) -> None:
    """Shards were written again first, so the command that makes room asked for room."""
    dataset = small_disk / "dataset"
    shutil.copytree(sources / "dataset", dataset)

    def command(*arguments: str) -> str:
        # This process would keep files of the disk open.
        return subprocess.run(
            [sys.executable, "-m", "shortgop", *arguments], check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    command("drop", str(dataset), IDS[0], IDS[1], IDS[3])
    (small_disk / "other").write_bytes(bytes(shutil.disk_usage(small_disk).free))
    done = json.loads(command("gc", str(dataset), "--json"))
    assert (len(done["rewritten"]), len(done["shards"])) == (1, 2)
    assert "all as written" in command("verify", str(dataset))


def test_a_clock_that_is_behind_that_of_the_files_keeps_no_snapshot(published: Path) -> None:
    """As on a store, or a file server, that runs a minute ahead of this host."""
    write_part(DiskStorage(published), "u3", video("x"))
    publish(DiskStorage(published))
    for file in (published / "manifest").iterdir():
        os.utime(file, (time.time() + 60,) * 2)
    assert collect(DiskStorage(published)).snapshots == ("000001",)
