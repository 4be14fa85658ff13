"""The types of columns in CSV and TSV lists: what is inferred, what is shown of it, and what may be given instead."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import UsageError
from shortgop.jobs.finding.column_types import ColumnType, parse_types, typed, types_text
from shortgop.jobs.finding.label_lists import columns_by_id, read_labels
from shortgop.jobs.sources.labels import annotate
from source_arguments import complaint, find_sources

pytestmark = pytest.mark.usefixtures("own_folder")


def type_of(cells: Sequence[str]) -> str:
    column = ColumnType()
    for cell in cells:
        column.see(cell)
    return column.kind


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["3", "-1", "0"], "integer", [3, -1, 0]),
        (["3", "", " 4"], "integer", [3, None, 4]),
        (["3", "0.5", ".5", "1e-3", "nan"], "float", [3.0, 0.5, 0.5, 0.001, None]),
        (["true", "False", ""], "boolean", [True, False, None]),
        (['{"x": 1}', "[1, 2]"], "json", [{"x": 1}, [1, 2]]),
        (["run", "3", ""], "text", ["run", "3", ""]),
        # Codes, phone numbers and integers that no 64 bits hold.
        (["007", "008"], "text", ["007", "008"]),
        (["+4915112345678"], "text", ["+4915112345678"]),
        (["12345678901234567890"], "text", ["12345678901234567890"]),
        (["12345678901234567890", "0.5"], "text", ["12345678901234567890", "0.5"]),
        (["00.5"], "text", ["00.5"]),
        (["1_000", "2"], "text", ["1_000", "2"]),
        (["nan", "inf"], "text", ["nan", "inf"]),
        (["", ""], "text", ["", ""]),
        (["1", "true"], "text", ["1", "true"]),
        (["{", "[1]"], "text", ["{", "[1]"]),
        (["2024-02-29"], "text", ["2024-02-29"]),
    ],
)
def test_a_column_has_the_type_of_all_its_cells(cells: list[str], kind: str, values: list[Any]) -> None:
    assert type_of(cells) == kind
    found = [typed(cell, kind) for cell in cells]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in values]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1))
def test_integers_come_back(numbers: list[int]) -> None:
    cells = [str(number) for number in numbers]
    assert [typed(cell, type_of(cells)) for cell in cells] == numbers


@given(st.lists(st.text()))
def test_any_column_has_a_type_that_its_cells_are_of(cells: list[str]) -> None:
    for cell in cells:
        typed(cell, type_of(cells))


def test_the_types_are_shown_and_can_be_given() -> None:
    Path("labels.csv").write_text("path,label,split,code\na.mp4,3,train,1\nb.mp4,,test,2\n")
    shown: list[str] = []

    def on_types(file: str, types: Any) -> None:
        shown.append(types_text(file, types))

    types = parse_types(["code=text"])
    sources = find_sources(["labels.csv"], types=types, on_types=on_types)
    assert shown == ["labels.csv: label integer, split text, code text"]
    assert [json.loads(source.attributes) for source in sources] == [
        {"label": 3, "split": "train", "code": "1"},
        {"label": None, "split": "test", "code": "2"},
    ]


def test_a_cell_that_is_not_of_the_given_type_is_named() -> None:
    Path("labels.csv").write_text("path,label\na.mp4,3\nb.mp4,x\n")
    with pytest.raises(UsageError, match=r"line 3 of 'labels.csv' has 'x' in column 'label', which is to be integer"):
        find_sources(["labels.csv"], types={"label": "integer"})


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("label", "give --types label=text"),
        ("shot size", "give --types 'shot size=text'"),
        ("a,b", "give types={'a,b': 'text'} in Python (--types takes no name with a comma)"),
    ],
)
def test_the_advice_for_a_wrong_cell_can_be_followed(name: str, advice: str) -> None:
    Path("labels.csv").write_text(f'path,"{name}"\na.mp4,x\n')
    with pytest.raises(UsageError, match=re.escape(f"correct that cell, or {advice}")):
        find_sources(["labels.csv"], types={name: "integer"})


def test_a_type_of_a_column_that_no_list_has_is_refused() -> None:
    Path("labels.csv").write_text("path,label\na.mp4,3\n")
    with pytest.raises(UsageError, match="--types names 'lable', which is no column .*; name one of 'label'$"):
        find_sources(["labels.csv"], types={"lable": "text"})


@pytest.mark.parametrize("text", ["label", "=text", "label=number", "label:text"])
def test_types_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="it takes COLUMN=TYPE, with integer, boolean, float, json or text"):
        parse_types([text])


def test_a_type_that_there_is_not_is_not_taken_for_a_wrong_cell() -> None:
    """As a caller of `prepare` or `annotate` may write it."""
    Path("labels.csv").write_text("path,label\na.mp4,3\n")
    with pytest.raises(UsageError, match="--types has 'label=int'; it takes COLUMN=TYPE, with integer"):
        find_sources(["labels.csv"], types={"label": "int"})
    with pytest.raises(UsageError, match="--types has 'label=int'; it takes COLUMN=TYPE, with integer"):
        annotate("dataset", "labels.csv", types={"label": "int"})


def test_a_list_of_labels_needs_an_id_or_a_path() -> None:
    Path("labels.csv").write_text("id,label\na,1\na,1\nb,2\n")
    assert columns_by_id(read_labels("labels.csv")) == {"a": {"label": 1}, "b": {"label": 2}}
    Path("labels.jsonl").write_text('{"path": "./x/../a.mp4", "label": 1}\n{"id": 7, "path": "b.mp4", "label": 2}\n')
    assert [line.id for line in read_labels("labels.jsonl")] == ["a.mp4", "7"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file,label\na,1\n", "has no column `id` or `path`, only 'file', 'label'"),
        ("id,label\n,1\n", "line 2 of 'labels.csv' has neither an `id` nor a `path`"),
        ("id,label\na,1\na,2\n", "line 2 of 'labels.csv' and line 3 of 'labels.csv' give 'a' different columns"),
    ],
)
def test_a_list_of_labels_that_cannot_be_used(text: str, expected: str) -> None:
    Path("labels.csv").write_text(text)
    with pytest.raises(UsageError, match=expected):
        columns_by_id(read_labels("labels.csv"))


def test_the_same_file_twice_with_columns_of_two_types_is_refused() -> None:
    Path("one.csv").write_text("path,label\na.mp4,3\n")
    Path("two.csv").write_text("path,label\na.mp4,3\nb.mp4,x\n")
    assert "listed twice with different attributes" in complaint("one.csv", "two.csv")
