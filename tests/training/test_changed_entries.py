"""What `items` of a subclass does with the frames that it gets: ClipLoader reads these into the memory of batches, and
its batches are those of a DataLoader all the same."""

from __future__ import annotations

import functools
import gc
import weakref
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import shortgop
from shortgop.errors import UsageError
from shortgop.training.loader.batch_rows import write_items
from training_videos import make_videos

Items = list[dict[str, Any]]
OUTPUTS = {"left": shortgop.Output(size=(32, 32)), "right": shortgop.Output(size=(32, 32), flip=1.0)}


class Changed(shortgop.ClipDataset):
    """Two pictures of each clip, mirrored to each other, with which `change` does something."""

    def items(self, draws: Any, rows: Any = None) -> Items:
        items = super().items(draws, rows)
        for item in items:
            self.change(item)
        return items

    def change(self, item: dict[str, Any]) -> None:
        raise NotImplementedError


class Renamed(Changed):
    """It was an error that told of datasets that are mixed."""

    def change(self, item: dict[str, Any]) -> None:
        item["pixel_values"] = item.pop("left")


class Swapped(Changed):
    """Both had the frames of one."""

    def change(self, item: dict[str, Any]) -> None:
        item["left"], item["right"] = item["right"], item["left"]


class Transposed(Changed):
    """They were as they had been read."""

    def change(self, item: dict[str, Any]) -> None:
        item["left"] = item["left"].mT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_videos(tmp_path_factory.mktemp("changed"))


@pytest.mark.parametrize("kind", [Renamed, Swapped, Transposed])
@pytest.mark.parametrize("workers", [0, 1])
def test_changed_items_are_those_of_a_data_loader(kind: type[Changed], workers: int, folder: Path) -> None:
    dataset = kind(folder, shortgop.AllClips(2, step=4), outputs=OUTPUTS)
    sampler = shortgop.ElasticSampler(dataset, 4)
    expected = list(DataLoader(dataset, 4, sampler=sampler))
    with shortgop.ClipLoader(dataset, sampler, workers=workers) as loader:
        for batch, wanted in zip(loader, expected, strict=True):
            assert list(batch) == list(wanted)
            assert all(torch.equal(batch[name], wanted[name]) for name in wanted)


def test_clips_that_are_read_together_may_exchange_what_was_read() -> None:
    columns = {"frames": torch.tensor([[1, 2], [3, 4], [5, 6]])}
    frames = list(columns["frames"])
    items = [{"frames": frames[place]} for place in (2, 0, 1)]
    assert write_items(items, ["frames"], columns, range(3)) == ({}, {}, {})
    assert columns["frames"].tolist() == [[5, 6], [1, 2], [3, 4]]


class Gathered(shortgop.ClipDataset):
    """All kinds of containers that hold what was read, and an array."""

    def items(self, draws: Any, rows: Any = None) -> Items:
        items = super().items(draws, rows)
        for item in items:
            left, right = item["left"], item["right"]
            both = Pair(left, right), Eyes(left, right)
            item["kept"] = {"dict": left, "list": [left, (right, *both)], "array": right.numpy()}
        return items


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Eyes:
    left: Any
    right: Any


def every_picture(kept: dict[str, Any]) -> list[torch.Tensor]:
    left, (right, pair, eyes) = kept["list"]
    return [kept["dict"], left, right, *pair, eyes.left, eyes.right, torch.from_numpy(kept["array"])]


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("in_buckets", [False, True])
def test_frames_that_are_kept_in_containers_stay_those_of_their_clip(
    in_buckets: bool, batch_size: int, folder: Path
) -> None:
    """They became those of a later batch, which was read into the same memory. With buckets each batch has memory of
    its own, which a batch of one clip fills."""
    dataset = Gathered(folder, shortgop.AllClips(1, step=2), outputs=OUTPUTS)
    sampler: Any = shortgop.ElasticSampler(dataset, batch_size)
    read: Any = dataset
    if in_buckets:
        read = shortgop.MixedClips([dataset, Gathered(folder, shortgop.AllClips(3, step=2), outputs=OUTPUTS)])
        sampler = shortgop.BucketSampler(read, batch_size)
    with shortgop.ClipLoader(read, sampler, workers=0, collate={"kept": list}) as loader:
        found = [
            (int(draw), every_picture(kept))
            for batch in loader
            for draw, kept in zip(batch["draw"], batch["kept"], strict=True)
        ]
    assert len(found) > 30
    for draw, pictures in found:
        assert all(map(torch.equal, pictures, every_picture(read.items([draw])[0]["kept"])))


class Dotted(dict[str, Any]):
    """Its entries are its attributes, too, and it has one of any name."""

    __getattr__ = dict.get


@dataclass
class Frame:
    """A frame of a video, and what it belongs to."""

    pictures: Any
    owner: Any = None

    @functools.cached_property
    def first(self) -> torch.Tensor:
        return cast(torch.Tensor, self.pictures[:1])


class Locked:
    def __reduce__(self) -> str:
        raise TypeError("it cannot be copied")


@dataclass
class Handle(Locked):
    name: str


