"""`shortgop prep --dry-run`: it says what a job would do, and changes nothing."""

from __future__ import annotations

import json
import tarfile
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest
from PIL import Image

import shortgop
from dataset_paths import shard_path
from dataset_places import Places, place_of, versions
from datasets import current_manifest, make_dataset
from file_permissions import modes_count
from labelled_videos import run
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.progress.job_history import TimeStretch
from shortgop.jobs.progress.status_board import StatusBoard
from shortgop.jobs.sources.failing import WORKER_DIED
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.tables import empty, failures_table
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video

RATE = Fraction(25)


def video(path: Path, frames: int = 25, first_number: int = 0) -> Path:
    make_video(path, pts=constant_rate_pts(RATE, frames), timebase=1 / RATE, first_number=first_number)
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with two videos."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    video(folder / "a.mp4")
    video(folder / "b.mp4", 50, first_number=100)
    return folder


def dry(source: Path, dataset: Path | Storage, *options: str) -> Any:
    """The exit status of a dry run, and what it says to programs."""
    done = run("prep", source, "--out", place_of(dataset).url, "--dry-run", "--json", *options)
    return done.exit_code, json.loads(done.stdout)


def test_a_new_dataset_is_planned_and_not_made(corpus: Path, tmp_path: Path) -> None:
    said = run("prep", corpus, "--out", tmp_path / "dataset", "--dry-run")
    assert said.exit_code == 0, said.output
    assert "would prepare 2 sources, " in said.stdout
    assert "about 75 frames\n" in said.stdout
    assert "nothing was changed" in said.stdout
    assert not (tmp_path / "dataset").exists()
    status, report = dry(corpus, tmp_path / "dataset")
    planned = report["planned"]
    assert (status, report["sources"], report["already_there"], report["snapshot"]) == (0, 2, 0, None)
    assert planned["source_bytes"] == sum(each.stat().st_size for each in corpus.iterdir())
    assert (planned["frames"], planned["bytes"]) == (75, None)


