"""What the arguments of `prep` stand for."""

import os
from pathlib import Path

import pytest

import shortgop
from file_permissions import modes_count
from shortgop.errors import UsageError
from shortgop.jobs.finding.source import Source
from source_arguments import NOT_UTF8, complaint, find_sources, ids, make

pytestmark = pytest.mark.usefixtures("own_folder")


# Files and folders


def test_a_file_is_a_source_with_its_name_as_id(tmp_path: Path) -> None:
    make("clips/a.mp4")
    assert find_sources(["clips/a.mp4"]) == [
        Source(id="a.mp4", path=str(tmp_path / "clips/a.mp4"), given="clips/a.mp4", attributes="{}")
    ]


def test_a_file_given_by_itself_may_have_any_name() -> None:
    make("recording.dat", "recording")
    assert ids("recording.dat", "recording") == ["recording", "recording.dat"]


def test_a_folder_is_searched_and_ids_are_paths_below_it(tmp_path: Path) -> None:
    make("corpus/b.MP4", "corpus/a/deep/er/x.mkv", "corpus/a/notes.txt", "corpus/a/thumbnail.jpg")
    assert find_sources(["corpus"]) == [
        Source("a/deep/er/x.mkv", str(tmp_path / "corpus/a/deep/er/x.mkv"), "corpus/a/deep/er/x.mkv", "{}"),
        Source("b.MP4", str(tmp_path / "corpus/b.MP4"), "corpus/b.MP4", "{}"),
    ]


@pytest.mark.parametrize("folder", ["corpus/", "./corpus", "../{here}/corpus", "{absolute}/corpus"])
def test_ids_do_not_depend_on_how_the_folder_is_written(folder: str, tmp_path: Path) -> None:
    make("corpus/a/x.mp4")
    (source,) = find_sources([folder.format(here=tmp_path.name, absolute=tmp_path)])
    assert source.id == "a/x.mp4"
    assert Path(source.path).is_absolute()
    assert Path(source.path).samefile("corpus/a/x.mp4")


def test_the_current_folder() -> None:
    make("a.mp4")
    assert ids(".") == ["a.mp4"]


def test_hidden_files_and_folders_are_skipped_unless_named() -> None:
    make("corpus/a.mp4", "corpus/.b.mp4", "corpus/.trash/c.mp4")
    assert ids("corpus") == ["a.mp4"]
    assert ids("corpus/.trash") == ["c.mp4"]
    assert ids("corpus/.b.mp4") == [".b.mp4"]


@pytest.mark.parametrize("kept", ["lost+found", "$RECYCLE.BIN", "System Volume Information"])
def test_folders_that_systems_keep_on_a_disk_are_skipped_unless_named(kept: str) -> None:
    """An ordinary user may not look into the first, and the second has videos that were thrown away."""
    make("disk/day 1/a.mp4", f"disk/{kept}/b.mp4")
    Path("disk", kept).chmod(0)
    with modes_count():
        found = ids("disk"), ids("disk/*/*.mp4"), ids("disk/**/*.mp4")
    Path("disk", kept).chmod(0o700)
    assert found == (["day 1/a.mp4"],) * 3
    assert ids(f"disk/{kept}") == ["b.mp4"]


def test_links_are_followed_under_the_names_they_have() -> None:
    make("store/a.mp4", "corpus/x.mp4")
    Path("corpus/linked").symlink_to("../store")
    Path("corpus/again").symlink_to("../store")
    Path("corpus/y.mp4").symlink_to("../store/a.mp4")
    assert ids("corpus") == ["again/a.mp4", "linked/a.mp4", "x.mp4", "y.mp4"]


def test_links_that_lead_in_circles_end(tmp_path: Path) -> None:
    make("corpus/a/x.mp4", "corpus/b/y.mp4")
    Path("corpus/a/up").symlink_to("..")
    Path("corpus/a/top").symlink_to(tmp_path)
    Path("corpus/b/self").symlink_to("self")
    assert {"a/x.mp4", "b/y.mp4"} <= set(ids("corpus"))
    assert {"a/x.mp4", "b/y.mp4"} <= set(ids("corpus/**"))
    assert not [found for found in ids("corpus") if "a/up" in found]


def test_a_video_that_is_a_dead_link_is_not_passed_over() -> None:
    Path("corpus").mkdir()
    Path("corpus/a.mp4").symlink_to("unmounted/a.mp4")
    assert ids("corpus") == ["a.mp4"]