def kept_apart(entry: Any, row: torch.Tensor) -> Any:
    """What becomes of an entry without a column, in an item that is read into this row."""
    frames = row[None]
    return write_items([{"frames": row, "entry": entry}], ["frames", "entry"], {"frames": frames}, [0])[0]["entry"]


@pytest.mark.parametrize("kind", [Dotted, UserDict])
def test_dicts_of_other_kinds_are_searched(kind: Any) -> None:
    """Those with entries as attributes ended the pass, and frames in a UserDict became those of a later batch."""
    row = torch.tensor([1, 2])
    found = kept_apart(kind(picture=row), row)
    row[:] = 0
    assert type(found) is kind
    assert found["picture"].tolist() == [1, 2]


def test_objects_that_hold_each_other_are_searched() -> None:
    """They were a RecursionError."""
    row = torch.tensor([1, 2])
    owner = Frame(row)
    owner.owner = [Frame(row, owner), Frame(row, owner)]
    assert owner.first.tolist() == [1]
    found = kept_apart({"frame": owner, "again": owner}, row)
    row[:] = 0
    assert found["frame"] is found["again"] is found["frame"].owner[0].owner is found["frame"].owner[1].owner
    pictures = [found["frame"].pictures, found["frame"].owner[0].pictures, found["frame"].owner[1].pictures]
    assert [each.tolist() for each in (found["frame"].first, *pictures)] == [[1], [1, 2], [1, 2], [1, 2]]


def test_a_tuple_that_holds_itself_is_one_in_the_result() -> None:
    row, around = torch.tensor([1, 2]), list[Any]()
    whole = (around, row)
    around.append(whole)
    found = kept_apart(whole, row)
    row[:] = 0
    assert found[0][0][0] is found[0]
    assert (found[1].tolist(), found[0][0][1].tolist()) == ([1, 2], [1, 2])


def test_what_was_searched_is_freed_with_the_last_use_of_it() -> None:
    """A batch on a GPU would take its memory until Python collects garbage."""
    kept = torch.ones(3)
    alive = weakref.ref(kept)
    gc.disable()
    try:
        found = kept_apart([Frame(kept)], torch.ones(2))
        del kept, found
        assert alive() is None
    finally:
        gc.enable()


def test_what_holds_no_frames_is_not_copied(tmp_path: Path) -> None:
    """Objects that have no copies were an error, and the array of a file was read."""
    row = torch.tensor([1, 2])
    table = np.lib.format.open_memmap(tmp_path / "table.npy", "w+", np.int64, (4,))
    entry = {"handle": Handle("a"), "table": [Frame(table, torch.ones(3)), (3, "a")]}
    assert kept_apart(entry, row) is entry
    found = kept_apart({**entry, "picture": row}, row)
    assert found["handle"] is entry["handle"]
    assert found["table"] is entry["table"]


@pytest.mark.parametrize(
    "changed",
    [lambda row: row[:1], lambda row: row.view(torch.int32)],
    ids=["shape", "dtype"],
)
def test_an_entry_that_begins_where_its_row_does_may_be_another_one(changed: Callable[..., torch.Tensor]) -> None:
    columns = {"frames": torch.zeros(2, 4, 3)}
    items = [{"frames": columns["frames"][0]}, {"frames": changed(columns["frames"][1])}]
    with pytest.raises(UsageError, match="'frames' is .*, that of the first item is"):
        write_items(items, ["frames"], columns, range(2))


class Named(Changed):
    """Another name for pictures, and in their place what has fewer dimensions."""

    def change(self, item: dict[str, Any]) -> None:
        item["right"], item["left"] = item["left"], 3


def test_entries_of_another_form_are_read_without_rows(folder: Path) -> None:
    """A number was an IndexError."""
    sizes = {"left": shortgop.Output(size=(32, 32)), "right": shortgop.Output(size=(16, 16))}
    dataset = Named(folder, shortgop.AllClips(2, step=4), outputs=sizes)
    sampler = shortgop.ElasticSampler(dataset, 4)
    with pytest.raises(UsageError, match=r"clips of video .* or none, let it call super\(\).items\(draws\), without"):
        next(iter(shortgop.ClipLoader(dataset, sampler, workers=0)))


class Floats(shortgop.ClipDataset):
    with_rows = True

    def items(self, draws: Any, rows: Any = None) -> Items:
        items = super().items(draws, rows if self.with_rows else None)
        for item in items:
            item["frames"] = item["frames"].float() / 255
        return items


def test_frames_of_another_type_are_read_without_rows(folder: Path) -> None:
    dataset = Floats(folder, shortgop.CenterClips(2))
    sampler = shortgop.ElasticSampler(dataset, 3)
    with pytest.raises(
        UsageError, match=r"gives this entry other frames or none, let it call super\(\).items\(draws\), without rows"
    ):
        next(iter(shortgop.ClipLoader(dataset, sampler, workers=0)))
    dataset.with_rows = False
    (batch,) = shortgop.ClipLoader(dataset, sampler, workers=0)
    (expected,) = DataLoader(dataset, 3, sampler=sampler)
    assert torch.equal(batch["frames"], expected["frames"])
    assert 0 < float(batch["frames"].mean()) < 1
