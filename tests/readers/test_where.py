"""`Dataset.where`: a dataset of fewer videos, which reads as if there were no others."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import UsageError, VideoNotFoundError, WrongTypeError
from shortgop.readers.chosen import ChosenRows
from sweep import sample
from training_videos import make_videos, numbers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("where"))


@pytest.fixture(scope="module")
def dataset(folder: Path) -> shortgop.Dataset:
    return shortgop.open(folder)


@pytest.fixture(scope="module")
def dogs(dataset: shortgop.Dataset) -> shortgop.Dataset:
    """The videos b.mp4 and c.mp4, which are rows 1 and 2 of the snapshot."""
    return dataset.where(kind="dog")


def test_videos_by_the_values_of_columns(dataset: shortgop.Dataset) -> None:
    def ids(*condition: Any, **equals: Any) -> list[str]:
        return [video.id for video in dataset.where(*condition, **equals)]

    assert ids(label=1) == ["b.mp4", "c.mp4"]
    assert ids(label=1, num_frames=9) == ["c.mp4"]
    assert ids(weight=0.5) == ids(weight=np.float32(0.5)) == ["a.mp4"]
    assert ids(id="b.mp4", fps=30) == ["b.mp4"]
    assert ids(kind=None) == ids(kind="cat", label=1) == []
    assert ids() == ["a.mp4", "b.mp4", "c.mp4"]
    assert ids(lambda columns: (columns["num_frames"] > 9) & (columns["label"] != 0)) == ["b.mp4"]
    assert ids(lambda columns: columns["fps"] == 10, kind="dog") == ["c.mp4"]
    mask = np.isin(dataset.columns["label"], [0, 5])
    for each in (mask, mask.tolist(), torch.from_numpy(mask)):
        assert ids(each) == list(dataset[each].ids) == ["a.mp4"]


def test_videos_by_a_slice_of_their_numbers(dataset: shortgop.Dataset, dogs: shortgop.Dataset) -> None:
    for key in (slice(2), slice(1, None), slice(-1, None), slice(0, 100, 2), slice(3, 1), slice(np.int64(1), None)):
        assert list(dataset[key].ids) == list(dataset.ids)[key]
    assert list(dogs[1:].ids) == ["c.mp4"]
    for wrong, message in ((slice(None, None, -1), "step is -1; it has to be 1"), (slice(0.5), "stop is 0.5; it has")):
        with pytest.raises(UsageError, match=message):
            dataset[wrong]


def test_it_is_a_dataset_of_these_videos(dataset: shortgop.Dataset, dogs: shortgop.Dataset) -> None:
    assert len(dogs) == 2
    assert list(dogs.ids) == ["b.mp4", "c.mp4"]
    assert dogs[0].id == dogs["b.mp4"].id == dogs[-2].id == "b.mp4"
    assert "c.mp4" in dogs
    assert "a.mp4" not in dogs
    assert 1 not in dogs
    assert dogs.columns["num_frames"].tolist() == [25, 9]
    for name in dataset.columns:
        assert dogs.columns[name].tolist() == dataset.columns[name].tolist()[1:], name
    assert dogs.columns.present("label").tolist() == [True, True]
    assert dogs.to_table()["id"].to_pylist() == dogs.to_pandas()["id"].tolist() == ["b.mp4", "c.mp4"]
    assert repr(dogs).endswith("2 of 3 videos>")
    assert list(dogs.where(label=1, num_frames=9).ids) == ["c.mp4"]
    with pytest.raises(VideoNotFoundError, match=r"'a.mp4' is not one of the 2 videos that where\(\) or a slice chose"):
        dogs["a.mp4"]
    with pytest.raises(VideoNotFoundError, match="no video number 2: it has 2 videos"):
        dogs[2]


def test_frames_and_their_times_are_those_of_the_chosen_videos(dogs: shortgop.Dataset) -> None:
    assert [numbers(video.get_frames_at([0, 7]).data) for video in dogs] == [[1000, 1007], [2000, 2007]]
    batch = dogs.get_clips([(1, [3, 8]), ("b.mp4", [24, 9]), (-1, [0, 0])])
    assert [numbers(clip) for clip in batch.data] == [[2003, 2008], [1024, 1009], [2000, 2000]]
    assert batch.pts_seconds[1].tolist() == [24 / 30, 9 / 30]
    # Times of source frames are rows of a table of the whole snapshot.
    assert dogs[1].source_seconds([2, 8]).tolist() == [0.2, 0.8]
    assert dogs[0].source_seconds([24]).tolist() == [24 / 30]
    with pytest.raises(VideoNotFoundError):
        dogs.get_clips([("a.mp4", [0])])


def test_sizes_add_up_to_those_of_the_whole(dataset: shortgop.Dataset, dogs: shortgop.Dataset) -> None:
    parts = [dogs.metadata, dataset.where(kind="cat").metadata]
    whole = dataset.metadata
    for name in ("num_videos", "num_frames", "num_gops", "num_bytes"):
        assert sum(getattr(part, name) for part in parts) == getattr(whole, name), name
    assert sum(part.duration_seconds for part in parts) == pytest.approx(whole.duration_seconds)
    assert parts[0].num_frames == 34
    assert parts[0].snapshot == whole.snapshot


@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning")
def test_lost_videos_are_those_that_were_chosen(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "dataset")
    shutil.rmtree(tmp_path / "dataset" / "shards")
    dataset = shortgop.open(tmp_path / "dataset")
    assert dataset.lost_ids == ("a.mp4", "b.mp4", "c.mp4")
    assert dataset.where(kind="dog").lost_ids == ("b.mp4", "c.mp4")


def test_no_video_at_all(dataset: shortgop.Dataset) -> None:
    none = dataset.where(label=1, kind="cat")
    assert (len(none), list(none), list(none.ids), none.columns["label"].tolist()) == (0, [], [], [])
    assert none.metadata.num_bytes == 0
    assert none.where([]).where(kind="dog").columns["kind"].tolist() == []
    assert len(shortgop.ClipDataset(none, shortgop.RandomClips(2))) == 0


def test_conditions_that_cannot_be_met_are_explained(dataset: shortgop.Dataset) -> None:
    with pytest.raises(UsageError, match="no column 'labels'; it has id, source, .*, label, weight, kind"):
        dataset.where(labels=1)
    with pytest.raises(UsageError, match="no column 'labels'"):
        dataset.where(lambda columns: columns["labels"] == 1)
    with pytest.raises(UsageError, match=r"takes an array for one boolean, .* write & and \| and ~, with comparisons"):
        dataset.where(lambda columns: columns["label"] == 1 and columns["kind"] == "cat")
    with pytest.raises(UsageError, match="takes an array for one boolean"):
        dataset.where(lambda columns: 0 < columns["label"] < 2)
    with pytest.raises(UsageError, match="column 'label' has integers, and '1' is a str"):
        dataset.where(label="1")
    with pytest.raises(UsageError, match="column 'label' has integers, and True is a bool"):
        dataset.where(label=True)
    with pytest.raises(UsageError, match="column 'kind' has texts, .* is a list; for other conditions .* function"):
        dataset.where(kind=["cat", "dog"])
    with pytest.raises(UsageError, match=r"shape \(2,\), and there are 3 videos"):
        dataset.where([True, False])
    for wrong in ([0, 1, 1], np.array([0, 2]), lambda columns: columns["label"]):
        with pytest.raises(WrongTypeError, match="dtype int64; it has to be a boolean for each video"):
            dataset.where(wrong)
    several: list[Any] = [[0, 2], ["a.mp4"], np.array([0, 2]), torch.tensor([0, 2])]
    for keys in several:
        with pytest.raises(WrongTypeError, match=r"\[dataset\[key\] for key in keys\], .*dataset.where\(.*videos="):
            dataset[keys]


def test_a_pickled_one_has_the_same_videos(dogs: shortgop.Dataset) -> None:
    copy = pickle.loads(pickle.dumps(dogs))
    assert list(copy.ids) == ["b.mp4", "c.mp4"]
    assert numbers(copy[1].get_frames_at([4]).data) == [2004]
    video = pickle.loads(pickle.dumps(dogs[1]))
    assert (video.id, numbers(video.get_frames_at([4]).data)) == ("c.mp4", [2004])


def test_both_count_what_is_read_together(dataset: shortgop.Dataset, dogs: shortgop.Dataset) -> None:
    before = dataset.stats()
    dogs[0].get_frame_at(0)
    assert (dataset.stats() - before).gops_decoded == 1
    assert dogs.stats() == dataset.stats()


def test_clips_of_the_chosen_videos(dogs: shortgop.Dataset) -> None:
    """An item's number is that of its video among the chosen ones."""
    clips = shortgop.ClipDataset(dogs, shortgop.AllClips(9), metadata=["label", "id"])
    assert len(clips) == 17 + 1
    assert clips.video_numbers.tolist() == [0, 1]
    assert clips.column("weight") == [1.5, 2.0]
    assert clips.snapshot == dogs.metadata.snapshot
    for item in clips:
        first = 1000 * (1 + item["video"]) + int(item["start"])
        assert numbers(item["frames"]) == list(range(first, first + 9))
        assert item["id"] == dogs[item["video"]].id
    assert {item["video"] for item in clips} == {0, 1}
    assert clips.clip_table([17]).videos == ["c.mp4"]


