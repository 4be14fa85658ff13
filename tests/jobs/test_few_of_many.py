"""Jobs, drops and labels that concern a few videos of a large dataset do not decode the ids of all others."""

from __future__ import annotations

import os
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scale_data import made_up, make

from shortgop.errors import MissingDataError
from shortgop.jobs.finding.source import Source
from shortgop.jobs.sources.known_paths import KnownPaths
from shortgop.jobs.sources.labels import annotate as annotate_by_list
from shortgop.jobs.units_of_work.units import Item
from shortgop.manifests.dataset_files.root_file import set_profile
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.merging.edits import dropped
from shortgop.manifests.operations.annotate import annotate, plan_edits
from shortgop.manifests.operations.drop import drop
from shortgop.manifests.operations.lost import why_lost
from shortgop.manifests.ragged import Ragged
from shortgop.manifests.tables import Manifest
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from synthetic import constant_rate_pts, make_video
from windowed_jobs import run

VIDEOS = 200_000
# Far more than what any of this has to decode, and far less than all ids.
FEW = VIDEOS // 20
FIRST, MIDDLE, LAST = "000000000.mp4", "000100000.mp4", "000199999.mp4"


class Decoded:
    """How many rows of text were decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        text, texts = Ragged.text, Ragged.texts

        def count_one(column: Ragged, index: int) -> str:
            self.rows += 1
            return text(column, index)

        def count_all(column: Ragged) -> list[str]:
            self.rows += len(column)
            return texts(column)

        monkeypatch.setattr(Ragged, "text", count_one)
        monkeypatch.setattr(Ragged, "texts", count_all)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Decoded:
    return Decoded(monkeypatch)


@pytest.fixture(scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make(tmp_path_factory.mktemp("large") / "dataset", VIDEOS, timeline=True)
    set_profile(DiskStorage(made), Profile().to_json())
    return made


@pytest.fixture
def large(_original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset that a test may change. Its shards are holes, of which there is one of each."""
    # The host's copies of its tables.
    monkeypatch.setenv("XDG_CACHE_HOME", str(_original.parent / "cache"))
    out = tmp_path / "dataset"
    shutil.copytree(_original, out, ignore=shutil.ignore_patterns("shards"))
    shutil.copytree(_original / "shards", out / "shards", copy_function=os.link)
    return out


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return made_up(np.arange(VIDEOS))


@pytest.fixture
def films(tmp_path: Path) -> Path:
    folder = tmp_path / "films"
    folder.mkdir()
    for number, name in enumerate(("new.mp4", MIDDLE)):
        pts = constant_rate_pts(Fraction(25), 20)
        make_video(folder / name, pts=pts, timebase=Fraction(1, 25), first_number=100 * number)
    return folder


def ids_of(dataset: Path, names: list[str]) -> list[str]:
    """Those of these ids that the dataset has."""
    return list(open_current(DiskStorage(dataset))[1].row_of_id.of(names))


@pytest.mark.first_case_short
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_drop(dry_run: bool, large: Path, decoded: Decoded) -> None:
    done = drop(DiskStorage(large), [LAST, "x", FIRST], dry_run=dry_run)
    assert decoded.rows < FEW
    assert (done.ids, done.unknown, done.num_frames) == ((LAST, FIRST), ("x",), 96 + 112)
    assert ids_of(large, [FIRST, MIDDLE, LAST]) == ([FIRST, MIDDLE, LAST] if dry_run else [MIDDLE])


def test_labels(large: Path, tmp_path: Path, decoded: Decoded) -> None:
    done = annotate(DiskStorage(large), {LAST: {"seen": 1}, "x": {"seen": 2}, FIRST: {"label": 1000000000}})
    assert (done.changed, done.unknown, done.unchanged) == ((LAST,), ("x",), 1)
    (tmp_path / "labels.csv").write_text(f"id,seen\n{MIDDLE},3\nx,4\n")
    again = annotate_by_list(large, tmp_path / "labels.csv")
    assert decoded.rows < FEW
    assert (again.changed, again.unknown) == ((MIDDLE,), ("x",))


@pytest.mark.long
def test_a_job_that_adds_a_film_and_replaces_another(large: Path, films: Path, decoded: Decoded) -> None:
    """From its beginning to its report. It has other labels for a third video, and leaves out a fourth one."""
    drop(DiskStorage(large), [FIRST])
    for number in range(4):
        shutil.copy(films / "new.mp4", films / f"{number}.mp4")
    (films / FIRST).symlink_to("new.mp4")
    (films / "labels.csv").write_text(f"id,path,seen\n{LAST},new.mp4,1\n")
    report = run(large, films, films / "labels.csv", changed="replace")
    assert decoded.rows < FEW
    # That of the list is the file that it names, so it has changed, too.
    assert (report.videos_added, report.replaced, report.dropped) == (5, (MIDDLE, LAST), (FIRST,))
    assert report.relabelled == 1
    assert ids_of(large, ["0.mp4", MIDDLE, FIRST, "new.mp4"]) == ["0.mp4", MIDDLE, "new.mp4"]


def test_which_ids_are_out(large: Path, decoded: Decoded) -> None:
    drop(DiskStorage(large), [MIDDLE])
    assert list(dropped(open_current(DiskStorage(large))[1])) == [MIDDLE]
    assert decoded.rows < FEW


def test_the_videos_of_a_lost_shard(manifest: Manifest, tmp_path: Path, decoded: Decoded) -> None:
    shard = len(manifest.shards) // 2
    lost = why_lost(DiskStorage(tmp_path), manifest, {shard: MissingDataError("it is gone")})
    assert decoded.rows == len(lost) < FEW
    assert set(lost.values()) == {"it is gone"}
    # A video of these tables has one segment.
    rows = np.flatnonzero(manifest.segments.shard == shard).tolist()
    assert list(lost) == [f"{row:09}.mp4" for row in rows]


def test_labels_that_are_taken_from_all_videos_read_all_attributes_and_the_ids_of_those_that_had_them(
    manifest: Manifest, decoded: Decoded
) -> None:
    assert plan_edits(manifest, {MIDDLE: {"label": 7}}, remove=["seen"])[0].id == MIDDLE
    assert decoded.rows == VIDEOS + 1


def test_a_list_of_files_compares_the_paths_of_all_videos_once(manifest: Manifest, decoded: Decoded) -> None:
    paths = KnownPaths(manifest)
    there, gone = f"/corpus/videos/{LAST}", "/corpus/videos/x.mp4"
    assert paths.are_there([there, gone]) == [True, False]
    assert paths.are_there([there]) == [True]
    its = int(manifest.videos.identity[VIDEOS - 1])
    named = [("last.mp4", there, its), ("other.mp4", there, 1), (FIRST, there, its), ("gone.mp4", gone, its)]
    of_the_list = [Item(Source(name, path, name, "{}", is_listed=True), identity, 1) for name, path, identity in named]
    # The file has to be at its path, with its content, and not in the dataset under its own id.
    found = [item.source.id for item in paths.with_known_ids(of_the_list)]
    assert found == [LAST, "other.mp4", FIRST, "gone.mp4"]
    assert VIDEOS < decoded.rows < VIDEOS + FEW
