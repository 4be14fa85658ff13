"""Which videos `Dataset.where` chooses: conditions on columns, as booleans over all videos."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from ..arguments import integer
from ..errors import UsageError, WrongTypeError
from ..manifests.ragged import Array
from ..wording import counted
from .columns import Columns

Condition = Any
"""A boolean for each video, as a numpy array or anything that numpy turns into one, or a function of the columns that
returns such an array."""

# Values that are told where no video has the one that was asked for; of how many videos they are looked up; and with
# how many texts of a column the one that was asked for is compared.
_MAX_NAMED, _MAX_LOOKED_AT, _MAX_COMPARED = 8, 100_000, 1000

_NEEDS = "it has to be a boolean for each video, or a function of the columns that returns these"


def chosen_videos(columns: Columns, num_videos: int, condition: Condition, equals: Mapping[str, Any]) -> Array:
    """Which videos meet `condition`, if there is one, and have these values in these columns: bool, (videos,).

    UsageError for a column that is not there, a value of a kind that the column does not have, or a condition of
    another length; WrongTypeError for a condition that is not boolean.
    """
    chosen = np.ones(num_videos, dtype=bool)
    if condition is not None:
        chosen &= mask_of(_called(condition, columns) if callable(condition) else condition, num_videos)
    for name, value in equals.items():
        if name not in columns:
            raise _no_column(name, columns)
        chosen &= _equal(columns, name, value)
    return chosen


def unknown_values(columns: Columns, equals: Mapping[str, Any]) -> list[str]:
    """What to say of each of these values that its column has for no video of the snapshot, with some that it has.

    A value that only other videos of the snapshot have, which `where` left out before, is known: conditions that no
    video meets together are nothing wrong. Neither is None, which stands for no value.
    """
    everywhere = columns.of_all_videos
    return [
        f"where() chose no video: none has {name}={value!r}, the column has {_values_of(everywhere, name, value)}"
        f"{_for_several(name, value)}"
        for name, value in equals.items()
        if value is not None and not _equal(everywhere, name, value).any()
    ]


def _for_several(name: str, value: Any) -> str:
    """What to add where a list was given, which stands for one value that is a list."""
    if not isinstance(value, list | tuple | set | frozenset):
        return ""
    return (
        f"; for videos that have one of several values give where a function, such as lambda columns: "
        f"numpy.isin(columns[{name!r}], {list(value)!r})"
    )


def _values_of(columns: Columns, name: str, wanted: Any) -> str:
    """The values of a column in words: all of them where they are few, else the least and the greatest number, or
    texts that are like the wanted one."""
    column = columns[name]
    values = column[columns.present(name)]
    if column.dtype.kind in "if":
        numbers = np.unique(values)
        if columns.kind(name) == "integer":
            # They are floats where a value is missing.
            numbers = numbers.astype(np.int64)
        known = numbers[:_MAX_NAMED].tolist()
        if len(numbers) > _MAX_NAMED:
            return f"{len(numbers)} values from {known[0]} to {numbers[-1].item()}"
        return ", ".join(map(repr, known)) or "no values"
    known = sorted({repr(value): value for value in values[:_MAX_LOOKED_AT].tolist()}.values(), key=repr)
    if len(known) <= _MAX_NAMED and len(values) <= _MAX_LOOKED_AT:
        return ", ".join(map(repr, known)) or "no values"
    texts = [value for value in known[:_MAX_COMPARED] if isinstance(value, str)]
    alike = difflib.get_close_matches(wanted, texts, n=3) if isinstance(wanted, str) else []
    return f"others, such as {', '.join(map(repr, alike or known[:3]))}"


def mask_of(condition: Any, num_videos: int) -> Array:
    """A condition as booleans: bool, (videos,). UsageError for another length, WrongTypeError if it is not boolean."""
    mask = np.asarray(condition)
    if mask.dtype == object and mask.size and all(each is None or isinstance(each, bool) for each in mask.flat):
        raise WrongTypeError(
            "a condition on videos is None for some, as a column of booleans is where a value is missing: give "
            "where(name=True), or compare, as in lambda columns: columns[name] == True"
        )
    if mask.dtype != np.bool_ and mask.size:
        raise WrongTypeError(f"a condition on videos is of dtype {mask.dtype}; {_NEEDS}")
    if mask.shape != (num_videos,):
        raise UsageError(
            f"a condition on videos has shape {mask.shape}, and there are {counted(num_videos, 'video')}; {_NEEDS}"
        )
    return mask.astype(bool, copy=False)


def mask_of_slice(key: slice, num_videos: int) -> Array:
    """The videos of a slice of their numbers as booleans: bool, (videos,). UsageError for a step that is not positive,
    since videos keep their order."""
    bounds = {"start": key.start, "stop": key.stop, "step": key.step}
    start, stop, step = (None if value is None else integer(value, name) for name, value in bounds.items())
    if step is not None and step < 1:
        raise UsageError(
            f"step is {step}; it has to be 1 or more, as a dataset of some videos has them in the same order"
        )
    mask = np.zeros(num_videos, dtype=bool)
    mask[start:stop:step] = True
    return mask


def _called(condition: Callable[[Columns], Any], columns: Columns) -> Any:
    try:
        return condition(columns)
    except KeyError as error:
        if error.args and isinstance(error.args[0], str) and error.args[0] not in columns:
            raise _no_column(error.args[0], columns) from error
        raise
    except ValueError as error:
        # As numpy says it of `and`, `or`, `not`, `in` and chains such as 1 < column < 3.
        if "truth value of an array" not in str(error):
            raise
        raise UsageError(
            "a condition on videos takes an array for one boolean, as `and`, `or`, `not` and chains such as 1 < a < 3 "
            "do; write & and | and ~, with comparisons in parentheses: (columns['fps'] > 20) & (columns['label'] != 2)"
        ) from error


def _no_column(name: str, columns: Columns) -> UsageError:
    return UsageError(f"the dataset has no column {name!r}; it has {', '.join(columns)}")


def _equal(columns: Columns, name: str, value: Any) -> Array:
    """Which videos have this value in a column; None stands for no value."""
    if value is None:
        return ~columns.present(name)
    column = columns[name]
    if column.dtype == object:
        return np.fromiter((each == value for each in column), dtype=bool, count=len(column))
    is_truth = isinstance(value, (bool, np.bool_))
    fits, kind = {
        "b": (is_truth, "booleans"),
        "i": (isinstance(value, Real) and not is_truth, "integers"),
        "f": (isinstance(value, Real) and not is_truth, "numbers"),
        "T": (isinstance(value, str), "texts"),
    }[column.dtype.kind]
    if not fits:
        raise UsageError(
            f"column {name!r} has {kind}, and {value!r} is a {type(value).__name__}; for other conditions give where a "
            f"function, such as lambda columns: numpy.isin(columns[{name!r}], [...])"
        )
    return np.asarray(column == (value if isinstance(value, str) else np.asarray(value)))
