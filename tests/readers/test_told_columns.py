"""What is told of columns that probably are not what was meant: unknown names, values of several types, and names that
the dataset has itself."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path

import pytest

import shortgop
from labelled_videos import make_labelled_videos, run
from shortgop.errors import DatasetWarning


@pytest.fixture(scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_labelled_videos(tmp_path_factory.mktemp("told"))


@pytest.fixture
def root(_original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(_original, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_column_that_no_video_has_is_named(root: Path) -> None:
    result = run("annotate", "dataset", "--remove", "lable")
    assert result.exit_code == 0
    assert "no video has a column 'lable'" in result.stderr


def test_a_column_that_no_video_had_is_named_with_the_one_that_was_meant(root: Path) -> None:
    Path("labels.csv").write_text("id,splt,note\na.mp4,test,x\n")
    result = run("annotate", "dataset", "labels.csv")
    assert result.exit_code == 0
    assert "no video had these columns before: 'splt' (there is 'split'), 'note'" in result.stderr
    # Columns that videos have are nothing to speak of.
    Path("labels.csv").write_text("id,splt,split\nb.mp4,test,val\n")
    assert "before" not in run("annotate", "dataset", "labels.csv").stderr


def test_a_column_whose_values_are_of_several_types_since_is_told(root: Path) -> None:
    """where(label="3") no longer found the video, without a word."""
    Path("labels.csv").write_text("id,label\nb.mp4,3\n")
    said = "column 'label' has values of several types now.*: text in 2, number in 1 .video 'b.mp4' has 3.; .*--types"
    result = run("annotate", "dataset", "labels.csv")
    assert result.exit_code == 0
    assert re.search(said, result.stderr)
    # Once, and not with each change after it.
    assert "several types" not in run("annotate", "dataset", "labels.csv").stderr
    shortgop.annotate("dataset", {"c.mp4": {"label": 4}})
    shortgop.annotate("dataset", {"a.mp4": {"label": 3}, "b.mp4": {"label": 3}, "c.mp4": {"label": 3}})
    # Integers among numbers are numbers, and lists of any length are lists.
    shortgop.annotate("dataset", {"a.mp4": {"label": 3.5, "boxes": [1]}, "b.mp4": {"boxes": [1, "x"]}})
    with pytest.warns(DatasetWarning, match="'boxes' has values of several types now.*list in 2, object in 1"):
        shortgop.annotate("dataset", {"c.mp4": {"boxes": {"x": 1}}})


def test_a_column_of_several_types_whose_name_has_a_comma_gets_its_type_in_python(root: Path) -> None:
    """`--types` would end the name at the comma."""
    shortgop.annotate("dataset", {"a.mp4": {"x,y": 1, "x y": 1}})
    with pytest.warns(DatasetWarning) as caught:
        shortgop.annotate("dataset", {"b.mp4": {"x,y": "?", "x y": "?"}})
    said = " ".join(str(each.message) for each in caught)
    assert "one type, as with types={'x,y': '...'} in Python" in said
    assert "one type, as with --types 'x y=...'" in said


def test_a_job_tells_it_too(root: Path) -> None:
    """A list of codes, of which some look like numbers: types of CSV columns are those of one list."""
    Path("more.csv").write_text("path,label\na.mp4,3\nb.mp4,4\nc.mp4,5\n")
    shutil.copy("a.mp4", "d.mp4")
    Path("one.csv").write_text("path,label\nd.mp4,7\n")
    result = run("prep", "one.csv", "--out", "dataset", "--runner", "inline")
    assert result.exit_code == 0
    assert "column 'label' has values of several types now" in result.stderr
    assert "text in 3, number in 1 (video 'd.mp4' has 7)" in result.stderr


def test_a_column_that_has_the_name_of_one_of_the_datasets_own_is_told_once(root: Path) -> None:
    """Frames of the sources were taken for those of the prepared videos."""
    Path("labels.csv").write_text("id,num_frames,note\nb.mp4,500,x\n")
    result = run("annotate", "dataset", "labels.csv")
    assert result.exit_code == 0
    assert "column 'num_frames' of the list takes the place of the dataset's own" in result.stderr
    assert "'note' of the list" not in result.stderr
    own = shortgop.open("dataset").columns.built_in["num_frames"]
    assert own.tolist() == [20, 20, 20]
    assert "takes the place" not in run("annotate", "dataset", "labels.csv").stderr
    Path("labels.csv").write_text("id,num_frames,note\nc.mp4,500,x\n")
    assert "takes the place" not in run("annotate", "dataset", "labels.csv").stderr
    with pytest.warns(DatasetWarning, match=r"'fps' .*columns.built_in\['fps'\] is .*another name in the list"):
        done = shortgop.annotate("dataset", {"a.mp4": {"fps": 30}})
    assert [each.name for each in done.hiding] == ["fps"]
    assert run("annotate", "dataset", "--remove", "fps").exit_code == 0
    assert shortgop.open("dataset").columns["fps"].tolist() == [25, 25, 25]


def test_a_job_tells_of_a_column_that_has_the_name_of_one_of_the_datasets_own(root: Path) -> None:
    Path("wide.csv").write_text("path,width,label\na.mp4,1920,3\n")
    result = run("prep", "wide.csv", "--out", "new", "--runner", "inline")
    assert result.exit_code == 0
    assert "column 'width' of the list takes the place of the dataset's own" in " ".join(result.stderr.split())
    with pytest.warns(DatasetWarning, match="column 'width' of the list"):
        report = shortgop.prepare("wide.csv", "newer", runner="inline")
    assert [each.name for each in report.hiding_columns] == ["width"]
    assert shortgop.prepare("wide.csv", "newer", runner="inline").hiding_columns == ()


def test_a_job_tells_of_a_column_that_became_text_unless_that_was_asked_for(root: Path) -> None:
    for types, told in (({}, ["weight"]), ({"weight": "text"}, [])):
        out = f"new{len(types)}"
        Path("list.csv").write_text("path,weight\na.mp4,1\n")
        shortgop.prepare("list.csv", out, runner="inline")
        Path("list.csv").write_text("path,weight\na.mp4,heavy\n")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DatasetWarning)
            report = shortgop.prepare("list.csv", out, runner="inline", types=types)
        assert [each.name for each in report.text_columns] == told
        assert ["is text now" in str(each.message) for each in caught] == [True] * len(told)
        assert report.mixed_columns == ()


def test_a_column_that_cannot_be_removed_is_told_with_those_that_there_are(root: Path) -> None:
    """It is no error: after an interruption the same command again has nothing left to do."""
    done = run("annotate", "dataset", "--remove", "labl")
    assert (done.exit_code, "no video has a column 'labl'; there are label, split" in done.stderr) == (0, True)
    both = run("annotate", "dataset", "--remove", "split", "--remove", "fps")
    assert "1 video changed" in both.stdout or "3 videos changed" in both.stdout
    assert "no video has a column 'fps' but the dataset's own, which stays; there are label" in both.stderr
    with pytest.warns(DatasetWarning, match="no video has a column 'labl'; there are label"):
        shortgop.annotate("dataset", remove=["labl"])
