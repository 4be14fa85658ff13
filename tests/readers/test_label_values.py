"""Labels from Python: values as numpy and pandas have them, and names that are no labels."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shortgop
from datasets import make_dataset
from shortgop.errors import UsageError, WrongTypeError
from synthetic import constant_rate_pts, make_video


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    make_video(tmp_path / "a.mp4", pts=constant_rate_pts(Fraction(25), 5), timebase=Fraction(1, 25))
    make_dataset([tmp_path / "a.mp4"], tmp_path / "dataset")
    return tmp_path / "dataset"


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.int64(3), 3), (np.uint8(3), 3), (np.float32(0.5), 0.5), (np.float64("nan"), None), (np.bool_(True), True),
        (np.str_("cat"), "cat"), (np.longdouble(0.5), 0.5), (np.array(7), 7),
        (np.array([[1.5], [2]]), [[1.5], [2.0]]), (np.array([1, 2]), [1, 2]),
        ([np.int64(1), {"x": np.float64(2)}], [1, {"x": 2.0}]),
    ],
)  # fmt: skip
def test_numpys_values_are_those_of_python(value: Any, stored: Any, dataset: Path) -> None:
    shortgop.annotate(dataset, {"a.mp4": {"label": value}})
    found = shortgop.open(dataset)["a.mp4"].attributes["label"]
    assert found == stored
    assert type(found) is type(stored)


def test_what_pandas_has_for_missing_values_is_null(dataset: Path) -> None:
    pandas = pytest.importorskip("pandas")
    shortgop.annotate(dataset, {"a.mp4": {"label": pandas.NA, "day": pandas.NaT}})
    assert shortgop.open(dataset)["a.mp4"].attributes == {"label": None, "day": None}


def test_the_column_of_a_value_that_cannot_be_stored_is_named(dataset: Path) -> None:
    with pytest.raises(UsageError, match="the labels of 'a.mp4' have a value of type complex in column 'label'; turn"):
        shortgop.annotate(dataset, {"a.mp4": {"split": "train", "label": 1j}})
    with pytest.raises(UsageError, match="a value of type datetime64 in column 'days'"):
        shortgop.annotate(dataset, {"a.mp4": {"days": np.array(["2026-01-02"], dtype="M8[ns]")}})


def test_the_id_of_a_video_is_no_label(dataset: Path) -> None:
    """It hid the column `id`, and could not be removed."""
    # As `df.set_index("id", drop=False).to_dict("index")` has it.
    shortgop.annotate(dataset, {"a.mp4": {"id": "a.mp4", "label": 3}})
    assert shortgop.open(dataset)["a.mp4"].attributes == {"label": 3}
    for name in ("id", "path"):
        with pytest.raises(UsageError, match=f"column {name!r}, which is no label but says which video it is"):
            shortgop.annotate(dataset, {"a.mp4": {name: "other", "label": 4}})
    assert shortgop.open(dataset)["a.mp4"].attributes == {"label": 3}
    assert shortgop.open(dataset).columns["id"].tolist() == ["a.mp4"]


def test_a_table_of_pandas_is_refused_with_the_call_that_makes_a_dict_of_it(dataset: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table: Any = pandas.DataFrame({"id": ["a.mp4"], "label": [3]})
    with pytest.raises(WrongTypeError, match=r"labels is a DataFrame; .* table\.set_index\('id'\)") as caught:
        shortgop.annotate(dataset, table)
    assert "a.mp4" not in str(caught.value)
    shortgop.annotate(dataset, table.set_index("id").to_dict("index"))
    assert shortgop.open(dataset)["a.mp4"].attributes == {"label": 3}
