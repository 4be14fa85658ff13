"""What was made stays as it was made: an option that is set later would change nothing, and says so; lists and arrays
that orders and tables were made of are copied."""

from __future__ import annotations

import array
import copy
import inspect
import pickle
import shutil
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import shortgop
from shortgop.training.which_clips.clip_table import table_of_own
from training_videos import make_videos


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("as-made"))


@pytest.fixture(scope="module")
def clips(path: Path) -> shortgop.ClipDataset:
    return shortgop.ClipDataset(path, shortgop.RandomClips(4), size=(32, 32), metadata=["label"])


def test_a_transform_that_is_set_later_is_refused(clips: shortgop.ClipDataset) -> None:
    """`dataset.transform = ...` is how torchvision's datasets get theirs. Here clips came without it."""
    with pytest.raises(shortgop.UsageError, match="transform of ClipDataset .* make another one, with transform="):
        clips.transform = torch.flip  # type: ignore[attr-defined]


def test_each_option_is_refused(clips: shortgop.ClipDataset) -> None:
    sampler = shortgop.ElasticSampler(clips, 2)
    mixed = shortgop.MixedClips([clips])
    made: list[Any] = [
        clips,
        sampler,
        mixed,
        shortgop.BucketSampler(mixed, 2),
        shortgop.ClipLoader(clips, sampler, workers=0),
    ]
    for each in made:
        for name, parameter in inspect.signature(type(each)).parameters.items():
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                with pytest.raises(shortgop.UsageError, match=rf"^{name} of {type(each).__name__} is not set"):
                    setattr(each, name, None)


@pytest.mark.parametrize("name", [each for each in inspect.signature(shortgop.open).parameters if each != "path"])
def test_options_of_reading_are_refused(clips: shortgop.ClipDataset, name: str) -> None:
    with pytest.raises(shortgop.UsageError, match=f"make another one, with {name}="):
        setattr(clips, name, None)
    with pytest.raises(shortgop.UsageError, match=f"open the dataset anew, with {name}="):
        setattr(clips.source, name, None)


def test_names_of_other_libraries_are_refused_with_what_there_is_here(clips: shortgop.ClipDataset) -> None:
    sampler: Any = shortgop.ElasticSampler(clips, 2)
    loader: Any = shortgop.ClipLoader(clips, sampler, workers=0)
    with pytest.raises(shortgop.UsageError, match=r"set_epoch\(epoch\)"):
        sampler.epoch = 3
    with pytest.raises(shortgop.UsageError, match="with order="):
        sampler.shuffle = True
    with pytest.raises(shortgop.UsageError, match="here it is workers"):
        loader.num_workers = 4
    with pytest.raises(shortgop.UsageError, match="give it to each ClipDataset"):
        shortgop.MixedClips([clips]).transform = torch.flip  # type: ignore[attr-defined]


def test_other_attributes_and_copies_are_as_usual(clips: shortgop.ClipDataset) -> None:
    noted: Any = copy.copy(clips)
    noted.classes = ["cat", "dog"]
    assert pickle.loads(pickle.dumps(noted)).classes == ["cat", "dog"]
    sampler = shortgop.ElasticSampler(clips, 2, rank=1, world_size=2)
    sampler.set_epoch(3)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(copy.deepcopy(sampler)) == list(sampler)


class WithText(shortgop.ClipDataset):
    """A subclass that has a transform of its own, for labels, as code of users may."""

    def __init__(self, path: Path, transform: Any) -> None:
        super().__init__(path, shortgop.CenterClips(4), metadata=["kind"])
        self.transform = transform

    def items(self, draws: Any, rows: Any = None) -> list[dict[str, Any]]:
        return [{**item, "kind": self.transform(item["kind"])} for item in super().items(draws, rows)]


def test_a_subclass_may_have_attributes_of_its_own_under_such_names(path: Path) -> None:
    clips = WithText(path, str.upper)
    assert clips[0]["kind"] == "CAT"
    clips.transform = str.title
    assert clips[0]["kind"] == "Cat"
    copies: list[Any] = [copy.deepcopy(clips), pickle.loads(pickle.dumps(clips))]
    for each in copies:
        each.crop = "its own"
        assert (each.transform, each.crop) == (str.title, "its own")


def test_what_is_no_option_of_open_is_free_at_an_open_dataset(clips: shortgop.ClipDataset) -> None:
    """The remedy was to make another one, with reader=... or profile=..., which shortgop.open does not take."""
    videos: Any = copy.copy(clips.source)
    videos.profile = videos.reader = videos.chosen = "noted"
    assert videos.profile == "noted"


FIRST, LAST = [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]  # weights of the videos, or clips, a, b and c


def ordered(clips: shortgop.ClipDataset, order: Any, batch: int = 4) -> list[int]:
    return [draw % len(clips) for draw in shortgop.ElasticSampler(clips, batch, order=order, drop_last=False)]


def frames_of(path: Path, clips: Any) -> list[Any]:
    table = shortgop.ClipDataset(path, clips).clip_table()
    return [*table.videos, *table.frames.tolist()]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_orders_keep_the_weights_and_labels_that_they_were_made_of(path: Path, kind: Any) -> None:
    """Code that weighs hard examples writes the weights of the next epoch into the same array."""
    clips = shortgop.ClipDataset(path, shortgop.CenterClips(4))
    makers: list[Any] = [
        lambda values: shortgop.Weighted(values, num_samples=8),
        lambda values: shortgop.Systematic(values, num_samples=8),
        lambda values: shortgop.ClassBalanced(values, num_samples=8),
        lambda values: shortgop.ClassBatches(values, 2, 2),
    ]
    for make in makers:
        given = kind(FIRST)
        order = make(given)
        given[0], given[2] = 0.0, 1.0
        assert ordered(clips, order) == ordered(clips, make(kind(FIRST))) != ordered(clips, make(kind(LAST)))


