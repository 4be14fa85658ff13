"""Several datasets as one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch.utils.data

from ...errors import UsageError, WrongTypeError
from ...lazy import lazy
from ...manifests.ragged import Array
from ...readers.dataset import reader_of
from ...readers.stats import Stats
from ...warned import warn
from ..pixels.rows import Rows
from ..which_clips.mixing import MixedIndex
from ..which_clips.offsets import listed
from .clip_dataset import ClipDataset
from .drawn_items import DrawnItems, Item, noting_draws


class MixedClips(DrawnItems):
    """ClipDatasets one after the other, each with its own policy: first all clips of the first, then of the next.

        both = shortgop.MixedClips([cooking, driving])
        sampler = shortgop.ElasticSampler(both, global_batch_size=64, order=shortgop.Mixture([3, 1]))

    Items have `dataset`, the number of the dataset that they are from, and are otherwise those of that dataset; `draw`
    is the one of this dataset. Where one of the datasets pads clips, items of all have a `mask`. To be collated, frames
    have to be of one shape, and items have the same columns. Reads of several items are planned together for each
    dataset. `torch.utils.data.ConcatDataset` does neither.
    """

    _FIXED = "clip_table() of each ClipDataset"
    _REMEDIES: ClassVar = {"transform": "give it to each ClipDataset"}

    def __init__(self, datasets: Sequence[ClipDataset]) -> None:
        given: object = datasets
        if isinstance(given, (ClipDataset, MixedClips)):
            # Each has items, which would be read one by one.
            raise WrongTypeError(f"datasets is a {type(given).__name__}; give MixedClips a list of ClipDatasets")
        self._datasets = tuple(listed(datasets, "datasets"))
        for each in self._datasets:
            if not isinstance(each, ClipDataset):
                raise WrongTypeError(f"one of the datasets is a {type(each).__name__}; MixedClips takes ClipDatasets")
            each.check_items("MixedClips")
        if not self._datasets:
            raise UsageError("MixedClips is empty; give it one ClipDataset or more")
        devices = {each.device for each in self._datasets}
        if len(devices) > 1:
            raise UsageError(
                f"the datasets are decoded on {', '.join(sorted(map(str, devices)))}; open all with one device"
            )
        super().__init__()
        self._warned = False
        self._stays(MixedClips)

    def __repr__(self) -> str:
        return f"<MixedClips of {len(self)} clips: {', '.join(map(repr, self._datasets))}>"

    @lazy
    def clip_index(self) -> MixedIndex:
        """Which clips there are: from draws to datasets, and from there to videos and frames."""
        return MixedIndex(tuple(each.clip_index for each in self._datasets))

    @property
    def datasets(self) -> tuple[ClipDataset, ...]:
        """The datasets, by the number that items have as `dataset`: `source`, `video_numbers` and `clip_table` are
        theirs, since each has videos and numbers of its own."""
        return self._datasets

    def column(self, name: str) -> list[Any]:
        """ClipDataset.column of the datasets, one after the other, such as labels for ClassBalanced."""
        return [value for each in self._datasets for value in each.column(name)]

    @property
    def too_short(self) -> tuple[str, ...]:
        """ClipDataset.too_short of the datasets, one after the other."""
        return tuple(name for each in self._datasets for name in each.too_short)

    @property
    def is_random(self) -> bool:
        """As ClipDataset.is_random, of any of the datasets."""
        return any(each.is_random for each in self._datasets)

    @property
    def snapshot(self) -> str:
        """The snapshot that all datasets are of, which `shortgop.open` takes; `+` is between those of several."""
        # Snapshots of datasets that lie in several places may have one name.
        several = len({each.opened_from for each in self._datasets}) > 1
        return "+".join(each.snapshot for each in self._datasets) if several else self._datasets[0].snapshot

    @property
    def videos_fingerprint(self) -> str:
        """Those of the datasets."""
        return "+".join(each.videos_fingerprint for each in self._datasets)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those of the datasets."""
        return tuple(seed for each in self._datasets for seed in each.seeds)

    @property
    def skipped(self) -> int:
        """How many clips could not be read and were replaced by others of their dataset."""
        return sum(each.skipped for each in self._datasets)

    @property
    def skipped_here(self) -> int:
        """The same in this process alone."""
        return sum(each.skipped_here for each in self._datasets)

    def example(self, draw: int) -> Item:
        """As ClipDataset.example."""
        ((part, _),) = self.clip_index.located([draw])
        with self._datasets[part].uncounted():
            return self.items([draw])[0]

    @property
    def transforms_batches(self) -> bool:
        """As ClipDataset.transforms_batches, of any of the datasets."""
        return any(each.transforms_batches for each in self._datasets)

    @property
    def has_transform(self) -> bool:
        """As ClipDataset.has_transform, of any of the datasets."""
        return any(each.has_transform for each in self._datasets)

    @property
    def device(self) -> torch.device:
        """As ClipDataset.device, which is that of all."""
        device: torch.device = self._datasets[0].device
        return device

    def will_need(self, draws: Sequence[int]) -> None:
        """As ClipDataset.will_need."""
        of_parts: dict[int, list[int]] = {}
        for part, draw in self.clip_index.located(draws):
            of_parts.setdefault(part, []).append(draw)
        # Those of a dataset together: neighbouring GOPs make one request.
        for part, own in of_parts.items():
            self._datasets[part].will_need(own)

    def use_threads(self, threads: int) -> None:
        """As ClipDataset.use_threads."""
        for each in self._datasets:
            each.use_threads(threads)

    @property
    def threads(self) -> int:
        """As ClipDataset.threads: the most of them."""
        most: int = max(each.threads for each in self._datasets)
        return most

    @contextlib.contextmanager
    def on_threads(self, threads: int) -> Iterator[None]:
        """As ClipDataset.on_threads."""
        with contextlib.ExitStack() as stack:
            for each in self._datasets:
                stack.enter_context(each.on_threads(threads))
            yield

    def stats(self) -> Stats:
        """Those of all datasets, added up. What several of them take from one `shortgop.open` counts once."""
        of_readers = {reader_of(each.source): each for each in self._datasets}
        return sum((each.stats() for each in of_readers.values()), Stats())

    def items(self, draws: Sequence[int], rows: Rows | None = None) -> list[Item]:
        """As ClipDataset.items."""
        located = self.clip_index.located(draws)
        items: list[Item] = [{}] * len(located)
        for part, dataset in enumerate(self._datasets):
            places = [place for place, (which, _) in enumerate(located) if which == part]
            own = None if rows is None else rows.of(places)
            asked = [located[place][1] for place in places]
            with noting_draws(dataset, asked):
                read = dataset.items(asked, own) if places else []
            draws_of = np.array([item["draw"] for item in read], dtype=np.int64)
            for place, item, draw in zip(places, read, self.clip_index.mixed(part, draws_of).tolist(), strict=True):
                items[place] = {**self._with_mask(part, item), "draw": draw, "dataset": part}
        self._notice_other_entries(items)
        return items

    def _with_mask(self, part: int, item: Item) -> Item:
        """An item of a dataset that never pads, where others do: it has a mask as well, which is True everywhere."""
        whole = self.clip_index.pads and not self._datasets[part].clip_index.pads
        if not whole or "mask" in item or "frame_numbers" not in item:
            return item
        return {**item, "mask": torch.ones(len(item["frame_numbers"]), dtype=torch.bool, device="cpu")}

    def _notice_other_entries(self, items: Sequence[Item]) -> None:
        """DatasetWarning, once in a process, where items that are read together differ in what they have: torch's
        default_collate takes the first one's entries, and drops all others, or misses them, without their names. It
        makes one dtype of several, so that bytes from 0 to 255 lie beside floats from 0 to 1."""
        one_of_each = {item["dataset"]: item for item in items}
        if self._warned or len(one_of_each) < 2:
            return
        entries = {part: frozenset(item) for part, item in one_of_each.items()}
        both = frozenset.intersection(*entries.values())
        if len(set(entries.values())) > 1:
            self._warned = True
            name = min(frozenset().union(*entries.values()) - both)
            have = ", ".join(str(part) for part in sorted(entries) if name in entries[part])
            lack = ", ".join(str(part) for part in sorted(entries) if name not in entries[part])
            warn(
                f"items of dataset {have} have {name!r}, and those of dataset {lack} do not: a batch of both leaves it "
                "out, or is an error. Give all of them the same outputs and metadata, or add it in `items` of a "
                "subclass"
            )
            return
        for name in sorted(both):
            dtypes = {part: getattr(item[name], "dtype", None) for part, item in sorted(one_of_each.items())}
            if None not in dtypes.values() and len(set(dtypes.values())) > 1:
                self._warned = True
                found = ", ".join(f"{dtype} in dataset {part}" for part, dtype in dtypes.items())
                warn(
                    f"{name!r} of items is {found}: a batch has one of these for all, and the values stay as they are. "
                    "Give all of them the same dtype"
                )
                return


def video_names(datasets: Sequence[ClipDataset]) -> list[Array]:
    """An integer for each video, or stretch, that clips of a dataset are taken from, int64: the same for the same one
    in all datasets. UsageError where datasets are of two snapshots, in which videos have other rows."""
    snapshots: dict[str, str] = {}
    tables, places = [], []
    for each in datasets:
        path, snapshot = each.opened_from
        if snapshots.setdefault(path, snapshot) != snapshot:
            raise UsageError(
                f"datasets of MixedClips are of the snapshots {snapshots[path]} and {snapshot} of {path}: take "
                "shortgop.open once for all of them"
            )
        tables.append(each.video_rows)
        places.append(np.full(len(tables[-1]), list(snapshots).index(path)))
    whole = np.column_stack([np.concatenate(places), np.concatenate(tables)])
    names = np.unique(whole, axis=0, return_inverse=True)[1].reshape(-1)
    return np.split(names, np.cumsum([len(each) for each in tables])[:-1])
