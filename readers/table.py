"""The columns of a dataset as a table of pyarrow or of pandas."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..errors import ToolError
from .columns import Columns


def arrow_table(columns: Columns) -> Any:
    """A pyarrow.Table of all columns. ToolError without pyarrow."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ToolError("to_table needs pyarrow, which is not installed: pip install pyarrow") from error
    return pa.table({name: _arrow_array(pa, columns, name) for name in columns})


def _arrow_array(pa: Any, columns: Columns, name: str) -> Any:
    column, kind, present = columns[name], columns.kind(name), columns.present(name)
    if kind == "json":
        values = column.tolist()
        # Integers alone are of this kind if 64 bits with a sign do not hold one, as of a hash.
        are_whole = set(map(type, values)) - {type(None)} == {int}
        try:
            return pa.array(values, pa.uint64() if are_whole else None)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            # Values of several types have no type of Arrow in common.
            return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())
    if kind == "integer" and column.dtype.kind == "f":
        # Where a value is missing; those that are there are integers nevertheless.
        column = np.where(present, column, 0).astype(np.int64)
    types = {"boolean": pa.bool_(), "integer": pa.int64(), "float": pa.float64(), "text": pa.string()}
    return pa.array(column, types[kind], mask=~present)


def pandas_table(columns: Columns) -> Any:
    """A pandas.DataFrame of all columns. ToolError without pandas."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ToolError("to_pandas needs pandas, which is not installed: pip install pandas") from error
    arrays = ((name, columns[name]) for name in columns)
    # pandas makes texts of its own of objects that are strings.
    return pd.DataFrame({name: each.astype(object) if each.dtype.kind == "T" else each for name, each in arrays})
