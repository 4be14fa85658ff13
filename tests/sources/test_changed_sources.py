"""A source that is not the file that was prepared: what `--changed` keep, replace and fail do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import shortgop
from dataset_paths import shard_path
from datasets import current_manifest, make_dataset, rows_of
from shortgop.cli import app
from shortgop.jobs.prepare import Report, Where, prepare
from shortgop.jobs.progress.tally import Progress
from shortgop.jobs.sources.changed import Changed
from shortgop.manifests.dataset_files.parts import finished_units
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import verify
from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from sweep import sample
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(25)
INLINE = Where(runner="inline")


def film(path: Path, first_number: int, frames: int = 30) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make_video(path, pts=constant_rate_pts(RATE, frames), timebase=1 / RATE, first_number=first_number)


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "root"
    for number, name in enumerate("abc"):
        film(root / "corpus" / f"{name}.mp4", 100 * number)
    (root / "corpus" / "list.csv").write_text("path,label\na.mp4,cat\nb.mp4,dog\nc.mp4,owl\n")
    make_dataset([root / "corpus" / "list.csv"], root / "dataset")
    # The files must not stay where they were prepared: copies would be other files with the same ids.
    return root.rename(root.with_name("moved"))


@pytest.fixture
def corpus(_made: Path, tmp_path: Path) -> Path:
    """Three films, and beside them their dataset, which was made from a list with labels; then b.mp4 changes."""
    shutil.copytree(_made, tmp_path, dirs_exist_ok=True)
    film(tmp_path / "corpus" / "b.mp4", 500, frames=40)
    return tmp_path / "corpus"


def again(corpus: Path, changed: Changed, **options: Any) -> Report:
    return prepare(
        [str(corpus)], DiskStorage(corpus.parent / "dataset"), Profile(), where=INLINE, changed=changed, **options
    )


def first_numbers(dataset: Path) -> dict[str, int]:
    """Which number the first frame of each video shows; the last one is checked too."""
    videos = shortgop.open(dataset)
    for video in videos:
        assert read_number(video[-1]) == read_number(video[0]) + len(video) - 1
    return {video.id: read_number(video[0]) for video in videos}


def prep(corpus: Path, *options: str) -> Result:
    arguments = ["prep", str(corpus), "--out", str(corpus.parent / "dataset"), "--runner", "inline", *options]
    return CliRunner().invoke(app, arguments)


def test_kept_frames_are_told_with_the_file_the_id_and_what_to_do(corpus: Path) -> None:
    rows = rows_of(corpus.parent / "dataset")
    done = prep(corpus)
    assert done.exit_code == 3
    assert f"not replaced: b.mp4: {corpus / 'b.mp4'} has changed since it was prepared as 'b.mp4'" in done.stderr
    assert "the dataset has the frames of the old file; run prep with --changed replace" in done.stderr
    assert "2 of 3 sources already in the dataset; 1 changed and not replaced" in done.stdout
    report = json.loads(prep(corpus, "--changed", "keep", "--json").stdout)
    assert (report["outdated"], report["replaced"], report["already_there"]) == (["b.mp4"], [], 2)
    assert rows_of(corpus.parent / "dataset") == rows


def test_a_changed_source_replaces_its_video_under_the_same_id_with_its_labels(corpus: Path) -> None:
    dataset = corpus.parent / "dataset"
    before, rows = shortgop.open(dataset), current_manifest(dataset)
    done = prep(corpus, "--changed", "replace")
    assert done.exit_code == 0, done.output
    assert "1 video replaced from changed sources: b.mp4" in done.stdout
    assert first_numbers(dataset) == {"a.mp4": 0, "b.mp4": 500, "c.mp4": 200}
    assert [video.attributes for video in shortgop.open(dataset)] == [
        {"label": label} for label in ("cat", "dog", "owl")
    ]
    manifest = current_manifest(dataset)
    assert manifest.videos.revision.tolist() == [0, 1, 0]
    # What did not change lies where it lay, and a reader of the snapshot before still has the old frames.
    old_shards = set(rows.shards.name.texts())
    assert old_shards <= {file.name for file in (dataset / "shards").iterdir()}
    assert read_number(before["b.mp4"][0]) == 100
    # The same command again has nothing to do.
    report = again(corpus, "replace")
    assert (report.already_there, report.replaced, report.videos_added) == (3, (), 0)


def test_a_source_can_replace_its_video_more_than_once_even_with_what_was_there_before(corpus: Path) -> None:
    dataset, old = corpus.parent / "dataset", corpus.parent / "b.mp4"
    shutil.copy(corpus / "b.mp4", old)
    for first_number in (500, 600, 500):
        film(corpus / "b.mp4", first_number, frames=40)
        assert again(corpus, "replace").replaced == ("b.mp4",)
        assert first_numbers(dataset)["b.mp4"] == first_number
    assert old.read_bytes() == (corpus / "b.mp4").read_bytes()
    assert current_manifest(dataset).videos.revision.tolist() == [0, 3, 0]


def test_a_list_gives_the_video_that_is_replaced_its_own_attributes(corpus: Path) -> None:
    (corpus / "list.csv").write_text("path,label\na.mp4,cat\nb.mp4,wolf\nc.mp4,owl\n")
    prepare(
        [str(corpus / "list.csv")], DiskStorage(corpus.parent / "dataset"), Profile(), where=INLINE, changed="replace"
    )
    assert shortgop.open(corpus.parent / "dataset")["b.mp4"].attributes == {"label": "wolf"}


def test_new_sources_come_in_beside_those_that_are_replaced(corpus: Path) -> None:
    film(corpus / "d.mp4", 300)
    report = again(corpus, "replace")
    assert (report.replaced, report.videos_added, report.already_there) == (("b.mp4",), 1, 2)
    assert first_numbers(corpus.parent / "dataset")["d.mp4"] == 300


def test_fail_ends_before_anything_is_encoded_and_names_the_files(corpus: Path) -> None:
    film(corpus / "c.mp4", 700, frames=50)
    film(corpus / "d.mp4", 300)
    rows = rows_of(corpus.parent / "dataset")
    done = prep(corpus, "--changed", "fail")
    assert done.exit_code == 1
    assert f"2 sources changed since being prepared: {corpus / 'b.mp4'} (id 'b.mp4'), {corpus / 'c.mp4'}" in done.stderr
    assert "--changed replace" in done.stderr
    assert rows_of(corpus.parent / "dataset") == rows
    film(corpus / "b.mp4", 100)
    film(corpus / "c.mp4", 200)
    assert again(corpus, "fail").videos_added == 1


def test_a_new_file_that_is_damaged_leaves_the_old_frames_and_is_reported(corpus: Path) -> None:
    dataset = corpus.parent / "dataset"
    film(corpus / "c.mp4", 700, frames=50)
    (corpus / "b.mp4").write_text("half a download")
    done = prep(corpus, "--changed", "replace")
    assert done.exit_code == 3
    assert "not replaced: b.mp4: " in done.stderr
    assert "does not open as a video" in done.stderr
    assert "the dataset keeps the frames of the old file" in done.stderr
    assert first_numbers(dataset) == {"a.mp4": 0, "b.mp4": 100, "c.mp4": 700}
    assert shortgop.open(dataset).failures == ()
    # Tried again each time, and nothing piles up.
    files = sorted(dataset.rglob("*"))
    report = again(corpus, "replace")
    assert (report.replaced, report.outdated, len(report.failures)) == ((), ("b.mp4",), 1)
    assert sorted(dataset.rglob("*")) == files
    film(corpus / "b.mp4", 800)
    assert again(corpus, "replace").replaced == ("b.mp4",)
    assert first_numbers(dataset)["b.mp4"] == 800


def lose(dataset: Path, video_id: str) -> None:
    manifest = open_current(DiskStorage(dataset))[1]
    segment = int(manifest.first_segments[manifest.row_of(video_id)])
    shard_path(dataset, manifest.shards.name.text(int(manifest.segments.shard[segment]))).unlink()


def test_a_lost_video_whose_source_changed_is_lost_until_it_is_replaced(corpus: Path) -> None:
    dataset = corpus.parent / "dataset"
    lose(dataset, "b.mp4")
    kept = again(corpus, "keep")
    assert (kept.repaired, kept.lost, kept.outdated) == (("a.mp4", "c.mp4"), ("b.mp4",), ())
    assert "the lost frames of the old file" in kept.failures[0].reason
    assert "--changed replace" in kept.failures[0].reason
    report = again(corpus, "replace")
    assert (report.replaced, report.repaired, report.lost, report.failures) == (("b.mp4",), (), (), ())
    assert first_numbers(dataset) == {"a.mp4": 0, "b.mp4": 500, "c.mp4": 200}


def test_videos_that_are_made_again_keep_their_labels(corpus: Path) -> None:
    dataset = corpus.parent / "dataset"
    film(corpus / "b.mp4", 100)
    lose(dataset, "a.mp4")
    assert again(corpus, "keep").repaired == ("a.mp4", "b.mp4", "c.mp4")
    assert [video.attributes["label"] for video in shortgop.open(dataset)] == ["cat", "dog", "owl"]


def test_a_source_that_changes_while_the_job_is_at_others_is_prepared_by_the_next_job(tmp_path: Path) -> None:
    """As one that is still being copied when the job begins: it must not be called by what it was."""
    film(tmp_path / "corpus" / "a.mp4", 100)
    film(tmp_path / "corpus" / "b.mp4", 200)
    film(tmp_path / "new.mp4", 500, frames=40)

    def arrive(progress: Progress) -> None:
        if progress.frames_done == 0 and progress.frames_planned > 0 and (tmp_path / "new.mp4").exists():
            (tmp_path / "new.mp4").rename(tmp_path / "corpus" / "b.mp4")

    first = again(tmp_path / "corpus", "keep", on_update=arrive)
    ((failed, reason),) = [(failure.id, failure.reason) for failure in first.failures]
    assert (failed, first.videos_added) == ("b.mp4", 1)
    assert reason.startswith(f"{tmp_path / 'corpus' / 'b.mp4'} was changed after the job had looked at it; run")
    second = again(tmp_path / "corpus", "keep")
    assert (second.failures, second.outdated, second.videos_added) == ((), (), 1)
    assert first_numbers(tmp_path / "dataset") == {"a.mp4": 100, "b.mp4": 500}
    assert again(tmp_path / "corpus", "keep").already_there == 2


@pytest.mark.parametrize("begin", ["nothing", "an empty file"])
def test_a_source_that_arrives_after_the_look_at_it_is_what_the_next_job_sees(tmp_path: Path, begin: str) -> None:
    film(tmp_path / "corpus" / "a.mp4", 100)
    film(tmp_path / "new.mp4", 500)
    listed, arriving = tmp_path / "corpus" / "list.txt", tmp_path / "corpus" / "b.mp4"
    listed.write_text("a.mp4\nb.mp4\n")
    if begin == "an empty file":
        arriving.touch()

    def arrive(progress: Progress) -> None:
        if progress.note == "encoding" and (tmp_path / "new.mp4").exists():
            (tmp_path / "new.mp4").rename(arriving)

    first = prepare([str(listed)], DiskStorage(tmp_path / "dataset"), Profile(), where=INLINE, on_update=arrive)
    # Nothing says of an empty file whether it is the one that was meant.
    assert first.videos_added == (2 if begin == "nothing" else 1)
    second = prepare([str(listed)], DiskStorage(tmp_path / "dataset"), Profile(), where=INLINE)
    assert (second.failures, second.outdated, first.videos_added + second.videos_added) == ((), (), 2)
    assert first_numbers(tmp_path / "dataset") == {"a.mp4": 100, "b.mp4": 500}


def test_a_source_that_changes_while_it_is_encoded_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened more than once, and the frames of the new file may have the times of those of the old one."""
    film(tmp_path / "corpus" / "a.mp4", 100)
    film(tmp_path / "corpus" / "b.mp4", 200)
    film(tmp_path / "new.mp4", 500)
    new, old, ffmpeg = tmp_path / "new.mp4", tmp_path / "corpus" / "b.mp4", tmp_path / "ffmpeg"
    arrives = f'case "$*" in *{old}*) [ -e {new} ] && mv {new} {old};; esac'
    ffmpeg.write_text(f'#!/bin/sh\n{arrives}\nexec "{find_ffmpeg().path}" "$@"\n')
    ffmpeg.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(ffmpeg))
    find_ffmpeg.cache_clear()
    try:
        first = again(tmp_path / "corpus", "keep")
    finally:
        find_ffmpeg.cache_clear()
    assert not new.exists()
    assert [(failure.id, "b.mp4 was changed" in failure.reason) for failure in first.failures] == [("b.mp4", True)]
    assert sum(file.stat().st_size for file in (tmp_path / "dataset" / "shards").iterdir()) == first.bytes_added
    assert first_numbers(tmp_path / "dataset") == {"a.mp4": 100}
    assert again(tmp_path / "corpus", "keep").videos_added == 1
    assert first_numbers(tmp_path / "dataset") == {"a.mp4": 100, "b.mp4": 500}


