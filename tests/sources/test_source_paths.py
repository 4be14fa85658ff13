"""What a dataset says of its sources means the same from every folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shortgop
from datasets import make_dataset
from shortgop.cli import app
from source_arguments import find_sources, make
from synthetic import SyntheticVideo


@pytest.fixture
def prepared(constant_video: SyntheticVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a dataset out of `clips`, given as relative path, and a link; then go elsewhere."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here / "clips", elsewhere):
        folder.mkdir(parents=True)
    (here / "clips" / "a.mp4").write_bytes(constant_video.path.read_bytes())
    (here / "clips" / "b.mp4").symlink_to("a.mp4")
    (here / "clips" / "bad.mp4").write_text("no video")
    monkeypatch.chdir(here)
    make_dataset([Path("clips")], Path("dataset"))
    monkeypatch.chdir(elsewhere)
    return here / "dataset"


def test_paths_are_absolute_beside_what_was_given(prepared: Path) -> None:
    clips = prepared.parent / "clips"
    opened = shortgop.open(prepared)
    assert [(video.source, video.source_path) for video in opened] == [
        ("clips/a.mp4", str(clips / "a.mp4")),
        ("clips/b.mp4", str(clips / "b.mp4")),
    ]
    assert [(each.source, each.path) for each in opened.failures] == [("clips/bad.mp4", str(clips / "bad.mp4"))]
    # The reason names the file in a way that means something here.
    assert str(clips / "bad.mp4") in opened.failures[0].reason


def test_bench_finds_relative_sources_from_another_folder(prepared: Path) -> None:
    options = ["--clip", "4x1", "--seconds", "0.1", "--peers", "pyav", "--json"]
    result = CliRunner().invoke(app, ["bench", str(prepared), *options])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["missing"], report["left_out"]) == ({}, {})
    readers = [row["reader"] for row in report["results"][0]["readers"]]
    assert readers == ["shortgop", "pyav"]


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize(
    "argument", ["clips", "clips/*.mp4", "list.txt", "clips/a.mp4", "./x/../clips", "link", "dead"]
)
def test_every_way_of_naming_a_source_gives_an_absolute_path(
    argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("clips/a.mp4", "x/y")
    Path("link").symlink_to("clips")
    Path("dead").mkdir()
    Path("dead/a.mp4").symlink_to("nowhere.mp4")
    Path("list.txt").write_text("clips/a.mp4\n")
    (source,) = find_sources([argument])
    monkeypatch.chdir("x")
    assert Path(source.path).is_absolute()
    assert os.path.lexists(source.path)
    if argument != "dead":
        assert Path(source.path).samefile(tmp_path / "clips" / "a.mp4")
