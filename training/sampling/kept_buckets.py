"""Which clips each dataset has in an epoch where a video may be in one of several, by chance: other ones in each epoch.

    datasets                  0 large   1 middle  2 small      keep = 1/4, 1/2, 1
    videos that are in all    1/4       3/8       3/8          each is in one of them in an epoch
    videos of 1 and 2                   1/2       1/2

Videos that are in the same datasets are a class. In each epoch its n videos take n places on a line, in a permutation:
place k is (k + phase) / n, with one random phase from 0 to 1 for all. A dataset has those in a part of the line that is
as long as its probability p, so that it has each video with this probability, and floor(n p) or ceil(n p) of them. The
sum of floor(n p) is what a dataset has in every epoch: batches are of so many. What it has beyond is left out in this
epoch, after a shuffle.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...arguments import number
from ...errors import UsageError
from ...manifests.ragged import Array
from ..which_clips.clips import Clips
from ..which_clips.keyed import hashes, key, permuted
from .bound_order import BoundOrder
from .orders import for_each

_MOST_PARTS = 1_000_000


@dataclass(frozen=True, eq=False)
class VideoClass:
    """The videos that are in just these datasets, and their clips there: int64, (datasets, videos). `bounds` are the
    parts of the line that each dataset has: (datasets + 1,), ascending from 0."""

    datasets: tuple[int, ...]
    clips: Array
    bounds: tuple[Fraction, ...]

    @property
    def num_videos(self) -> int:
        return int(self.clips.shape[1])

    def part(self, place: int, phase: Fraction) -> tuple[int, int]:
        """The places on the line, [first, stop), that the dataset at this place among `datasets` has."""
        count = self.num_videos
        low, high = (min(count, max(0, math.ceil(count * each - phase))) for each in self.bounds[place : place + 2])
        return low, high

    def fewest(self, place: int) -> int:
        """How many videos that dataset has in any epoch."""
        return math.floor(self.num_videos * (self.bounds[place + 1] - self.bounds[place]))


@dataclass(frozen=True, eq=False)
class KeptClips:
    """The order of one dataset's clips: those of its videos that are in it in an epoch, shuffled."""

    classes: Sequence[VideoClass]
    dataset: int

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        """As of any other order."""
        count = len(clips)
        own = [
            (which, each, each.datasets.index(self.dataset))
            for which, each in enumerate(self.classes)
            if self.dataset in each.datasets
        ]
        epochs: dict[int, _Epoch] = {}

        def draws(epoch: int, positions: Array) -> Array:
            if epoch not in epochs:
                # Loaders go from one epoch to the next.
                epochs.clear()
                epochs[epoch] = _Epoch(epoch, seed, self.dataset, own)
            return epoch * count + epochs[epoch].clips_at(positions)

        length = sum(each.fewest(place) for _, each, place in own)
        digest = hashlib.blake2b(digest_size=8)
        for _, each, place in own:
            digest.update(repr((each.datasets, each.bounds)).encode())
            digest.update(np.ascontiguousarray(each.clips[place], dtype="<i8").data)
        return BoundOrder(length, draws, f"KeptClips({length}, {digest.hexdigest()})")


class _Epoch:
    """The clips of a dataset in one epoch. `own` are the dataset's classes: the number of each among all classes, and
    the place of the dataset among its datasets."""

    def __init__(self, epoch: int, seed: int, dataset: int, own: Sequence[tuple[int, VideoClass, int]]) -> None:
        self._own = own
        self._keys = [key(seed, "kept", epoch, which) for which, *_ in own]
        self._order_key = key(seed, "order of kept", epoch, dataset)
        # One phase for all datasets of a class, and one permutation.
        phases = [Fraction(int(hashes(each, -1)), 1 << 64) for each in self._keys]
        self._parts = [each.part(place, phase) for (_, each, place), phase in zip(own, phases, strict=True)]
        self._firsts = np.cumsum([0, *(stop - first for first, stop in self._parts)])
        self._members: dict[int, Array] = {}

    def clips_at(self, positions: Array) -> Array:
        """The clips at these positions of the epoch."""
        places = permuted(self._order_key, int(self._firsts[-1]), positions)
        which = np.searchsorted(self._firsts, places, side="right") - 1
        found = np.empty_like(places)
        for each in np.unique(which).tolist():
            same = which == each
            found[same] = self._of_class(each)[places[same] - self._firsts[each]]
        return found

    def _of_class(self, which: int) -> Array:
        if which not in self._members:
            _, each, place = self._own[which]
            members = permuted(self._keys[which], each.num_videos, np.arange(*self._parts[which]))
            self._members[which] = each.clips[place][members]
        return self._members[which]


