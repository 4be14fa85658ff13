"""A training state goes on with the same videos wherever they are: in a later snapshot, in a copy, among others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import BatchSampler

import shortgop
from shortgop.errors import UsageError
from shortgop.manifests.operations.annotate import annotate
from shortgop.manifests.operations.compact import compact
from shortgop.manifests.operations.copying import copy_videos
from shortgop.storage.disk import DiskStorage
from training_videos import make_videos, numbers


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return make_videos(tmp_path / "dataset")


def sampler_of(place: Path, **options: Any) -> tuple[shortgop.ClipDataset, shortgop.ElasticSampler]:
    clips = shortgop.ClipDataset(place, shortgop.AllClips(2), **options)
    return clips, shortgop.ElasticSampler(clips, 4, seed=5)


def rest_of(place: Path, state: dict[str, Any], **options: Any) -> list[list[tuple[str, list[int]]]]:
    """The id and the frame numbers of each clip that is left in the epoch."""
    clips, sampler = sampler_of(place, metadata=["id"], **options)
    sampler.load_state_dict(state)
    batches = [clips.__getitems__(batch) for batch in BatchSampler(sampler, 4, drop_last=True)]
    return [[(item["id"], numbers(item["frames"])) for item in batch] for batch in batches]


def state_after_two(place: Path) -> dict[str, Any]:
    _, sampler = sampler_of(place)
    return sampler.state_after(2)


def test_labels_that_were_corrected_meanwhile_change_nothing(dataset: Path) -> None:
    state = state_after_two(dataset)
    left = rest_of(dataset, state)
    annotate(DiskStorage(dataset), {"a.mp4": {"label": 7}})
    assert shortgop.open(dataset).metadata.snapshot != state["snapshot"]
    assert rest_of(dataset, state) == left


def test_a_copy_of_the_dataset_will_do(dataset: Path, tmp_path: Path) -> None:
    annotate(DiskStorage(dataset), {"a.mp4": {"label": 7}})
    state = state_after_two(dataset)
    left = rest_of(dataset, state)
    copy_videos([DiskStorage(dataset)], DiskStorage(tmp_path / "copy"))
    shutil.rmtree(dataset)
    assert shortgop.open(tmp_path / "copy").metadata.snapshot != state["snapshot"]
    assert rest_of(tmp_path / "copy", state) == left


def test_shards_that_were_rewritten_meanwhile_change_nothing(dataset: Path, tmp_path: Path) -> None:
    """Each video has another revision then."""
    copy_videos([DiskStorage(make_videos(tmp_path / "more", prefix="z-"))], DiskStorage(dataset))
    state = state_after_two(dataset)
    left = rest_of(dataset, state)
    assert compact(DiskStorage(dataset)).shards > 1
    assert shortgop.open(dataset).metadata.snapshot != state["snapshot"]
    assert rest_of(dataset, state) == left


def test_where_videos_were_added_those_of_the_state_are_named(dataset: Path, tmp_path: Path) -> None:
    state = state_after_two(dataset)
    left = rest_of(dataset, state)
    before = [video.id for video in shortgop.open(dataset)]
    more = make_videos(tmp_path / "more", prefix="0-")
    copy_videos([DiskStorage(more)], DiskStorage(dataset))
    with pytest.raises(
        UsageError, match="other videos, in snapshot .*; give shortgop.ClipDataset that snapshot, or videos= "
    ):
        rest_of(dataset, state)
    # Their places in the tables are others now.
    assert rest_of(dataset, state, videos=before) == left


def test_a_dataset_that_was_made_anew_of_other_sources_is_another_one(dataset: Path, tmp_path: Path) -> None:
    """Ids, lengths and the name of the snapshot are the same."""
    state = state_after_two(dataset)
    other = make_videos(tmp_path / "other", first_number=100)
    assert shortgop.open(other).metadata.snapshot == state["snapshot"]
    with pytest.raises(UsageError, match="other videos"):
        rest_of(other, state)


def test_another_seed_of_the_dataset_is_told_as_such(dataset: Path) -> None:
    """It was told to be another policy alone."""
    random = [shortgop.ClipDataset(dataset, shortgop.RandomClips(2), seed=seed) for seed in (0, 1)]
    state = shortgop.ElasticSampler(random[0], 2).state_dict()
    with pytest.raises(UsageError, match=r"taken with another policy, or another seed of the dataset \(.*\): "):
        shortgop.ElasticSampler(random[1], 2).load_state_dict(state)