def test_sources_that_are_not_there_are_named_before_anything_is_written(corpus: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text("path\na.mp4\nb.mp4\n")
    status, report = dry(listed, tmp_path / "dataset")
    assert (status, [each["id"] for each in report["failures"]]) == (3, ["a.mp4", "b.mp4"])
    said = run("prep", listed, "--out", tmp_path / "dataset", "--dry-run")
    assert "would prepare nothing" in said.stdout
    assert "none of the 2 sources is there" in said.stderr
    assert "--list-root" in said.stderr
    listed.write_text("path\n" + "".join(f"{number}.mp4\n" for number in range(30)))
    said = run("prep", listed, "--out", tmp_path / "dataset", "--dry-run")
    assert "and 25 more: --json lists all" in said.stderr
    assert not (tmp_path / "dataset").exists()
    listed.write_text("path\na.mp4\nb.mp4\n")
    assert dry(listed, tmp_path / "dataset", "--list-root", str(corpus))[0] == 0


def test_python_is_warned_of_sources_that_cannot_be_prepared(corpus: Path, tmp_path: Path) -> None:
    (corpus / "list.csv").write_text("path\na.mp4\nc.mp4\n")
    with pytest.warns(shortgop.DatasetWarning, match=r"^1 of 2 sources cannot be prepared: c\.mp4: "):
        shortgop.prepare(corpus / "list.csv", tmp_path / "dataset", dry_run=True)


def test_sources_whose_headers_say_nothing_are_named(corpus: Path, tmp_path: Path) -> None:
    (corpus / "cut.mp4").write_bytes((corpus / "b.mp4").read_bytes()[:500])
    (corpus / "page.mp4").write_text("<html>")
    said = run("prep", corpus, "--out", tmp_path / "dataset", "--dry-run")
    assert "2 sources may fail, as their headers do not say that they are videos: cut.mp4, page.mp4" in said.stdout
    assert "about 75 frames in the 2 whose headers tell it" in said.stdout
    said = run("prep", corpus / "page.mp4", "--out", tmp_path / "dataset", "--dry-run")
    assert "1 source may fail, as its header does not say that it is a video: page.mp4" in said.stdout
    (corpus / "a.mp4").unlink()
    (corpus / "b.mp4").unlink()
    assert dry(corpus, tmp_path / "dataset")[1]["planned"]["silent"] == ["cut.mp4", "page.mp4"]


def test_pictures_are_not_said_to_lack_a_length(corpus: Path, tmp_path: Path) -> None:
    (corpus / "shots").mkdir()
    for number in range(3):
        Image.new("RGB", (64, 48)).save(corpus / "shots" / f"{number}.png")
    status, report = dry(corpus, tmp_path / "dataset", "--image-fps", "5")
    planned = report["planned"]
    assert (status, planned["sources"], planned["sources_with_frames"], planned["silent"]) == (0, 3, 2, [])


def test_videos_without_a_length_in_their_header_are_not_said_to_fail(corpus: Path, tmp_path: Path) -> None:
    for name in ("whole.h264", "cut.h264"):
        with av.open(corpus / "b.mp4") as source, av.open(corpus / name, "w", format="h264") as raw:
            stream = raw.add_stream_from_template(source.streams.video[0])
            for packet in source.demux(video=0):
                if packet.dts is not None:
                    packet.stream = stream
                    raw.mux(packet)
    (corpus / "list.csv").write_text("path,start,end\nwhole.h264,,\ncut.h264,0,1\ncut.h264,1,2\n")
    _, report = dry(corpus / "list.csv", tmp_path / "dataset", "--cuts", "start,end")
    assert (report["planned"]["sources"], report["planned"]["silent"]) == (3, [])


def test_short_stretches_have_the_frames_of_their_file_together(corpus: Path, tmp_path: Path) -> None:
    times = "".join(f"a.mp4,{each / 10},{(each + 1) / 10}\n" for each in range(10))
    (corpus / "list.csv").write_text("path,start,end\n" + times)
    planned = dry(corpus / "list.csv", tmp_path / "dataset", "--cuts", "start,end")[1]["planned"]
    assert (planned["sources"], planned["frames"]) == (10, 25)


def test_each_sample_of_a_tar_counts_and_a_file_of_several_stretches_counts_once(corpus: Path, tmp_path: Path) -> None:
    sizes = [(corpus / name).stat().st_size for name in ("a.mp4", "b.mp4")]
    with tarfile.open(tmp_path / "samples.tar", "w") as tar:
        for name in ("a.mp4", "b.mp4"):
            tar.add(corpus / name, arcname=name)
    assert dry(tmp_path / "samples.tar", tmp_path / "dataset")[1]["planned"]["source_bytes"] == sum(sizes)
    (corpus / "cuts.csv").write_text("path,start,end\na.mp4,0,0.5\na.mp4,0.5,1\nb.mp4,0,1\n")
    _, report = dry(corpus / "cuts.csv", tmp_path / "dataset", "--cuts", "start,end")
    assert (report["planned"]["sources"], report["planned"]["source_bytes"]) == (3, sum(sizes))


class DryRuns:
    where: str

    def test_what_it_says_is_what_the_job_then_does(self, corpus: Path, places: Places) -> None:
        dataset = places.new()
        make_dataset([corpus], dataset)
        video(corpus / "c.mp4", 30, first_number=200)
        before = versions(dataset)
        status, report = dry(corpus, dataset)
        assert (status, report["already_there"], report["planned"]["sources"]) == (0, 2, 1)
        assert versions(dataset) == before
        done = make_dataset([corpus], dataset)
        assert (done.already_there, done.videos_added, done.frames_added) == (2, 1, report["planned"]["frames"])
        assert 0.5 < report["planned"]["bytes"] / done.bytes_added < 2
        assert "would prepare nothing" in run("prep", corpus, "--out", dataset.url, "--dry-run").stdout


def test_sources_that_failed_before_do_not_count_in_the_room_that_others_take(corpus: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    (corpus / "page.mp4").write_text("<html>" + 2_000_000 * " ")
    for name in ("a.mp4", "page.mp4", "page.mp4"):
        make_dataset([corpus / name], dataset)
    _, report = dry(corpus / "b.mp4", dataset)
    done = make_dataset([corpus / "b.mp4"], dataset)
    assert 0.5 < report["planned"]["bytes"] / done.bytes_added < 2


def test_stretches_take_room_by_their_frames(corpus: Path, tmp_path: Path) -> None:
    """The bytes of their file say nothing: the first job takes a tenth of it, and the next one takes all."""
    dataset = tmp_path / "dataset"
    lines = [f"long.mp4,{each / 10},{(each + 1) / 10}\n" for each in range(40)]
    video(corpus / "long.mp4", 100, first_number=300)
    for count in (4, 40):
        (corpus / "list.csv").write_text("path,start,end\n" + "".join(lines[:count]))
        _, report = dry(corpus / "list.csv", dataset, "--cuts", "start,end")
        done = run("prep", corpus / "list.csv", "--out", dataset, "--cuts", "start,end", "--runner", "inline", "--json")
        added = json.loads(done.stdout)["bytes_added"]
    assert report["planned"]["sources"] == 36
    assert 0.5 < report["planned"]["bytes"] / added < 2


def test_frames_of_a_job_that_died_before_anything_was_made_of_them_do_not_count_in_the_room_of_stretches(
    corpus: Path, tmp_path: Path
) -> None:
    dataset = tmp_path / "dataset"
    made = make_dataset([corpus / "a.mp4"], dataset).bytes_added
    encoding = TimeStretch(0, 1, 1, 4000, 0, 0, 0, 0)
    status = replace(StatusBoard([]).status(), history=(encoding, encoding._replace(bytes_in=50_000, bytes_out=made)))
    (dataset / ".status.json").write_text(json.dumps(asdict(status)))
    (corpus / "list.csv").write_text("path,start,end\nb.mp4,0,1\nb.mp4,1,2\n")
    planned = dry(corpus / "list.csv", dataset, "--cuts", "start,end")[1]["planned"]
    assert (planned["frames"], planned["bytes"]) == (50, 2 * made)
    # A source whose frames are not known takes as much as another one.
    (corpus / "page.mp4").write_text("<html>")
    (corpus / "list.csv").write_text("path,start,end\nb.mp4,0,1\nb.mp4,1,2\npage.mp4,0,1\n")
    planned = dry(corpus / "list.csv", dataset, "--cuts", "start,end")[1]["planned"]
    assert (planned["sources"], planned["sources_with_frames"], planned["bytes"]) == (3, 2, 3 * made)


def test_all_units_of_a_long_file_count_in_the_room_that_its_bytes_take(corpus: Path, tmp_path: Path) -> None:
    """The bytes of the file are in the stretch of the job in which its first unit was finished."""
    dataset, source_bytes = tmp_path / "dataset", (corpus / "b.mp4").stat().st_size
    make_dataset([corpus / "a.mp4"], dataset)
    first = TimeStretch(0, 1, 1, 100, 20, 0, bytes_in=1000, bytes_out=100)
    later = first._replace(bytes_in=0, bytes_out=900)
    for history, room in (((first, later), source_bytes), ((later,), None)):
        status = replace(StatusBoard([]).status(), history=history)
        (dataset / ".status.json").write_text(json.dumps(asdict(status)))
        assert dry(corpus / "b.mp4", dataset)[1]["planned"]["bytes"] == room


class TestDryRunsOnADisk(DryRuns):
    where = "disk"


@only_in_a_sweep
class TestDryRunsInS3(DryRuns):
    where = "s3"


def test_changed_and_dropped_sources_and_labels_are_told_and_left_as_they_are(corpus: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    make_dataset([corpus], dataset)
    assert run("drop", dataset, "b.mp4").exit_code == 0
    video(corpus / "a.mp4", 30, first_number=300)
    (corpus / "list.csv").write_text("path,label\na.mp4,1\nb.mp4,2\n")
    before = versions(DiskStorage(dataset))
    status, report = dry(corpus / "list.csv", dataset)
    assert (status, report["outdated"], report["dropped"], report["relabelled"]) == (3, ["a.mp4"], ["b.mp4"], 1)
    assert (report["sources"], report["planned"]["sources"]) == (2, 0)
    status, report = dry(corpus / "list.csv", dataset, "--changed", "replace", "--include-dropped")
    planned = report["planned"]
    assert (status, planned["sources"], planned["replaced"], planned["made_again"]) == (0, 2, ["a.mp4"], 1)
    said = run("prep", corpus / "list.csv", "--out", dataset, "--dry-run")
    assert "1 video already in the dataset would get new columns" in said.stdout
    assert versions(DiskStorage(dataset)) == before
    assert shortgop.open(dataset)["a.mp4"].attributes == {}


def test_videos_of_lost_shards_count_as_to_be_made_again(corpus: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    make_dataset([corpus], dataset)
    for name in current_manifest(dataset).shards.name.texts():
        shard_path(dataset, name).unlink()
    status, report = dry(corpus / "a.mp4", dataset)
    assert (status, report["planned"]["made_again"], report["lost"]) == (3, 1, ["b.mp4"])


def test_it_reports_as_the_job_does_what_both_know(corpus: Path, tmp_path: Path) -> None:
    """A lost video whose source has changed is not outdated, and the reason of a source that is gone says what of its
    video is lost."""
    dataset = tmp_path / "dataset"
    (corpus / "c.mp4").write_bytes((corpus / "a.mp4").read_bytes())
    make_dataset([corpus], dataset)
    for name in current_manifest(dataset).shards.name.texts():
        shard_path(dataset, name).unlink()
    (corpus / "list.csv").write_text("path\na.mp4\nb.mp4\nc.mp4\n")
    (corpus / "a.mp4").unlink()
    video(corpus / "b.mp4", 30, first_number=300)
    (corpus / "c.mp4").unlink()
    status, report = dry(corpus / "list.csv", dataset)
    job = run("prep", corpus / "list.csv", "--out", dataset, "--runner", "inline", "--json")
    done = json.loads(job.stdout)
    assert (status, job.exit_code) == (3, 3)
    assert report["lost"] == done["lost"] == ["a.mp4", "b.mp4", "c.mp4"]
    for name in ("outdated", "equal_contents", "sources", "already_there"):
        assert report[name] == done[name], name
    for each in (report, done):
        context = {failure["id"]: failure["reason"].partition("; its frames")[2] for failure in each["failures"]}
        assert "are lost" in context["a.mp4"]
        assert "are lost" in context["c.mp4"]


def test_sources_that_failed_before_are_named(corpus: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    (corpus / "page.mp4").write_text("<html>")
    make_dataset([corpus], dataset)
    video(corpus / "c.mp4", first_number=400)
    assert dry(corpus, dataset)[1]["planned"]["failed_before"] == ["page.mp4"]
    said = run("prep", corpus, "--out", dataset, "--dry-run").stdout
    assert "would prepare 2 sources" in said
    assert "1 source failed before: page.mp4\n" in said


def test_failures_that_are_known_end_it_where_they_would_end_the_job(corpus: Path, tmp_path: Path) -> None:
    (corpus / "list.csv").write_text("path\na.mp4\nb.mp4\nc.mp4\nd.mp4\n")
    for limit, status in (("1", 1), ("49%", 1), ("2", 3), ("50%", 3)):
        for options in (["--dry-run"], ["--runner", "inline"]):
            done = run("prep", corpus / "list.csv", "--out", tmp_path / limit, "--max-failures", limit, *options)
            assert done.exit_code == status, done.output
            if status == 1:
                assert f"more than --max-failures {limit} allows" in done.stderr


def test_the_last_progress_counts_all_that_are_not_set_aside(corpus: Path, tmp_path: Path) -> None:
    dataset = DiskStorage(tmp_path / "dataset")
    make_dataset([corpus / "a.mp4"], dataset)
    row = ("b.mp4", "b.mp4", f"{WORKER_DIED} 4 times", 1, str(corpus / "b.mp4"))
    write_part(dataset, "f" * 16, replace(empty(), failures=failures_table([row])))
    publish(dataset)
    video(corpus / "c.mp4", first_number=400)
    said = run("prep", corpus, "--out", dataset.url, "--dry-run")
    assert "planning; 2 of 2 sources" in said.stderr
    assert "it was set aside" in said.stderr


def test_no_cluster_is_joined(corpus: Path, tmp_path: Path) -> None:
    """More sources than those of two windows are looked at on the cluster, if a job follows."""
    for number in range(5):
        video(corpus / f"{number}.mp4", 10, first_number=400 + 10 * number)
    dataset = DiskStorage(tmp_path / "dataset")
    make_dataset([corpus], dataset)
    nobody = Where(address="127.0.0.1:1")
    report = prepare([str(corpus)], dataset, Profile(), where=nobody, window_sources=2, dry_run=True)
    assert report.already_there == 7


def test_it_needs_no_lock_and_refuses_what_the_job_would_refuse(corpus: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    make_dataset([corpus], dataset)
    with DiskStorage(dataset).lock():
        status, report = dry(corpus, dataset)
    assert (status, report["planned"]["job_runs"]) == (0, False)
    running = StatusBoard([]).status()
    (dataset / ".status.json").write_text(json.dumps(asdict(running)))
    assert "a job writes to the dataset now" in run("prep", corpus, "--out", dataset, "--dry-run").stdout
    other = run("prep", corpus, "--out", dataset, "--dry-run", "--gop", "8")
    assert (other.exit_code, "was prepared with other options" in other.stderr) == (2, True)
    page = run("prep", corpus, "--out", dataset, "--dry-run", "--report", tmp_path / "page.html")
    assert (page.exit_code, (tmp_path / "page.html").exists()) == (2, False)


def test_a_place_that_the_job_would_refuse_is_refused(corpus: Path, tmp_path: Path) -> None:
    dataset, file, full = tmp_path / "dataset", tmp_path / "file", tmp_path / "full"
    make_dataset([corpus], dataset)
    (dataset / "zarr.json").unlink()
    file.write_text("x")
    full.mkdir()
    (full / "x.txt").write_text("x")
    said = {}
    for place in (file, file / "dataset", full, dataset):
        dry_run, job = (
            run("prep", corpus, "--out", place, *options) for options in (["--dry-run"], ["--runner", "inline"])
        )
        assert (dry_run.exit_code, job.exit_code) == (1, 1), place
        said[place] = dry_run.stderr.splitlines()[-1]
        assert said[place] == job.stderr.splitlines()[-1]
    assert "is a file; a dataset needs a folder" in said[file]
    assert "a part of that path is a file" in said[file / "dataset"]
    assert "holds files but no dataset" in said[full]
    assert "lacks this file" in said[dataset]


def test_a_dataset_that_may_not_be_written_to_is_refused(corpus: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    make_dataset([corpus], dataset)
    dataset.chmod(0o500)
    (tmp_path / "closed").mkdir(0o500)
    with modes_count():
        said = [
            run("prep", corpus, "--out", place, *options)
            for place in (dataset, tmp_path / "closed" / "new")
            for options in (["--dry-run"], ["--runner", "inline"])
        ]
    dataset.chmod(0o700)
    assert {each.exit_code for each in said} == {1}
    there, job_there, new, job_new = (each.stderr.splitlines()[-1] for each in said)
    assert there.startswith(f"error: cannot write {dataset}: Permission denied; this changes the dataset where it is: ")
    assert job_there.endswith(there.partition("; ")[2])
    assert new == job_new
    assert "Permission denied; give yourself permission to write there" in new


def test_a_bucket_that_is_not_there_is_refused(corpus: Path, s3_url: str) -> None:
    assert s3_url
    said = run("prep", corpus, "--out", "s3://nobody/dataset", "--dry-run")
    assert (said.exit_code, "make the bucket first, or check its name" in said.stderr) == (1, True), said.output


def test_a_large_corpus_is_planned_window_by_window(corpus: Path, tmp_path: Path) -> None:
    for number in range(5):
        video(corpus / f"{number}.mp4", 10, first_number=400 + 10 * number)
    dataset = DiskStorage(tmp_path / "dataset")
    report = prepare([str(corpus)], dataset, Profile(), where=Where("inline"), window_sources=2, dry_run=True)
    assert report.planned is not None
    assert (report.sources, report.planned.sources, report.planned.frames) == (7, 7, 125)
    make_dataset([corpus / "0.mp4", corpus / "a.mp4"], dataset)
    report = prepare([str(corpus)], dataset, Profile(), where=Where("inline"), window_sources=2, dry_run=True)
    assert report.planned is not None
    assert (report.already_there, report.planned.sources, report.planned.frames) == (2, 5, 90)
