"""Lists of sources: text, CSV, TSV, JSONL and Parquet."""

import datetime as dt
import decimal
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from file_permissions import modes_count
from shortgop.errors import SourceNotFoundError, ToolError, UsageError
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.finding.label_lists import read_labels
from shortgop.jobs.finding.source import Source
from shortgop.jobs.finding.source_lists import read_list
from shortgop.prep.probing.probe import probe
from source_arguments import NOT_UTF8, complaint, find_sources, ids, make

pytestmark = pytest.mark.usefixtures("own_folder")

Form = Literal["NFC", "NFD"]


def test_a_text_list_has_one_path_a_line(tmp_path: Path) -> None:
    make("corpus/a.mp4", "corpus/with space.mp4")
    Path("corpus/list.txt").write_bytes(b"# two clips\r\n\n./a.mp4\r\n   \n  # more\nwith space.mp4")
    assert find_sources(["corpus/list.txt"]) == [
        Source("a.mp4", str(tmp_path / "corpus/a.mp4"), "./a.mp4", "{}", is_listed=True),
        Source("with space.mp4", str(tmp_path / "corpus/with space.mp4"), "with space.mp4", "{}", is_listed=True),
    ]


def test_ids_of_a_list_are_its_paths_made_plain() -> None:
    Path("list.txt").write_text("a//b/../c.mp4\n/data/d.mp4\n//data/e.mp4\n../f.mp4\n")
    assert ids("list.txt") == ["../f.mp4", "a/c.mp4", "data/d.mp4", "data/e.mp4"]


def test_paths_that_are_relative_to_the_current_folder_are_noticed(tmp_path: Path) -> None:
    make("videos/a.mp4", "videos/b.mp4", "lists/train.csv")
    Path("lists/train.csv").write_text("path,label\nvideos/a.mp4,1\nvideos/b.mp4,2\n")
    assert complaint("lists/train.csv") == (
        "line 2 of 'lists/train.csv' has 'videos/a.mp4', which is there from the current folder on; paths in a list "
        f"begin in the list's own folder, {str(tmp_path / 'lists')!r}; --list-root . lets them begin in the current one"
    )
    # Where there is something of the path beside the list, the file is missing there.
    make("lists/videos/b.mp4")
    assert ids("lists/train.csv") == ["videos/a.mp4", "videos/b.mp4"]
    Path("lists/train.csv").rename("train.csv")
    assert ids("train.csv") == ["videos/a.mp4", "videos/b.mp4"]


def test_a_listed_file_that_does_not_exist_is_left_for_the_job_to_report(tmp_path: Path) -> None:
    Path("list.txt").write_text("gone.mp4\n")
    assert find_sources(["list.txt"]) == [
        Source("gone.mp4", str(tmp_path / "gone.mp4"), "gone.mp4", "{}", is_listed=True)
    ]


def test_a_text_list_holds_names_that_are_not_utf8() -> None:
    make(NOT_UTF8)
    Path("list.txt").write_bytes(os.fsencode(NOT_UTF8) + b"\n")
    (source,) = find_sources(["list.txt"])
    assert source.id == r"caf\udce9.mp4"
    assert Path(source.path).exists()


def test_a_csv_list_keeps_other_columns_in_their_order() -> None:
    Path("list.csv").write_text(
        '\ufefflabel,path,score,id\n"run, jump",a.mp4,0.50,first\n\nthe "end",b.mp4,,\n', encoding="utf-8"
    )
    second, first = find_sources(["list.csv"])
    assert (first.id, first.given, first.attributes) == (
        "first",
        "a.mp4",
        '{"label": "run, jump", "score": 0.5}',
    )
    assert (second.id, second.attributes) == ("b.mp4", '{"label": "the \\"end\\"", "score": null}')


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", ","), (".tsv", "\t")])
def test_spaces_before_a_cell_are_left_out_but_in_quotes(suffix: str, separator: str) -> None:
    make("a.mp4", " b.mp4")
    lines = [("path", " label", ' "views"'), ("a.mp4", " jump", ' "1"'), ('" b.mp4"', '" run"', "  2")]
    Path(f"list{suffix}").write_text("\n".join(map(separator.join, lines)))
    first, second = sorted(find_sources([f"list{suffix}"]), key=lambda source: source.attributes, reverse=True)
    assert (first.given, json.loads(first.attributes)) == ("a.mp4", {"label": "jump", "views": 1})
    assert (second.given, json.loads(second.attributes)) == (" b.mp4", {"label": " run", "views": 2})
    (labels, _) = read_labels(f"list{suffix}")
    assert (labels.id, labels.columns["label"]) == ("a.mp4", "jump")


