"""`Dataset.ids` is a list as any other. Whoever changes it in place is told: columns and numbers of videos go by its
order."""

from __future__ import annotations

import copy
import io
import json
import operator
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree

import shortgop
from shortgop.readers.checked_ids import CheckedIds
from training_videos import make_videos


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("ids"))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "shuffled": lambda ids: random.Random(1).shuffle(ids),
    "shuffled by numpy": lambda ids: np.random.default_rng(3).shuffle(ids),
    "reversed": lambda ids: ids.reverse(),
    "popped": lambda ids: ids.pop(),
    "cleared": lambda ids: ids.clear(),
    "appended": lambda ids: ids.append("d.mp4"),
    "inserted": lambda ids: ids.insert(0, "d.mp4"),
    "set": lambda ids: operator.setitem(ids, 1, "d.mp4"),
}


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_ids_that_were_changed_in_place_are_told_where_their_order_counts(
    folder: Path, change: Callable[[Any], Any], chosen: bool
) -> None:
    """A split by chance as people write it: after it, ids stood beside the labels of other videos."""
    whole = shortgop.open(folder)
    dataset = whole.where(whole.columns["num_frames"] > 0) if chosen else whole
    change(dataset.ids)
    uses: list[Callable[[], Any]] = [
        lambda: dataset.ids,
        lambda: dataset.columns,
        lambda: dataset.where(label=1),
        lambda: dataset[:2],
        lambda: dataset[0],
        lambda: list(dataset),
        dataset.to_table,
        lambda: shortgop.ClipDataset(dataset, shortgop.CenterClips(2), videos=[0]),
    ]
    for use in uses:
        with pytest.raises(shortgop.UsageError, match=r"changed in place, .* ids = list\(dataset.ids\)"):
            use()
    # What goes by ids is right.
    assert dataset["a.mp4"].id == "a.mp4"
    clips = shortgop.ClipDataset(dataset, shortgop.CenterClips(2), videos=["b.mp4", "a.mp4"], metadata=["id"])
    assert [item["id"] for item in clips] == ["b.mp4", "a.mp4"]
    assert pickle.loads(pickle.dumps(dataset)).ids == shortgop.open(folder).ids


def test_ids_are_a_list_as_any_other(folder: Path) -> None:
    """As a list that refused changes they were an UnpicklingError of torch.load, and a RepresenterError of YAML."""
    dataset = shortgop.open(folder)
    before: list[str] = [video.id for video in dataset]
    ids: Any = dataset.ids
    assert type(ids) is list
    assert ids == before
    file = io.BytesIO()
    torch.save({"ids": ids}, file)
    file.seek(0)
    assert torch.load(file) == {"ids": before}
    assert torch.utils._pytree.tree_leaves({"ids": ids}) == before
    assert operator.add(ids, ["d.mp4"]) == [*before, "d.mp4"]
    assert json.loads(json.dumps(ids)) == before
    for copied in (copy.copy(ids), pickle.loads(pickle.dumps(ids)), list(ids), ids[:]):
        random.Random(1).shuffle(copied)
        assert sorted(copied) == before == dataset.ids
    assert dataset.columns["id"].tolist() == before


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64])
def test_of_up_to_64_ids_each_change_is_told(count: int) -> None:
    for place in range(count):
        ids = CheckedIds(map(str, range(count)))
        ids.check()
        ids.given[place] = "another"
        with pytest.raises(shortgop.UsageError):
            ids.check()


@pytest.mark.parametrize("count", [65, 127, 1000, 100_000])
def test_of_more_ids_a_shuffle_is_told(count: int) -> None:
    """64 of them are kept, the first and the last too."""
    for seed in range(5):
        ids = CheckedIds(map(str, range(count)))
        ids.check()
        random.Random(seed).shuffle(ids.given)
        with pytest.raises(shortgop.UsageError):
            ids.check()
    for place in (0, -1):
        ids = CheckedIds(map(str, range(count)))
        ids.given[place] = "another"
        with pytest.raises(shortgop.UsageError):
            ids.check()
