"""A takedown, `drop` and `gc`, takes the names of what was dropped out of the status of the last job."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from datasets import current_manifest
from shortgop.cli.app import app
from shortgop.errors import DatasetBusyError
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.progress.job_status import STATUS_KEY, JobStatus, Task, read_status, status_changed
from shortgop.jobs.progress.status_file import forget_sources
from shortgop.manifests.dataset_files.parts import finished_parts, read_part
from shortgop.manifests.operations.collect import collect
from shortgop.manifests.operations.drop import drop
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video

PATHS = ("one.mp4", "two.mp4", "three.mp4")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of three videos, whose ids 1, 2 and 3 say nothing of their paths; the status names each of them."""
    root = tmp_path_factory.mktemp("takedown")
    for path in PATHS:
        make_video(root / path, pts=constant_rate_pts(Fraction(30), 4), timebase=Fraction(1, 30))
    (root / "list.csv").write_text("id,path\n" + "".join(f"id-{path[:-4]},{path}\n" for path in PATHS))
    prepare([str(root / "list.csv")], DiskStorage(root / "dataset"), Profile(), where=Where("inline"))
    return root


@pytest.fixture
def dataset(root: Path, tmp_path: Path) -> DiskStorage:
    dataset = DiskStorage(shutil.copytree(root / "dataset", tmp_path / "dataset"))
    sources = current_manifest(dataset).videos.source.texts()
    assert sorted(Path(source).name for source in sources) == sorted(PATHS)
    leave(dataset, slowest=tasks(*sources), largest=tasks(f"{PATHS[0]} and 2 more"))
    return dataset


def tasks(*sources: str) -> tuple[Task, ...]:
    return tuple(Task(source, frames=4, seconds=1.0) for source in sources)


def leave(dataset: DiskStorage, **changes: Any) -> JobStatus:
    """The job left another status, an hour ago."""
    status = dataclasses.replace(read_status(dataset), **changes)
    file = dataset.folder / STATUS_KEY
    file.write_text(json.dumps(dataclasses.asdict(status)))
    os.utime(file, (status.written, status.written))
    return status


def gc(dataset: DiskStorage, *options: str) -> Result:
    return CliRunner().invoke(app, ["gc", dataset.url, *options])


def named(dataset: DiskStorage) -> list[str]:
    """Which of the paths the files of the dataset name."""
    text = (dataset.folder / STATUS_KEY).read_text()
    in_parts = [read_part(dataset, part).videos.source.texts() for part in finished_parts(dataset)]
    return [path for path in PATHS if path in text or path in str(in_parts)]


def test_the_names_of_what_was_dropped_are_forgotten_and_no_others(dataset: DiskStorage) -> None:
    before = read_status(dataset)
    assert gc(dataset).exit_code == 0
    assert read_status(dataset) == before
    drop(dataset, ["id-one"])
    assert gc(dataset, "--dry-run").exit_code == 0
    assert read_status(dataset) == before
    assert gc(dataset).exit_code == 0
    assert named(dataset) == ["two.mp4", "three.mp4"]
    found = read_status(dataset)
    assert [len(found.slowest), len(found.largest)] == [2, 0]
    assert dataclasses.replace(found, slowest=before.slowest, largest=before.largest) == before


@pytest.mark.parametrize(
    ("reason", "left"),
    [
        ("the disk is full", "the disk is full"),
        ("/videos/one.mp4 has changed", ""),
        ("id-one is there twice", ""),
        ("the first is 'id-one'", ""),
        # A name is made of it, and may say as much.
        ("my_id-one_cam2.mp4 has changed", ""),
    ],
)
def test_the_reason_stays_unless_it_names_what_was_dropped(dataset: DiskStorage, reason: str, left: str) -> None:
    path = next(each for each in current_manifest(dataset).videos.path.texts() if each.endswith("one.mp4"))
    text = reason.replace("/videos/one.mp4", path)
    leave(dataset, state="ended", reason=text, note=text)
    drop(dataset, ["id-one"])
    assert gc(dataset).exit_code == 0
    assert (read_status(dataset).reason, read_status(dataset).note) == (left, left)
    # Nothing is taken out because of a drop from long ago.
    after = leave(dataset, reason="two.mp4 has changed", slowest=tasks("two.mp4"))
    assert gc(dataset).exit_code == 0
    assert read_status(dataset) == after


