"""Files beside videos, such as captions: `shortgop annotate DATASET FOLDER` makes columns of them, by the rule that
holds for samples in WebDataset tars, and a job of the folder says that they are there."""

from __future__ import annotations

import os
import re
import shlex
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shortgop
from labelled_videos import run
from object_sources import make
from shortgop.errors import UsageError
from shortgop.jobs import prepare
from shortgop.jobs.finding.files_beside import labels_beside
from shortgop.jobs.finding.importing import Importing
from shortgop.manifests.dataset_files.snapshots import open_manifest
from shortgop.manifests.operations.annotate import annotate as set_columns
from shortgop.storage.locate import storage_at
from source_arguments import find_sources
from source_arguments import make as make_empty


def columns_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The columns that the files beside the videos of a folder make, by the id that a path makes."""
    return {line.id: line.columns for line in labels_beside(folder)}


def told(*arguments: str, **options: Any) -> list[str]:
    """What a job of these arguments is told."""
    said: list[str] = []
    find_sources(arguments, importing=Importing(tell=said.append, **options))
    return said


def test_a_job_tells_of_captions_with_the_command_that_takes_them(tmp_path: Path) -> None:
    folder, dataset = tmp_path / "my videos", tmp_path / "dataset"
    for number, name in enumerate(("a/1.mp4", "a/2.mp4", "b/1.mp4")):
        make(folder / name, 500 * number)
    (folder / "a/1.txt").write_text("A cat.\n")
    (folder / "b/1.txt").write_text("A dog,\nwhich runs.\n")
    done = run("prep", folder, "--out", dataset, "--runner", "inline")
    (line,) = (line for line in done.stderr.splitlines() if "1.txt: not read" in line)
    command = shlex.split(line.split("`")[1].replace("DATASET", str(dataset)))
    assert "2 videos changed" in run(*command[1:]).stdout
    captions = {video.id: video.attributes.get("txt") for video in shortgop.open(dataset)}
    assert captions == {"a/1.mp4": "A cat.", "a/2.mp4": None, "b/1.mp4": "A dog,\nwhich runs."}
    # They are there now. One that is corrected is given again.
    assert "not read" not in run("prep", folder, "--out", dataset, "--runner", "inline").stderr
    (folder / "a/1.txt").write_text("A tabby cat.")
    assert "1 video changed, 1 had these columns already" in run("annotate", dataset, folder).stdout
    assert shortgop.open(dataset)["a/1.mp4"].attributes["txt"] == "A tabby cat."
    # They are also there of a folder that was moved.
    folder.rename(tmp_path / "moved")
    assert "not read" not in run("prep", tmp_path / "moved", "--out", dataset, "--runner", "inline").stderr


def test_a_job_opens_the_dataset_as_often_for_the_captions_of_many_folders_as_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def counted(out: Any, snapshot: str, **options: Any) -> Any:
        opened.append(snapshot)
        return open_manifest(out, snapshot, **options)

    monkeypatch.setattr(prepare, "open_manifest", counted)
    times = []
    for folders in (1, 4):
        videos, dataset = tmp_path / f"videos {folders}", tmp_path / f"dataset {folders}"
        for number in range(folders):
            make(videos / f"{number}/1.mp4", 500 * number)
            (videos / f"{number}/1.txt").write_text("A cat.")
        assert run("prep", videos, "--out", dataset, "--runner", "inline").exit_code == 0
        assert run("annotate", dataset, videos).exit_code == 0
        opened.clear()
        assert "not read" not in run("prep", videos, "--out", dataset, "--runner", "inline").stderr
        times.append(len(opened))
    assert times[0] == times[1]


def test_videos_that_are_not_in_the_dataset_are_named_and_others_get_their_columns(tmp_path: Path) -> None:
    make(tmp_path / "videos/1.mp4")
    assert run("prep", tmp_path / "videos", "--out", tmp_path / "dataset", "--runner", "inline").exit_code == 0
    # The corpus lies elsewhere now, and has a video more.
    (tmp_path / "videos").rename(tmp_path / "moved")
    make_empty(str(tmp_path / "moved/2.mp4"))
    for name in ("1.txt", "2.txt"):
        (tmp_path / "moved" / name).write_text("A cat.")
    done = run("annotate", tmp_path / "dataset", tmp_path / "moved")
    assert done.exit_code == 3
    assert "1 id not in the dataset: 2.mp4" in done.stderr
    assert shortgop.open(tmp_path / "dataset")[0].attributes == {"txt": "A cat."}


def test_a_video_of_another_folder_gets_no_captions_by_its_name(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        make(tmp_path / name / "1.mp4")
        (tmp_path / name / "1.txt").write_text(f"A {name}.")
    (tmp_path / "link").symlink_to("cat")
    assert run("prep", tmp_path / "cat", "--out", tmp_path / "dataset", "--runner", "inline").exit_code == 0
    done = run("annotate", tmp_path / "dataset", tmp_path / "dog")
    assert done.exit_code == 3
    assert f"1 id not in the dataset: {tmp_path}/dog/1.mp4" in done.stderr
    assert shortgop.open(tmp_path / "dataset")[0].attributes == {}
    assert "1 video changed" in run("annotate", tmp_path / "dataset", tmp_path / "link").stdout


def test_large_files_are_left_out_and_the_first_is_named(tmp_path: Path) -> None:
    make(tmp_path / "videos/1.mp4")
    (tmp_path / "videos/1.txt").write_text("A cat.")
    for name in ("1.info.json", "1.more.txt"):
        (tmp_path / "videos" / name).write_text("x" * 1_000_001)
    assert run("prep", tmp_path / "videos", "--out", tmp_path / "dataset", "--runner", "inline").exit_code == 0
    done = run("annotate", tmp_path / "dataset", tmp_path / "videos")
    assert done.exit_code == 0
    (line,) = (line for line in done.stderr.splitlines() if "left out" in line)
    assert re.search(r"1\.(info\.json|more\.txt): left out, like 1 other file, as it has more than 1,000,000", line)
    assert shortgop.open(tmp_path / "dataset")[0].attributes == {"txt": "A cat."}


@pytest.mark.parametrize(("name", "text"), [("1.txt", "x" * 1_000_001), ("1.id", "7"), ("1.json", "{}")])
def test_files_that_make_no_column_are_not_counted_as_columns(tmp_path: Path, name: str, text: str) -> None:
    make(tmp_path / "videos/1.mp4")
    assert run("prep", tmp_path / "videos", "--out", tmp_path / "dataset", "--runner", "inline").exit_code == 0
    (tmp_path / "videos" / name).write_text(text)
    done = run("annotate", tmp_path / "dataset", tmp_path / "videos")
    assert done.exit_code == 0
    assert done.stdout.startswith("0 videos changed; snapshot ")


def test_columns_that_hide_the_id_or_the_path_can_be_taken_back(tmp_path: Path) -> None:
    """Tars made them."""
    make(tmp_path / "videos/1.mp4")
    assert run("prep", tmp_path / "videos", "--out", tmp_path / "dataset", "--runner", "inline").exit_code == 0
    set_columns(storage_at(tmp_path / "dataset"), {"1.mp4": {"id": "x", "score": 3}})
    assert "1 video changed" in run("annotate", tmp_path / "dataset", "--remove", "id").stdout
    assert shortgop.open(tmp_path / "dataset")[0].attributes == {"score": 3}
    done = run("annotate", tmp_path / "dataset", "--remove", "path")
    assert "no video has a column 'path' but the dataset's own, which stays" in done.stderr


def test_a_folder_with_the_name_of_a_list_is_no_folder_of_videos(tmp_path: Path) -> None:
    """As Spark writes Parquet."""
    make(tmp_path / "videos/1.mp4")
    assert run("prep", tmp_path / "videos", "--out", tmp_path / "dataset", "--runner", "inline").exit_code == 0
    (tmp_path / "labels.parquet").mkdir()
    done = run("annotate", tmp_path / "dataset", tmp_path / "labels.parquet")
    assert "cannot read the list" in done.stderr
    assert "Is a directory" in done.stderr


def test_a_folder_has_no_types_cuts_or_root_of_paths(tmp_path: Path) -> None:
    make(tmp_path / "videos/1.mp4")
    (tmp_path / "videos/1.txt").write_text("A cat.")
    assert run("prep", tmp_path / "videos", "--out", tmp_path / "dataset", "--runner", "inline").exit_code == 0
    for option in (["--types", "txt=text"], ["--cuts", "start,end"], ["--list-root", tmp_path]):
        done = run("annotate", tmp_path / "dataset", tmp_path / "videos", *option)
        assert done.exit_code == 2
        assert "is a folder, and types, cuts and list_root are for lists" in done.stderr


class TestColumns:
    def test_of_each_kind_of_file(self, tmp_path: Path) -> None:
        make_empty(str(tmp_path / "a/1.mp4"))
        files = {
            "txt": b"  A cat. \r\n",
            "cls": b"3\n",
            "json": b'{"score": 0.5}',
            "long.txt": b"\xef\xbb\xbfA tabby cat.",
        }
        for ending, data in files.items():
            (tmp_path / f"a/1.{ending}").write_bytes(data)
        columns = {"txt": "A cat.", "cls": 3, "score": 0.5, "long": "A tabby cat."}
        assert columns_in(tmp_path) == {"a/1.mp4": columns}

    def test_go_by_the_whole_name_of_the_video(self, tmp_path: Path) -> None:
        for name in ("1.mp4", "1.left.mp4", "1.right.MKV", "2.mp4", "2.webm", "3.mp4"):
            make_empty(str(tmp_path / name))
        make_empty(str(tmp_path / "5.mp4"), str(tmp_path / "5.mov"))
        for name in (
            "1.txt", "1.left.txt", "1.right.TXT", "2.txt", "readme.txt", "4.txt", "3.srt", "3.a.b.txt", "5.mp4.txt",
            "5.mov.left.txt",
        ):  # fmt: skip
            (tmp_path / name).write_text(name)
        assert columns_in(tmp_path) == {
            "1.mp4": {"txt": "1.txt"}, "1.left.mp4": {"txt": "1.left.txt"}, "1.right.MKV": {"txt": "1.right.TXT"},
            "2.mp4": {"txt": "2.txt"}, "2.webm": {"txt": "2.txt"},
            "5.mp4": {"txt": "5.mp4.txt"}, "5.mov": {"left": "5.mov.left.txt"},
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("name", "data", "message"),
        [
            ("1.json", b"{", r"1\.json' is no json: "),
            ("1.json", b"", r"1\.json' is no json: "),
            ("1.json", b'{"a": 1, "a": 2}', r"1\.json' has 'a' twice; take one of them out"),
            ("1.cls", b"three", r"1\.cls' is no cls: it has 'three', and a whole number is due; write it again"),
            ("1.cls", b"9" * 5000, r"1\.cls' is no cls: it has '9+\.\.\.9+', and a whole number is due"),
            ("1.txt", b"\xff", r"1\.txt' is not UTF-8; write it in UTF-8"),
            ("2.txt", b"A cat.", r"no video in the folder .* has a file with its name"),
        ],
    )
    def test_that_are_wrong_name_the_file(self, tmp_path: Path, name: str, data: bytes, message: str) -> None:
        make_empty(str(tmp_path / "1.mp4"))
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError, match=message):
            labels_beside(tmp_path)

    def test_are_none_of_a_pipe(self, tmp_path: Path) -> None:
        """Opening it waits for a writer."""
        make_empty(str(tmp_path / "1.mp4"))
        (tmp_path / "1.cls").write_text("3")
        os.mkfifo(tmp_path / "1.txt")
        assert columns_in(tmp_path) == {"1.mp4": {"cls": 3}}

    def test_are_none_that_say_which_video_it_is(self, tmp_path: Path) -> None:
        """The dataset's own `id` would be hidden."""
        make_empty(str(tmp_path / "1.mp4"))
        (tmp_path / "1.json").write_text('{"id": "x", "path": "y", "score": 3}')
        (tmp_path / "1.id").write_text("7")
        assert columns_in(tmp_path) == {"1.mp4": {"score": 3}}

    @pytest.mark.parametrize("other", ["1.json", "1.TXT", "1.mp4.txt"])
    def test_of_two_files_with_one_name_are_refused(self, tmp_path: Path, other: str) -> None:
        make_empty(str(tmp_path / "1.mp4"))
        (tmp_path / "1.txt").write_text("A cat.")
        (tmp_path / other).write_text('{"txt": "A dog."}')
        with pytest.raises(
            UsageError, match=r"/1\..*' and '.*/1\..* both give '1.mp4' the column 'txt'; move one of them"
        ):
            labels_beside(tmp_path)

    def test_of_two_files_that_say_the_same_are_taken(self, tmp_path: Path) -> None:
        make_empty(str(tmp_path / "1.mp4"))
        for name in ("1.txt", "1.mp4.txt"):
            (tmp_path / name).write_text("A cat.")
        assert columns_in(tmp_path) == {"1.mp4": {"txt": "A cat."}}