def test_the_same_file_given_twice_is_one_source() -> None:
    make("corpus/a.mp4", "corpus/b.mp4")
    assert ids("corpus", "./corpus/a.mp4", "corpus/*.mp4", "corpus") == ["a.mp4", "b.mp4"]


def test_two_files_with_the_same_id_are_told_apart_by_the_user(tmp_path: Path) -> None:
    make("monday/a.mp4", "tuesday/a.mp4")
    message = complaint("monday", "tuesday")
    assert "'monday/a.mp4'" in message
    assert "'tuesday/a.mp4'" in message
    assert f"add --id-root {tmp_path}, a folder that both lie in, or give a list with an `id` column" in message
    assert ids(".") == ["monday/a.mp4", "tuesday/a.mp4"]


@pytest.mark.parametrize("argument", ["gone.mp4", "gone", "", "a.mp4/b.mp4", "clip\0.mp4", "\ud800.mp4", "x" * 300])
def test_an_argument_that_does_not_exist(argument: str) -> None:
    make("a.mp4")
    assert "name a video file, a folder, a glob or a list" in complaint(argument)


def test_no_argument_at_all() -> None:
    assert "no source given" in complaint()


def test_a_folder_without_videos() -> None:
    make("corpus/notes.txt", "corpus/.hidden.mp4")
    message = complaint("corpus")
    assert (
        "the folder 'corpus' holds no videos by their names, such as .mp4: the only file there is 'notes.txt'"
        in message
    )
    make("corpus/x/1.JSON", "corpus/x/2.json", "corpus/x/3.json", "corpus/b.txt", "corpus/a.mp4.part", "corpus/x/y.md")
    make("corpus/LICENSE")
    assert "8 files are there, 3 with .json, 2 with .txt, 1 without a suffix, 2 with others" in complaint("corpus")
    make("empty/.hidden.mp4")
    assert "no file is there that is not hidden" in complaint("empty")


def test_a_dataset_is_no_folder_of_videos() -> None:
    make("corpus/zarr.json", "corpus/shards/1.bin")
    assert "'corpus' is a dataset, not a folder of videos; `shortgop copy` and `shortgop merge`" in complaint("corpus")


def test_a_folder_that_may_not_be_looked_into() -> None:
    make("corpus/a.mp4", "corpus/private/b.mp4")
    Path("corpus/private").chmod(0)
    with modes_count():
        message = complaint("corpus")
    Path("corpus/private").chmod(0o700)
    assert "cannot read the folder 'corpus/private': Permission denied" in message


# Globs


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("corpus/*.mp4", ["a.mp4"]),
        ("corpus/**/*.mp4", ["a.mp4", "day 1/b.mp4", "day 1/cam/c.mp4"]),
        ("corpus/**/cam/*", ["day 1/cam/c.mp4", "day 2/cam/d.mkv"]),
        ("corpus/day [12]/*/*.m*", ["day 1/cam/c.mp4", "day 2/cam/d.mkv"]),
        ("corpus/day ?/cam/d.mkv", ["day 2/cam/d.mkv"]),
        ("corpus/day 1/**/c.*", ["cam/c.mp4"]),
        ("*/a.mp4", ["corpus/a.mp4"]),
        ("./corp*/a.mp4", ["corpus/a.mp4"]),
    ],
)
def test_a_glob_stands_for_what_matches_with_ids_below_its_fixed_part(pattern: str, expected: list[str]) -> None:
    make("corpus/a.mp4", "corpus/day 1/b.mp4", "corpus/day 1/cam/c.mp4", "corpus/day 2/cam/d.mkv")
    assert ids(pattern) == expected


def test_folders_that_match_are_searched() -> None:
    make("corpus/day 1/cam/a.mp4", "corpus/day 2/b.mp4", "corpus/c.mp4", "corpus/notes.txt")
    assert ids("corpus/*") == ids("corpus/**") == ids("corpus/**/*") == ids("corpus")
    assert ids("corpus/day*") == ["day 1/cam/a.mp4", "day 2/b.mp4"]


def test_a_glob_that_spells_out_an_extension_takes_every_such_file() -> None:
    make("corpus/a.raw", "corpus/b.raw", "corpus/c.mp4", "corpus/cam 1/video", "corpus/cam 2/video")
    assert ids("corpus/*.raw") == ["a.raw", "b.raw"]
    assert ids("corpus/*/video") == ["cam 1/video", "cam 2/video"]
    assert ids("corpus/*") == ["c.mp4"]