def test_another_word_is_refused(corpus: Path) -> None:
    done = prep(corpus, "--changed", "overwrite")
    assert (done.exit_code, "--changed is 'overwrite'; it takes keep, replace, fail" in done.stderr) == (2, True)


# Two files in two folders that would get the same id


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A dataset of Monday's film, and Tuesday's film with the same name."""
    film(tmp_path / "monday" / "a.mp4", 0)
    film(tmp_path / "tuesday" / "a.mp4", 100)
    make_dataset([tmp_path / "monday"], tmp_path / "dataset")
    return tmp_path


@pytest.mark.parametrize("changed", ["keep", "replace", "fail"])
def test_a_file_never_takes_the_place_of_another_one_that_is_still_there(days: Path, changed: Changed) -> None:
    rows, root = rows_of(days / "dataset"), (days / "dataset" / "zarr.json").read_bytes()
    with pytest.raises(shortgop.UsageError) as caught:
        prepare([str(days / "tuesday")], DiskStorage(days / "dataset"), Profile(), where=INLINE, changed=changed)
    message = str(caught.value)
    assert f"{days / 'tuesday/a.mp4'} would get the id 'a.mp4'" in message
    assert str(days / "monday/a.mp4") in message
    assert f"add --id-root {days}, " in message
    assert (rows_of(days / "dataset"), (days / "dataset" / "zarr.json").read_bytes()) == (rows, root)
    # What it says to do works, from then on without the option.
    for id_root in (str(days), None):
        prepare([str(days / "tuesday")], DiskStorage(days / "dataset"), Profile(), where=INLINE, id_root=id_root)
        assert first_numbers(days / "dataset") == {"a.mp4": 0, "tuesday/a.mp4": 100}


def test_the_folder_that_is_proposed_always_tells_the_two_apart(tmp_path: Path) -> None:
    film(tmp_path / "all" / "a.mp4", 0)
    film(tmp_path / "all" / "x" / "a.mp4", 100)
    make_dataset([tmp_path / "all" / "x" / "a.mp4"], tmp_path / "dataset")
    with pytest.raises(shortgop.UsageError, match=f"add --id-root {tmp_path}, "):
        prepare([str(tmp_path / "all/a.mp4")], DiskStorage(tmp_path / "dataset"), Profile(), where=INLINE)


def test_a_list_with_the_same_id_says_that_another_file_takes_the_place(days: Path) -> None:
    (days / "list.csv").write_text("path,id\ntuesday/a.mp4,a.mp4\n")
    report = prepare(
        [str(days / "list.csv")], DiskStorage(days / "dataset"), Profile(), where=INLINE, changed="replace"
    )
    assert report.replaced == ("a.mp4",)
    assert first_numbers(days / "dataset") == {"a.mp4": 100}


def test_a_corpus_that_moved_and_changed_is_the_same_corpus(days: Path) -> None:
    shutil.rmtree(days / "monday")
    report = prepare([str(days / "tuesday")], DiskStorage(days / "dataset"), Profile(), where=INLINE, changed="replace")
    assert report.replaced == ("a.mp4",)


# Killed


@pytest.fixture(scope="module")
def replaced_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that has changed, its dataset from before, and `undisturbed`, in which everything was replaced."""
    root = tmp_path_factory.mktemp("replaced")
    (root / "corpus").mkdir()

    def films(first_number: int) -> None:
        for number in range(4):
            make_video(
                root / "corpus" / f"{number}.mp4", pts=constant_rate_pts(Fraction(30), 60), timebase=Fraction(1, 30),
                size=(320, 256), first_number=first_number + 1000 * number,
                # Files of half a megabyte, so that no two share a unit.
                options={"qp": "1", "preset": "ultrafast"},
            )  # fmt: skip

    films(0)
    make_dataset([root / "corpus"], root / "dataset")
    shutil.copytree(root / "dataset", root / "undisturbed")
    films(500)
    prepare([str(root / "corpus")], DiskStorage(root / "undisturbed"), Profile(), where=INLINE, changed="replace")
    return root


