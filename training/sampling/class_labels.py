"""Labels of videos or clips as numbers of classes, for orders that go by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import UsageError, WrongTypeError
from ...manifests.ragged import Array
from ...warned import warn
from ...wording import counted
from ..which_clips.clips import Clips
from .weights import WeightLine, check_of, check_present, one_for_each, weight_line


@dataclass(frozen=True, eq=False)
class ClassLine:
    """Clips of one weight within each class, side by side on a line with those of each class together."""

    line: WeightLine
    sizes: Array
    """How many clips each class has, in the order of the line; classes without clips are none. int64, (classes,)."""


def class_line(labels: Any, clips: Clips, of: str, *, equal_classes: bool) -> ClassLine:
    """A line of the clips of a dataset by the labels of their videos, or with `of` "clips" by their own.

    All clips have the weight 1, or with `equal_classes` such ones that all classes have the same. UsageError for labels
    that are missing, or not as many; DatasetWarning for empty texts beside others, which are a class of their own.
    """
    classes = _classes_of(labels, clips, of)
    counts = np.ones(len(classes), dtype=np.int64) if of == "clips" else np.diff(clips.firsts)
    sizes = np.bincount(classes, weights=counts).astype(np.int64)
    weights = 1.0 / np.maximum(sizes, 1)[classes] if equal_classes else np.ones(len(classes))
    placed = classes[clips.clip_numbers(np.arange(len(classes)))] if of == "clips" else classes
    return ClassLine(weight_line(clips, weights, of, np.argsort(placed, kind="stable")), sizes[sizes > 0])


def _classes_of(labels: Any, clips: Clips, of: str) -> Array:
    """The number of the class of each video, or of each clip by its number: int64."""
    given = one_for_each(labels, "labels")
    check_of(of, "labels")
    check_present(given, "label", clips, of)
    classes = _classes(given)
    wanted = len(clips) if of == "clips" else len(clips.firsts) - 1
    if classes.shape != (wanted,):
        remedy = f"; those of clips take of={'clips'!r}" if len(given) == len(clips) else ""
        raise UsageError(f"there are {len(given)} labels and {wanted} {of}; each has one{remedy}")
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