def test_a_glob_of_lists() -> None:
    make("corpus/a.mp4", "corpus/b.mp4")
    Path("corpus/1.txt").write_text("a.mp4\n")
    Path("corpus/2.txt").write_text("b.mp4\n")
    assert ids("corpus/*.txt") == ["a.mp4", "b.mp4"]


def test_a_glob_matches_hidden_names_only_where_it_has_the_dot() -> None:
    make("corpus/.a.mp4", "corpus/b.mp4", "corpus/.cam/c.mp4")
    assert ids("corpus/*.mp4") == ["b.mp4"]
    assert ids("corpus/.*.mp4") == [".a.mp4"]
    assert ids("corpus/.c*/*") == [".cam/c.mp4"]


def test_a_glob_that_matches_nothing() -> None:
    make("corpus/notes.txt")
    assert "the glob 'corpus/*.mp4' matches nothing, and no file has that name" in complaint("corpus/*.mp4")
    assert "the glob 'gone/*.mp4' matches nothing" in complaint("gone/*.mp4")
    assert "the glob '*/notes.txt/**' matches nothing" in complaint("*/notes.txt/**")
    assert "the glob 'corpus/*' matches no videos by their names, such as .mp4: " in complaint("corpus/*")


# Names that are hard to handle


@pytest.mark.parametrize("name", ["take [1].mp4", "what?.mp4", "a*b.mp4", "[", "new\nline.mp4", " .mp4 "])
def test_a_file_whose_name_looks_like_a_glob_is_a_file(name: str) -> None:
    make(f"corpus/{name}", "corpus/take 1.mp4", "corpus/aab.mp4")
    (source,) = find_sources([f"corpus/{name}"])
    assert source.id == name
    assert Path(source.path).exists()


def test_a_folder_whose_name_looks_like_a_glob_is_a_folder() -> None:
    make("films [2019]/a.mp4", "films 2/b.mp4")
    assert ids("films [2019]") == ["a.mp4"]
    assert ids("films [2019]/*.mp4") == ["a.mp4"]
    assert ids("films [0-9]/*.mp4") == ["films 2/b.mp4"]


def test_a_name_that_is_not_utf8_has_the_bytes_spelled_out_in_its_id_and_still_opens() -> None:
    make(f"corpus/{NOT_UTF8}")
    (source,) = find_sources(["corpus"])
    assert source.id == r"caf\udce9.mp4"
    assert Path(source.path).exists()
    assert [source.id for source in find_sources([f"corpus/{NOT_UTF8}", "corpus/caf*"])] == [r"caf\udce9.mp4"]


def test_a_name_that_reads_like_the_spelled_out_bytes_of_another_collides_with_it() -> None:
    make(f"corpus/{NOT_UTF8}", r"corpus/caf\udce9.mp4")
    message = complaint("corpus")
    assert r"'corpus/caf\udce9.mp4'" in message
    assert r"'corpus/caf\\udce9.mp4'" in message
    assert "or rename one" in message


def test_names_that_only_differ_in_such_bytes_are_two_sources() -> None:
    make(f"corpus/{NOT_UTF8}", os.fsdecode(b"corpus/caf\xe8.mp4"))
    assert ids("corpus") == [r"caf\udce8.mp4", r"caf\udce9.mp4"]


# File URLs


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    make("my corpus/a.mp4", "my corpus/b/c.mkv")
    url = f"file://{tmp_path}/my%20corpus"
    assert ids(url) == ids("my corpus") == ["a.mp4", "b/c.mkv"]
    assert ids(f"{url}/b/c.mkv") == ["c.mkv"]
    assert ids(f"{url}/*.mp4") == ["a.mp4"]
    Path("list.csv").write_text(f"path,id\n{url}/a.mp4,first\n", encoding="utf-8")
    (source,) = find_sources(["list.csv"])
    assert (source.id, source.path) == ("first", str(tmp_path / "my corpus/a.mp4"))
    assert "write it as file:///folder" in complaint("file://host/corpus")


def test_half_a_url_is_no_path() -> None:
    assert "write s3://corpus/in" in complaint("s3:/corpus/in")
    with pytest.raises(UsageError, match="a Path cannot hold a URL; give it as text"):
        shortgop.prepare([Path("s3://corpus/in")], "out")
    with pytest.raises(UsageError, match="a Path cannot hold a URL; give it as text"):
        shortgop.prepare("in", "out", id_root=Path("s3://corpus"))
    make("s3:/corpus/a.mp4")
    assert ids("s3:/corpus") == ["a.mp4"]
