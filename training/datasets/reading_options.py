"""The options that ClipDataset passes on to `shortgop.open`, and what to say of those that belong elsewhere."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...errors import UsageError, WrongTypeError
from ...readers.dataset import Dataset
from ...readers.open_dataset import open as open_dataset
from ..pixels.outputs import RANDOM_CROPS, Output

OF_LOADERS = dict.fromkeys(
    ("batch_size", "shuffle", "num_workers", "workers", "sampler", "collate_fn", "pin_memory", "drop_last"),
    "the loader or its sampler has it",
)
"""Parameters of loaders that people give a dataset, and where they are."""
# The same for all that people give ClipDataset.
_ELSEWHERE = {
    **dict.fromkeys(
        ("num_frames", "frames", "clip_len", "clip_length", "stride", "fps", "ends", "jitter"),
        "the policy has it, such as shortgop.RandomClips(16, stride=4)",
    ),
    **OF_LOADERS,
    **dict.fromkeys(("label", "labels", "columns"), 'columns that items are to have are metadata=["label"]'),
    "split": "open the dataset and choose dataset.where(split=...)",
}
READING = frozenset(inspect.signature(open_dataset).parameters) - {"path"}
"""What ClipDataset passes on."""
# What Output takes and shortgop.open does not.
_OF_OUTPUTS = ("scale", "ratio", "flip", "layout")


def dataset_to_read(
    dataset: str | os.PathLike[str] | Dataset,
    reading: Mapping[str, Any],
    reader: str = "ClipDataset",
    elsewhere: Mapping[str, str] | None = None,
) -> Dataset:
    """The dataset that a dataset class (`reader`) was given, opened with the options `reading` if it is a path.

    UsageError for what only an Output has, such as a random crop, and for options beside a dataset that is open;
    WrongTypeError for what nothing has, with what `elsewhere` says of it.
    """
    _check_reading(reading, reader, _ELSEWHERE if elsewhere is None else elsewhere)
    if not isinstance(dataset, Dataset):
        _check_place(dataset, reader)
        return open_dataset(dataset, **reading)
    if reading:
        shown = ", ".join(f"{name}={value!r}" for name, value in reading.items())
        raise UsageError(
            f"{', '.join(reading)}: an open dataset is read as it was opened; write shortgop.open(..., {shown}), "
            "before where() or a slice chooses some of its videos"
        )
    return dataset


def _check_place(dataset: Any, reader: str) -> None:
    """WrongTypeError for what is neither a path nor a dataset, such as a dataset of clips or the clips themselves."""
    if isinstance(dataset, str | os.PathLike):
        return
    source = getattr(dataset, "source", None)
    own = "; `source` of what you gave is the dataset that it reads" if isinstance(source, Dataset) else ""
    raise WrongTypeError(
        f"the dataset is of the type {type(dataset).__name__}; {reader} takes the folder that `shortgop prep` wrote, "
        f"or that opened with shortgop.open, before all else{own}"
    )


def _check_reading(reading: Mapping[str, Any], reader: str, elsewhere: Mapping[str, str]) -> None:
    named, shown = [name for name in _OF_OUTPUTS if name in reading], dict(reading)
    if callable(reading.get("size")):
        named.insert(0, "size as a function")
    if isinstance(crop := reading.get("crop"), str) and crop in RANDOM_CROPS:
        named.insert(0, f"crop={crop!r}")
        shown.setdefault("size", (224, 224))
    if named:
        own = [field.name for field in fields(Output) if field.name in reading]
        given = [f"{field.name}={shown[field.name]!r}" for field in fields(Output) if field.name in shown]
        example = f"shortgop.Output({', '.join(given)})"
        example = f'{{"frames": {example}}}' if reader == "ClipDataset" else example
        raise UsageError(
            f"{', '.join(named)}: an output has this; give {reader} outputs={example} in place of {', '.join(own)}"
        )
    for name in reading:
        if name not in READING:
            remedy = elsewhere.get(name, "its docstring and that of shortgop.open have all")
            raise WrongTypeError(f"{reader} has no parameter {name!r}: {remedy}")
