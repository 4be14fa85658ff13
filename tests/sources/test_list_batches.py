"""Lists are read in batches of lines, which is faster; what comes of it is what each line alone would give."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shortgop.errors import UsageError
from shortgop.jobs.finding import column_types, list_lines, source_lists
from shortgop.jobs.finding.column_types import ColumnType, typed, typed_cells
from shortgop.jobs.finding.source_lists import Row, read_list
from shortgop.jobs.finding.sources import found_in
from shortgop.jobs.finding.video_names import is_video_name
from shortgop.jobs.sources.source_table import SourceTable
from source_arguments import complaint, make

pytestmark = pytest.mark.usefixtures("own_folder")

TEXTS = st.text(st.characters(exclude_categories=()), max_size=4) | st.sampled_from(["a.mp4", "nul\0", "\udce9", "ü"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
PATHS = st.sampled_from(["a.mp4", "/b.mp4", "c/../d.mp4", "s3://bucket/e.mp4"]) | TEXTS
OBJECTS = st.fixed_dictionaries(
    {"path": PATHS},
    optional={"id": st.none() | st.integers() | TEXTS | st.booleans(), "x": JSON_VALUES, "y": JSON_VALUES},
)
WRITTEN = st.builds(
    lambda value, ascii_only, end: json.dumps(value, ensure_ascii=ascii_only) + end,
    OBJECTS,
    st.booleans(),
    st.sampled_from(["", "", "\r", " "]),
)
# Some lines are wrong, and the first of these is to be told.
ODD = ["", '{"id": 1}', "{", "[1]", '{"path": 3}', ' {"path": "z"}', '{"path": "a"},{"path": "b"}']
JSON_LINES = WRITTEN | st.sampled_from(ODD)
CELLS = st.sampled_from([
    *("", " ", "0", "-0", "7", "-12", "007", "+1", "123456789012345678", "1234567890123456789", "12345678901234567890"),
    *("0.5", "-0.0", "-.5", "5.", "1e5", "1E-5", "1e400", "1e+3", "0.10", "nan", "-inf", " 3 ", "\u0663", "1_0", "3\n"),
    *("true", "FALSE", "[1]", '{"a": NaN}', '"text"', "words", "\udce9"),
])  # fmt: skip


def slowly(patch: pytest.MonkeyPatch) -> None:
    """Take each line alone, and the general way."""

    def refuse(*_: Any) -> Any:
        raise ValueError

    patch.setattr(list_lines, "_BATCH_LINES", 1)
    patch.setattr(list_lines, "_decoded", refuse)
    patch.setattr(source_lists, "_texts", lambda _: [])
    patch.setattr(column_types, "_are_plain", lambda *_: False)


def outcome(file: str) -> tuple[list[Row], str]:
    """The rows of a list up to the first line that is wrong, and what is said of that."""
    rows: list[Row] = []
    try:
        rows.extend(read_list(file))
    except UsageError as error:
        return rows, error.message
    return rows, ""


def assert_batches_make_no_difference(file: str) -> None:
    found = outcome(file)
    with pytest.MonkeyPatch.context() as patch:
        slowly(patch)
        assert found == outcome(file)


SETTINGS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SETTINGS
@given(st.lists(JSON_LINES, min_size=1, max_size=8))
def test_a_jsonl_list(lines: Sequence[str]) -> None:
    Path("list.jsonl").write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    assert_batches_make_no_difference("list.jsonl")


@SETTINGS
@given(st.lists(st.tuples(PATHS, CELLS, CELLS), min_size=1, max_size=8))
def test_a_csv_list(rows: Sequence[tuple[str, str, str]]) -> None:
    lines = ["path,x,y", *(",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)]
    Path("list.csv").write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    assert_batches_make_no_difference("list.csv")


@given(st.lists(CELLS, min_size=1, max_size=6), st.lists(CELLS, min_size=1, max_size=6))
def test_the_type_of_a_column(first: list[str], then: list[str]) -> None:
    fast, slow = ColumnType(), ColumnType()
    fast.see_all(first)
    fast.see_all(then)
    for cell in (*first, *then):
        slow.see(cell)
    assert fast.kind == slow.kind
    cells = [*first, *then]
    assert repr(typed_cells(cells, fast.kind)) == repr([typed(cell, fast.kind) for cell in cells])


@given(CELLS, st.sampled_from(["integer", "float"]))
def test_a_number_that_is_taken_for_plain_is_one(cell: str, kind: str) -> None:
    def value(of: Callable[[], Any]) -> str:
        try:
            return repr(of())
        except ValueError:
            return "refused"

    assert value(lambda: typed_cells([cell], kind)[0]) == value(lambda: typed(cell, kind))


def test_the_first_of_two_wrong_lines_is_told() -> None:
    Path("list.jsonl").write_text('{"path": "a.mp4"}\n{"path": 3}\nnot JSON\n')
    assert "line 2 of 'list.jsonl' has 3 as its `path`" in complaint("list.jsonl")
    Path("list.jsonl").write_text('{"path": "a.mp4"}\n{"path": "b.mp4", "x": "\\udce9"}\n{"path": 3}\n')
    assert "line 2 of 'list.jsonl' has '\\udce9' in column 'x', which is not UTF-8" in complaint("list.jsonl")


def test_a_wrong_line_behind_a_full_batch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_lines, "_BATCH_LINES", 2)
    Path("list.csv").write_text("path,x\na.mp4,1\nb.mp4,2\nc.mp4\n")
    assert "line 4 of 'list.csv' has 1 cell and the header 2" in complaint("list.csv")


def test_a_wrong_path_in_front_of_a_wrong_cell_is_told() -> None:
    Path("list.csv").write_text("path,x\n\0,1\nb.mp4,word\n")
    with pytest.raises(UsageError, match=r"line 2 of 'list.csv' has '\\x00' as its `path`"):
        list(read_list("list.csv", types={"x": "integer"}))


@given(st.lists(st.sampled_from(["a", ".", "/", ".mp4", "mp4", ".MKV"])).map("".join))
def test_a_video_is_known_by_its_suffix(name: str) -> None:
    assert is_video_name(name) == (os.path.splitext(name)[1] in (".mp4", ".MKV"))  # noqa: PTH122


def calls_for(argument: str) -> int:
    """How many calls of functions, those of Python itself among them, listing an argument takes. Unlike the time, they
    are the same on any machine."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with SourceTable() as table:
        sys.setprofile(count)
        try:
            table.add(found_in([argument]))
        finally:
            sys.setprofile(None)
    return calls


@pytest.mark.parametrize(("name", "most"), [("list.txt", 35), ("list.jsonl", 36), ("list.csv", 39), ("corpus", 21)])
def test_a_source_takes_few_calls(name: str, most: int) -> None:
    """A million of them should take seconds: docs/design/jobs.md."""
    numbers = range(1500)
    paths = [f"/data/corpus/{number}.mp4" for number in numbers]
    if name == "corpus":
        make(*(f"corpus/{number}.mp4" for number in numbers))
    elif name == "list.txt":
        Path(name).write_text("\n".join(paths))
    elif name == "list.jsonl":
        objects = [{"path": path, "caption": "a thing", "score": number / 7} for number, path in enumerate(paths)]
        Path(name).write_text("\n".join(map(json.dumps, objects)))
    else:
        cells = [f"{path},a thing,{number / 7}" for number, path in enumerate(paths)]
        Path(name).write_text("\n".join(["path,caption,score", *cells]))
    assert calls_for(name) < most * len(numbers)