def kept_clips(parts: Sequence[Clips], videos: Sequence[Array], keep: Any) -> list[KeptClips]:
    """The order of each dataset. `parts` are the datasets' clips, `videos` says of which video each entry of a
    dataset's table is: integers, the same for the same video in all datasets. `keep` is the probability with which a
    dataset keeps a video that none before it has kept: a number, or one for each dataset.

    UsageError for other probabilities, for a dataset with several clips of a video, or with a video that comes twice.
    """
    probabilities = _checked(keep, len(parts))
    names = np.concatenate([each[np.diff(part.firsts) > 0] for part, each in zip(parts, videos, strict=True)])
    clips = np.concatenate([_one_of_each(part, number) for number, part in enumerate(parts)])
    datasets = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.lexsort((datasets, names))
    names, clips, datasets = names[order], clips[order], datasets[order]
    again = (names[1:] == names[:-1]) & (datasets[1:] == datasets[:-1])
    if again.any():
        dataset = int(datasets[1:][again][0])
        raise UsageError(
            f"dataset {dataset} of MixedClips has a video twice, and with keep each video is in one dataset at most: "
            "give each of its videos, or stretches, once"
        )
    firsts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]])) if len(names) else names
    # A sum of random numbers of 64 bits is another one for each set of datasets.
    signatures = np.add.reduceat(hashes(key("datasets"), datasets), firsts) if len(names) else names
    counts = np.diff(np.append(firsts, len(names)))
    _, examples, which = np.unique(signatures, return_index=True, return_inverse=True)
    classes = []
    for each, example in enumerate(examples.tolist()):
        members = firsts[which == each]
        own = tuple(datasets[firsts[example] : firsts[example] + counts[example]].tolist())
        table = clips[members + np.arange(len(own))[:, None]]
        classes.append(VideoClass(own, table, _bounds([probabilities[dataset] for dataset in own])))
    return [KeptClips(classes, dataset) for dataset in range(len(parts))]


def _bounds(keep: Sequence[Fraction]) -> tuple[Fraction, ...]:
    bounds, left = [Fraction(0)], Fraction(1)
    for each in keep:
        bounds.append(bounds[-1] + left * each)
        left *= 1 - each
    return tuple(bounds)


def _one_of_each(part: Clips, dataset: int) -> Array:
    """The clips of a dataset, one for each video that has any."""
    counts = np.diff(part.firsts)
    if len(counts) and counts.max() > 1:
        place = int(counts.argmax())
        raise UsageError(
            f"dataset {dataset} of MixedClips has {int(counts[place])} clips of video {part.video_name(place)!r}, and "
            "with keep each video is one clip of one dataset: give it a policy that makes one of each, such as "
            "shortgop.RandomClips(16)"
        )
    return part.clip_numbers(part.firsts[:-1][counts > 0])


def _checked(keep: Any, datasets: int) -> list[Fraction]:
    given = for_each(keep, datasets, "keep")
    for each in given:
        if not 0 <= number(each, "keep") <= 1:
            raise UsageError(f"keep has {each}; each is a probability, from 0 to 1")
    # Floats count as the simple number that they stand for, such as 4/7, so that 4/7 of seven videos are four.
    return [Fraction(each).limit_denominator(_MOST_PARTS) for each in given]
