"""The clips of several datasets as one row of numbers: first those of the first dataset, then those of the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import UsageError
from ...lazy import lazy
from ...manifests.ragged import Array
from .clips import Clip, Clips
from .draws import split_draws
from .keyed import key

# In names of orders of several datasets: earlier ones gave all of them the same seed, and had other batches.
SEED_FOR_EACH = "a seed for each"
# In names of clips of several datasets: those of earlier ones drew the same random numbers.
ROUNDS_FOR_EACH = "rounds for each"


def seeds_of_datasets(datasets: int, seed: int, purpose: str) -> list[int]:
    """A seed for the order of each of so many datasets.

    Under one seed, datasets of as many clips, such as two lengths of the same videos, would have them in the same
    order: batches of pairs, or the same groups in two buckets. Of 31 bits, as the generators that an order of a user's
    may have take few more.
    """
    return [key(seed, purpose, number) >> 33 for number in range(datasets)]


@dataclass(frozen=True, eq=False)
class MixedIndex:
    """The clips of several datasets. Videos count through as clips do.

    A draw of round r is one of round r * P + k of dataset k of P. So no two datasets share random numbers of draws,
    also those of one seed, as what is random about a clip is a hash of seed and draw: two lengths of the same videos
    would otherwise start at about the same part of each.
    """

    parts: tuple[Clips, ...]

    @property
    def firsts(self) -> Array:
        """Running counts over the videos of all datasets."""
        counts = [np.diff(part.firsts) for part in self.parts]
        return np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)

    @property
    def too_short(self) -> Array:
        """The videos of all datasets that are too short, counted through."""
        parts = zip(self._first_videos[:-1], self.parts, strict=True)
        return np.concatenate([first + part.too_short for first, part in parts])

    @property
    def pads(self) -> bool:
        return any(part.pads for part in self.parts)

    @property
    def is_unordered(self) -> bool:
        return any(part.is_unordered for part in self.parts)

    @property
    def fingerprint(self) -> str:
        """The fingerprints of all parts, joined."""
        # Earlier versions gave all parts the rounds of the mixture.
        joined = "+".join(part.fingerprint for part in self.parts)
        return joined if len(self.parts) == 1 else f"{ROUNDS_FOR_EACH} of {joined}"

    @lazy
    def bounds(self) -> Array:
        """Where the clips of each dataset begin, and how many there are: int64, (datasets + 1,)."""
        return np.cumsum([0, *map(len, self.parts)])

    @lazy
    def _first_videos(self) -> Array:
        """Where the videos of each dataset begin, and how many there are: int64, (datasets + 1,)."""
        return np.cumsum([0, *(len(part.firsts) - 1 for part in self.parts)])

    @lazy
    def _last_round(self) -> int:
        """The last round whose draws 64 bits hold as those of each dataset."""
        return (1 << 63) // (len(self.parts) * int(np.diff(self.bounds).max())) - 1

    def __len__(self) -> int:
        # Asked for with each batch: buckets may be a thousand datasets.
        return int(self.bounds[-1])

    def video_name(self, place: int) -> str:
        part = int(np.searchsorted(self._first_videos, place, side="right")) - 1
        return self.parts[part].video_name(place - int(self._first_videos[part]))

    def clip_numbers(self, places: Array) -> Array:
        result = np.empty_like(places)
        which = np.searchsorted(self.bounds, places, side="right") - 1
        for number, part in enumerate(self.parts):
            first = self.bounds[number]
            result[which == number] = first + part.clip_numbers(places[which == number] - first)
        return result

    def clips(self, draws: Sequence[int]) -> list[Clip]:
        """What these draws stand for; a clip's video is its number in its own dataset."""
        located = self.located(draws)
        return [self.parts[part].clips([draw])[0] for part, draw in located]

    def located(self, draws: Sequence[int]) -> list[tuple[int, int]]:
        """For each draw the dataset it belongs to, and the draw that it is there."""
        rounds, indices = split_draws(draws, len(self))
        which = np.searchsorted(self.bounds, indices, side="right") - 1
        counts = np.diff(self.bounds)[which]
        if len(rounds) and (latest := int(rounds.max())) > self._last_round:
            raise UsageError(
                f"there is no clip {max(draws)}: it is of round {latest}, and rounds of these datasets count to "
                f"{self._last_round}; set an earlier epoch, or give the order fewer samples"
            )
        own = (rounds * len(self.parts) + which) * counts + indices - self.bounds[which]
        return list(zip(which.tolist(), own.tolist(), strict=True))

    def joined(self, part: int, draws: Array) -> Array:
        """The draws here, of the same rounds, that stand for the clips of these draws of a dataset's order."""
        rounds, indices = np.divmod(draws, len(self.parts[part]))
        return np.asarray(rounds * len(self) + self.bounds[part] + indices)

    def mixed(self, part: int, draws: Array) -> Array:
        """The draws here that `located` leads to these of a dataset from."""
        rounds, indices = np.divmod(draws, len(self.parts[part]))
        return np.asarray(rounds // len(self.parts) * len(self) + self.bounds[part] + indices)
