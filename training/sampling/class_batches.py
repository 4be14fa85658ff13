"""ClassBatches: an order whose batches have some clips of each of some classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import UsageError
from ...manifests.ragged import Array, offsets_of
from ...wording import counted
from ..which_clips.clips import Clips
from ..which_clips.keyed import key, permuted
from ..which_clips.offsets import at_least_one
from ..which_clips.own_values import own
from .bound_order import BoundOrder
from .class_labels import class_line
from .orders import digest_of, rounds_of


@dataclass(frozen=True, eq=False)
class ClassBatches:
    """Batches of `num_classes` classes, and of `clips_per_class` clips of each of these: for losses that compare clips
    within a batch. Of labels a a a a b b b c c, with two classes and two clips of each:

        batch 0       a2 a0 | c7 c8            the clips of a class come one after the other
        batch 1       b5 b4 | a3 a1
        batch 2       c8 c7 | b6 b5

    The classes of a batch are different ones, in random order: no class comes again before all others had their turn.
    Those at the end that make no whole batch are left out, other ones each time. The clips of a class come in random
    order in the same way, some at each turn of the class: none comes again before all others of it had their turn. A
    class with fewer clips than `clips_per_class` has each of them as often as the others, to within one, and each time
    with other random choices.

    `labels` are as for ClassBalanced, with `of="clips"` one for each clip. An epoch has `num_batches`; when not given,
    those that have as many clips as there are, one at least. The sampler's `global_batch_size` is num_classes *
    clips_per_class. Each rank has a run of it, so whole classes if the number of ranks divides num_classes.
    """

    labels: Any
    num_classes: int
    clips_per_class: int
    num_batches: int | None = None
    of: str = "videos"

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", own(self.labels))
        for name in ("num_classes", "clips_per_class"):
            object.__setattr__(self, name, at_least_one(getattr(self, name), name))
        if self.num_batches is not None:
            object.__setattr__(self, "num_batches", at_least_one(self.num_batches, "num_batches"))

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        each, count = self.clips_per_class, len(clips)
        batch = self.num_classes * each
        found = class_line(self.labels, clips, self.of, equal_classes=False)
        line, sizes, firsts = found.line, found.sizes, offsets_of(found.sizes)
        if len(sizes) < self.num_classes:
            raise UsageError(
                f"num_classes is {self.num_classes}, and the clips have {counted(len(sizes), 'label')}: the "
                f"classes of a batch are different ones; give {len(sizes)} or fewer"
            )
        num_batches = max(1, count // batch) if self.num_batches is None else self.num_batches
        batches_per_turn = len(sizes) // self.num_classes
        # A class comes once in a turn of the classes, and there a clip so often at most.
        most = math.ceil(each / int(sizes.min()))
        rounds = rounds_of(math.ceil(num_batches / batches_per_turn) * most, count)

        def draws(epoch: int, positions: Array) -> Array:
            number, place = np.divmod(positions, batch)
            turns, within = np.divmod(number, batches_per_turn)
            chosen = np.empty_like(positions)
            for turn in np.unique(turns).tolist():
                mine = turns == turn
                order = key(seed, "classes of batches", epoch, turn)
                chosen[mine] = permuted(order, len(sizes), (within * self.num_classes + place // each)[mine])
            turns_of_class = np.maximum(sizes // each, 1)[chosen]
            among = turns % turns_of_class * each + place % each
            clip = np.empty_like(positions)
            passes, which = np.unique(np.stack([chosen, turns // turns_of_class]), axis=1, return_inverse=True)
            for index, (number_of_class, again) in enumerate(passes.T.tolist()):
                mine, size = which.reshape(-1) == index, int(sizes[number_of_class])
                order = key(seed, "clips of a class", epoch, number_of_class, again)
                clip[mine] = permuted(order, size, among[mine] % size)
            repeats = turns * most + among // sizes[chosen]
            places = line.places(firsts[chosen] + clip)
            return np.asarray((epoch * rounds + repeats % rounds) * count + clips.clip_numbers(places))

        described = f"{self.num_classes}, {each}, {num_batches}, {digest_of(line)}, {key(*sizes.tolist()):x}"
        batches = f"ClassBatches, of batches of {batch} clips (num_classes * clips_per_class)"
        return BoundOrder(num_batches * batch, draws, f"ClassBatches({described})", batch=batch, batches=batches)