def test_some_of_the_chosen_videos_and_places_in_them(dogs: shortgop.Dataset) -> None:
    clips = shortgop.ClipDataset(dogs, shortgop.CenterClips(1), videos=["c.mp4", 0])
    assert [(item["video"], numbers(item["frames"])) for item in clips] == [(1, [2004]), (0, [1012])]
    assert clips.video_numbers.tolist() == [1, 0]
    assert clips.column("weight") == [2.0, 1.5]
    places = shortgop.ClipsAt(["c.mp4", 0], frames=[2, 3], num_frames=1)
    assert [numbers(item["frames"]) for item in shortgop.ClipDataset(dogs, places)] == [[2002], [1003]]
    with pytest.raises(VideoNotFoundError):
        shortgop.ClipDataset(dogs, shortgop.ClipsAt(["a.mp4"], frames=[2], num_frames=1))
    with pytest.raises(VideoNotFoundError):
        shortgop.ClipDataset(dogs, shortgop.AllClips(1), videos=["a.mp4"])


def test_outputs_and_aligned_clips(dogs: shortgop.Dataset) -> None:
    outputs = {"small": shortgop.Output(size=(64, 96)), "last": shortgop.Output(frames=[1])}
    clips = shortgop.ClipDataset(dogs, shortgop.RandomClips(2, stride=3, align="reference"), outputs=outputs)
    for item in clips:
        first = 1000 * (1 + item["video"]) + int(item["start"])
        assert numbers(item["small"]) == [first, first + 3]
        assert numbers(item["last"]) == [first + 3]


