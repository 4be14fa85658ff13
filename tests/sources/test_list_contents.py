"""What lists have in them: other encodings, other tools' names of columns, and contents that change."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shortgop.errors import UsageError
from shortgop.jobs.finding import typed_lines
from shortgop.jobs.finding.label_lists import read_labels
from shortgop.jobs.finding.list_lines import Line, batches_of, first_of_parquet
from shortgop.jobs.finding.source_lists import read_list
from source_arguments import find_sources, make

pytestmark = pytest.mark.usefixtures("own_folder")


def test_a_list_in_another_encoding_is_refused(tmp_path: Path) -> None:
    """Its labels would be wrong without an error."""
    (tmp_path / "list.csv").write_bytes("path,city\na.mp4,München\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"line 2 of .*in column 'city', which is not UTF-8; write lists in UTF-8"):
        list(read_list(str(tmp_path / "list.csv")))


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("list.csv", "path,été\na.mp4,3\n", r"the list .* has '\\udce9t\\udce9' among the names of its columns"),
        ("list.jsonl", '{"path": "a.mp4", "été": 3}\n', "line 1 of .*, which is not UTF-8"),
        ("list.jsonl", '{"path": "a.mp4", "seen": ["été"]}\n', "line 1 of .* in column 'seen', which is not UTF-8"),
        ("list.jsonl", '{"path": "a.mp4", "seen": {"été": 1}}\n', "line 1 of .* in column 'seen', which is not UTF-8"),
    ],
)
def test_names_and_values_in_values_are_utf8_too(tmp_path: Path, name: str, text: str, place: str) -> None:
    """The dataset had a column called \\udce9t\\udce9 where its values were numbers."""
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=place):
        list(read_list(str(tmp_path / name)))
    with pytest.raises(UsageError, match=place):
        read_labels(str(tmp_path / name))


@pytest.mark.parametrize("content", ["path,label\n".encode("utf-16-le"), b"\x1f\x8b\x08\x00packed"])
def test_a_list_that_is_no_text_is_called_that(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list.csv").write_bytes(content)
    with pytest.raises(UsageError, match="is not UTF-8; write lists in UTF-8, and unpack those that are packed"):
        list(read_list(str(tmp_path / "list.csv")))


@pytest.mark.parametrize("column", ["file_name", "video", "video_path"])
@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl", "metadata.parquet"])
def test_a_list_names_files_as_other_tools_do(tmp_path: Path, name: str, column: str) -> None:
    """Hugging Face's VideoFolder, and codes that train on videos and texts."""
    make("corpus/train/1.mp4", "corpus/2")
    file = tmp_path / "corpus" / name
    if name == "metadata.csv":
        file.write_text(f"{column},label\ntrain/1.mp4,3\n2,4\n")
    elif name == "metadata.jsonl":
        file.write_text(f'{{"{column}": "train/1.mp4", "label": 3}}\n{{"{column}": "2", "label": 4}}\n')
    else:
        pq.write_table(pa.table({column: ["train/1.mp4", "2"], "label": [3, 4]}), file)
    second, first = find_sources([f"corpus/{name}"])
    assert (first.id, first.path) == ("train/1.mp4", f"{tmp_path}/corpus/train/1.mp4")
    assert (second.id, second.path) == ("2", f"{tmp_path}/corpus/2")
    # Items of training have a `video` of their own.
    also = {} if column == "video" else {column: ""}
    columns = {name: {**dict.fromkeys(also, name), "label": label} for name, label in (("2", 4), ("train/1.mp4", 3))}
    assert {each.id: json.loads(each.attributes) for each in (second, first)} == columns
    # A list of labels sets the same columns.
    assert {each.id: each.columns for each in read_labels(str(file))} == columns


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("path,label,score\na.mp4,3,0.5\n", "path,label\na.mp4,3\n"),
        ("path,label,score\na.mp4,3,0.5\n", "path,score,label,split\na.mp4,3,4,5\n"),
        ("path,label\n", "path,label\na.mp4,3\n"),
    ],
)
def test_a_list_that_is_replaced_while_it_is_read_is_refused(
    before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns would have no types: those that were there before are inferred by then."""
    Path("list.csv").write_text(before)

    def read_and_replace(file: str, keys: tuple[str, ...]) -> Iterator[list[Line]]:
        yield from batches_of(file, keys)
        Path("list.csv").write_text(after)

    monkeypatch.setattr(typed_lines, "batches_of", read_and_replace)
    with pytest.raises(UsageError, match="got other columns while it was read; run the same command"):
        list(read_list("list.csv"))


def test_file_name_is_a_column_like_others_beside_a_path() -> None:
    make("a.mp4")
    Path("list.csv").write_text("path,file_name,video\na.mp4,7,8\n")
    (source,) = find_sources(["list.csv"])
    assert (source.path.rpartition("/")[2], source.attributes) == ("a.mp4", '{"file_name": 7, "video": 8}')


@pytest.mark.parametrize("columns", ["path", "file_name", "video", "video_path", "file_name,video"])
def test_a_list_with_ids_means_the_same_videos_and_columns_to_prep_and_annotate(columns: str) -> None:
    """Without an id, also where it is empty, the file says which video it is. Its name is text, also if it is a
    number."""
    more = ",8" * columns.count(",")
    Path("list.csv").write_text(f"id,{columns},label\nv1,1{more},3\n,2{more},4\n")
    rows, labels = list(read_list("list.csv")), read_labels("list.csv")
    assert [(row.id, row.path) for row in rows] == [("v1", "1"), (None, "2")]
    assert [(each.id, each.path) for each in labels] == [("v1", ""), ("2", "2")]
    assert [each.columns for each in labels] == [json.loads(row.attributes) for row in rows]


def test_a_table_with_ids_may_have_numbers_where_others_have_files() -> None:
    pq.write_table(pa.table({"id": ["v1"], "file_name": [7], "label": [3]}), "labels.parquet")
    assert [each.columns for each in read_labels("labels.parquet")] == [{"file_name": 7, "label": 3}]


def test_of_several_columns_of_files_one_is_taken_for_the_path() -> None:
    make("a.mp4")
    for other in ("file_name", "video_path"):
        Path("list.csv").write_text(f"video,{other}\n8,a.mp4\n")
        (source,) = find_sources(["list.csv"])
        assert (source.path.rpartition("/")[2], source.attributes) == ("a.mp4", f'{{"video": 8, "{other}": "a.mp4"}}')


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (('{"path": "a.mp4", "video": "v1"}', '{"video": "v2", "label": 3}'), "has no `path`, only 'label', 'video'"),
        (('{"file_name": "a.mp4"}', '{"video": "b.mp4"}'), "has no `file_name`, only 'video'"),
        (('{"video": "a.mp4"}', '{"video": "b.mp4", "path": "c.mp4"}'), "has a `path` and a `video`, and the list"),
        (('{"file_name": "a.mp4"}', '{"file_name": "b.mp4", "path": "c.mp4"}'), "has a `path` and a `file_name`, and"),
        (('{"video": "a.mp4"}', '{"path": "c.mp4"}'), "has no `video`, only 'path'"),
    ],
)
def test_the_first_line_says_which_column_has_the_files(lines: tuple[str, str], error: str) -> None:
    """A line that lacks it made a video of what is a label elsewhere."""
    Path("list.jsonl").write_text("\n".join(lines))
    with pytest.raises(UsageError, match=f"line 2 of 'list.jsonl' {error}"):
        list(read_list("list.jsonl"))


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (('{"id": "a", "label": 3}', '{"video": "y", "label": 3}'), "has neither an `id` nor a `path`"),
        (('{"id": "a", "video": "x"}', '{"video": "y", "path": "z"}'), "has a `path` and a `video`, and the list's"),
    ],
)
def test_the_first_line_of_a_list_of_labels_says_so_too(lines: tuple[str, str], error: str) -> None:
    Path("labels.jsonl").write_text("\n".join(lines))
    with pytest.raises(UsageError, match=f"line 2 of 'labels.jsonl' {error}"):
        read_labels("labels.jsonl")


@pytest.mark.parametrize("kind", [pa.binary(), pa.struct([("bytes", pa.binary()), ("path", pa.string())])])
def test_videos_that_are_in_a_table_are_not_taken_for_paths(kind: pa.DataType) -> None:
    """The error held the bytes of a video. They are not even read: here that would fail."""
    values = pa.array([b"x" if kind == pa.binary() else {"bytes": b"x", "path": "a.mp4"}], type=kind)
    pq.write_table(pa.table({"video": values, "label": [3]}), "list.parquet")
    data = Path("list.parquet").read_bytes()
    Path("list.parquet").write_bytes(data[:4] + b"\xff" * 20 + data[24:])
    reads: tuple[Callable[[], object], ...] = (
        lambda: list(read_list("list.parquet")),
        lambda: read_labels("list.parquet"),
        lambda: first_of_parquet("list.parquet", 1),
    )
    for read in reads:
        with pytest.raises(UsageError, match="no column `path`, and its column 'video' has no paths but ") as caught:
            read()
        assert len(str(caught.value)) < 300


def test_columns_of_files_may_be_categories() -> None:
    names = pa.array(["a.mp4", "b.mp4"]).dictionary_encode()
    pq.write_table(pa.table({"video_path": names}), "list.parquet")
    assert [row.path for row in read_list("list.parquet")] == ["a.mp4", "b.mp4"]


def test_an_error_names_the_column_and_little_of_a_long_value() -> None:
    Path("list.jsonl").write_text('{"video": ["' + "x" * 10_000 + '"]}\n')
    with pytest.raises(UsageError, match="has .* as its `video`") as caught:
        list(read_list("list.jsonl"))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["list.csv", "list.tsv", "list.jsonl", "list.txt"])
def test_a_list_in_utf_16_is_called_that(tmp_path: Path, name: str, encoding: str) -> None:
    """As Excel and PowerShell write it: its columns seemed to have names of unprintable characters."""
    (tmp_path / name).write_bytes("\ufeffpath\ta\na.mp4\t1\n".encode(encoding))
    with pytest.raises(UsageError, match=r"is UTF-16, as Excel's .* turn it into UTF-8, as `iconv -f UTF-16 -t UTF-8`"):
        list(read_list(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("lines", "columns", "rename"),
    [
        ("id\na.mp4\n", "'id'", ""),
        ("path\na.mp4\n", "'path'", ""),
        ("id,path\na.mp4,x\n", "'id', 'path'", ", or rename 'path' if it is a label"),
        ("id,video\na.mp4,a cat\n", "'id', 'video'", ", or rename 'video' if it is a label"),
    ],
)
def test_a_list_of_labels_that_says_only_which_videos_are_meant_is_refused(
    tmp_path: Path, lines: str, columns: str, rename: str
) -> None:
    (tmp_path / "list.csv").write_text(lines)
    expected = f"has no column to set besides those that say which videos are meant, {columns}; add one{rename}"
    with pytest.raises(UsageError, match=f"{re.escape(expected)}$"):
        read_labels(str(tmp_path / "list.csv"))
