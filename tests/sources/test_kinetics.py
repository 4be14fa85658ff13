"""Lists with the columns of Kinetics, beside files that are whole or cut already."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from file_permissions import modes_count
from shortgop.errors import UsageError
from shortgop.jobs.finding.importing import Importing
from shortgop.jobs.finding.walking import walk_once
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.profile import Profile
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources
from synthetic import make_video, read_number

HEADER = "label,youtube_id,time_start,time_end,split,is_cc"


def write_list(folder: Path, *lines: str) -> Path:
    path = folder / "train.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def make(path: Path, first_number: int, count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make_video(path, pts=range(count), timebase=Fraction(1, 10), first_number=first_number, b_frames=0)


def test_whole_files_are_cut_and_cut_files_are_taken_whole(tmp_path: Path) -> None:
    make(tmp_path / "videos/aaaaaaaaaaa.mp4", 0, 200)
    make(tmp_path / "train/clapping/-bbbbbbbbbb_000012_000022.mp4", 1000, 100)
    listed = write_list(
        tmp_path, "clapping,-bbbbbbbbbb,12,22,train,0", "dancing,aaaaaaaaaaa,3,13,train,1", "dancing,gone,0,10,train,0"
    )
    said: list[str] = []
    report = prepare(
        [str(listed)],
        DiskStorage(tmp_path / "out"),
        Profile(),
        where=Where("inline"),
        importing=Importing(tell=said.append),
    )
    assert said == [f"{listed}: a Kinetics list of 3 videos"]
    dataset = shortgop.open(tmp_path / "out")
    assert [video.id for video in dataset] == ["-bbbbbbbbbb_000012_000022", "aaaaaaaaaaa_000003_000013"]
    assert [read_number(frame) for frame in dataset[0]] == list(range(1000, 1100))
    assert [read_number(frame) for frame in dataset[1]] == list(range(30, 130))
    attributes = dataset[1].attributes
    assert {name: attributes[name] for name in ("label", "youtube_id", "time_start", "time_end", "split")} == {
        "label": "dancing", "youtube_id": "aaaaaaaaaaa", "time_start": 3, "time_end": 13, "split": "train",
    }  # fmt: skip
    (failure,) = report.failures
    assert failure.id == "gone_000000_000010"
    assert "does not exist" in failure.reason


def test_files_in_linked_folders_are_found_and_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    make(tmp_path / "other_disk/aaaaaaaaaaa_000000_000010.mp4", 0, 100)
    (tmp_path / "kinetics").mkdir()
    (tmp_path / "kinetics/part_1").symlink_to(tmp_path / "other_disk")
    # A circle.
    (tmp_path / "other_disk/up").symlink_to(tmp_path / "kinetics")
    listed = write_list(tmp_path / "kinetics", "clapping,aaaaaaaaaaa,0,10,train,0")
    (source,) = find_sources([str(listed)])
    assert source.path == str(tmp_path / "kinetics/part_1/aaaaaaaaaaa_000000_000010.mp4")
    (tmp_path / "kinetics/part_2").mkdir(mode=0)
    with modes_count(), pytest.raises(UsageError, match=r"cannot read .*part_2"):
        find_sources([str(listed)])


def test_a_folder_comes_once_and_by_its_own_path(tmp_path: Path) -> None:
    """Of folders with links to one another there are very many paths."""
    make(tmp_path / ".parts/0/aaaaaaaaaaa_000000_000010.mp4", 0, 100)
    for number in range(10):
        (tmp_path / f".parts/{number}").mkdir(exist_ok=True)
    for number in range(100):
        (tmp_path / f".parts/{number % 10}/z{number // 10}").symlink_to(tmp_path / f".parts/{number // 10}")
    (tmp_path / "z_current").symlink_to(tmp_path / ".parts/0")
    (tmp_path / ".trash").mkdir(mode=0)
    with modes_count():
        (source,) = find_sources([str(write_list(tmp_path, "clapping,aaaaaaaaaaa,0,10,train,0"))])
    assert source.path == str(tmp_path / ".parts/0/aaaaaaaaaaa_000000_000010.mp4")


def test_a_folder_that_is_removed_meanwhile_is_passed_over(tmp_path: Path) -> None:
    """As temporary folders of downloads."""
    (tmp_path / "list/part").mkdir(parents=True)
    walked = walk_once(tmp_path / "list")
    assert next(walked) == (tmp_path / "list", [])
    (tmp_path / "list/part").rmdir()
    assert list(walked) == []


def test_a_file_that_is_cut_already_comes_before_the_whole_one(tmp_path: Path) -> None:
    make(tmp_path / "a.mp4", 0, 30)
    make(tmp_path / "a_000001_000002.mp4", 100, 10)
    (source,) = find_sources([str(write_list(tmp_path, "x,a,1,2,train,0"))])
    assert (source.given, source.part) == ("a_000001_000002.mp4", None)


@pytest.mark.parametrize("line", ["x,a,2,1,train,0", "x,,1,2,train,0", "x,a,,2,train,0", "x,a,soon,2,train,0"])
def test_a_line_that_makes_no_sense_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"line 3 of '.*train\.csv' has no `youtube_id`, or no stretch"):
        find_sources([str(write_list(tmp_path, "x,a,1,2,train,0", line))])


def test_a_line_with_more_cells_than_the_header_is_named(tmp_path: Path) -> None:
    """A label with a comma in it would shift into other columns, or lose its end."""
    with pytest.raises(UsageError, match=r"line 2 of '.*train\.csv' has more cells than the header; put text"):
        find_sources([str(write_list(tmp_path, "x,a,1,2,train,0,more"))])


def test_a_label_in_another_encoding_is_refused(tmp_path: Path) -> None:
    """It had other characters, without a word."""
    listed = write_list(tmp_path, "café,aaaaaaaaaaa,3,13,train,1")
    listed.write_bytes(listed.read_text().encode("latin-1"))
    with pytest.raises(UsageError, match="line 2 of .* in column 'label', which is not UTF-8; write lists in UTF-8"):
        find_sources([str(listed)])


def test_a_cell_without_an_end_is_named(tmp_path: Path) -> None:
    listed = write_list(tmp_path, '"clapping,aaaaaaaaaaa,3,13,train,1', *["dancing,bbbbbbbbbbb,3,13,train,1"] * 5000)
    with pytest.raises(UsageError, match="line 2 of .* is malformed: field larger than .*; a double quote may be"):
        find_sources([str(listed)])


def test_no_line_is_lost_behind_a_cell_without_an_end(tmp_path: Path) -> None:
    """All lines behind it were the end of that cell, without a word."""
    listed = write_list(tmp_path, 'clapping,aaaaaaaaaaa,3,13,train,"1', "dancing,bbbbbbbbbbb,3,13,train,1")
    with pytest.raises(UsageError, match=r"of '.*train\.csv' is malformed: unexpected end of data; a double quote may"):
        find_sources([str(listed)])


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    """The values of the first one were lost."""
    (tmp_path / "list.csv").write_text("label,youtube_id,time_start,time_end, label\nx,a,1,2,y\n")
    with pytest.raises(UsageError, match="two columns 'label'; rename one"):
        find_sources([str(tmp_path / "list.csv")])


def test_columns_without_a_name_are_not_two_of_one_name(tmp_path: Path) -> None:
    """Two commas at the end of the header, or two indices of pandas."""
    (tmp_path / "list.csv").write_text("label,youtube_id,time_start,time_end,,\nx,a,1,2,,\n")
    (source,) = find_sources([str(tmp_path / "list.csv")])
    assert source.id == "a_000001_000002"


def test_text_behind_a_closed_quote_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a double quote may be missing .*; if not, put text that holds quotes in"):
        find_sources([str(write_list(tmp_path, '"clapping" ,a,1,2,train,0'))])


def test_a_list_with_a_path_is_an_ordinary_list(tmp_path: Path) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text("path,youtube_id,time_start,time_end\na.mp4,a,1,2\n")
    (source,) = find_sources([str(listed)])
    assert (source.id, source.part) == ("a.mp4", None)
