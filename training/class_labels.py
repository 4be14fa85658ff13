"""Labels of videos as numbers of classes, for orders that go by them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UsageError, WrongTypeError
from ..manifests.ragged import Array
from ..warned import warn
from ..wording import counted
from .clips import Clips
from .weights import check_present, one_for_each


def classes_of(labels: Any, clips: Clips) -> Array:
    """The number of the class of each video that clips are taken from: int64, (videos,).

    `labels` has one for each of them. UsageError for labels that are missing, or not as many; DatasetWarning for empty
    texts beside others, which are a class of their own.
    """
    given = one_for_each(labels, "labels")
    check_present(given, "label", clips)
    counts = np.diff(clips.firsts)
    classes = _classes(given)
    if classes.shape != counts.shape:
        raise UsageError(f"there are {len(given)} labels and {len(counts)} videos; each has one")
    are_numbers = getattr(getattr(given, "dtype", None), "kind", "") in ("i", "u", "f", "b")
    empty = 0 if are_numbers else sum(isinstance(label, str) and not label for label in given)
    if 0 < empty < len(classes):
        warn(
            f"{empty} of {counted(len(classes), 'label')} {'is' if empty == 1 else 'are'} an empty text, as an "
            "empty cell of a CSV list is: a class of their own, drawn as often as each other one. For the videos "
            "that have a label give ClipDataset dataset.where(lambda columns: columns[name] != '')"
        )
    return classes


def _classes(labels: Any) -> Array:
    """The number of each label among all that there are. WrongTypeError for labels that have no order."""
    if getattr(getattr(labels, "dtype", None), "kind", "") == "O":
        labels = np.asarray(labels).tolist()
    if isinstance(labels, list):
        # As an array, 1 and "1" would be the same text, and large integers the same float.
        values = [label.item() if hasattr(label, "item") and label.ndim == 0 else label for label in labels]
        try:
            numbers = {label: number for number, label in enumerate(sorted(set(values)))}
        except TypeError:
            raise WrongTypeError("labels have to be all numbers or all texts: others have no order") from None
        return np.array([numbers[label] for label in values], dtype=np.int64)
    return np.unique(np.asarray(labels), return_inverse=True)[1]