@pytest.mark.long
@pytest.mark.parametrize("finished_before_the_kill", sample([1], more=[0, 2]))
def test_killed_while_it_replaces_and_run_again(
    replaced_corpus: Path, tmp_path: Path, finished_before_the_kill: int
) -> None:
    """Whatever moment it dies at, the same command ends with the dataset of a job that was left alone."""
    corpus, dataset, undisturbed = replaced_corpus / "corpus", tmp_path / "dataset", replaced_corpus / "undisturbed"
    shutil.copytree(replaced_corpus / "dataset", dataset)
    before = finished_units(DiskStorage(dataset))
    command = [sys.executable, "-m", "shortgop", "prep", str(corpus), "--out", str(dataset), "--runner", "inline"]
    job = subprocess.Popen(
        [*command, "--changed", "replace"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
    )
    end = time.monotonic() + 120
    while (
        len(finished_units(DiskStorage(dataset)) - before) < finished_before_the_kill or not (dataset / ".tmp").exists()
    ):
        assert (job.poll(), time.monotonic() < end) == (None, True)
        time.sleep(0.01)
    time.sleep(0.05 * finished_before_the_kill)
    job.kill()
    job.wait()
    # Between the two, everything is readable: old frames or new ones.
    numbers = first_numbers(dataset)
    assert all(numbers[f"{number}.mp4"] in (1000 * number, 500 + 1000 * number) for number in range(4))

    report = prepare([str(corpus)], DiskStorage(dataset), Profile(), where=INLINE, changed="replace")

    assert (report.failures, report.outdated, report.lost) == ((), (), ())
    assert first_numbers(dataset) == {f"{number}.mp4": 500 + 1000 * number for number in range(4)}
    assert rows_of(dataset) == rows_of(undisturbed)
    root, manifest = open_current(DiskStorage(dataset))
    assert list(verify(DiskStorage(dataset), manifest, snapshot=root.snapshot)) == []
