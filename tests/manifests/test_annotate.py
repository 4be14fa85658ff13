"""Labels that are corrected: by a list that is given again, or by themselves. Nothing is encoded for that.

In a folder, and in a sweep in S3.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import shortgop
from dataset_places import Places, copied, place_of
from datasets import make_dataset
from labelled_videos import RATE, make_labelled_videos, run
from shortgop.errors import DatasetWarning, NotADatasetError, UsageError, WrongTypeError
from shortgop.manifests.dataset_files.layout import snapshots
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.tables import Manifest
from shortgop.storage.disk import DiskStorage
from shortgop.storage.interface import Storage
from sweep import only_in_a_sweep
from synthetic import constant_rate_pts, make_video, read_number

# Here labels that are text become integers, one video after the other.
pytestmark = pytest.mark.filterwarnings(
    "ignore:column 'label' has values of several types:shortgop.errors.DatasetWarning"
)


@pytest.fixture(scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_labelled_videos(tmp_path_factory.mktemp("annotate"))


@pytest.fixture
def root(_original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(_original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def columns(dataset: Path | Storage) -> dict[str, dict[str, Any]]:
    return {video.id: video.attributes for video in shortgop.open(place_of(dataset).url)}


def shards(dataset: Storage) -> dict[str, str]:
    """The versions of all shards."""
    return {stored.key: stored.version for stored in dataset.files("shards")}


def test_annotate_finds_the_id_of_a_path_as_prep_does(root: Path) -> None:
    Path("labels.tsv").write_text("path\tlabel\n./a.mp4\t9\n")
    assert run("annotate", "dataset", "labels.tsv", "--types", "label=text").exit_code == 0
    assert columns(root / "dataset")["a.mp4"]["label"] == "9"


@pytest.fixture
def kitchen(root: Path) -> Path:
    """A dataset of a folder, which has other ids than a list of the same files gives them."""
    Path("videos/kitchen").mkdir(parents=True)
    shutil.move("a.mp4", "videos/kitchen/a.mp4")
    shutil.move("b.mp4", "videos/b.mp4")
    make_dataset([Path("videos")], root / "new")
    assert set(columns(root / "new")) == {"b.mp4", "kitchen/a.mp4"}
    return root / "new"


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    "beginning",
    ["videos/", "./videos/", "videos/kitchen/../", "{root}/videos/", "file://{root}/videos/", "{root}/new/../videos/"],
)
def test_annotate_finds_the_videos_of_a_folder_by_the_paths_of_their_files(kitchen: Path, beginning: str) -> None:
    """It left them all as they were, and named each as an id that is not there."""
    beginning = beginning.format(root=kitchen.parent)
    Path("labels.csv").write_text(f"path,label\n{beginning}kitchen/a.mp4,cook\n{beginning}b.mp4,walk\n")
    done = shortgop.annotate(kitchen, "labels.csv")
    assert done.unknown == ()
    assert columns(kitchen) == {"b.mp4": {"label": "walk"}, "kitchen/a.mp4": {"label": "cook"}}


def test_a_path_is_that_of_a_file_before_it_is_an_id(kitchen: Path) -> None:
    """The other way round, the label of one video went to another one."""
    shutil.copy("c.mp4", "videos/kitchen/b.mp4")
    make_dataset([Path("videos")], kitchen)
    Path("videos/kitchen/labels.csv").write_text("path,label\nb.mp4,cook\n")
    assert shortgop.annotate(kitchen, "videos/kitchen/labels.csv").changed == ("kitchen/b.mp4",)
    # Here no such file was prepared.
    Path("labels.csv").write_text("path,label\nb.mp4,walk\n")
    assert shortgop.annotate(kitchen, "labels.csv").changed == ("b.mp4",)


def test_a_dataset_of_a_folder_that_was_given_with_dots(kitchen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("lists").mkdir()
    monkeypatch.chdir("lists")
    make_dataset([Path("../videos")], kitchen.parent / "dots")
    Path("labels.csv").write_text(f"path,label\n../videos/b.mp4,walk\n{kitchen.parent}/videos/kitchen/a.mp4,cook\n")
    done = shortgop.annotate(kitchen.parent / "dots", "labels.csv")
    assert set(done.changed) == {"b.mp4", "kitchen/a.mp4"}
    # For a job too it is the same file.
    assert make_dataset([Path("labels.csv")], kitchen.parent / "dots").frames_added == 0


def test_paths_that_are_no_text_and_urls_that_are_none(kitchen: Path) -> None:
    odd = os.fsdecode(b"videos/\xff\xe9.mp4")
    shutil.copy("c.mp4", odd)
    make_dataset([Path("videos")], kitchen)
    Path("labels.csv").write_bytes(b"path,label\n" + os.fsencode(odd) + b",3\nhttp://[abc/v.mp4,4\n")
    done = shortgop.annotate(kitchen, "labels.csv")
    assert done.changed == ("\\udcff\\udce9.mp4",)
    assert done.unknown == ("http://[abc/v.mp4",)
    Path("list.csv").write_bytes(b"path,label\n" + os.fsencode(odd) + b",3\n")
    assert make_dataset([Path("list.csv")], kitchen).frames_added == 0


def test_two_lines_that_are_one_video_may_not_disagree(kitchen: Path) -> None:
    Path("labels.csv").write_text("path,label\nvideos/b.mp4,walk\nb.mp4,run\n")
    with pytest.raises(UsageError, match="line 2 of .* and line 3 of .* give 'b.mp4' different columns"):
        shortgop.annotate(kitchen, "labels.csv")


def test_arguments_that_make_no_sense_are_named(kitchen: Path) -> None:
    with pytest.raises(WrongTypeError, match="remove is 5; give a list of the names of columns"):
        shortgop.annotate(kitchen, None, remove=5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"'a\\x00b.csv' is not a path; name a list of labels"):
        shortgop.annotate(kitchen, "a\0b.csv")
    # Nothing is asked of it.
    with pytest.raises(UsageError, match="'s3://bucket/videos' is no list of labels"):
        shortgop.annotate(kitchen, "s3://bucket/videos")


def test_a_file_of_several_videos_stands_for_none_but_its_stretches_do(kitchen: Path) -> None:
    Path("videos/cuts.csv").write_text("path,start,end,label\nb.mp4,0,0.2,1\nb.mp4,0.2,0.4,2\n")
    shortgop.prepare("videos/cuts.csv", kitchen, cuts="start,end", runner="inline")
    Path("labels.csv").write_text("path,label\nvideos/b.mp4,7\n")
    with pytest.warns(DatasetWarning, match=r"^no video of .* one of these ids: videos/b\.mp4; "):
        assert shortgop.annotate(kitchen, "labels.csv").unknown == ("videos/b.mp4",)
    Path("cuts.csv").write_text("path,start,end,label\nvideos/b.mp4,0,0.2,3\nvideos/b.mp4,0.2,0.4,4\n")
    assert shortgop.annotate(kitchen, "cuts.csv", cuts="start,end").unknown == ()
    assert shortgop.annotate(kitchen, "cuts.csv", cuts=("start", "end")).changed == ()
    labels = {video_id: values.get("label") for video_id, values in columns(kitchen).items()}
    assert labels == {"b.mp4": None, "b.mp4@0-0.2": 3, "b.mp4@0.2-0.4": 4, "kitchen/a.mp4": None}


def test_a_list_of_paths_that_are_no_ids_is_told(root: Path) -> None:
    Path("labels.csv").write_text("path,label\nelsewhere/a.mp4,9\n")
    result = run("annotate", "dataset", "labels.csv")
    assert result.exit_code == 3
    assert "elsewhere/a.mp4; `shortgop info` lists the ids; a list without a column `id` goes by its" in result.stderr


def test_annotate_with_cuts_finds_stretches(root: Path) -> None:
    """A line without an id is a stretch, as prep takes it, and not the whole file."""
    Path("cuts.csv").write_text("path,start,end,label\na.mp4,0,0.2,1\na.mp4,0.2,0.4,2\n")
    assert run("prep", "cuts.csv", "--cuts", "start,end", "--out", "dataset", "--runner", "inline").exit_code == 0
    Path("cuts.csv").write_text("path,start,end,label\na.mp4,0,0.2,3\na.mp4,0.2,0.4,4\n")
    refused = run("annotate", "dataset", "cuts.csv")
    assert refused.exit_code == 2
    assert "--cuts" in refused.stderr
    assert run("annotate", "dataset", "cuts.csv", "--cuts", "start,end").exit_code == 0
    labels = {video_id: values.get("label") for video_id, values in columns(root / "dataset").items()}
    assert (labels["a.mp4@0-0.2"], labels["a.mp4@0.2-0.4"]) == (3, 4)
    assert "start" not in columns(root / "dataset")["a.mp4"]


@pytest.mark.filterwarnings("ignore:no video of the dataset has one of these ids. kitchen/001.mp4;")
def test_the_pages_snippet_runs(root: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "labels.md").read_text()
    shutil.move(root / "dataset", root / "DATASET")
    shortgop.annotate("DATASET", {"a.mp4": {"label": 3}})
    Path("corrected.csv").write_text("id,label\na.mp4,6\n")
    for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(snippet, "docs/labels.md", "exec"), {})
    assert columns(root / "DATASET")["a.mp4"] == {"label": 6}


def test_the_commands_of_the_page_exist() -> None:
    page = (Path(__file__).parents[2] / "docs" / "labels.md").read_text()
    commands = re.findall(r"^    shortgop (\w+) (.*)$", page, re.MULTILINE)
    assert {name for name, _ in commands} == {"prep", "annotate", "drop", "gc", "snapshots", "rollback"}
    for name, rest in commands:
        shown = run(name, "--help").stdout
        assert all(option in shown for option in re.findall(r"--[\w-]+", rest)), name


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["dataset"], "no labels given"),
        (["dataset", "labels.txt"], "'labels.txt' is no list of labels"),
        (["dataset", "gone.csv"], "cannot read the list 'gone.csv'"),
        (["dataset", "gone"], "'gone' does not exist"),
        (["dataset", "corpus/*.mp4"], "'corpus/*.mp4' is no list of labels"),
        (["dataset", "a.mp4"], "'a.mp4' is no list of labels"),
    ],
)
def test_labels_that_cannot_be_used(root: Path, arguments: list[str], expected: str) -> None:
    result = run("annotate", *arguments)
    assert (result.exit_code, expected in result.stderr) == (2, True), result.stderr
    assert set(snapshots(DiskStorage(root / "dataset"))) == {"000001"}


def test_ids_that_no_video_has_are_told_of_labels_below_home(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root))
    (root / "list.csv").write_text("path,label\nd.mp4,1\n")
    (root / "d.mp4").touch()
    (root / "d.txt").touch()
    for labels in ("~/list.csv", "~"):
        done = run("annotate", "dataset", labels)
        assert (done.exit_code, "1 id not in the dataset: d.mp4" in done.stderr) == (3, True), done.output


def test_beside_a_list_of_ids_alone_columns_are_removed(root: Path) -> None:
    (root / "list.csv").write_text("id\na.mp4\n")
    shortgop.annotate(root / "dataset", {"a.mp4": {"label": 1}, "b.mp4": {"label": 2}})
    done = run("annotate", "dataset", "list.csv", "--remove", "label")
    assert done.exit_code == 0, done.output
    assert not any("label" in each for each in columns(root / "dataset").values())


def test_a_folder_that_is_no_dataset_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(NotADatasetError):
        shortgop.annotate(tmp_path, {"a": {"label": 1}})
    assert list(tmp_path.iterdir()) == []


class Annotating:
    """What holds wherever the dataset lies."""

    where: str

    @pytest.fixture
    def dataset(self, _original: Path, places: Places) -> Storage:
        return copied(_original / "dataset", places.new())

    def test_a_list_that_is_given_again_updates_columns_and_encodes_nothing(self, root: Path, dataset: Storage) -> None:
        before, old = shards(dataset), shortgop.open(dataset.url)
        Path("new.csv").write_text("path,label\na.mp4,3\nb.mp4,4\n")
        result = run("prep", "new.csv", "--out", dataset.url, "--runner", "inline")
        assert result.exit_code == 0, result.output
        assert "new.csv: label integer" in result.stderr
        assert (
            "2 videos already in the dataset got new columns: the list's values, over those that they had"
            in result.stdout
        )
        # The text "3" and the integer 3 are different values. What the list does not name stays.
        assert columns(dataset) == {
            "a.mp4": {"label": 3, "split": "train"},
            "b.mp4": {"label": 4, "split": "train"},
            "c.mp4": {"label": "3", "split": "train"},
        }
        assert set(snapshots(dataset)) == {"000001", "000002"}
        assert shards(dataset) == before
        # A reader that was open has the labels of its snapshot.
        assert old["a.mp4"].attributes == {"label": "3", "split": "train"}

    def test_a_list_that_says_nothing_new_makes_no_snapshot(self, root: Path, dataset: Storage) -> None:
        report = make_dataset([root / "old.jsonl"], dataset)
        assert (report.relabelled, report.already_there, report.snapshot) == (0, 3, "000001")
        assert set(snapshots(dataset)) == {"000001"}

    def test_the_report_counts_relabelled_videos_beside_new_ones(self, root: Path, dataset: Storage) -> None:
        make_video(root / "d.mp4", pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=300)
        Path("new.csv").write_text("path,label\na.mp4,x\nd.mp4,y\n")
        result = run("prep", "new.csv", "--out", dataset.url, "--runner", "inline", "--json")
        report = json.loads(result.stdout)
        assert (report["relabelled"], report["videos_added"], report["already_there"]) == (1, 1, 1)
        assert columns(dataset)["d.mp4"] == {"label": "y"}

    @pytest.mark.first_case_short
    @pytest.mark.parametrize("again", ["folder", "list", "verify"])
    def test_a_video_that_is_made_again_keeps_its_labels(self, root: Path, dataset: Storage, again: str) -> None:
        """Its first ones, from the list that it came with, and its later ones."""
        shortgop.annotate(dataset.url, {"b.mp4": {"label": 7, "note": "é"}})
        dataset.remove("shards")
        if again == "list":
            Path("again.csv").write_text("path,split\na.mp4,test\nb.mp4,test\nc.mp4,test\n")
        command = {
            "folder": ["prep", "a.mp4", "b.mp4", "c.mp4", "--out", dataset.url],
            "list": ["prep", "again.csv", "--out", dataset.url],
            "verify": ["verify", dataset.url, "--repair", "a.mp4", "b.mp4", "c.mp4"],
        }[again]
        assert "made again" in run(*command, "--runner", "inline").output
        split = "test" if again == "list" else "train"
        assert columns(dataset) == {
            "a.mp4": {"label": "3", "split": split},
            "b.mp4": {"label": 7, "split": split, "note": "é"},
            "c.mp4": {"label": "3", "split": split},
        }
        assert open_current(dataset)[1].videos.revision.tolist() == [1, 1, 1]
        assert read_number(shortgop.open(dataset.url)["b.mp4"][19]) == 119
        # And it can still be corrected.
        shortgop.annotate(dataset.url, {"b.mp4": {"label": 8}})
        assert columns(dataset)["b.mp4"]["label"] == 8

    def test_annotate_sets_columns_by_id_and_says_what_it_did(self, root: Path, dataset: Storage) -> None:
        before = shards(dataset)
        Path("labels.csv").write_text("id,label,weight\na.mp4,3,0.5\nb.mp4,4,\ngone.mp4,5,1\n")
        result = run("annotate", dataset.url, "labels.csv")
        assert result.exit_code == 3
        assert "labels.csv: label integer, weight float" in result.stderr
        assert "1 id not in the dataset: gone.mp4" in result.stderr
        assert "2 videos changed; snapshot 000002" in result.stdout
        assert columns(dataset)["b.mp4"] == {"label": 4, "split": "train", "weight": None}
        assert shards(dataset) == before
        Path("labels.csv").write_text("id,label,weight\na.mp4,3,0.5\nb.mp4,4,\n")
        result = run("annotate", dataset.url, "labels.csv", "--json")
        assert result.exit_code == 0
        said = {
            "changed": [],
            "unknown": [],
            "unchanged": 2,
            "snapshot": "000002",
            "absent": [],
            "added": [],
            "mixed": [],
            "became_text": [],
            "hiding": [],
            "near": [],
            "dropped": [],
            "too_large": [],
        }
        assert json.loads(result.stdout) == said

    def test_annotate_says_that_a_column_of_numbers_became_text(self, root: Path, dataset: Storage) -> None:
        def said(*cells: str, types: str = "") -> str:
            lines = [f"{name}.mp4,{cell}\n" for name, cell in zip("abc", cells, strict=True)]
            Path("labels.csv").write_text("id,weight\n" + "".join(lines))
            return str(run("annotate", dataset.url, "labels.csv", *(["--types", types] if types else [])).stderr)

        assert "text now" not in said("1", "2", "3")
        assert "column 'weight' was integer and is text now" in (told := said("1", "2", "heavy"))
        assert "video 'c.mp4' has 'heavy'" in told
        assert "text now" not in said("1", "3", "heavy")
        assert "text now" not in said("1", "2", "3")
        # On purpose.
        assert "text now" not in said("1", "2", "3", types="weight=text")
        assert "text now" not in said("1", "2", "3")
        assert "text now" not in said("1", "2", "heavy", types="weight=text")
        assert "text now" not in said("1", "2", "3")
        # What Python would read as a number, and a list does not.
        assert "video 'b.mp4' has '007'" in said("1", "007", "3")
        assert "text now" not in said("1", "2", "3")
        Path("labels.csv").write_text("id,weight\na.mp4,heavy\nb.mp4,2\nc.mp4,3\n")
        done = json.loads(run("annotate", dataset.url, "labels.csv", "--json").stdout)
        assert [each["name"] for each in done["became_text"]] == ["weight"]
        assert done["mixed"] == []

    def test_annotate_removes_a_column(self, root: Path, dataset: Storage) -> None:
        result = run("annotate", dataset.url, "--remove", "label")
        assert "3 videos changed" in result.stdout
        assert columns(dataset)["a.mp4"] == {"split": "train"}
        result = run("annotate", dataset.url, "--remove", "label")
        assert "0 videos changed; snapshot 000002" in result.stdout

    def test_annotate_in_python(self, root: Path, dataset: Storage) -> None:
        done = shortgop.annotate(dataset.url, {"a.mp4": {"boxes": [[1, 2.5]], "ok": True}, "x": {}}, remove=["split"])
        assert (done.changed, done.unknown) == (("a.mp4", "b.mp4", "c.mp4"), ("x",))
        assert columns(dataset)["a.mp4"] == {"boxes": [[1, 2.5]], "label": "3", "ok": True}
        with pytest.raises(UsageError, match="labels of 'a.mp4' have a value of type object"):
            shortgop.annotate(dataset.url, {"a.mp4": {"label": object()}})

    def test_a_new_reader_finds_the_same_frames_after_any_number_of_edits(self, root: Path, dataset: Storage) -> None:
        def place(manifest: Manifest) -> list[Any]:
            return [manifest.gops.offset.tolist(), manifest.gops.crc32.tolist(), manifest.shards.name.texts()]

        before = place(open_current(dataset)[1])
        for number in range(3):
            shortgop.annotate(dataset.url, {"a.mp4": {"label": number}})
        manifest = open_current(dataset)[1]
        assert place(manifest) == before
        assert len(manifest.edits) == 1
        assert columns(dataset)["a.mp4"]["label"] == 2


class TestAnnotatingOnADisk(Annotating):
    where = "disk"


@pytest.mark.long
class TestAnnotatingInLayers(Annotating):
    where = "layered"


@only_in_a_sweep
class TestAnnotatingOverAFlakyNetwork(Annotating):
    where = "flaky"


# `test_killed_edits.py` and `test_corpus_life.py` have it in S3 in the suite.
@only_in_a_sweep
class TestAnnotatingInS3(Annotating):
    where = "s3"
