"""Subclasses of ClipDataset in Ray Data, on a real local Ray: rows are the items that they make."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch

import shortgop
import synthetic
import training_videos
from shortgop.errors import UsageError
from synthetic import read_number
from training_videos import VIDEOS, make_videos, numbers

# Ray warns of options that it sets itself.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")]
POLICY = shortgop.AllClips(3, stride=2, step=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="module", autouse=True)
def cluster(bare_local_ray: None) -> Iterator[None]:
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, logging_level=logging.ERROR
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    # The classes of these tests are used where the tests' modules cannot be imported.
    for module in (sys.modules[__name__], training_videos, synthetic):
        ray.cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    yield
    ray.shutdown()


class InItems(shortgop.ClipDataset):
    """As docs/training.md shows it."""

    def __init__(self, *args: Any, factor: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.factor = factor

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        items = super().items(draws, rows)
        for item in items:
            item["actions"] = self.factor * item["frame_numbers"]
            item["read_together"] = len(items)
        return items


class InGetItem(shortgop.ClipDataset):
    """As people write it who know torch's datasets."""

    def __getitem__(self, draw: int) -> dict[str, Any]:
        item = super().__getitem__(draw)
        return {**item, "shown": torch.tensor(numbers(item["frames"]))}


class OtherLabels(shortgop.ClipDataset):
    """Something else under the name of a column of the list."""

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        items = super().items(draws, rows)
        return [{**item, "label": torch.nn.functional.one_hot(item["label"], 2), "kind": 3.5} for item in items]


class WithRandomNumbers(shortgop.ClipDataset):
    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        return [{**item, "drawn": torch.rand(2)} for item in super().items(draws, rows)]


def test_random_numbers_of_items_are_the_same_when_a_block_is_read_again(folder: Path) -> None:
    """As that of a worker that was killed is: rows of a block would be of two kinds."""
    drawn = []
    for seed in (0, 0, 1):
        clips = WithRandomNumbers(folder, POLICY, seed=seed)
        rows = shortgop.ray_dataset(clips, override_num_blocks=4).take_all()
        drawn.append(np.array([row["drawn"] for row in rows]))
    assert np.array_equal(drawn[0], drawn[1])
    assert not (drawn[0] == drawn[2]).any()
    assert len(np.unique(drawn[0])) == 2 * len(clips)


def test_items_of_a_subclass_are_rows(folder: Path) -> None:
    clips = InItems(folder, POLICY, factor=10, metadata=["label", "kind"])
    rows = shortgop.ray_dataset(clips, override_num_blocks=1).take_all()
    assert len(rows) == len(clips) == 21
    for row, item in zip(rows, clips, strict=True):
        assert set(row) == set(item)
        for name in set(row) - {"read_together"}:
            assert np.array_equal(row[name], item[name]), name
        assert row["actions"].tolist() == [10 * (read_number(frame) % 1000) for frame in row["frames"]]
        assert row["label"] == list(VIDEOS.values())[row["video"]][2]["label"]
        # The clips of a block.
        assert row["read_together"] == 21


def test_a_getitem_of_a_subclass_makes_rows(folder: Path) -> None:
    rows = shortgop.ray_dataset(InGetItem(folder, POLICY)).take_all()
    assert [row["draw"] for row in rows] == list(range(21))
    for row in rows:
        assert row["shown"].tolist() == [read_number(frame) for frame in row["frames"]]


def test_what_a_subclass_puts_in_place_of_a_label_is_a_column(folder: Path) -> None:
    rows = shortgop.ray_dataset(OtherLabels(folder, POLICY, metadata=["label", "kind", "weight"])).take_all()
    for row in rows:
        columns = list(VIDEOS.values())[row["video"]][2]
        assert row["label"].tolist() == [int(columns["label"] == label) for label in (0, 1)]
        assert (row["kind"], row["weight"]) == (3.5, columns["weight"])


def test_a_clip_dataset_comes_with_all_that_it_was_made_with(folder: Path) -> None:
    dogs = shortgop.open(folder).where(kind="dog")
    clips = shortgop.ClipDataset(dogs, shortgop.RandomClips(2, clips_per_video=3), videos=["c.mp4"], seed=5)
    rows = shortgop.ray_dataset(clips, epoch=2).take_all()
    assert [row["draw"] for row in rows] == [6, 7, 8]
    for row in rows:
        item = clips[row["draw"]]
        assert (row["video"], row["start"]) == (1, item["start"])
        assert np.array_equal(row["frames"], item["frames"])


def test_what_a_clip_dataset_has_is_not_given_again(folder: Path) -> None:
    clips = shortgop.ClipDataset(folder, POLICY)
    with pytest.raises(UsageError, match="^clips, seed, metadata, size: a ClipDataset has its own; give these where"):
        shortgop.ray_dataset(clips, POLICY, seed=1, metadata=["label"], size=(8, 8))
    with pytest.raises(UsageError, match="clips is missing: give a policy, such as .*, or a ClipDataset"):
        shortgop.ray_dataset(folder)
