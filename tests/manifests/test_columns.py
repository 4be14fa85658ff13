"""`Dataset.columns`: what is known of all videos as arrays, from a snapshot's own columns or from the JSON."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortgop
from dataset_paths import snapshot_path
from example_manifests import video
from shortgop.errors import CorruptDataError
from shortgop.manifests import parsed_columns
from shortgop.manifests.dataset_files import publish as publish_module
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshot_columns import open_column_kinds, open_own_columns
from shortgop.manifests.dataset_files.snapshots import open_manifest
from shortgop.manifests.label_columns import text_array
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.operations.verify import verify
from shortgop.manifests.parsed_columns import derived_columns
from shortgop.manifests.ragged import Ragged, from_texts
from shortgop.manifests.schema import OFFSETS
from shortgop.manifests.tables import Manifest
from shortgop.manifests.zarr_files import zarr_zip as zips
from shortgop.manifests.zarr_files.zarr_small import array_files
from shortgop.storage.disk import DiskStorage
from training_videos import make_videos


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("columns"))


def attributes_of(rows: Iterable[Any]) -> Ragged:
    return from_texts(json.dumps(row) for row in rows)


def array_of(*values: Any) -> np.ndarray[Any, Any]:
    """The column of these values; `...` stands for a video that the list said nothing of."""
    attributes = attributes_of({} if value is ... else {"x": value} for value in values)
    return derived_columns(attributes)["x"].array()


def published_with(rows: list[dict[str, Any]], path: Path) -> Path:
    """A dataset of made-up videos that have these attributes; there are no shards."""
    path.mkdir(parents=True)
    create(DiskStorage(path), {})
    manifests = []
    for number, row in enumerate(rows):
        one = video(f"v{number:06}", shard=f"{number}.shard", frames=2)
        manifests.append(replace(one, videos=replace(one.videos, attributes=attributes_of([row]))))
    write_part(DiskStorage(path), "u1", merge(manifests))
    publish(DiskStorage(path))
    return path


def with_members(dataset: Path, change: Any) -> None:
    """Write the snapshot again with the members that `change` makes of its members."""
    file = snapshot_path(dataset, "000001")
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    file.write_bytes(zips.pack(change(members)))


def without_columns(members: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in members.items() if not name.startswith("columns/")}


def test_columns_of_lists_and_of_the_dataset_itself(folder: Path) -> None:
    columns = shortgop.open(folder).columns
    assert columns["label"].dtype == np.int64
    assert columns["label"].tolist() == [0, 1, 1]
    assert columns["weight"].tolist() == [0.5, 1.5, 2.0]
    assert columns["kind"].tolist() == ["cat", "dog", "dog"]
    assert (columns["kind"] == "dog").tolist() == [False, True, True]
    assert columns["id"].tolist() == ["a.mp4", "b.mp4", "c.mp4"]
    assert columns["source"].tolist() == [str(folder.parent / name) for name in columns["id"].tolist()]
    assert columns["num_frames"].tolist() == [40, 25, 9]
    assert columns["fps"].tolist() == [10.0, 30.0, 10.0]
    assert columns["duration_seconds"].tolist() == [4.0, 25 / 30, 0.9]
    assert (columns["width"].tolist(), columns["height"].tolist()) == ([96] * 3, [64] * 3)
    assert columns["codec"].tolist() == ["h264"] * 3
    for name in ("num_frames", "width", "height"):
        assert columns[name].dtype == np.int64
    for name in ("id", "source", "codec", "kind"):
        assert columns[name].dtype.kind == "T"


def test_columns_are_a_mapping_that_shows_its_names(folder: Path) -> None:
    columns = shortgop.open(folder).columns
    own = ["id", "source", "num_frames", "fps", "duration_seconds", "width", "height", "codec"]
    assert list(columns) == [*own, "label", "weight", "kind"]
    assert list(columns.built_in) == own
    assert list(columns.labels) == ["label", "weight", "kind"]
    assert len(columns) == 11
    assert "label" in columns
    assert "nothing" not in columns
    assert repr(columns.labels) == "<Columns over 3 videos: label, weight, kind (of the source lists)>"
    assert "codec (its own); label" in repr(columns)
    with pytest.raises(KeyError, match="has no column .*; it has id, .*, codec"):
        columns["nothing"]
    with pytest.raises(KeyError):
        columns.present("nothing")


def test_nobody_changes_a_column_for_others(folder: Path) -> None:
    columns = shortgop.open(folder).columns
    for name in columns:
        with pytest.raises(ValueError, match="read-only"):
            columns[name][0] = columns[name][1]
    assert columns["label"] is columns["label"]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([3, -1], "int64", [3, -1]),
        ([3, 0.5], "float64", [3.0, 0.5]),
        ([True, False], "bool", [True, False]),
        (["a", "ü", ""], np.dtypes.StringDType(), ["a", "ü", ""]),
        ([3, ...], "float64", [3.0, math.nan]),
        ([3, None], "float64", [3.0, math.nan]),
        ([2**60 + 1, None], "object", [2**60 + 1, None]),
        ([2**53 + 1, 0.5], "object", [2**53 + 1, 0.5]),
        ([2**64, 1], "object", [2**64, 1]),
        ([..., 0.5], "float64", [math.nan, 0.5]),
        ([True, ...], "object", [True, None]),
        ([True, 1], "object", [True, 1]),
        (["a", ..., ""], np.dtypes.StringDType(na_object=math.nan), ["a", math.nan, ""]),
        (["a", 1, None], "object", ["a", 1, None]),
        ([[1, 2], {"k": "é"}, ...], "object", [[1, 2], {"k": "é"}, None]),
        ([None, None], "object", [None, None]),
    ],
)
def test_a_column_has_the_narrowest_type_that_holds_its_values(values: list[Any], dtype: Any, expected: Any) -> None:
    column = array_of(*values)
    assert column.dtype == np.dtype(dtype)
    # NaN is equal to no other value, and repr tells True from 1.
    assert repr(column.tolist()) == repr(expected)


def test_a_missing_text_is_neither_equal_to_another_nor_different() -> None:
    column = array_of("a", ..., "b")
    assert (column == "a").tolist() == [True, False, False]
    assert (column != "a").tolist() == [False, False, True]


@pytest.mark.parametrize("text", ["x" * 3_000_000, "ends in \0", "\0", "日本語", "a\0b", ""])
def test_texts_of_any_length_and_content(text: str) -> None:
    texts = ["a", text, "", "é"]
    assert text_array(from_texts(texts)).tolist() == texts


def test_many_texts_and_some_of_them() -> None:
    """More than one block of them, blocks of odd texts among them."""
    texts = [f"{number}" * (number % 4) for number in range(40_000)]
    texts[17_000], texts[20_000] = "ends in \0", "x" * 100_000
    present = np.arange(40_000) % 5 > 0
    rows = np.flatnonzero(np.arange(40_000) % 7 < 3)
    ragged = from_texts(texts)
    assert text_array(ragged).tolist() == texts
    assert text_array(ragged, rows).tolist() == [texts[row] for row in rows]
    expected = [texts[row] if present[row] else math.nan for row in rows]
    assert repr(text_array(ragged, rows, present).tolist()) == repr(expected)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)  # fmt: skip


def as_json(manifest: Manifest) -> list[dict[str, Any]]:
    return [json.loads(text) for text in manifest.videos.attributes.texts()]


@settings(max_examples=40)
@given(
    kinds=st.lists(
        st.sampled_from([st.integers(-9, 9), st.booleans(), st.text(max_size=5), st.floats(-1, 1), VALUES]), max_size=3
    ),
    data=st.data(),
)
def test_columns_say_what_the_attributes_say(kinds: list[Any], data: st.DataObject) -> None:
    row = st.fixed_dictionaries({}, optional={f"column {number}": kind for number, kind in enumerate(kinds)})
    rows = data.draw(st.lists(row, max_size=6))
    columns = derived_columns(attributes_of(rows))
    assert list(columns) == list(dict.fromkeys(name for each in rows for name in each))
    for name, column in columns.items():
        for said, value, present in zip(rows, column.array().tolist(), column.present.tolist(), strict=True):
            assert bool(present) == (said.get(name) is not None)
            if present:
                assert value == said[name]
        some = np.arange(len(rows))[::2]
        if column.kind in {"text", "json"}:
            assert repr(column.array(some).tolist()) == repr(column.array().tolist()[::2])


@settings(max_examples=60)
@given(
    values=st.lists(st.one_of(VALUES, st.integers(-9, 9), st.just(-0.0), st.just(2**53 + 1)), max_size=9),
    data=st.data(),
)
def test_columns_do_not_depend_on_how_many_rows_are_parsed_at_once(values: list[Any], data: st.DataObject) -> None:
    """The kind of a block may differ from that of the column, and integers among floats stay integers as JSON."""
    if data.draw(st.booleans()):
        values = [value for value in values if type(value) in (int, float)]
    texts = attributes_of([{"x": value} for value in values] + [{"y": 1}])
    whole = derived_columns(texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsed_columns, "PARSED_ROWS", data.draw(st.integers(1, 4)))
        in_blocks = derived_columns(texts)
    assert list(in_blocks) == list(whole)
    for name, column in whole.items():
        assert in_blocks[name].same(column)
        assert repr(in_blocks[name].array().tolist()) == repr(column.array().tolist())


ROWS: list[dict[str, Any]] = [
    {"label": 3, "text": "a", "any": [1], "name/with.slash": True},
    {"label": 4, "text": "ü", "any": {"a": None}},
    {"score": 0.5, "text": "", "any": 2, "name/with.slash": False},
]


@pytest.mark.parametrize("small", [True, False])
def test_a_snapshot_holds_the_columns_that_its_attributes_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, small: bool
) -> None:
    """Whichever way it is written."""
    monkeypatch.setattr(publish_module, "is_small", lambda *_: small)
    dataset = published_with(ROWS, tmp_path / "dataset")
    kinds = open_column_kinds(DiskStorage(dataset), "000001")
    expected = {"label": "integer", "text": "text", "any": "json", "name/with.slash": "boolean", "score": "float"}
    assert kinds == expected
    derived = derived_columns(open_manifest(DiskStorage(dataset), "000001").videos.attributes)
    with open_own_columns(DiskStorage(dataset), "000001") as columns:
        assert columns is not None
        assert all(columns[name].between(0, len(columns[name])).same(derived[name]) for name in expected)


@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning")
def test_a_snapshot_of_an_earlier_version_has_the_same_columns(tmp_path: Path) -> None:
    dataset = published_with(ROWS, tmp_path / "dataset")
    now = shortgop.open(dataset).columns
    arrays = {name: now[name].tolist() for name in now}
    with_members(dataset, without_columns)
    assert open_column_kinds(DiskStorage(dataset), "000001") is None
    before = shortgop.open(dataset).columns
    assert repr({name: before[name].tolist() for name in before}) == repr(arrays)
    assert [before.kind(name) for name in before] == [now.kind(name) for name in now]


def test_columns_are_there_when_a_job_has_removed_the_snapshot(folder: Path, tmp_path: Path) -> None:
    """As all else that a dataset has in memory."""
    shutil.copytree(folder, tmp_path / "dataset")
    first, second = (shortgop.open(tmp_path / "dataset") for _ in range(2))
    assert first.columns["label"].tolist() == [0, 1, 1]
    shutil.rmtree(tmp_path / "dataset" / "manifest")
    assert first.columns["weight"].tolist() == [0.5, 1.5, 2.0]
    assert second.columns["kind"].tolist() == ["cat", "dog", "dog"]


@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning")
def test_opening_reads_no_column_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    dataset = published_with(ROWS, tmp_path / "dataset")
    with_members(dataset, lambda members: {**members, "columns/0/values/c/0": b"no Zstandard frame"})
    columns = shortgop.open(dataset).columns
    assert columns["text"].tolist() == ["a", "ü", ""]
    with pytest.raises(CorruptDataError, match="columns/0/values/c/0 cannot be decoded") as caught:
        columns["label"]
    assert caught.value.file == str(snapshot_path(dataset, "000001"))


def test_verify_compares_columns_with_attributes(folder: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    shutil.copytree(folder, dataset)
    manifest = open_manifest(DiskStorage(dataset), "000001")
    assert list(verify(DiskStorage(dataset), manifest, snapshot="000001")) == []
    wrong = [{**row, "label": 7} for row in as_json(manifest)]
    other = replace(manifest, videos=replace(manifest.videos, attributes=attributes_of(wrong)))
    assert [str(problem) for problem in verify(DiskStorage(dataset), other, snapshot="000001")] == [
        f"{snapshot_path(dataset, '000001')}: its column 'label' differs from the attributes of its videos"
    ]
    other = replace(manifest, videos=replace(manifest.videos, attributes=attributes_of([{}] * 3)))
    (problem,) = verify(DiskStorage(dataset), other, snapshot="000001")
    assert "it has the columns ['label', 'weight', 'kind'], its videos' attributes have []" in str(problem)
    with_members(dataset, lambda members: {**members, "columns/1/present/c/0": b""})
    (problem,) = verify(DiskStorage(dataset), manifest, snapshot="000001")
    assert "columns/1/present/c/0 cannot be decoded" in str(problem)


@pytest.mark.parametrize("offsets", [[0, 1, 3, 3], [1, 2, 4, 4]])
def test_verify_finds_texts_that_do_not_fit_their_offsets(offsets: list[int], tmp_path: Path) -> None:
    dataset = published_with([{"text": "a"}, {"text": "bc"}, {"text": "d"}], tmp_path / "dataset")
    changed = array_files("columns/0/values_offsets", OFFSETS, np.array(offsets))
    with_members(dataset, lambda members: {**members, **changed})
    manifest = open_manifest(DiskStorage(dataset), "000001")
    problems = [str(problem) for problem in verify(DiskStorage(dataset), manifest, snapshot="000001")]
    # The shards are not there either.
    assert f"columns/0/values: offsets from {offsets[0]} to {offsets[-1]} do not fit 4 values" in problems[-1]


def test_attributes_that_are_no_objects_are_damage() -> None:
    assert derived_columns(from_texts(["", "{}"])) == {}
    for texts in (["{}", "[1]"], ["{},{}", "{}"], ["{"], ['{"a": 1', '"b": 2}']):
        with pytest.raises(CorruptDataError, match="rows 0 to .* of the column videos/attributes"):
            derived_columns(from_texts(texts))


@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning")
def test_a_label_takes_the_place_of_a_column_of_its_name(tmp_path: Path) -> None:
    dataset = shortgop.open(published_with([{"num_frames": 300, "x": 1}, {"num_frames": 400}], tmp_path / "dataset"))
    columns = dataset.columns
    assert columns["num_frames"].tolist() == [300, 400]
    assert columns.labels["num_frames"].tolist() == [300, 400]
    assert columns.built_in["num_frames"].tolist() == [2, 2]
    assert list(columns).count("num_frames") == 1
    assert len(columns) == len(list(columns))
    assert columns.present("x").tolist() == [True, False]
    assert columns.present("id").tolist() == [True, True]


def test_a_pickled_dataset_takes_no_column_along(folder: Path) -> None:
    dataset = shortgop.open(folder)
    before = len(pickle.dumps(dataset))
    assert [dataset.columns[name].tolist() for name in dataset.columns]
    assert len(pickle.dumps(dataset)) == before
    assert pickle.loads(pickle.dumps(dataset)).columns["label"].tolist() == [0, 1, 1]


@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning")
def test_columns_as_a_table_of_pyarrow_or_pandas(tmp_path: Path) -> None:
    rows = [{"i": 1, "f": 0.5, "b": True, "t": "x", "l": [1, 2], "m": 1}, {"big": 2**60 + 1, "m": "a"}]
    dataset = shortgop.open(published_with(rows, tmp_path / "dataset"))
    table = dataset.to_table()
    assert table.column_names == list(dataset.columns)
    types = {name: str(table.schema.field(name).type) for name in ("i", "f", "b", "t", "l", "m", "big", "id", "fps")}
    assert types == {
        "i": "int64", "f": "double", "b": "bool", "t": "string", "l": "list<item: int64>", "m": "string",
        "big": "int64", "id": "string", "fps": "double",
    }  # fmt: skip
    said = table.select(["i", "f", "b", "t", "l", "m", "big", "id", "num_frames"]).to_pylist()
    assert said == [
        {"i": 1, "f": 0.5, "b": True, "t": "x", "l": [1, 2], "m": "1", "big": None, "id": "v000000", "num_frames": 2},
        {"i": None, "f": None, "b": None, "t": None, "l": None, "m": '"a"', "big": 2**60 + 1, "id": "v000001",
         "num_frames": 2},
    ]  # fmt: skip
    frame = dataset.to_pandas()
    assert list(frame.columns) == list(dataset.columns)
    assert frame["id"].tolist() == ["v000000", "v000001"]
    assert frame["i"].isna().tolist() == frame["t"].isna().tolist() == [False, True]
    assert (frame["i"].dtype, frame["num_frames"].dtype) == (np.float64, np.int64)
    assert frame.loc[frame["t"] == "x", "l"].tolist() == [[1, 2]]


@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning")
def test_hashes_of_64_bits_stay_integers_in_a_table(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"hash": 2**64 - 1, "mixed": 2**63, "longer": 2**64}, {"mixed": 1.5, "longer": -1}]
    table = shortgop.open(published_with(rows, tmp_path / "dataset")).to_table()
    assert str(table.schema.field("hash").type) == "uint64"
    assert table["hash"].to_pylist() == [2**64 - 1, None]
    # What no type of Arrow holds as it is.
    assert table["mixed"].to_pylist() == ["9223372036854775808", "1.5"]
    assert table["longer"].to_pylist() == ["18446744073709551616", "-1"]


@pytest.mark.first_case_short
@pytest.mark.parametrize(("package", "call"), [("pyarrow", "to_table"), ("pandas", "to_pandas")])
def test_a_package_that_is_not_there_is_named(folder: Path, package: str, call: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import shortgop; shortgop.open({str(folder)!r}).{call}()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"ToolError: {call} needs {package}, which is not installed: pip install {package}" in done.stderr
