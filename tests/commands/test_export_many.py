"""`shortgop export` of many videos: which files it writes, and what it leaves alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import av
import pytest

from datasets import current_manifest, make_dataset
from labelled_videos import RATE, run
from shortgop.manifests.operations.export_names import names_of_exports
from synthetic import constant_rate_pts, frame_to_rgb, make_video, read_number

# What each file shows first, by the id of its video.
FIRST = {"kitchen/a.mp4": 0, "kitchen/b.avi": 100, "/data/c": 200, "../d.mp4": 300}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sources, and a dataset of them, each in a shard of its own."""
    folder = tmp_path_factory.mktemp("export_many")
    lines = []
    for video_id, first in FIRST.items():
        make_video(folder / f"{first}.mp4", pts=constant_rate_pts(RATE, 20), timebase=1 / RATE, first_number=first)
        lines.append(json.dumps({"path": f"{first}.mp4", "id": video_id}))
    for number, line in enumerate(lines):
        (folder / f"{number}.jsonl").write_text(line)
        make_dataset([folder / f"{number}.jsonl"], folder / "dataset")
    return folder


@pytest.fixture
def dataset(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "dataset", tmp_path / "dataset")


def shown(folder: Path) -> dict[str, int]:
    """What the files of a folder show first, by their paths in it."""
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            with av.open(str(file)) as container:
                found[str(file.relative_to(folder))] = read_number(frame_to_rgb(next(container.decode(video=0))))
    return found