@pytest.mark.usefixtures("own_folder")
class TestWhatIsSaid:
    def test_is_of_captions_that_go_by_the_whole_name_of_a_file(self) -> None:
        make_empty("videos/1.mp4", "videos/2.jpg")
        for name in ("1.mp4.txt", "2.jpg.txt"):
            Path("videos", name).touch()
        video, picture = told("videos")
        assert video.startswith(f"{Path('videos/1.mp4.txt').absolute()}: not read")
        assert picture.startswith(f"{Path('videos/2.jpg').absolute()}: left out, though 2.jpg.txt is beside it")

    def test_is_of_captions_in_capitals(self) -> None:
        make_empty("videos/1.MP4", "videos/2.JPG")
        for name in ("1.TXT", "2.JPG.Txt"):
            Path("videos", name).touch()
        video, picture = told("videos")
        assert video.startswith(f"{Path('videos/1.TXT').absolute()}: not read")
        assert picture.startswith(f"{Path('videos/2.JPG').absolute()}: left out, though 2.JPG.Txt is beside it")

    def test_of_a_caption_of_a_video_is_not_said_of_a_picture(self) -> None:
        make_empty("videos/1.mp4", "videos/1.mp4.jpg", "videos/1.jpg")
        for name in ("1.mp4.txt", "1.txt"):
            Path("videos", name).touch()
        (video,) = told("videos")
        assert "1.mp4.txt: not read" in video

    def test_names_the_folder_that_was_given(self) -> None:
        make_empty("videos/a/1.webm")
        Path("videos/a/1.txt").touch()
        (line,) = told("videos")
        assert line.startswith(str(Path("videos/a/1.txt").absolute()))
        assert f"`shortgop annotate DATASET {Path('videos').absolute()}`" in line

    def test_is_of_pictures_too_that_a_folder_of_videos_leaves_out(self) -> None:
        make_empty("videos/1.mp4", "videos/1.jpg", "videos/2.JPG", "videos/3.png")
        for name in ("1.txt", "2.txt"):
            Path("videos", name).touch()
        # That of a video is its preview, and one without a caption may be anything.
        _, line = told("videos")
        assert line.startswith(f"{Path('videos/2.JPG').absolute()}: left out, though 2.txt is beside it")
        Path("list.csv").write_text("path\nvideos/1.mp4\nvideos/2.JPG\n")
        assert line.endswith("--image-fps 1")
        assert not any("left out" in line for line in told("videos", image_fps=Fraction(1)))
        sources = find_sources(["list.csv"], importing=Importing(image_fps=Fraction(1)))
        assert [source.id for source in sources] == ["videos/1.mp4", "videos/2.JPG"]

    def test_is_of_the_first_folder_whose_videos_have_no_columns(self) -> None:
        make_empty("videos/a/1.mp4", "videos/b/1.mp4")
        for name in ("a", "b"):
            Path(f"videos/{name}/1.txt").touch()
        (line,) = told("videos", columns_at=lambda place: {"caption"} if "/a/" in place else set())
        assert line.startswith(str(Path("videos/b/1.txt").absolute()))
        assert told("videos", columns_at=lambda _: {"caption"}) == []

    def test_asks_the_dataset_of_no_more_folders_than_it_takes(self) -> None:
        for name in "abc":
            make_empty(f"videos/{name}/1.mp4")
            Path(f"videos/{name}/1.txt").touch()
        asked: list[str] = []

        def nothing_at(place: str) -> set[str]:
            asked.append(place)
            return set()

        told("videos", columns_at=nothing_at)
        assert len(asked) == 1

    @pytest.mark.parametrize(
        ("arguments", "has_more"),
        [
            (["v/a", "v/b"], True),
            (["v/*"], True),
            (["v/a", "v/extra.mp4", "list.csv"], False),
            (["v/a", "v/c"], False),
            (["v/[ac]"], False),
        ],
    )
    def test_says_whether_other_folders_have_captions(self, arguments: list[str], has_more: bool) -> None:
        make_empty("v/a/1.mp4", "v/a/deep/1.mp4", "v/b/2.mp4", "v/c/3.mp4", "v/extra.mp4")
        for name in ("a/1", "a/deep/1", "b/2"):
            Path(f"v/{name}.txt").touch()
        Path("list.csv").write_text("path\nv/b/2.mp4\n")
        (line,) = told(*arguments)
        assert f"annotate DATASET {Path('v/a').absolute()}`" in line
        assert ("and the same with each other folder" in line) == has_more

    def test_counts_no_other_folder_whose_videos_have_columns(self) -> None:
        for name in "ab":
            make_empty(f"{name}/{name}.mp4")
            Path(f"{name}/{name}.txt").touch()
        (line,) = told("a", "b", columns_at=lambda place: {"txt"} if "/b/" in place else set())
        assert "each other folder" not in line

    def test_is_nothing_of_other_texts(self) -> None:
        make_empty("videos/1.mp4")
        for name in ("readme.txt", "1.srt", "11.txt"):
            Path("videos", name).touch()
        assert told("videos") == []

    def test_is_nothing_where_files_are_given_themselves(self) -> None:
        make_empty("videos/1.mp4")
        Path("videos/1.txt").touch()
        assert told("videos/1.mp4") == []
