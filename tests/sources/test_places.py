"""Paths as the driver has them, for workers that have another working directory and another home."""

from __future__ import annotations

import json
import os
import posixpath
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import shortgop
from shortgop.cli import app
from shortgop.jobs.finding.places import absolute, absolute_below, is_shortest
from shortgop.storage.locate import from_home
from source_arguments import find_sources
from synthetic import SyntheticVideo


@pytest.fixture
def home(own_folder: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a home folder beside the working directory."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def test_a_path_is_absolute_and_its_links_are_kept(home: Path) -> None:
    Path("real").mkdir()
    Path("link").symlink_to("real")
    assert absolute(Path("link/dataset")) == Path.cwd() / "link" / "dataset"
    assert absolute(Path("/dataset")) == Path("/dataset")


def test_the_home_folder_is_found_where_no_shell_did_it(home: Path) -> None:
    assert absolute(Path("~/dataset")) == home / "dataset"
    assert from_home("~nobody-of-this-name/x") == "~nobody-of-this-name/x"
    assert from_home("a/~/x") == "a/~/x"
    Path("~").mkdir()
    # A file whose name looks like something else is a file, as everywhere.
    Path("~/x.mp4").touch()
    assert from_home("~/x.mp4") == "~/x.mp4"
    assert from_home("~/other.mp4") == str(home / "other.mp4")


@pytest.mark.parametrize("argument", ["~", "~/a.mp4", "~/*.mp4", "list.txt", "~/list.txt"])
def test_sources_in_the_home_folder(argument: str, home: Path) -> None:
    (home / "a.mp4").touch()
    Path("list.txt").write_text("~/a.mp4\n")
    (home / "list.txt").write_text("a.mp4\n")
    (source,) = find_sources([argument])
    assert source.path == str(home / "a.mp4")


def test_prep_from_a_relative_source_into_a_relative_dataset_in_the_home(
    home: Path, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    """`--out=~/dataset` reaches us as it is written: shells replace ~ only where a word begins."""
    source = os.path.relpath(constant_video.path)
    result = CliRunner().invoke(app, ["prep", source, "--out=~/dataset", "--runner", "inline", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["videos_added"] == 1
    assert len(shortgop.open(home / "dataset")) == len(shortgop.open("~/dataset")) == 1
    assert CliRunner().invoke(app, ["info", "~/dataset"]).exit_code == 0
    # The options of the dataset are found at the same place.
    result = CliRunner().invoke(app, ["prep", source, "--out=~/dataset", "--runner", "inline", "--gop", "8"])
    assert result.exit_code == 2
    assert not Path("~").exists()


PATHS = st.lists(st.sampled_from(["/", "a", ".", "..", ".b", "c.d", " "]), min_size=1).map("".join)


@given(PATHS)
def test_a_path_in_its_shortest_form_is_left_as_it_is(path: str) -> None:
    if is_shortest(path):
        assert posixpath.normpath(path) == str(Path(path)) == path


@given(st.sampled_from(["/", "/data", "/data/lists"]), PATHS)
def test_a_path_in_a_list_is_below_the_folder_of_the_list(folder: str, path: str) -> None:
    assert absolute_below(folder, path) == str((Path(folder) / path).absolute())


def test_paths_as_they_mostly_are_take_the_short_way() -> None:
    assert is_shortest("/data/corpus/a b.mp4")
    assert is_shortest("corpus/a.b.mp4")
