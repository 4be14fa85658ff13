"""Shards that were lost: what prep and `verify --repair` make again, and what they leave alone."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import shortgop
from dataset_paths import shard_path
from datasets import make_dataset
from file_permissions import modes_count
from shortgop.cli import app
from shortgop.errors import ShortGopError
from shortgop.jobs.prepare import Report, Where, prepare, repair
from shortgop.manifests.dataset_files.layout import snapshots
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import damaged_videos, verify
from shortgop.manifests.tables import Manifest
from shortgop.prep.profile import Profile
from shortgop.readers import decode_check
from shortgop.readers.decode_check import undecodable
from shortgop.readers.decoders import pyav
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
FIRST_NUMBERS = {"a.mp4": 0, "b.mp4": 100, "c.mp4": 200}


@pytest.fixture(scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repair")
    for name, number in FIRST_NUMBERS.items():
        make_video(root / name, pts=constant_rate_pts(RATE, 30), timebase=1 / RATE, first_number=number)
    # Two units: one of two videos, and one of its own.
    make_dataset([root / "a.mp4", root / "b.mp4"], root / "dataset")
    make_dataset([root / "c.mp4"], root / "dataset")
    return root


@pytest.fixture
def root(_original: Path, tmp_path: Path) -> Path:
    """Copy three sources and their dataset, in which a and b share a shard."""
    shutil.copytree(_original, tmp_path, dirs_exist_ok=True)
    return tmp_path


def sources(root: Path) -> list[Path]:
    return [root / name for name in FIRST_NUMBERS]


def shard_of(dataset: Path, video_id: str) -> Path:
    manifest = open_current(DiskStorage(dataset))[1]
    segment = int(manifest.first_segments[manifest.row_of(video_id)])
    return shard_path(dataset, manifest.shards.name.text(int(manifest.segments.shard[segment])))


def assert_whole(dataset: Path) -> None:
    root, manifest = open_current(DiskStorage(dataset))
    assert list(verify(DiskStorage(dataset), manifest, snapshot=root.snapshot)) == []
    videos = shortgop.open(dataset)
    for name, number in FIRST_NUMBERS.items():
        assert [read_number(frame) for frame in videos[name][::29]] == [number, number + 29]


def repaired(report: Report) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    return report.repaired, report.lost, report.videos_added


def test_a_missing_shard_is_made_again_by_the_same_command(root: Path) -> None:
    dataset = root / "dataset"
    lost, untouched = shard_of(dataset, "a.mp4"), shard_of(dataset, "c.mp4")
    before = (untouched.stat().st_ino, untouched.stat().st_mtime_ns)
    lost.unlink()
    report = make_dataset(sources(root), dataset)
    assert repaired(report) == (("a.mp4", "b.mp4"), (), 0)
    assert report.failures == ()
    assert report.already_there == 1
    assert_whole(dataset)
    assert not lost.exists()
    assert (untouched.stat().st_ino, untouched.stat().st_mtime_ns) == before
    # And that is that.
    assert repaired(make_dataset(sources(root), dataset)) == ((), (), 0)


def test_a_shard_that_was_cut_is_made_again_and_goes_with_the_last_snapshot_that_names_it(root: Path) -> None:
    dataset = root / "dataset"
    lost = shard_of(dataset, "c.mp4")
    os.truncate(lost, 1000)
    assert repaired(make_dataset(sources(root), dataset)) == (("c.mp4",), (), 0)
    assert_whole(dataset)
    assert lost.stat().st_size == 1000
    prepare([str(root)], DiskStorage(dataset), Profile(), where=Where(runner="inline"), keep_snapshots_seconds=0)
    assert not lost.exists()
    assert_whole(dataset)


def test_a_video_can_be_made_again_more_than_once(root: Path) -> None:
    dataset = root / "dataset"
    for _ in range(2):
        shard_of(dataset, "c.mp4").unlink()
        assert repaired(make_dataset(sources(root), dataset)) == (("c.mp4",), (), 0)
    manifest = open_current(DiskStorage(dataset))[1]
    assert manifest.videos.revision.tolist() == [0, 0, 2]
    assert_whole(dataset)


def test_new_sources_come_in_beside_a_lost_shard_and_what_is_lost_is_said(root: Path) -> None:
    dataset = root / "dataset"
    make_video(root / "d.mp4", pts=constant_rate_pts(RATE, 30), timebase=1 / RATE)
    shard = shard_of(dataset, "a.mp4")
    shard.rename(root / "aside")
    report = make_dataset([root / "b.mp4", root / "d.mp4"], dataset)
    assert repaired(report) == (("b.mp4",), ("a.mp4",), 1)
    # The rows of what is still lost are as they were: its shard may be copied back.
    (root / "aside").rename(shard)
    assert_whole(dataset)


def test_a_source_that_is_gone_or_has_changed_does_not_keep_the_others_from_being_made_again(root: Path) -> None:
    dataset = root / "dataset"
    for name in ("a.mp4", "c.mp4"):
        shard_of(dataset, name).unlink()
    (root / "a.mp4").unlink()
    make_video(root / "c.mp4", pts=constant_rate_pts(RATE, 40), timebase=1 / RATE, first_number=500)
    (root / "list.csv").write_text("path,id\n" + "".join(f"{root / name},{name}\n" for name in FIRST_NUMBERS))
    report = make_dataset([root / "list.csv"], dataset)
    assert repaired(report) == (("b.mp4",), ("a.mp4", "c.mp4"), 0)
    gone, changed = report.failures
    assert "does not exist" in gone.reason
    assert "its frames in the dataset are lost: " in gone.reason
    assert "c.mp4 has changed since it was prepared as 'c.mp4', so the lost frames of the old file" in changed.reason
    assert "--changed replace" in changed.reason
    # Nothing piles up while it stays like that.
    parts = sorted((dataset / "parts").iterdir())
    make_dataset([root / "list.csv"], dataset)
    assert sorted((dataset / "parts").iterdir()) == parts


def test_a_repair_that_was_interrupted_goes_on(root: Path) -> None:
    dataset = root / "dataset"
    shard_of(dataset, "a.mp4").unlink()

    def interrupt(progress: Any) -> None:
        if progress.frames_done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(
            [str(s) for s in sources(root)],
            DiskStorage(dataset),
            Profile(),
            where=Where(runner="inline"),
            on_update=interrupt,
        )
    assert_rows_are_there(dataset)
    assert repaired(make_dataset(sources(root), dataset)) == (("a.mp4", "b.mp4"), (), 0)
    assert_whole(dataset)


def assert_rows_are_there(dataset: Path) -> None:
    assert open_current(DiskStorage(dataset))[1].ids == list(FIRST_NUMBERS)


def damage(dataset: Path, video_id: str) -> None:
    """Flip a bit in the last GOP of a video."""
    manifest = open_current(DiskStorage(dataset))[1]
    gop = int(manifest.first_gops[manifest.row_of(video_id) + 1]) - 1
    path = shard_of(dataset, video_id)
    data = bytearray(path.read_bytes())
    data[int(manifest.gops.offset[gop] + manifest.gops.length[gop]) - 1] ^= 1
    path.write_bytes(data)


def test_verify_repair_makes_what_it_found_again_and_nothing_else(root: Path) -> None:
    dataset = root / "dataset"
    damage(dataset, "b.mp4")
    make_video(root / "new.mp4", pts=constant_rate_pts(RATE, 30), timebase=1 / RATE)
    before = open_current(DiskStorage(dataset))[1]
    arguments = ["verify", str(dataset), "--repair", str(root / "*.mp4"), "--runner", "inline"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "1 video made again" in result.output
    assert_whole(dataset)
    after = open_current(DiskStorage(dataset))[1]
    assert after.ids == before.ids
    for name in ("a.mp4", "c.mp4"):
        assert place(after, name) == place(before, name)
    assert place(after, "b.mp4") != place(before, "b.mp4")


def test_prep_makes_damaged_videos_again_when_it_is_to_look_at_every_byte(root: Path) -> None:
    damage(root / "dataset", "a.mp4")
    command = ["prep", *map(str, sources(root)), "--out", str(root / "dataset"), "--runner", "inline"]
    assert CliRunner().invoke(app, command).exit_code == 0
    with pytest.raises(shortgop.CorruptDataError, match="shortgop verify .* --repair"):
        shortgop.open(root / "dataset")["a.mp4"].get_all_frames()
    result = CliRunner().invoke(app, [*command, "--check"])
    assert (result.exit_code, "made again" in result.stdout) == (0, True)
    assert_whole(root / "dataset")


def place(manifest: Manifest, video_id: str) -> tuple[str, int]:
    segment = int(manifest.first_segments[manifest.row_of(video_id)])
    return manifest.shards.name.text(int(manifest.segments.shard[segment])), int(manifest.segments.offset[segment])


def test_verify_repair_makes_videos_of_missing_shards_again_and_says_what_it_could_not(root: Path) -> None:
    dataset = root / "dataset"
    shard_of(dataset, "a.mp4").unlink()
    arguments = ["verify", str(dataset), "--repair", str(root / "a.mp4"), "--runner", "inline"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 3
    assert "1 video made again" in result.output
    assert "1 video cannot be read" in result.output
    arguments[3] = str(root / "b.mp4")
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert_whole(dataset)


def test_what_another_job_has_made_again_meanwhile_is_left_alone(root: Path) -> None:
    dataset = root / "dataset"
    damage(dataset, "b.mp4")
    manifest = open_current(DiskStorage(dataset))[1]
    damaged = damaged_videos(manifest, verify(DiskStorage(dataset), manifest))
    assert list(damaged) == ["b.mp4"]
    first, second = (
        repair([str(root / "b.mp4")], DiskStorage(dataset), manifest, damaged, where=Where(runner="inline"))
        for _ in range(2)
    )
    assert repaired(first) == (("b.mp4",), (), 0)
    assert repaired(second) == ((), (), 0)


@pytest.mark.parametrize("arguments", [["--accept-loss"], ["a.mp4"]])
def test_what_belongs_to_a_repair_is_refused_without_one(root: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["verify", str(root / "dataset"), *arguments])
    assert result.exit_code == 2
    assert re.search("SOURCEs need --repair|--accept-loss needs --repair", result.output)


def test_a_repair_without_sources_makes_no_videos_again_and_says_what_would(root: Path) -> None:
    damage(root / "dataset", "b.mp4")
    result = CliRunner().invoke(app, ["verify", str(root / "dataset"), "--repair"])
    assert result.exit_code == 3
    assert "damaged: 1 of 3 videos: b.mp4" in result.stdout
    assert "--repair SOURCES` makes them again" in result.stdout


def test_a_repair_keeps_the_labels_of_the_dataset_whatever_the_list_says(root: Path) -> None:
    """A list that was older than `annotate` put its labels back, also those of sound videos."""
    labels, list_file = {name: {"label": "corrected"} for name in FIRST_NUMBERS}, root / "labels.csv"
    shortgop.annotate(root / "dataset", labels)
    list_file.write_text("path,label,more\n" + "".join(f"{name},wrong,new\n" for name in FIRST_NUMBERS))
    damage(root / "dataset", "b.mp4")
    arguments = ["verify", str(root / "dataset"), "--repair", str(list_file), "--runner", "inline"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "new columns" not in result.output
    assert_whole(root / "dataset")
    videos = shortgop.open(root / "dataset")
    assert {name: videos[name].attributes for name in FIRST_NUMBERS} == labels


def test_a_script_is_told_which_videos_are_damaged(root: Path) -> None:
    damage(root / "dataset", "b.mp4")
    result = CliRunner().invoke(app, ["verify", str(root / "dataset"), "--json"])
    assert (result.exit_code, json.loads(result.stdout)["damaged"]) == (3, ["b.mp4"])


def test_a_shard_that_cannot_be_read_is_not_called_damaged(root: Path) -> None:
    shard_of(root / "dataset", "b.mp4").chmod(0)
    with modes_count():
        result, found = (
            CliRunner().invoke(app, ["verify", str(root / "dataset"), *options]) for options in ([], ["--json"])
        )
    assert (result.exit_code, "not read: 2 of 3 videos: a.mp4, b.mp4" in result.stdout) == (1, True), result.output
    assert "damaged" not in result.stdout
    said = json.loads(found.stdout)
    assert (found.exit_code, said["damaged"], said["unread"]) == (1, [], ["a.mp4", "b.mp4"])
    shard_of(root / "dataset", "c.mp4").unlink()
    with modes_count():
        result = CliRunner().invoke(app, ["verify", str(root / "dataset")])
    assert (result.exit_code, "damaged: 1 of 3 videos: c.mp4" in result.stdout) == (3, True), result.output


def test_what_cannot_be_read_is_no_reason_to_make_videos_again(root: Path) -> None:
    dataset = root / "dataset"
    shard_of(dataset, "b.mp4").chmod(0)
    before = shard_of(dataset, "b.mp4")
    command = ["verify", str(dataset), "--repair", *map(str, sources(root)), "--runner", "inline"]
    with modes_count():
        only_unread = CliRunner().invoke(app, command)
        prep = CliRunner().invoke(app, [
            "prep", *map(str, sources(root)), "--out", str(dataset), "--check", "--runner", "inline"
        ])  # fmt: skip
        shard_of(dataset, "c.mp4").unlink()
        with_damage = CliRunner().invoke(app, command)
    for done in (only_unread, with_damage):
        assert (done.exit_code, "not read: 2 of 3 videos: a.mp4, b.mp4" in done.stdout) == (1, True), done.output
    assert "made again" not in only_unread.stdout
    assert "1 video made again because shards were missing or damaged: c.mp4" in with_damage.stdout
    assert (prep.exit_code, "Permission denied" in prep.stderr, "remove it" in prep.stderr) == (1, True, True)
    assert shard_of(dataset, "b.mp4") == before
    before.chmod(0o600)
    assert_whole(dataset)


def test_a_video_that_cannot_be_read_to_be_decoded_is_not_called_damaged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = shard_of(root / "dataset", "c.mp4")

    def after_the_check_of_bytes(*arguments: Any, **named: Any) -> Iterator[tuple[str, ShortGopError]]:
        shard.chmod(0)
        return undecodable(*arguments, **named)

    monkeypatch.setattr(decode_check, "undecodable", after_the_check_of_bytes)
    for options in ([], ["--repair", str(root / "c.mp4"), "--runner", "inline"]):
        shard.chmod(0o600)
        with modes_count():
            done = CliRunner().invoke(app, ["verify", str(root / "dataset"), "--decode", *options])
        assert (done.exit_code, "not read: 1 of 3 videos: c.mp4" in done.stdout) == (1, True), done.output
        assert "damaged" not in done.stdout
        assert "Permission denied" in done.stderr
    shard.chmod(0o600)
    damage(root / "dataset", "b.mp4")
    with modes_count():
        done = CliRunner().invoke(app, ["verify", str(root / "dataset"), "--decode", "--json"])
    found = json.loads(done.stdout)
    assert (done.exit_code, found["damaged"], found["unread"]) == (3, ["b.mp4"], ["c.mp4"])


def test_videos_that_this_machine_has_no_decoder_for_are_not_called_damaged_and_the_reason_is_said_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["verify", str(root / "dataset"), "--decode"]
    repair = ["--repair", str(root), "--runner", "inline"]
    monkeypatch.setitem(pyav._CPU_DECODERS, "h264", "none_such")
    found, done, repaired = (CliRunner().invoke(app, [*command, *more]) for more in (["--json"], [], repair))
    said = json.loads(found.stdout)
    assert (found.exit_code, said["damaged"], said["unread"], said["undecoded"]) == (1, [], [], list(FIRST_NUMBERS))
    (problem,) = said["problems"]
    assert "has no decoder none_such, which reads h264; install" in problem
    # None of them is damaged, so to remove or to make one again is no remedy.
    for said_to_people in (done, repaired):
        verdict, line = said_to_people.stdout.splitlines()
        assert (said_to_people.exit_code, verdict.endswith("all as written")) == (1, True)
        assert line == f"not decoded: 3 of 3 videos: a.mp4, b.mp4, c.mp4: {problem}"
    shard_of(root / "dataset", "c.mp4").unlink()
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, "damaged: 1 of 3 videos: c.mp4" in done.stdout) == (3, True)


def test_a_lost_root_is_damage_as_a_damaged_one_is(root: Path) -> None:
    (root / "dataset" / "zarr.json").write_text("{")
    assert CliRunner().invoke(app, ["verify", str(root / "dataset")]).exit_code == 3
    (root / "dataset" / "zarr.json").unlink()
    assert CliRunner().invoke(app, ["verify", str(root / "dataset")]).exit_code == 3
    assert CliRunner().invoke(app, ["info", str(root / "dataset")]).exit_code == 1


def test_sources_that_are_none_of_the_damaged_videos_are_refused(root: Path) -> None:
    damage(root / "dataset", "b.mp4")
    arguments = ["verify", str(root / "dataset"), "--repair", str(root / "a.mp4"), "--runner", "inline"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert (
        "none of the sources is a damaged video; give the sources of 'b.mp4', and --cuts, --list-root" in result.output
    )


def test_every_frame_that_can_be_is_decoded_beside_a_lost_shard_too(root: Path) -> None:
    """`verify --decode` says what is lost and goes on; the options of a job are those of prep."""
    dataset = root / "dataset"
    shard_of(dataset, "c.mp4").unlink()
    done = CliRunner().invoke(app, ["verify", str(dataset), "--decode", "--json"])
    found = json.loads(done.stdout)
    assert (done.exit_code, found["decoded"], len(found["problems"])) == (3, True, 1)
    assert found["problems"][0].endswith(".shard: is missing")
    options = ["--runner", "inline", "--workers", "1", "--keep-snapshots", "0"]
    done = CliRunner().invoke(app, ["verify", str(dataset), "--repair", *map(str, sources(root)), *options])
    assert done.exit_code == 0, done.output
    assert_whole(dataset)
    assert len(snapshots(DiskStorage(dataset))) == 1


def test_options_of_a_job_that_make_no_sense_are_told_before_anything_is_read(root: Path) -> None:
    done = CliRunner().invoke(app, ["verify", str(root / "dataset"), "--runner", "elsewhere"])
    assert (done.exit_code, "--runner is 'elsewhere'" in done.stderr) == (2, True)