def export(dataset: Path, out: Path, *arguments: object, status: int = 0) -> Any:
    result = run("export", dataset, "--out", out, *arguments, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def test_each_video_goes_to_a_file_that_is_called_like_its_id(dataset: Path, tmp_path: Path) -> None:
    result = export(dataset, tmp_path / "out", "--all", status=3)
    assert shown(tmp_path / "out") == {"data/c.mp4": 200, "kitchen/a.mp4": 0, "kitchen/b.avi.mp4": 100}
    # It would lie outside of the folder.
    assert list(result["refused"]) == ["../d.mp4"]
    assert "'..' cannot be the name of a file or folder" in result["refused"]["../d.mp4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "out"]


def test_ids_and_patterns_choose_videos_as_in_copy(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("/data/c\nkitchen/a.mp4\n")
    assert list(export(dataset, tmp_path / "listed", "--from", tmp_path / "ids.txt")["written"]) == [
        "/data/c",
        "kitchen/a.mp4",
    ]
    export(dataset, tmp_path / "fitting", "--videos", "kitchen/*")
    assert list(shown(tmp_path / "fitting")) == ["kitchen/a.mp4", "kitchen/b.avi.mp4"]
    result = export(dataset, tmp_path / "some", "--videos", "kitchen/c.mp4", "--videos", "kitchen/a.mp4", status=3)
    assert (list(result["written"]), result["unknown"]) == (["kitchen/a.mp4"], ["kitchen/c.mp4"])


def test_the_same_command_again_writes_what_is_not_there(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "kitchen").mkdir(parents=True)
    own = tmp_path / "out" / "kitchen" / "a.mp4"
    own.write_text("mine")
    result = export(dataset, tmp_path / "out", "--videos", "kitchen/*")
    assert (list(result["written"]), list(result["already"])) == (["kitchen/b.avi"], ["kitchen/a.mp4"])
    assert own.read_text() == "mine"
    result = export(dataset, tmp_path / "out", "--videos", "kitchen/*", "--overwrite")
    assert (list(result["written"]), result["already"]) == (["kitchen/a.mp4", "kitchen/b.avi"], {})
    assert shown(tmp_path / "out") == {"kitchen/a.mp4": 0, "kitchen/b.avi.mp4": 100}


def test_exports_that_are_called_like_sources_which_are_gone_are_there(made: Path, tmp_path: Path) -> None:
    """The same command again said that they were the sources, and are never replaced."""
    (tmp_path / "footage").mkdir()
    shutil.copy(made / "0.mp4", tmp_path / "footage" / "a.mp4")
    (tmp_path / "footage" / "list.csv").write_text("path\na.mp4\n")
    make_dataset([tmp_path / "footage" / "list.csv"], tmp_path / "dataset")
    shutil.rmtree(tmp_path / "footage")
    assert list(export(tmp_path / "dataset", tmp_path / "out", "--all")["written"]) == ["a.mp4"]
    assert list(export(tmp_path / "dataset", tmp_path / "out", "--all")["already"]) == ["a.mp4"]


def test_a_damaged_video_is_named_and_the_others_are_written(dataset: Path, tmp_path: Path) -> None:
    manifest = current_manifest(dataset)
    row = manifest.row_of("kitchen/a.mp4")
    shard = manifest.shards.name.text(int(manifest.segments.shard[manifest.first_segments[row]]))
    (dataset / "shards" / shard).unlink()
    assert export(dataset, tmp_path / "none", "--videos", "kitchen/a.mp4", status=3)["written"] == {}
    assert not (tmp_path / "none").exists()
    result = run("export", dataset, "--out", tmp_path / "out", "--videos", "kitchen/*")
    assert result.exit_code == 3
    assert f"kitchen/a.mp4: video 'kitchen/a.mp4': {dataset / 'shards' / shard} is missing" in result.stderr
    assert "1 video, " in result.stdout
    assert shown(tmp_path / "out") == {"kitchen/b.avi.mp4": 100}


def test_names_that_are_one_file_there_are_not_written_over_each_other(dataset: Path, tmp_path: Path) -> None:
    """As `a.mp4` and `A.mp4` on file systems that take both for the same; here one is a link to the other."""
    folder = tmp_path / "out" / "kitchen"
    folder.mkdir(parents=True)
    (folder / "b.avi.mp4").symlink_to("a.mp4")
    result = export(dataset, tmp_path / "out", "--videos", "kitchen/*", "--overwrite", status=3)
    assert f"{folder / 'b.avi.mp4'} is the file of 'kitchen/a.mp4'" in result["refused"]["kitchen/b.avi"]
    assert shown(tmp_path / "out")["kitchen/a.mp4"] == 0


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_is_no_export_is_refused_and_the_others_are_written(
    dataset: Path, made: Path, tmp_path: Path, *, overwrite: bool
) -> None:
    """A source, a folder, a file where a folder is needed, and a link to itself."""
    out = tmp_path / "out"
    (out / "kitchen" / "b.avi.mp4").mkdir(parents=True)
    (out / "kitchen" / "a.mp4").hardlink_to(made / "0.mp4")
    before = (made / "0.mp4").read_bytes()
    options = ["--all", *(["--overwrite"] if overwrite else [])]
    result = export(dataset, out, *options, status=3)
    assert (list(result["written"]), result["already"]) == (["/data/c"], {})
    assert "is the source of a video" in result["refused"]["kitchen/a.mp4"]
    assert "is a folder" in result["refused"]["kitchen/b.avi"]
    assert (made / "0.mp4").read_bytes() == before
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "data").write_text("mine")
    (tmp_path / "second" / "kitchen").mkdir()
    (tmp_path / "second" / "kitchen" / "a.mp4").symlink_to("a.mp4")
    result = export(dataset, tmp_path / "second", *options, status=3)
    assert list(result["written"]) == ["kitchen/b.avi"]
    assert "cannot write" in result["refused"]["/data/c"]
    assert "kitchen/a.mp4" in result["refused"]
    assert (tmp_path / "second" / "data").read_text() == "mine"


def test_nothing_is_written_within_a_dataset_or_in_place_of_a_file(dataset: Path, tmp_path: Path) -> None:
    files = sorted(dataset.rglob("*"))
    for folder in (dataset, dataset / "shards" / "new"):
        result = run("export", dataset, "--out", folder, "--all")
        assert (result.exit_code, "lies within the dataset" in result.stderr) == (2, True)
    assert sorted(dataset.rglob("*")) == files
    (tmp_path / "file").write_text("mine")
    result = run("export", dataset, "--out", tmp_path / "file", "--all")
    assert (result.exit_code, "file is no folder" in result.stderr) == (1, True)


def test_each_choice_of_videos_gives_them_the_same_files(made: Path, tmp_path: Path) -> None:
    """Otherwise the file of one would count as that of another that is there already."""
    far = "/".join(["far"] * 1200)
    ids = {"a": 0, "a.mp4": 100, far: 200}
    lines = [json.dumps({"path": str(made / f"{first}.mp4"), "id": each}) for each, first in ids.items()]
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    make_dataset([tmp_path / "list.jsonl"], tmp_path / "dataset")
    out = tmp_path / "out"
    result = export(tmp_path / "dataset", out, "--videos", "a.mp4", status=3)
    assert "its file would be a.mp4, which is that of 'a'" in result["refused"]["a.mp4"]
    assert not out.exists()
    # A path that is too long is no reason to end.
    result = export(tmp_path / "dataset", out, "--all", status=3)
    assert (list(result["written"]), sorted(result["refused"])) == (["a"], ["a.mp4", far])
    assert shown(out) == {"a.mp4": 0}
    assert [path.name for path in out.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["kitchen/a.mp4"],
        ["--out", "out"],
        ["--all"],
        ["--out", "out", "--all", "--videos", "kitchen/*"],
        ["kitchen/a.mp4", "--out", "out", "--all"],
        ["kitchen/a.mp4", "a.mp4", "--all"],
        ["--out", "out", "--all", "--start", "1"],
        ["--out", "", "--all"],
        ["kitchen/a.mp4", "a.mp4", "--start", ""],
        ["--out", "s3://bucket/out", "--all"],
    ],
    ids=" ".join,
)
def test_what_does_not_say_what_goes_where_is_wrong_usage(
    arguments: list[str], dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("export", dataset, *arguments).exit_code == 2
    assert list(tmp_path.iterdir()) == [dataset]


def test_names_are_ids_that_stay_in_the_folder() -> None:
    names, refused = names_of_exports(["a.MP4", "/b//c", "s3://in/d.mp4", "e.mov"])
    assert names == {"a.MP4": "a.MP4", "/b//c": "b/c.mp4", "s3://in/d.mp4": "s3:/in/d.mp4", "e.mov": "e.mov.mp4"}
    assert refused == {}
    none = ["", "/", "..", "a/../b.mp4", "./a.mp4", "a\0b", "é" * 126]
    names, refused = names_of_exports(none)
    assert (names, list(refused)) == ({}, none)


def test_two_ids_never_share_a_name() -> None:
    names, refused = names_of_exports(["a", "a.mp4", "b.mp4", "b.mp4/c.mp4"])
    assert names == {"a": "a.mp4", "b.mp4/c.mp4": "b.mp4/c.mp4"}
    assert "which is that of 'a'" in refused["a.mp4"]
    assert "which is a folder of other videos" in refused["b.mp4"]
