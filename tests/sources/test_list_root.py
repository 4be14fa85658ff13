"""Paths of lists that begin in another folder than the list's own: --list-root."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shortgop
from datasets import current_manifest
from shortgop.cli import app
from shortgop.errors import UsageError
from shortgop.jobs.finding.importing import importing_of
from shortgop.jobs.finding.source import Source
from shortgop.jobs.progress.tally import Progress
from source_arguments import find_sources, make
from store_helpers import put
from synthetic import make_video, read_number

RATE = Fraction(10)


def film(path: Path, first_number: int, count: int = 30) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return make_video(path, pts=range(count), timebase=1 / RATE, first_number=first_number, b_frames=0).path


def listed(arguments: list[str], list_root: str, image_fps: str | None = None) -> list[Source]:
    return find_sources(arguments, importing=importing_of(None, image_fps, list_root=list_root))


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("root", ["videos", "videos/", "./lists/../videos", "file://{here}/videos"])
def test_relative_paths_begin_in_the_folder_and_ids_are_the_paths_as_written(tmp_path: Path, root: str) -> None:
    make("videos/x/a.mp4", "lists/train.csv", "elsewhere/b.mp4")
    Path("lists/train.csv").write_text(f"path,label\nx/a.mp4,1\n{tmp_path}/elsewhere/b.mp4,2\n")
    a, b = sorted(listed(["lists/train.csv"], root.format(here=tmp_path)), key=lambda source: source.path, reverse=True)
    assert (a.id, os.path.normpath(a.path), a.attributes) == ("x/a.mp4", f"{tmp_path}/videos/x/a.mp4", '{"label": 1}')
    # An absolute path is what it is.
    assert b.path == f"{tmp_path}/elsewhere/b.mp4"


@pytest.mark.usefixtures("own_folder")
def test_without_a_list_the_folder_is_wrong_usage() -> None:
    make("videos/a.mp4")
    with pytest.raises(UsageError, match="--list-root says where .* 'videos' is no list; give one, or leave it out"):
        listed(["videos"], "elsewhere")


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("s3:/bucket/videos", "write s3://bucket/videos"),
        ("s3://", "has no bucket"),
        ("hf://datasets/owner", "names no repository"),
        ("ftp://host/videos", "ftp:// is not known"),
    ],
)
def test_a_folder_that_is_no_place_is_refused_at_once(root: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        importing_of(None, list_root=root)


@pytest.mark.parametrize("root", ["https://host/folder?signature=1", "s3://user:password@bucket/folder"])
def test_a_folder_whose_urls_would_lose_something_is_refused(root: str) -> None:
    with pytest.raises(UsageError, match="with a query or a password") as caught:
        importing_of(None, list_root=root)
    assert "signature" not in str(caught.value)
    assert ":password" not in str(caught.value)


def test_a_dataset_is_made_and_repaired_with_the_same_folder(tmp_path: Path) -> None:
    film(tmp_path / "videos/x/a.mp4", 100)
    film(tmp_path / "videos/b.mp4", 200)
    (tmp_path / "lists").mkdir()
    labels = tmp_path / "lists/train.csv"
    labels.write_text("path,label\nx/a.mp4,1\nb.mp4,2\n")
    dataset, root = tmp_path / "dataset", tmp_path / "videos"
    report = shortgop.prepare(labels, dataset, list_root=root, runner="inline")
    assert (report.videos_added, report.failures) == (2, ())
    opened = shortgop.open(dataset)
    assert {video.id: (read_number(video[0]), video.attributes["label"]) for video in opened} == {
        "b.mp4": (200, 2),
        "x/a.mp4": (100, 1),
    }
    assert current_manifest(dataset).videos.source.texts() == ["b.mp4", "x/a.mp4"]
    assert shortgop.prepare(labels, dataset, list_root=root, runner="inline").already_there == 2
    for shard in (dataset / "shards").iterdir():
        shard.unlink()
    again = ["verify", str(dataset), "--repair", str(labels), "--list-root", str(root), "--runner", "inline"]
    assert CliRunner().invoke(app, again).exit_code == 0
    assert [read_number(video[29]) for video in shortgop.open(dataset)] == [229, 129]


def test_labels_of_paths_below_the_folder_are_those_of_the_videos_made_of_the_files(tmp_path: Path) -> None:
    film(tmp_path / "videos/x/a.mp4", 100)
    # Its id is a.mp4, which no path of the list is.
    shortgop.prepare(tmp_path / "videos/x", tmp_path / "dataset", runner="inline")
    (tmp_path / "lists").mkdir()
    labels = tmp_path / "lists/train.csv"
    labels.write_text("path,label\nx/a.mp4,7\n")
    with pytest.warns(shortgop.DatasetWarning, match="no video of the dataset has one of these ids: x/a.mp4"):
        shortgop.annotate(tmp_path / "dataset", labels)
    said = CliRunner().invoke(app, ["annotate", str(tmp_path / "dataset"), str(labels)])
    assert "goes by its paths, which begin in its own folder, or in --list-root" in " ".join(said.output.split())
    done = shortgop.annotate(tmp_path / "dataset", labels, list_root=tmp_path / "videos")
    assert (done.changed, done.unknown) == (("a.mp4",), ())
    assert shortgop.open(tmp_path / "dataset")["a.mp4"].attributes == {"label": 7}
    # Of a list that has ids, its paths have nothing to do with it.
    labels.write_text("id,label\nx/a.mp4,7\n")
    said = CliRunner().invoke(app, ["annotate", str(tmp_path / "dataset"), str(labels)])
    assert "1 id not in the dataset: x/a.mp4" in said.output
    assert "--list-root" not in said.output


def test_a_list_on_a_disk_names_videos_in_a_bucket(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/videos/x/a.mp4", film(tmp_path / "a.mp4", 100))
    here = film(tmp_path / "b.mp4", 200)
    labels = tmp_path / "train.csv"
    labels.write_text(f"path,id,label\nx/a.mp4,,1\n{here},local,2\n")
    shortgop.prepare(labels, tmp_path / "dataset", list_root=f"{s3_url}/videos/", runner="inline")
    opened = shortgop.open(tmp_path / "dataset")
    assert {video.id: read_number(video[0]) for video in opened} == {"local": 200, "x/a.mp4": 100}
    assert current_manifest(tmp_path / "dataset").videos.path.texts() == [str(here), f"{s3_url}/videos/x/a.mp4"]
    labels.write_text("path,label\nx/a.mp4,3\n")
    done = shortgop.annotate(tmp_path / "dataset", labels, list_root=f"{s3_url}/videos")
    assert done.changed == ("x/a.mp4",)


def test_a_list_in_a_bucket_names_videos_elsewhere(s3_url: str, tmp_path: Path) -> None:
    put(f"{s3_url}/lists/train.csv", b"path,label\nx/a.mp4,1\n")
    (on_disk,) = listed([f"{s3_url}/lists/train.csv"], str(tmp_path / "videos"))
    assert (on_disk.id, on_disk.path, on_disk.in_store) == ("x/a.mp4", f"{tmp_path}/videos/x/a.mp4", None)
    (in_bucket,) = listed([f"{s3_url}/lists/train.csv"], f"{s3_url}/videos")
    assert (in_bucket.id, in_bucket.path) == ("x/a.mp4", f"{s3_url}/videos/x/a.mp4")
    assert in_bucket.in_store is not None


@pytest.mark.parametrize("where", ["list in the bucket", "list on a disk"])
def test_paths_of_this_machine_are_what_they_are_wherever_the_list_lies(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lines = (
        f"path\n{tmp_path}/a.mp4\n~/b.mp4\nfile://{tmp_path}/c.mp4\n./~/d.mp4\n~nobody-is-called-so/e.mp4\n".encode()
    )
    if where == "list in the bucket":
        put(f"{s3_url}/videos/train.csv", lines)
        found = find_sources([f"{s3_url}/videos/train.csv"])
    else:
        (tmp_path / "train.csv").write_bytes(lines)
        found = listed([str(tmp_path / "train.csv")], f"{s3_url}/videos")
    assert sorted(source.path for source in found) == [
        *(f"{tmp_path}/{name}.mp4" for name in "abc"),
        f"{s3_url}/videos/~/d.mp4",
        f"{s3_url}/videos/~nobody-is-called-so/e.mp4",
    ]
    assert [source.in_store is None for source in sorted(found, key=lambda each: each.path)] == [True] * 3 + [False] * 2


def test_labels_of_paths_of_this_machine_are_found_beside_a_folder_in_a_bucket(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    film(tmp_path / "videos/a.mp4", 100)
    shortgop.prepare(tmp_path / "videos", tmp_path / "dataset", runner="inline")
    labels = tmp_path / "train.csv"
    labels.write_text("path,label\n~/videos/a.mp4,7\n")
    assert shortgop.annotate(tmp_path / "dataset", labels, list_root=f"{s3_url}/videos").changed == ("a.mp4",)


def test_files_of_a_kinetics_list_lie_below_the_folder(s3_url: str, tmp_path: Path) -> None:
    row = "label,youtube_id,time_start,time_end,split\ndance,aaaaaaaaaaa,3,13,train\n"
    make(str(tmp_path / "videos/dance/aaaaaaaaaaa.mp4"), str(tmp_path / "lists/train.csv"))
    (tmp_path / "lists/train.csv").write_text(row)
    (source,) = listed([str(tmp_path / "lists/train.csv")], str(tmp_path / "videos"))
    assert source.path == f"{tmp_path}/videos/dance/aaaaaaaaaaa.mp4"
    put(f"{s3_url}/lists/train.csv", row.encode())
    put(f"{s3_url}/videos/dance/aaaaaaaaaaa.mp4", b"content")
    (source,) = listed([f"{s3_url}/lists/train.csv"], f"{s3_url}/videos")
    assert source.path == f"{s3_url}/videos/dance/aaaaaaaaaaa.mp4"
    with pytest.raises(UsageError, match="is on a disk, and --list-root is s3://.*; copy the list to that store"):
        listed([str(tmp_path / "lists/train.csv")], f"{s3_url}/videos")
    with pytest.raises(UsageError, match="is in a store, and --list-root .* on a disk; copy the list to a disk"):
        listed([f"{s3_url}/lists/train.csv"], str(tmp_path / "videos"))


def test_pictures_of_a_list_lie_below_the_folder(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "pictures").mkdir()
    for number in range(3):
        Image.new("RGB", (64, 48), (60 * number, 0, 0)).save(tmp_path / f"pictures/{number}.png")
    (tmp_path / "lists").mkdir()
    listing = tmp_path / "lists/walk.txt"
    listing.write_text(f"2.png\nfile://{tmp_path}/pictures/0.png\n")
    shortgop.prepare(listing, tmp_path / "dataset", list_root=tmp_path / "pictures", image_fps=10, runner="inline")
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [round(float(frame[0].float().mean()) / 60) for frame in video] == [2, 0]
    with pytest.raises(UsageError, match="names the picture s3://bucket/pictures/2.png, and pictures are read from"):
        listed([str(listing)], "s3://bucket/pictures", image_fps="10")


def test_a_job_says_early_that_no_source_is_there(tmp_path: Path) -> None:
    labels = tmp_path / "train.csv"
    labels.write_text("path\n" + "".join(f"x/{number:02}.mp4\n" for number in range(40)))
    told: list[Progress] = []
    with pytest.warns(shortgop.DatasetWarning, match="40 of 40 sources could not be prepared"):
        shortgop.prepare(labels, tmp_path / "dataset", runner="inline", on_progress=told.append)
    notes = [state.note for state in told if "--list-root" in state.note]
    assert notes[0].startswith(f"encoding, but no source was there so far: {tmp_path}/x/00.mp4 does not exist. If")


def test_a_job_says_at_its_end_that_no_source_was_there(tmp_path: Path) -> None:
    """Also where there are few."""
    film(tmp_path / "videos/b.mp4", 0)
    labels = tmp_path / "train.csv"
    labels.write_text("path\na.mp4\nb.mp4\n")
    arguments = ["prep", str(labels), "--out", str(tmp_path / "dataset"), "--runner", "inline"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 3
    assert "none of the 2 sources is there: if the paths of a list begin in another folder than its own" in done.stderr
    with pytest.warns(shortgop.DatasetWarning, match="may begin in another folder: list_root names it"):
        shortgop.prepare(labels, tmp_path / "dataset", runner="inline")
    done = CliRunner().invoke(app, [*arguments, "--list-root", str(tmp_path / "videos")])
    assert "1 could not be prepared" in done.stdout
    assert "none of the" not in done.stderr


def test_a_job_that_tries_again_what_is_missing_says_nothing_of_it(tmp_path: Path) -> None:
    film(tmp_path / "there.mp4", 0)
    labels = tmp_path / "train.csv"
    labels.write_text("path\nthere.mp4\n" + "".join(f"x/{number:02}.mp4\n" for number in range(40)))
    told: list[Progress] = []
    for _ in range(2):
        with pytest.warns(shortgop.DatasetWarning, match="40 of 41 sources could not be prepared"):
            shortgop.prepare(labels, tmp_path / "dataset", runner="inline", on_progress=told.append)
    again = [state for state in told if state.sources_there == 1]
    assert again[-1].sources_failed == 40
    assert not any("--list-root" in state.note for state in again)
