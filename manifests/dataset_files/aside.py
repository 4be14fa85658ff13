"""A damaged file that is kept under another name."""

from __future__ import annotations

from itertools import count

from ...storage.interface import Storage

# Nothing reads a file under such a name.
_ASIDE = ".damaged"


def copied_aside(dataset: Storage, key: str) -> str:
    """Copy a damaged file beside itself, so that it can be replaced or removed. Returns the place of the copy."""
    data = dataset.read(key)
    keys = (f"{key}{_ASIDE}{number or ''}" for number in count())
    return dataset.place(next(each for each in keys if dataset.put_new(each, data)))