@pytest.mark.parametrize("kind", [lambda orders: orders, iter], ids=["list", "iterator"])
def test_a_mixture_keeps_the_orders_that_it_was_made_of(path: Path, kind: Any) -> None:
    both: Any = shortgop.MixedClips([shortgop.ClipDataset(path, shortgop.AllClips(2)) for _ in range(2)])
    orders: list[Any] = [shortgop.Sequential(), shortgop.Shuffled()]
    mixture, expected = shortgop.Mixture([1, 1], kind(orders)), shortgop.Mixture([1, 1], tuple(orders))
    before = ordered(both, mixture)
    orders.reverse()
    assert before == ordered(both, mixture) == ordered(both, expected)


def test_an_iterator_stands_for_the_list_of_its_values(path: Path) -> None:
    """It gives them once: a second sampler, or a copy in another process, found none."""
    names: Any = iter(["id", "num_frames"])
    clips = shortgop.ClipDataset(path, shortgop.CenterClips(4), metadata=names)
    assert clips.metadata_names == ("id", "num_frames")
    for make in (shortgop.Weighted, shortgop.Systematic, shortgop.ClassBalanced):
        order, listed = make(map(float, FIRST)), make([float(each) for each in FIRST])
        assert ordered(clips, order) == ordered(clips, order) == ordered(clips, listed)
    videos, frames = cast(Any, iter(["a.mp4", "b.mp4"])), cast(Any, (each for each in (2, 5)))
    at = shortgop.ClipsAt(videos, frames=frames)
    for _ in range(2):
        assert frames_of(path, at) == ["a.mp4", "b.mp4", [2], [5]]


@pytest.mark.parametrize("kind", [list, np.array])
def test_tables_keep_the_clips_that_they_were_made_of(path: Path, kind: Any) -> None:
    names = ["a.mp4", "b.mp4"]
    videos, frames, rows = list(names), kind([2, 5]), kind([[2, 3], [5, 7]])
    starting = shortgop.ClipsAt(videos, frames=frames)
    table = shortgop.ClipTable(videos, kind([2, 5]), rows)
    read = shortgop.ClipDataset(path, table)
    videos.reverse()
    frames[0], rows[0] = 8, [8, 8]
    assert frames_of(path, starting) == [*names, [2], [5]]
    assert frames_of(path, table) == [*names, [2, 3], [5, 7]]
    assert [item["frame_numbers"].tolist() for item in read] == [[2, 3], [5, 7]]


def as_a_view(values: Any) -> Any:
    """As pandas 3 gives the column of a table, and np.broadcast_to a row: nobody writes by it, but others may."""
    view = values[:]
    view.flags.writeable = False
    return view


@pytest.mark.parametrize("kind", [as_a_view, memoryview])
def test_what_only_shows_the_memory_of_others_is_copied(path: Path, kind: Any) -> None:
    """A read-only view was kept as it was given, and weights became those that were written behind it."""
    clips = shortgop.ClipDataset(path, shortgop.CenterClips(4))
    weights, starts, frames = np.array(FIRST), np.array([2, 5]), np.array([[2, 3], [5, 7]])
    order = shortgop.Weighted(as_a_view(weights), num_samples=8)
    table = shortgop.ClipTable(["a.mp4", "b.mp4"], kind(starts), kind(frames))
    weights[:], starts[:], frames[:] = LAST, 8, 8
    assert set(ordered(clips, order)) == {0}
    assert table.starts.tolist() == [2, 5]
    assert table.frames.tolist() == [[2, 3], [5, 7]]


class Listed(Sequence[float]):
    """Weights as code of users has them, whose `copy` is something else: a name, or a method with arguments."""

    def __init__(self, copied: Any) -> None:
        self.copy = copied

    def __len__(self) -> int:
        return 3

    def __getitem__(self, place: Any) -> Any:
        return FIRST[place]


@pytest.mark.parametrize("copied", ["of last week", shutil.copy])
def test_weights_whose_copy_is_something_else_are_taken(path: Path, copied: Any) -> None:
    """It was a TypeError of Python."""
    clips = shortgop.ClipDataset(path, shortgop.CenterClips(4))
    assert set(ordered(clips, shortgop.Weighted(Listed(copied), num_samples=8))) == {0}
    shared = array.array("d", FIRST)
    order = shortgop.Weighted(shared, num_samples=8)
    shared[0], shared[2] = 0.0, 1.0
    assert set(ordered(clips, order)) == {0}


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_table_has_one_copy_of_frames_in_memory(dtype: Any) -> None:
    """Frames of another type were made 64 bits wide, and then copied once more."""
    given = np.zeros((100_000, 32), dtype=dtype)
    videos, starts = ["a.mp4"] * len(given), np.zeros(len(given), dtype=np.int64)
    tracemalloc.start()
    table = shortgop.ClipTable(videos, starts, given)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not np.shares_memory(table.frames, given)
    assert table.frames.nbytes <= most < 1.3 * table.frames.nbytes


def test_arrays_that_were_made_for_a_table_are_not_copied() -> None:
    frames = np.array([[2, 3], [5, 7]])
    table = table_of_own(["a.mp4", "b.mp4"], np.array([2, 5]), frames, None, black=False)
    assert table.frames is frames
    with pytest.raises(shortgop.UsageError, match=r"2 videos, starts of shape \(1,\)"):
        table_of_own(["a.mp4", "b.mp4"], np.array([2]), frames, None, black=False)