def test_samplers_take_labels_and_weights_of_the_chosen_videos(dogs: shortgop.Dataset) -> None:
    clips = shortgop.ClipDataset(dogs, shortgop.RandomClips(4, clips_per_video=5))
    order = shortgop.Weighted(dogs.columns["weight"] - 1.5, num_samples=20)
    sampler = shortgop.ElasticSampler(clips, 20, order=order)
    assert {clips[draw]["video"] for draw in sampler} == {1}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", sample(["spawn"], more=["fork"]))
def test_workers_read_the_chosen_videos(dogs: shortgop.Dataset, method: str) -> None:
    clips = shortgop.ClipDataset(dogs, shortgop.AllClips(1))
    loader = DataLoader(clips, batch_size=17, num_workers=2, multiprocessing_context=method)
    shown = [number for batch in loader for clip in batch["frames"] for number in numbers(clip)]
    assert shown == [*range(1000, 1025), *range(2000, 2009)]


@pytest.mark.parametrize("workers", [0, 1])
def test_our_loader_reads_the_chosen_videos(dogs: shortgop.Dataset, workers: int) -> None:
    clips = shortgop.ClipDataset(dogs, shortgop.AllClips(1))
    sampler = shortgop.ElasticSampler(clips, 17, order=shortgop.Sequential())
    with shortgop.ClipLoader(clips, sampler, workers=workers) as loader:
        shown = [
            (int(video), *numbers(clip))
            for batch in loader
            for video, clip in zip(batch["video"], batch["frames"], strict=True)
        ]
    assert shown == [*((0, number) for number in range(1000, 1025)), *((1, number) for number in range(2000, 2009))]


@given(st.lists(st.lists(st.booleans(), min_size=20, max_size=20), min_size=1, max_size=3))
def test_choices_of_choices_are_rows_of_the_snapshot(masks: list[list[bool]]) -> None:
    chosen, expected = ChosenRows(20), list(range(20))
    for mask in masks:
        chosen = chosen.only(np.array(mask[: len(expected)], dtype=bool))
        expected = [row for row, wanted in zip(expected, mask, strict=False) if wanted]
        numbers_of_all = np.arange(len(expected))
        assert chosen.all_rows().tolist() == chosen.rows_at(numbers_of_all).tolist() == expected
        assert chosen.numbers_of(expected).tolist() == numbers_of_all.tolist()
        assert [row for row in range(-1, 22) if row in chosen] == expected
