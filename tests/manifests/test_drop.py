"""Videos that are taken out: gone from the next snapshot, left out of later jobs, and taken in again on request.

In a folder, and in a sweep in S3.
"""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import shortgop
from dataset_places import Places, copied, versions
from datasets import make_dataset
from example_manifests import failure, video
from shortgop.cli import app
from shortgop.manifests.dataset_files.layout import snapshots
from shortgop.manifests.dataset_files.parts import finished_parts, write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.id_patterns import ids_that_fit
from shortgop.manifests.operations.drop import drop
from shortgop.storage.interface import Storage
from sweep import only_in_a_sweep
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number

RATE = Fraction(25)


@pytest.fixture(scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("drop")
    (root / "videos").mkdir()
    for number, name in enumerate(("a.mp4", "b.mp4", "c.mp4")):
        path = root / "videos" / name
        make_video(path, pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=100 * number)
    make_dataset([root / "videos"], root / "dataset")
    return root


@pytest.fixture
def root(_original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy three videos and their dataset, in which they share a shard."""
    shutil.copytree(_original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def prep(dataset: Storage, *options: str) -> Any:
    return run("prep", "videos", "--out", dataset.url, "--runner", "inline", *options)


class Dropping:
    """What holds wherever the dataset lies."""

    where: str

    @pytest.fixture
    def dataset(self, _original: Path, places: Places) -> Storage:
        return copied(_original / "dataset", places.new())

    def test_a_dropped_video_is_gone_from_the_next_snapshot_and_from_no_earlier_one(
        self, root: Path, dataset: Storage
    ) -> None:
        before = shortgop.open(dataset.url)
        result = run("drop", dataset.url, "b.mp4")
        assert result.exit_code == 0
        assert "1 video dropped: 20 frames" in result.stdout
        assert f"`shortgop gc {dataset}` removes their bytes" in result.stdout
        assert list(shortgop.open(dataset.url).ids) == ["a.mp4", "c.mp4"]
        assert read_number(before["b.mp4"][19]) == 119
        assert run("verify", dataset.url).exit_code == 0

    def test_a_later_job_leaves_it_out_and_says_so(self, root: Path, dataset: Storage) -> None:
        run("drop", dataset.url, "b.mp4")
        result = prep(dataset)
        assert result.exit_code == 0
        assert "1 source left out because it was dropped: b.mp4; --include-dropped takes it in again" in result.stdout
        assert "2 of 3 sources already in the dataset" in result.stdout
        assert json.loads(prep(dataset, "--json").stdout)["dropped"] == ["b.mp4"]
        assert list(shortgop.open(dataset.url).ids) == ["a.mp4", "c.mp4"]

    def test_it_is_taken_in_again_on_request_without_its_old_labels(self, root: Path, dataset: Storage) -> None:
        shortgop.annotate(dataset.url, {"b.mp4": {"label": 1}})
        run("drop", dataset.url, "b.mp4")
        assert "1 video, 20 frames" in prep(dataset, "--include-dropped").stdout
        opened = shortgop.open(dataset.url)
        assert read_number(opened["b.mp4"][19]) == 119
        assert opened["b.mp4"].attributes == {}
        # From now on it is a video like any other.
        assert "left out" not in prep(dataset).stdout
        assert "1 video dropped" in run("drop", dataset.url, "b.mp4").stdout
        assert list(shortgop.open(dataset.url).ids) == ["a.mp4", "c.mp4"]
        assert "1 video, 20 frames" in prep(dataset, "--include-dropped").stdout

    def test_one_that_cannot_be_taken_in_again_stays_dropped_and_nothing_piles_up(
        self, root: Path, dataset: Storage
    ) -> None:
        run("drop", dataset.url, "b.mp4")
        (root / "videos" / "b.mp4").write_text("not a video any more")
        assert prep(dataset, "--include-dropped").exit_code == 3
        parts = finished_parts(dataset)
        result = prep(dataset, "--include-dropped")
        assert (result.exit_code, "not in the dataset: b.mp4" in result.stderr) == (3, True)
        assert finished_parts(dataset) == parts
        assert "1 source left out" in prep(dataset).stdout

    def test_a_dry_run_changes_nothing(self, root: Path, dataset: Storage) -> None:
        files = versions(dataset)
        result = run("drop", dataset.url, "a.mp4", "b.mp4", "--dry-run", "--json")
        found = json.loads(result.stdout)
        assert (found["ids"], found["num_frames"], found["snapshot"]) == (["a.mp4", "b.mp4"], 40, "000001")
        assert versions(dataset) == files

    def test_all_that_was_dropped_comes_to_the_bytes_of_the_shard(self, root: Path, dataset: Storage) -> None:
        (shard,) = dataset.files("shards")
        done = drop(dataset, ["a.mp4", "b.mp4", "c.mp4"])
        assert (done.num_bytes, done.num_frames) == (shard.num_bytes, 60)

    def test_ids_come_from_a_file_and_unknown_ones_are_named(self, root: Path, dataset: Storage) -> None:
        Path("ids.txt").write_text("a.mp4\n\nnever there\n")
        result = run("drop", dataset.url, "c.mp4", "--from", "ids.txt")
        assert result.exit_code == 3
        assert "1 id not in the dataset: never there" in result.stderr
        assert "2 videos dropped" in result.stdout
        result = run("drop", dataset.url, "c.mp4")
        assert (result.exit_code, "1 id dropped before" in result.stdout) == (0, True)
        assert len(snapshots(dataset)) == 2

    def test_an_id_in_a_file_may_hold_any_character_but_the_end_of_a_line(self, root: Path, dataset: Storage) -> None:
        Path("ids.txt").write_bytes("a\x0cb\u2028c.mp4\r\nc.mp4\r\n".encode())
        result = run("drop", dataset.url, "--from", "ids.txt")
        assert "1 id not in the dataset: a\\x0cb\\u2028c.mp4" in result.stderr
        assert "1 video dropped" in result.stdout

    def test_a_source_that_could_not_be_prepared_can_be_dropped(self, published_place: Storage) -> None:
        assert drop(published_place, ["d"]).ids == ("d",)
        write_part(published_place, "u9", failure("d", "cut short", attempted_ns=9))
        publish(published_place)
        assert open_current(published_place)[1].failures.id.texts() == []

    def test_a_part_that_comes_late_does_not_bring_it_back(self, published_place: Storage) -> None:
        drop(published_place, ["a"])
        write_part(published_place, "u9", video("a", shard="late.shard", revision=1))
        publish(published_place)
        assert open_current(published_place)[1].ids == ["b", "c"]


class TestDroppingOnADisk(Dropping):
    where = "disk"


@pytest.mark.long
class TestDroppingInLayers(Dropping):
    where = "layered"


@only_in_a_sweep
class TestDroppingOverAFlakyNetwork(Dropping):
    where = "flaky"


# `test_killed_edits.py` and `test_corpus_life.py` have it in S3 in the suite.
@only_in_a_sweep
class TestDroppingInS3(Dropping):
    where = "s3"


IDS = ["a.mp4", "kitchen/1.mp4", "kitchen/2.avi", "kitchen/deep/3.mp4", "street/[4].mp4", "street/4.mp4"]


@pytest.mark.parametrize(
    ("word", "fitting"),
    [
        ("kitchen/*", ["kitchen/1.mp4", "kitchen/2.avi"]),
        ("kitchen/**", ["kitchen/1.mp4", "kitchen/2.avi", "kitchen/deep/3.mp4"]),
        ("*", ["a.mp4"]),
        ("**/*.mp4", [each for each in IDS if each.endswith(".mp4")]),
        ("**/[12].*", ["kitchen/1.mp4", "kitchen/2.avi"]),
        ("*/?.mp4", ["kitchen/1.mp4", "street/4.mp4"]),
        # The id of this name, and no pattern.
        ("street/[4].mp4", ["street/[4].mp4"]),
        ("garden/*", ["garden/*"]),
        ("gone.mp4", ["gone.mp4"]),
    ],
)
def test_what_a_pattern_stands_for(word: str, fitting: list[str]) -> None:
    assert ids_that_fit([word], IDS) == fitting
    assert ids_that_fit([*fitting, word], IDS) == fitting


def test_a_pattern_drops_the_videos_whose_ids_fit_it_and_names_them(root: Path) -> None:
    dry = run("drop", "dataset", "[ab].*", "--dry-run")
    assert dry.stdout.splitlines()[1:] == ["a.mp4, b.mp4"]
    assert len(shortgop.open("dataset")) == 3
    done = run("drop", "dataset", "[ab].*", "street/*")
    assert (done.exit_code, "1 id not in the dataset: street/*" in done.stderr) == (3, True)
    assert "2 videos dropped: 40 frames" in done.stdout
    assert "a.mp4, b.mp4" in done.stdout.splitlines()
    assert list(shortgop.open("dataset").ids) == ["c.mp4"]
    again = run("drop", "dataset", "[ab].*")
    assert (again.exit_code, "0 videos dropped" in again.stdout, "2 ids dropped before" in again.stdout) == (
        0,
        True,
        True,
    )


def test_an_id_that_is_nearly_one_is_told_what_it_is_like(root: Path) -> None:
    result = run("drop", "dataset", "a.mp")
    assert (result.exit_code, "; `shortgop info` lists the ids. Did you mean 'a.mp4'" in result.stderr) == (3, True)


def test_a_folder_of_ids_is_told_the_pattern_that_stands_for_it(tmp_path: Path, constant_video: SyntheticVideo) -> None:
    """And sources that could not be prepared are not counted as videos."""
    folder = tmp_path / "videos" / "kitchen [1]"
    folder.mkdir(parents=True)
    (folder / "a.mp4").write_bytes(constant_video.path.read_bytes())
    (folder / "bad.mp4").write_text("no video")
    make_dataset([tmp_path / "videos"], tmp_path / "dataset")
    for word in ("kitchen [1]", "kitchen [1]/"):
        result = run("drop", str(tmp_path / "dataset"), word, "--dry-run")
        assert result.exit_code == 3
        assert "lists the ids; 'kitchen [[]1]/**' stands for those below kitchen [1]. Did you mean" in result.stderr
    result = run("drop", str(tmp_path / "dataset"), "**/bad.mp4", "--dry-run")
    assert result.stdout.startswith("1 source that could not be prepared would be dropped: 0 frames")
    result = run("drop", str(tmp_path / "dataset"), "kitchen [[]1]/**")
    assert result.exit_code == 0
    assert "1 video and 1 source that could not be prepared dropped: 100 frames" in result.stdout


def test_the_ids_of_a_file_are_no_patterns(root: Path) -> None:
    Path("ids.txt").write_text("*\n")
    done = run("drop", "dataset", "--from", "ids.txt")
    assert (done.exit_code, "1 id not in the dataset: *" in done.stderr) == (3, True)
    assert len(shortgop.open("dataset")) == 3


def test_ids_come_through_a_pipe(root: Path) -> None:
    """As from `shortgop info --json | jq`: `-` was looked for as a file."""
    done = CliRunner().invoke(app, ["drop", "dataset", "--from", "-"], input="a.mp4\r\n\nb.mp4")
    assert done.exit_code == 0, done.output
    assert shortgop.open("dataset").ids == ["c.mp4"]


def test_a_list_of_labels_may_name_what_was_dropped(root: Path) -> None:
    """The list of a corpus goes on naming it: `annotate` failed, and took another id for the one that was meant."""
    assert run("drop", "dataset", "a.mp4").exit_code == 0
    Path("labels.csv").write_text("id,seen\na.mp4,1\nb.mp4,2\n")
    done = run("annotate", "dataset", "labels.csv")
    assert (done.exit_code, "1 id was dropped, and left out: a.mp4" in done.stderr) == (0, True)
    assert "Did you mean" not in done.stderr
    assert {video.id: video.attributes.get("seen") for video in shortgop.open("dataset")} == {"b.mp4": 2, "c.mp4": None}
    said = json.loads(run("annotate", "dataset", "labels.csv", "--json").stdout)
    assert (said["dropped"], said["unknown"], said["unchanged"]) == (["a.mp4"], [], 1)
    Path("labels.csv").write_text("id,seen\na.mp4,1\nelsewhere.mp4,2\n")
    assert run("annotate", "dataset", "labels.csv").exit_code == 3


@pytest.mark.parametrize("name", ["-", "ids.txt"])
def test_a_list_without_ids_takes_nothing_out(root: Path, name: str) -> None:
    """As that of a job of each day: `shortgop info --json | jq ... | shortgop drop --from -`."""
    Path("ids.txt").write_text("\n")
    done = CliRunner().invoke(app, ["drop", "dataset", "--from", name], input="")
    assert (done.exit_code, len(shortgop.open("dataset"))) == (0, 3), done.output
    assert f"{'standard input' if name == '-' else name} has no ids" in done.stderr
    copied = CliRunner().invoke(app, ["copy", "dataset", "copy", "--from", name], input="")
    assert (copied.exit_code, " has no ids; give a text file" in copied.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "no ids given"),
        (["--from", "gone.txt"], "cannot read the ids in gone.txt: No such file or directory; give"),
    ],
)
def test_ids_that_cannot_be_used(root: Path, arguments: list[str], expected: str) -> None:
    result = run("drop", "dataset", *arguments)
    assert (result.exit_code, expected in result.stderr) == (2, True)