@pytest.mark.parametrize(
    ("name", "text", "stays"),
    [
        ("1", "3 of 100 sources", True),
        ("1", "the first is '1'", False),
        ("1", "cam_1.mp4 has changed", False),
        ("mp4", "a.mp4 has changed", False),
        ("é", "café.mp4 has changed", False),
        ("clip", "clipboard", False),
    ],
)
def test_only_the_shortest_names_are_no_part_of_a_word(
    dataset: DiskStorage, name: str, text: str, *, stays: bool
) -> None:
    leave(dataset, reason=text, note=text, slowest=tasks(text))
    forget_sources(dataset, [name])
    found = read_status(dataset)
    assert (found.reason, found.note) == ((text, text) if stays else ("", ""))
    # Of tasks one too many is no loss.
    assert found.slowest == ()


def test_what_comes_again_is_not_forgotten(dataset: DiskStorage, root: Path) -> None:
    drop(dataset, ["id-one"])
    prepare([str(root / "list.csv")], dataset, Profile(), where=Where("inline"), include_dropped=True)
    before = leave(dataset, reason="id-one has changed")
    assert gc(dataset).exit_code == 0
    assert read_status(dataset) == before


def test_a_job_that_died_on_another_machine_does_not_come_to_life(dataset: DiskStorage) -> None:
    running = leave(
        dataset, state="running", machine="another", host="far", written=1e9, started=1e9 - 60,
        running=tasks("two.mp4"), units_running=1,
    )  # fmt: skip
    assert running.may_be_dead(1e9 + 3600, status_changed(dataset, running))
    drop(dataset, ["id-one"])
    assert gc(dataset).exit_code == 0
    said = CliRunner().invoke(app, ["status", dataset.url]).stdout
    assert "on far, ended " in said
    assert ": it has died\n" in said
    assert "running" not in said


def test_a_status_that_cannot_be_read_does_not_hide_what_was_done(dataset: DiskStorage) -> None:
    drop(dataset, ["id-one"])
    file = dataset.folder / STATUS_KEY
    left = file.read_bytes()
    file.unlink()
    # A link to itself cannot be read by root, either.
    file.symlink_to(file)
    done = gc(dataset, "--json")
    assert done.exit_code == 3
    said = json.loads(done.stdout)
    assert len(said["rewritten"]) == 1
    assert said["parts"] == []
    (why,) = said["skipped"]
    assert str(file) in why
    done = gc(dataset)
    assert done.exit_code == 3
    assert "0 shards removed" in done.stdout
    assert f"a file that may hold more than is needed stays as it is: {file} cannot be read: " in done.stderr
    assert "; until then parts keep the rows of what was dropped\n" in done.stderr
    # The same command does the rest.
    file.unlink()
    file.write_bytes(left)
    assert gc(dataset).exit_code == 0
    assert named(dataset) == ["two.mp4", "three.mp4"]


def test_a_damaged_status_goes(dataset: DiskStorage) -> None:
    drop(dataset, ["id-one"])
    (dataset.folder / STATUS_KEY).write_text('["one.mp4"')
    assert gc(dataset).exit_code == 0
    assert not (dataset.folder / STATUS_KEY).exists()


def test_no_job_can_begin_meanwhile(dataset: DiskStorage) -> None:
    """A job that finds nothing to do puts the status back that it found."""
    told = []

    def forget(names: Any) -> None:
        told.append({Path(name).name for name in names})
        with pytest.raises(DatasetBusyError), dataset.lock():
            pass

    collect(dataset, forget=forget)
    drop(dataset, ["id-one"])
    collect(dataset, forget=forget)
    assert told == [{"id-one", "one.mp4"}]