def test_a_csv_cell_may_span_lines() -> None:
    make("new\nline.mp4")
    Path("list.csv").write_text('path\n"new\nline.mp4"\n')
    (source,) = find_sources(["list.csv"])
    assert Path(source.path).exists()


def test_a_tsv_list() -> None:
    Path("LIST.TSV").write_text("path\tcaption\na.mp4\tone, two\n")
    (source,) = find_sources(["LIST.TSV"])
    assert json.loads(source.attributes) == {"caption": "one, two"}


def test_a_jsonl_list_keeps_types() -> None:
    Path("list.jsonl").write_text(
        '{"label": 3, "path": "a.mp4", "score": 0.5, "ok": true, "tags": ["x", {"y": null}], "id": "one"}\n'
        "\n"
        '{"path": "b.mp4", "score": NaN, "size": -Infinity, "id": 7, "name": "é\\ud800"}\n'
    )
    second, first = find_sources(["list.jsonl"])
    assert first.id == "one"
    assert first.attributes == '{"label": 3, "score": 0.5, "ok": true, "tags": ["x", {"y": null}]}'
    assert second.id == "7"
    assert second.attributes == '{"score": null, "size": null, "name": "é\\\\ud800"}'


def write_parquet(**columns: list[Any] | pa.Array) -> str:
    pq.write_table(pa.table(columns), "list.parquet")
    return "list.parquet"


def test_a_parquet_list_keeps_types_and_writes_times_and_decimals_as_text() -> None:
    file = write_parquet(
        path=["a.mp4"],
        id=pa.array(["first"]).dictionary_encode(),
        frames=[300],
        score=[float("nan")],
        tags=[["x", "y"]],
        recorded=pa.array([1_700_000_000_123_456_789], pa.timestamp("ns")),
        day=[dt.date(2024, 2, 29)],
        price=[decimal.Decimal("1.20")],
        nested=[{"at": dt.datetime(2024, 2, 29, 12)}],  # noqa: DTZ001
    )
    (source,) = find_sources([file])
    assert source.id == "first"
    assert json.loads(source.attributes) == {
        "frames": 300,
        "score": None,
        "tags": ["x", "y"],
        "recorded": "2023-11-14 22:13:20.123456789",
        "day": "2024-02-29",
        "price": "1.20",
        "nested": {"at": "2024-02-29 12:00:00"},
    }


def test_a_parquet_list_with_bytes_in_it() -> None:
    message = complaint(write_parquet(path=["a.mp4"], label=[3], thumbnail=[b"\xff\xd8"]))
    assert "row 1 of 'list.parquet' has a value of type bytes in column 'thumbnail'; turn that column" in message


