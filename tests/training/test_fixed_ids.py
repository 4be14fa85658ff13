"""`Dataset.ids` stays as it is: columns and the numbers of videos go by its order."""

from __future__ import annotations

import copy
import json
import operator
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shortgop
from training_videos import make_videos


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("ids"))


@pytest.mark.parametrize("chosen", [False, True])
def test_nobody_changes_ids_for_others(folder: Path, chosen: bool) -> None:
    """A split by chance as people write it: after it, ids stood beside the labels of other videos."""
    whole = shortgop.open(folder)
    dataset = whole.where(whole.columns["num_frames"] > 0) if chosen else whole
    ids: Any = dataset.ids
    before = list(ids)
    changes: list[Callable[[], Any]] = [
        lambda: random.Random(1).shuffle(ids),
        lambda: np.random.default_rng(1).shuffle(ids),
        ids.sort,
        ids.reverse,
        ids.pop,
        ids.clear,
        lambda: ids.append("d.mp4"),
        lambda: ids.extend(["d.mp4"]),
        lambda: ids.insert(0, "d.mp4"),
        lambda: ids.remove(before[0]),
        lambda: ids.__iadd__(["d.mp4"]),
        lambda: ids.__imul__(2),
        lambda: ids.__setitem__(0, "d.mp4"),
        lambda: ids.__delitem__(0),
    ]
    for change in changes:
        with pytest.raises(shortgop.UsageError, match=r"ids = list\(dataset.ids\)"):
            change()
    assert dataset.ids == before == [video.id for video in dataset]
    # Otherwise it is a list as any other.
    assert operator.add(ids, ["d.mp4"]) == [*before, "d.mp4"]
    assert json.dumps(ids) == json.dumps(before)
    for copied in (copy.copy(ids), pickle.loads(pickle.dumps(ids)), list(ids), ids[:]):
        copied.sort(reverse=True)
        assert copied == sorted(before, reverse=True)
