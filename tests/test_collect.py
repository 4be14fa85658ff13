"""`shortgop gc`: what nothing needs is removed, what is needed keeps its bytes. And what `shortgop snapshots` shows."""

from __future__ import annotations

import json
import shutil
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
from dataset_paths import shard_path
from datasets import current_manifest, make_dataset
from example_manifests import video
from shortgop.cli import app
from shortgop.errors import MissingDataError
from shortgop.jobs.prepare import Where, existing_profile, prepare
from shortgop.manifests.collect import collect
from shortgop.manifests.drop import drop
from shortgop.manifests.history import Difference, history
from shortgop.manifests.layout import create, open_current, open_manifest, snapshots
from shortgop.manifests.merge import merge
from shortgop.manifests.parts import finished_parts, read_part, write_part
from shortgop.manifests.publish import publish
from shortgop.manifests.rewrite import plan_rewrites
from shortgop.manifests.stacking import with_videos
from shortgop.manifests.stored_bytes import gops_of_segments, live_bytes, segment_bytes
from shortgop.manifests.tables import Manifest, shards_table
from shortgop.manifests.verify import verify
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
IDS = ("private/a.mp4", "private/b.mp4", "c.mp4", "d.mp4")


@pytest.fixture(scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def dataset(_original: Path, tmp_path: Path) -> Path:
    shutil.copytree(_original, tmp_path, dirs_exist_ok=True)
    return tmp_path / "dataset"


def gop_bytes(dataset: Path) -> dict[str, list[bytes]]:
    """The bytes of each video's GOPs, read as the manifest says."""
    manifest = open_current(DiskStorage(dataset))[1]
    found = {}
    for row, video_id in enumerate(manifest.ids):
        gops = []
        for gop in range(*manifest.first_gops[row : row + 2].tolist()):
            segment = int(np.searchsorted(gops_of_segments(manifest), gop, side="right")) - 1
            name = manifest.shards.name.text(int(manifest.segments.shard[segment]))
            start, length = int(manifest.gops.offset[gop]), int(manifest.gops.length[gop])
            gops.append(shard_path(dataset, name).read_bytes()[start : start + length])
            assert zlib.crc32(gops[-1]) == int(manifest.gops.crc32[gop])
        found[video_id] = gops
    return found


def all_bytes(dataset: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(dataset.rglob("*")) if file.is_file())


def assert_whole(dataset: Path) -> None:
    root, manifest = open_current(DiskStorage(dataset))
    assert list(verify(DiskStorage(dataset), manifest, snapshot=root.snapshot)) == []
    assert live_bytes(manifest).tolist() == manifest.shards.length.tolist()
    opened = shortgop.open(dataset)
    for video_id in opened.ids:
        first = 100 * IDS.index(video_id)
        assert [read_number(frame) for frame in opened[video_id][::59]] == [first, first + 59]


def test_a_takedown_leaves_nothing_of_a_video_but_its_id(dataset: Path) -> None:
    before = gop_bytes(dataset)
    untouched = [file for file in (dataset / "shards").iterdir() if file.stat().st_size == _length(dataset, "d.mp4")]
    status = untouched[0].stat()
    drop(DiskStorage(dataset), ["private/a.mp4"])
    done = collect(DiskStorage(dataset))
    assert (len(done.rewritten), len(done.shards), len(done.parts), done.skipped) == (1, 1, 1, ())
    assert done.bytes_kept == 0
    after = gop_bytes(dataset)
    assert after == {video_id: gops for video_id, gops in before.items() if video_id != "private/a.mp4"}
    # The text of snapshots and parts is compressed, so its tables are read.
    everything = all_bytes(dataset)
    assert not any(gop in everything for gop in before["private/a.mp4"])
    assert "owner-0" not in metadata(dataset)
    assert "owner-1" in metadata(dataset)
    assert untouched[0].stat() == status
    assert_whole(dataset)
    # Nothing is left to do, and a later job finds nothing to do either.
    again = collect(DiskStorage(dataset))
    assert (again.snapshots, again.shards, again.rewritten, again.parts, again.bytes_freed) == ((), (), (), (), 0)
    report = make_dataset([dataset.parent / "list.csv", dataset.parent / "d.mp4"], dataset, segment_seconds=Fraction(1))
    assert (report.already_there, report.dropped, report.videos_added) == (3, ("private/a.mp4",), 0)


def metadata(dataset: Path) -> str:
    """All text of videos and failures in all parts and snapshots."""
    manifests = [read_part(DiskStorage(dataset), part) for part in finished_parts(DiskStorage(dataset))]
    manifests += [open_manifest(DiskStorage(dataset), name) for name in snapshots(DiskStorage(dataset))]
    columns = [column for m in manifests for column in (m.videos.attributes, m.videos.path, m.edits.attributes)]
    return " ".join(text for column in columns for text in column.texts())


def _length(dataset: Path, video_id: str) -> int:
    manifest = open_current(DiskStorage(dataset))[1]
    first, stop = manifest.first_segments[manifest.row_of(video_id) : manifest.row_of(video_id) + 2].tolist()
    return int(segment_bytes(manifest)[first:stop].sum())


def test_all_videos_of_a_shard_may_be_dropped(dataset: Path) -> None:
    drop(DiskStorage(dataset), IDS[:3])
    done = collect(DiskStorage(dataset))
    assert (len(done.rewritten), len(done.shards)) == (0, 1)
    assert list(shortgop.open(dataset).ids) == ["d.mp4"]
    assert "owner" not in metadata(dataset)
    assert_whole(dataset)
    # They can come back.
    profile = existing_profile(DiskStorage(dataset))
    assert profile is not None
    listed = [str(dataset.parent / "list.csv")]
    report = prepare(listed, DiskStorage(dataset), profile, where=Where(runner="inline"), include_dropped=True)
    assert report.videos_added == 3
    assert_whole(dataset)


def in_two_shards(dataset: Path, out: Path) -> None:
    """Make a dataset of the same videos, with the first segments of all videos in one shard and the others in another.

    A real one has a video in several shards if the video is longer than a shard.
    """
    root, manifest = open_current(DiskStorage(dataset))
    starts = gops_of_segments(manifest)
    is_first = np.isin(np.arange(len(manifest.segments)), manifest.first_segments[:-1])
    offset, files = np.zeros(len(is_first), dtype="<i8"), [b"", b""]
    for segment, length in enumerate(segment_bytes(manifest).tolist()):
        name = manifest.shards.name.text(int(manifest.segments.shard[segment]))
        start, which = int(manifest.segments.offset[segment]), 1 - int(is_first[segment])
        offset[segment] = len(files[which])
        files[which] += shard_path(dataset, name).read_bytes()[start : start + length]
    create(DiskStorage(out), root.profile)
    (out / "shards").mkdir()
    names = ["u-0-1.shard", "u-1-2.shard"]
    for name, data in zip(names, files, strict=True):
        shard_path(out, name).write_bytes(data)
    shift = np.repeat(offset - manifest.segments.offset, np.diff(starts))
    rows = replace(
        current_manifest(dataset),
        segments=replace(manifest.segments, shard=(~is_first).astype("<i4"), offset=offset),
        gops=replace(manifest.gops, offset=manifest.gops.offset + shift),
        shards=shards_table([(name, len(data)) for name, data in zip(names, files, strict=True)]),
    )
    write_part(DiskStorage(out), "u", rows, root.profile)
    publish(DiskStorage(out))


def test_a_video_in_several_shards_moves_as_a_whole(dataset: Path, tmp_path: Path) -> None:
    in_two_shards(dataset, tmp_path / "split")
    before = gop_bytes(tmp_path / "split")
    assert before == gop_bytes(dataset)
    assert len(open_current(DiskStorage(tmp_path / "split"))[1].shards) == 2
    drop(DiskStorage(tmp_path / "split"), ["c.mp4"])
    done = collect(DiskStorage(tmp_path / "split"))
    assert (len(done.rewritten), len(done.shards)) == (2, 2)
    before.pop("c.mp4")
    assert gop_bytes(tmp_path / "split") == before
    assert_whole(tmp_path / "split")


def test_the_readers_of_an_earlier_snapshot_go_on_for_as_long_as_it_is_kept(dataset: Path) -> None:
    reader = shortgop.open(dataset)
    drop(DiskStorage(dataset), ["private/a.mp4"])
    done = collect(DiskStorage(dataset), keep_snapshots_seconds=3600)
    assert (done.snapshots, done.shards, len(done.rewritten)) == ((), (), 1)
    assert done.bytes_kept > -done.bytes_freed > 0
    assert [read_number(reader[video_id][59]) for video_id in IDS] == [59, 159, 259, 359]
    assert_whole(dataset)
    done = collect(DiskStorage(dataset))
    assert (len(done.snapshots), len(done.shards), done.rewritten, done.bytes_kept) == (3, 1, (), 0)
    with pytest.raises(MissingDataError, match="was removed together with the snapshot.*; open the dataset again"):
        reader["private/a.mp4"].get_all_frames()
    assert_whole(dataset)


@pytest.mark.parametrize("keep", [0.0, 3600.0])
def test_a_dry_run_foretells_what_is_done(dataset: Path, keep: float) -> None:
    drop(DiskStorage(dataset), ["private/a.mp4", "d.mp4"])
    files = {file: file.stat().st_mtime_ns for file in dataset.rglob("*")}
    foreseen = collect(DiskStorage(dataset), dry_run=True, keep_snapshots_seconds=keep)
    assert {file: file.stat().st_mtime_ns for file in dataset.rglob("*")} == files

    done = collect(DiskStorage(dataset), keep_snapshots_seconds=keep)
    assert done.rewritten
    assert done.snapshot > foreseen.snapshot
    assert replace(done, snapshot=foreseen.snapshot) == foreseen


def test_a_shard_that_is_damaged_stays_and_is_named(dataset: Path) -> None:
    manifest = open_current(DiskStorage(dataset))[1]
    gop = int(manifest.first_gops[manifest.row_of("c.mp4")])
    segment = int(manifest.first_segments[manifest.row_of("c.mp4")])
    shard = shard_path(dataset, manifest.shards.name.text(int(manifest.segments.shard[segment])))
    data = bytearray(shard.read_bytes())
    data[int(manifest.gops.offset[gop]) + 9] ^= 1
    shard.write_bytes(data)
    drop(DiskStorage(dataset), ["private/a.mp4"])
    result = CliRunner().invoke(app, ["gc", str(dataset)])
    assert result.exit_code == 3
    assert "CRC-32 differs" in result.stderr
    assert shard.name in result.stderr
    assert shard.exists()
    # `verify` finds the one GOP that is damaged, and takes the rest for what it is.
    root, manifest = open_current(DiskStorage(dataset))
    assert len(list(verify(DiskStorage(dataset), manifest, snapshot=root.snapshot))) == 1
    # Repaired, it can be collected.
    source = str(dataset.parent / "list.csv")
    assert CliRunner().invoke(app, ["verify", str(dataset), "--repair", source, "--runner", "inline"]).exit_code == 0
    assert CliRunner().invoke(app, ["gc", str(dataset)]).exit_code == 0
    assert not shard.exists()
    assert_whole(dataset)


def test_bytes_of_a_video_that_was_made_again_go_too(dataset: Path) -> None:
    manifest = open_current(DiskStorage(dataset))[1]
    segment = int(manifest.first_segments[manifest.row_of("c.mp4")])
    shard = shard_path(dataset, manifest.shards.name.text(int(manifest.segments.shard[segment])))
    data = bytearray(shard.read_bytes())
    data[int(manifest.segments.offset[segment]) + int(manifest.segments.init_length[segment]) + 9] ^= 1
    shard.write_bytes(data)
    arguments = ["verify", str(dataset), "--repair", str(dataset.parent / "list.csv"), "--runner", "inline"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    before = gop_bytes(dataset)
    done = collect(DiskStorage(dataset))
    assert (done.rewritten, done.shards) == ((shard.name,), (shard.name,))
    assert gop_bytes(dataset) == before
    assert_whole(dataset)


def test_gc_and_snapshots_on_the_command_line(dataset: Path) -> None:
    shortgop.annotate(dataset, {"d.mp4": {"label": 1}, "c.mp4": {"label": 2}})
    drop(DiskStorage(dataset), ["private/a.mp4"])
    found = json.loads(CliRunner().invoke(app, ["snapshots", str(dataset), "--json"]).stdout)
    assert [each["num_videos"] for each in found] == [3, 4, 4, 3]
    assert [each["current"] for each in found] == [False, False, False, True]
    nothing = dict.fromkeys(("added", "relabelled", "replaced", "stored_again", "dropped"), 0)
    assert [each["difference"] for each in found] == [
        None,
        {**nothing, "added": 1},
        {**nothing, "relabelled": 2},
        {**nothing, "dropped": 1},
    ]
    result = CliRunner().invoke(app, ["gc", str(dataset)])
    assert "4 snapshots and 1 shard removed, 1 shard written again" in result.stdout
    table = CliRunner().invoke(app, ["snapshots", str(dataset)]).stdout
    assert "000005 (current)" in table
    assert json.loads(CliRunner().invoke(app, ["gc", str(dataset), "--dry-run", "--json"]).stdout)["bytes_freed"] == 0


def test_a_snapshot_says_what_was_stored_again(dataset: Path) -> None:
    drop(DiskStorage(dataset), ["private/a.mp4"])
    collect(DiskStorage(dataset), keep_snapshots_seconds=3600)
    assert history(DiskStorage(dataset))[-1].difference == Difference(stored_again=2)


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
        assert plan.videos == tuple(np.unique(owners[in_shards]).tolist())
    assert plan_rewrites(manifest, lost=set(planned)) == []


def test_segments_are_inits_and_gops() -> None:
    # GOPs of 4 frames, two in a segment: 10 frames are three GOPs in two segments; 3 frames are one.
    manifest = merge([video("a", frames=10), video("b", frames=3, offset=9000)])
    assert gops_of_segments(manifest).tolist() == [0, 2, 3, 4]
    assert segment_bytes(manifest).tolist() == [2100, 1100, 1100]


def test_pts_move_with_the_videos(dataset: Path) -> None:
    before = current_manifest(dataset)
    drop(DiskStorage(dataset), ["private/a.mp4"])
    collect(DiskStorage(dataset))
    after = current_manifest(dataset)
    assert before.timeline is not None
    assert after.timeline is not None
    for row, video_id in enumerate(after.ids):
        old = before.row_of(video_id)
        pts = before.timeline.pts[slice(*before.first_frames[old : old + 2])]
        assert after.timeline.pts[slice(*after.first_frames[row : row + 2])].tolist() == pts.tolist()