def test_without_pyarrow_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    make("list.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ToolError, match="pip install pyarrow"):
        find_sources(["list.parquet"])


def test_pyarrow_and_ray_are_not_imported_for_a_folder() -> None:
    make("corpus/a.mp4")
    program = (
        "import sys; from shortgop.jobs.finding.sources import found_in; import shortgop.jobs.units_of_work.units; "
        "list(found_in(['corpus'])); sys.exit(bool({'pyarrow', 'ray', 'torch'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == 0


def write(name: str, text: str) -> Callable[[], str]:
    def act() -> str:
        Path(name).write_bytes(text.encode("utf-8", "surrogateescape"))
        return name

    return act


@pytest.mark.parametrize(
    ("list_of", "expected"),
    [
        (write("l.txt", "# nothing yet\n"), "the list 'l.txt' is empty"),
        (write("l.txt", "a.mp4\nb\0.mp4\n"), "line 2 of 'l.txt' has 'b\\x00.mp4' as its `path`"),
        (write("l.txt", "a.mp4\n/\n"), "line 2 of 'l.txt' has the folder '/' as its `path`"),
        (
            write("l.txt", "x/a 1.mp4\nx/b.avi 12\n"),
            "line 2 of 'l.txt' is 'x/b.avi 12': a .txt list has one path on each line and no labels; write one with "
            "labels as .csv (pandas: read_csv('l.txt', sep=' ', names=['path', 'label']).to_csv('l.csv', index=False))",
        ),
        (write("l.txt", "a.MP4,3\n"), "read_csv('l.txt', sep=',', names=['path', 'label'])"),
        (write("l.txt", "a.mp4 300 12 \n"), "read_csv('l.txt', sep=' ', names=['path', ..., 'label'])"),
        (write("l.csv", ""), "the list 'l.csv' is empty"),
        (write("l.csv", "path,label\n"), "the list 'l.csv' is empty"),
        (write("l.csv", "path;label\na.mp4;x\n"), "only 'path;label': its separator seems to be ';'; write it"),
        (write("l.csv", "video;label\na.mp4;x\n"), "only 'video;label': its separator seems to be ';'; write it"),
        (write("l.csv", "path\tlabel\na.mp4\tx\n"), r"its separator seems to be '\t'; write it with commas"),
        (write("l.csv", "path label\na.mp4 x\n"), "its separator seems to be ' '; write it with commas"),
        (write("l.csv", "video game\nx\n"), "only 'video game'; rename the column of files"),
        (write("l.csv", "the path\na.mp4\n"), "only 'the path'; rename the column of files"),
        (write("l.csv", "file,label\na.mp4,x\n"), "has no column `path`, only 'file', 'label'"),
        (write("l.csv", "path,file_name\n,a.mp4\n"), "line 2 of 'l.csv' has an empty `path`"),
        (write("l.csv", f"path,label\na.mp4,{'x' * 140_000}\n"), "line 2 of 'l.csv' has a cell of more than 131,072"),
        (
            write("l.csv", 'path,label\na.mp4,"x\n' + "b.mp4,y\n" * 20_000),
            "a double quote may be missing at its end; if",
        ),
        (
            write("l.csv.gz", ""),
            "the list 'l.csv.gz' is packed, by its name, and lists are read as they are",
        ),
        (
            write("l.csv", "a.mp4,1\nb.mp4,2\n"),
            "begins with a file and not with the names of its columns, '1', 'a.mp4'",
        ),
        (write("l.csv", "x/a.MKV 1\nb.mp4 2\n"), "put a line such as `path,label` before it, and commas between"),
        (write("l.csv", "path,label,label\na.mp4,x,y\n"), "has two columns 'label'"),
        (
            write("l.csv", "path,label\na.mp4,x\nb.mp4,x,y\n"),
            "line 3 of 'l.csv' has 3 cells and the header 2",
        ),
        (write("l.csv", "path,label\na.mp4\n"), "line 2 of 'l.csv' has 1 cell and the header 2; add the cells"),
        (write("l.csv", "path,label\n,x\n"), "line 2 of 'l.csv' has an empty `path`; give the video's file there"),
        (write("l.csv", 'path,label\na.mp4,"x\nb.mp4,y\n'), "line 2 of 'l.csv' is malformed"),
        (write("l.jsonl", '{"path": "a.mp4"}\n{"path": \n'), "line 2 of 'l.jsonl' is not JSON"),
        (write("l.jsonl", "[" * 100_000), "line 1 of 'l.jsonl' is not JSON"),
        (
            write("l.jsonl", '{"path": "a.mp4"}\n{"path": "b.mp4", "label": 1, "label": 2}\n'),
            "line 2 of 'l.jsonl' has 'label' twice; take one of them out, or rename it",
        ),
        (write("l.jsonl", '{"path": "a.mp4", "of": {"x": 1, "y": 2, "x": 1}} \n'), "line 1 of 'l.jsonl' has 'x' twice"),
        (write("l.jsonl", '["a.mp4"]\n'), "line 1 of 'l.jsonl' is not an object"),
        (write("l.jsonl", '{"file": "a.mp4"}\n'), "line 1 of 'l.jsonl' has no `path`, only 'file'"),
        (
            write("l.jsonl", '{"path": 3}\n'),
            "line 1 of 'l.jsonl' has 3 as its `path`; write the name of the video's file",
        ),
        (write("l.jsonl", '{"path": "\\ud800"}\n'), "line 1 of 'l.jsonl' has '\\ud800' as its `path`"),
        (write("l.jsonl", '{"path": "a.mp4", "id": 1.5}\n'), "line 1 of 'l.jsonl' has 1.5 as its `id`"),
        (
            write("l.json", '[{"path": "a.mp4"}]'),
            "'l.json' is neither a video nor a list by its name, and lists are .txt",
        ),
        (write("l.json", '[{"path": "a.mp4"}]'), "write an object on each line of a .jsonl file (pandas: to_json("),
        (write("l.XLSX", "PK"), "'l.XLSX' is neither a video nor a list by its name"),
        (write("l.parquet", "path\na.mp4\n"), "cannot read 'l.parquet' as Parquet"),
        (lambda: write_parquet(path=pa.array([], pa.string())), "the list 'list.parquet' is empty"),
        (lambda: write_parquet(file=["a.mp4"]), "has no column `path`, only 'file'"),
        (lambda: write_parquet(path=["a.mp4", None]), "row 2 of 'list.parquet' has no `path`"),
    ],
)
def test_a_list_that_cannot_be_used(list_of: Callable[[], str], expected: str) -> None:
    assert expected in complaint(list_of())


@pytest.mark.parametrize("name", ["list.txt", "list.csv", "list.jsonl"])
def test_a_list_that_may_not_be_read(name: str) -> None:
    make(name)
    Path(name).chmod(0)
    with modes_count():
        assert f"cannot read the list {name!r}: Permission denied" in complaint(name)


def test_a_pipe_of_columns_is_refused_and_not_waited_for() -> None:
    os.mkfifo("list.csv")
    assert "the list 'list.csv' is a pipe, and a list of columns is read twice" in complaint("list.csv")


def test_rows_with_the_same_id_for_two_files() -> None:
    Path("list.csv").write_text("path,id\na.mp4,x\nb.mp4,x\n")
    message = complaint("list.csv")
    assert "'a.mp4' (line 2 of 'list.csv') and 'b.mp4' (line 3 of 'list.csv')" in message
    assert "the same id 'x'" in message


def test_rows_that_say_different_things_of_one_file() -> None:
    Path("list.csv").write_text("path,label\na.mp4,walk\n./a.mp4,run\n")
    message = complaint("list.csv")
    assert "different attributes (line 2 of 'list.csv' and line 3 of 'list.csv')" in message
    assert "remove one line, add an `id` column in which they differ" in message


def test_rows_that_say_the_same_of_one_file_are_one_source() -> None:
    Path("list.csv").write_text("path,label\na.mp4,walk\n./a.mp4,walk\n")
    assert ids("list.csv") == ["a.mp4"]


def test_one_file_may_be_two_videos_under_two_ids() -> None:
    Path("list.csv").write_text("path,label,id\na.mp4,walk,1\na.mp4,run,2\n")
    assert ids("list.csv") == ["1", "2"]


@pytest.mark.parametrize("arguments", [["corpus", "corpus/list.csv"], ["corpus/list.csv", "corpus"]])
def test_a_list_adds_attributes_to_what_a_folder_holds(arguments: list[str]) -> None:
    make("corpus/a.mp4", "corpus/b.mp4")
    Path("corpus/list.csv").write_text("path,label\na.mp4,walk\n")
    assert [source.attributes for source in find_sources(arguments)] == ['{"label": "walk"}', "{}"]


def test_a_file_whose_name_ends_in_a_number_behind_a_space(tmp_path: Path) -> None:
    """It is no file with a label."""
    (tmp_path / "a.mp4 2").touch()
    (tmp_path / "list.txt").write_text("a.mp4 2\nb 3.mp4\n")
    assert [row.path for row in read_list(str(tmp_path / "list.txt"))] == ["a.mp4 2", "b 3.mp4"]


def test_a_column_without_a_name_is_refused(tmp_path: Path) -> None:
    """As pandas writes its index."""
    (tmp_path / "list.csv").write_text(",path,label\n0,a.mp4,3\n")
    with pytest.raises(UsageError, match="has a column without a name; name it, or leave it out"):
        list(read_list(str(tmp_path / "list.csv")))


@pytest.mark.long
def test_a_long_csv_list_is_not_in_memory(tmp_path: Path) -> None:
    """The types of its columns are those of all cells, so it is read twice."""
    lines = [f"{number}.mp4,{'caption ' * 20},{number}" for number in range(20_000)]
    (tmp_path / "list.csv").write_text("\n".join(["path,caption,views", *lines]))
    tracemalloc.start()
    count = sum(json.loads(row.attributes)["views"] >= 0 for row in read_list(str(tmp_path / "list.csv")))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert peak_bytes < 500_000


def test_a_link_that_leads_nowhere_is_called_a_link() -> None:
    make("corpus/a.mp4")
    Path("corpus/gone.mp4").symlink_to("elsewhere.mp4")
    said = r"is a link to 'elsewhere\.mp4', which does not exist; put that there, or make the link again"
    with pytest.raises(UsageError, match=said):
        find_sources(["corpus/gone.mp4"])
    with pytest.raises(SourceNotFoundError, match=said):
        identity_of("corpus/gone.mp4")
    with pytest.raises(SourceNotFoundError, match=said):
        probe("corpus/gone.mp4")


@pytest.mark.parametrize("name", ["a.mp4 ", " a.mp4", "a.mp4\u00a0"])
def test_a_space_at_an_end_of_a_name_is_pointed_at(name: str) -> None:
    make("corpus/a.mp4")
    with pytest.raises(SourceNotFoundError, match="with a space at an end: take that out, or") as caught:
        identity_of(f"corpus/{name}")
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(("there", "listed"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_a_name_that_is_there_in_another_form_of_unicode_is_pointed_at(there: Form, listed: Form) -> None:
    """As where a list was written on macOS, or the videos were copied from there: both look the same."""
    name = "caf\xe9.mp4"
    make(f"corpus/{unicodedata.normalize(there, name)}", "corpus/b.mp4")
    with pytest.raises(SourceNotFoundError, match=rf"in Unicode's form {there}: write the path in that form, as "):
        identity_of(f"corpus/{unicodedata.normalize(listed, name)}")
    with pytest.raises(SourceNotFoundError, match="does not exist; put the file there, or"):
        identity_of("corpus/caf\xe8.mp4")


def test_of_a_disk_that_is_not_mounted_the_empty_folder_is_named(tmp_path: Path) -> None:
    make("disk/videos/day 1/a.mp4", "list.txt")
    Path("list.txt").write_text("disk/videos/day 1/a.mp4\ndisk/videos/b.mp4\n")
    assert [source.id for source in find_sources(["list.txt"])] == ["disk/videos/b.mp4", "disk/videos/day 1/a.mp4"]
    shutil.rmtree("disk/videos")
    for source in find_sources(["list.txt"]):
        with pytest.raises(SourceNotFoundError) as caught:
            probe(source.path)
        assert str(caught.value).startswith(
            f"{source.path} does not exist, and the folder {str(tmp_path / 'disk')!r} is empty; "
            "mount the disk if one belongs there, or check the name"
        )
