"""Orders: which clip comes at which position of an epoch.

Each order is a small frozen dataclass. Bound to a dataset and a seed it is a pure function from an epoch and positions
in it to draws (see `draws.py`), evaluated for any positions at a time: nothing is shuffled or advanced, so any number
of ranks can each work out their own part. What is stored depends on the dataset, the seed and the epoch alone.

    Sequential      0 1 2 3 4 5 6 7
    Shuffled        5 0 3 7 1 6 4 2      every clip once
    Chunked(2)      3 4 0 7 2 1 5 6      every clip once, two neighbours at a time
    OneClipPerVideo                      every video once, with one of its clips
    Weighted        5 1 5 5 3 0 1 5      drawn with replacement: independent of each other
    Systematic      1 5 3 5 0 1 5 5      each as often as its weight says, to within one
    ClassBalanced                        each class as often as the others, to within one
    ClassBatches                         each batch has some clips of each of some classes: see `class_batches`
    Continued                            each row of a batch goes on where it ended in the one before: see `continued`
    Mixture                              of each block of positions a fixed number from each dataset
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from ...errors import UsageError, WrongTypeError
from ...manifests.ragged import Array
from ...wording import counted
from ..which_clips.clips import Clips
from ..which_clips.keyed import below, hashes, key, permuted, permuted_blocks
from ..which_clips.mixing import SEED_FOR_EACH, MixedIndex, seeds_of_datasets
from ..which_clips.offsets import at_least_one, listed
from ..which_clips.own_values import own
from .bound_order import BoundOrder, Order
from .class_labels import class_line
from .weights import WeightLine, systematic_points, weight_line

_MAX_SLOTS = 1 << 31
# A draw is round * N + index and an int64. So many epochs have to fit beside the rounds within an epoch.
_EPOCHS = 1 << 16
# Shares in so many parts of a whole are simple quotas, and rounded ones in so few; shares of three decimals are in
# so many where they are not rounded ones.
_MOST_PARTS = 100
_MOST_ROUNDED_PARTS = 12
_MOST_ROUNDED_BY = Fraction(1, 1000)
_MOST_EXACT_PARTS = 1000


@dataclass(frozen=True)
class Sequential:
    """Every clip once, in the order of their numbers: for evaluation."""

    may_repeat: ClassVar[bool] = True
    """Whether each epoch may be meant to have the same clips."""

    def bound(self, clips: Clips, seed: int) -> BoundOrder:  # noqa: ARG002  # as other orders
        count = len(clips)
        return BoundOrder(count, lambda epoch, positions: epoch * count + positions, repr(self))


@dataclass(frozen=True)
class Shuffled:
    """Every clip once an epoch, in an order that is as random as a shuffle: a permutation keyed by seed and epoch."""

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        count = len(clips)

        def draws(epoch: int, positions: Array) -> Array:
            return epoch * count + permuted(key(seed, "shuffled", epoch), count, positions)

        return BoundOrder(count, draws, repr(self))


@dataclass(frozen=True)
class Chunked:
    """Every clip once an epoch, `chunk` neighbours at a time: they share GOPs, which are decoded once for all of them.

        clips         0 1 2 3 4 5 6 7 8 9      a circle: 0 follows 9
        phase 4               |0    |1    |2    chunks of 3 from there on, and what is left at the end
        order         9 7 8 | 1 3 2 | 4 6 5 | 0

    The phase is drawn for each epoch, uniform over the whole circle, so each clip is as likely at each position. Within
    a chunk the clips are shuffled, so that where a batch ends within it, each has a random part. Chunks may lie across
    the end of a video and the start of the next. What chunks do to the variance of a batch, and how to
    choose them, is in docs/sampling.md.

    `window` shuffles the positions within each run of so many, in which chunks lose their neighbourhood and, in a
    DataLoader, what they save. ClipLoader reads by chunk and keeps it.
    """

    chunk: int
    window: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "chunk", at_least_one(self.chunk, "chunk"))
        if self.window is not None:
            object.__setattr__(self, "window", at_least_one(self.window, "window"))

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        count = len(clips)
        whole = count // self.chunk

        def draws(epoch: int, positions: Array) -> Array:
            if self.window is not None:
                positions = _within_windows(key(seed, "window", epoch), self.window, count, positions)
            phase = int(below(hashes(key(seed, "phase"), epoch), count))
            positions = _within_windows(key(seed, "within chunks", epoch), self.chunk, count, positions)
            chunks, within = np.divmod(positions, self.chunk)
            # What is left stays last: chunks are all of one size, and so is every position's chance of a clip.
            inside = chunks < whole
            chunks[inside] = permuted(key(seed, "chunks", epoch), whole, chunks[inside])
            return epoch * count + (phase + chunks * self.chunk + within) % count

        return BoundOrder(count, draws, repr(self), self.chunk, self.window or 1)


def _within_windows(hash_key: int, window: int, count: int, positions: Array) -> Array:
    """Positions shuffled within windows; the last window is as long as what is left."""
    whole = count // window * window
    result = positions.copy()
    inside = positions < whole
    result[inside] = permuted_blocks(hash_key, window, positions[inside])
    if not inside.all():
        result[~inside] = whole + permuted(hash_key, count - whole, positions[~inside] - whole)
    return result


@dataclass(frozen=True)
class OneClipPerVideo:
    """Every video that has clips once an epoch, in random order, each time with one of its clips, all as likely."""

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        count, firsts = len(clips), clips.firsts
        counts = np.diff(firsts)
        videos = np.flatnonzero(counts) if (counts == 0).any() else None
        length = len(counts) if videos is None else len(videos)

        def draws(epoch: int, positions: Array) -> Array:
            chosen = permuted(key(seed, "videos", epoch), length, positions)
            chosen = chosen if videos is None else videos[chosen]
            within = below(hashes(key(seed, "clip of a video", epoch), chosen), counts[chosen])
            return epoch * count + clips.clip_numbers(firsts[chosen] + within)

        return BoundOrder(length, draws, repr(self))


@dataclass(frozen=True, eq=False)
class Weighted:
    """`num_samples` clips an epoch (as many as there are), each drawn by weight from all of them: with replacement.

    `weights` are numbers for each video, which each of its clips has, or with `of="clips"` for each clip. Only their
    proportions count. A clip that comes twice has another draw each time, so its random choices differ.
    """

    weights: Any
    of: str = "videos"
    num_samples: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", own(self.weights))

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        line = weight_line(clips, self.weights, self.of)
        count, length = len(clips), _num_samples(self.num_samples, clips)
        rounds = rounds_of(length, count)

        def draws(epoch: int, positions: Array) -> Array:
            points = below(hashes(key(seed, "weighted", epoch), positions), line.total)
            return (epoch * rounds + positions % rounds) * count + clips.clip_numbers(line.places(points))

        return BoundOrder(length, draws, f"Weighted({length}, {digest_of(line)})")


@dataclass(frozen=True, eq=False)
class Systematic:
    """`num_samples` clips an epoch (as many as there are), each as often as its weight says, to within one.

    Of T samples a clip with the part w of all weights is drawn floor(T * w) or ceil(T * w) times, T * w on average;
    with equal weights and as many samples as clips this is Shuffled's kind of epoch. Weights as for Weighted.
    """

    weights: Any
    of: str = "videos"
    num_samples: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", own(self.weights))

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        line = weight_line(clips, self.weights, self.of)
        return _systematic(line, clips, seed, _num_samples(self.num_samples, clips), "Systematic")


@dataclass(frozen=True, eq=False)
class ClassBalanced:
    """`num_samples` clips an epoch (as many as there are): each class as often as the others, to within one.

    `labels` has one label, a number or a text, for each video, or with `of="clips"` for each clip; missing ones, None
    or NaN, are a UsageError, and of empty texts beside others a DatasetWarning tells. Within a class each clip is drawn
    as often as the others, to within one.
    """

    labels: Any
    num_samples: int | None = None
    of: str = "videos"

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", own(self.labels))

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        # Classes side by side on the line: the points in each are as many as in any other, to within one.
        line = class_line(self.labels, clips, self.of, equal_classes=True).line
        return _systematic(line, clips, seed, _num_samples(self.num_samples, clips), "ClassBalanced")


def _systematic(line: WeightLine, clips: Clips, seed: int, length: int, name: str) -> BoundOrder:
    count = len(clips)
    if length >= _MAX_SLOTS:
        raise UsageError(f"num_samples is {length}; systematic orders have less than 2**31 samples in an epoch")
    # How often a clip can come in an epoch: its slots are neighbours, so they differ modulo this.
    rounds = -(-length * line.heaviest // line.total)

    def draws(epoch: int, positions: Array) -> Array:
        slots = permuted(key(seed, "systematic", epoch), length, positions)
        phase = int(below(hashes(key(seed, "systematic phase"), epoch), line.total))
        points = systematic_points(line.total, phase, slots, length)
        return (epoch * rounds + slots % rounds) * count + clips.clip_numbers(line.places(points))

    return BoundOrder(length, draws, f"{name}({length}, {digest_of(line)})")


@dataclass(frozen=True)
class Mixture:
    """Several datasets, joined by MixedClips, in fixed proportions.

    Of each `sum(quotas)` positions, `quotas[k]` are of dataset k, in random order. Each dataset goes on in its own
    order from where it was: it begins anew when all of its clips were seen, and not when the others' were. `orders`
    has one for each dataset, or is one for all; Shuffled() when not given. An epoch ends when each dataset was seen at
    least once, or after `num_blocks` blocks.
    """

    quotas: Sequence[int]
    orders: Order | Sequence[Order] | None = None
    num_blocks: int | None = None

    def __post_init__(self) -> None:
        given = listed(self.quotas, "quotas")
        try:
            quotas = tuple(at_least_one(each, "a quota") for each in given)
        except UsageError as error:
            raise type(error)(f"{error.message}{_whole_quotas(given)}") from None
        object.__setattr__(self, "quotas", quotas)
        object.__setattr__(self, "orders", own(self.orders))

    def bound(self, clips: Clips, seed: int) -> BoundOrder:
        mixed = clips if isinstance(clips, MixedIndex) else MixedIndex((clips,))
        parts = mixed.parts
        if len(parts) != len(self.quotas):
            raise UsageError(
                f"the mixture has {counted(len(self.quotas), 'quota')} for {counted(len(parts), 'dataset')}; each has "
                "one (MixedClips joins datasets)"
            )
        orders = checked_orders(self.orders, len(parts))
        if not all(map(len, parts)):
            raise UsageError(
                f"dataset {list(map(len, parts)).index(0)} of the mixture has no clips, and its quota asks for some: "
                "leave it out of MixedClips, or see ClipDataset.too_short"
            )
        seeds = seeds_of_datasets(len(parts), seed, "dataset of a mixture")
        bound = [order.bound(part, each) for order, part, each in zip(orders, parts, seeds, strict=True)]
        for each, quota in zip(bound, self.quotas, strict=True):
            each.check_part("a Mixture")
            each.check_batch(quota, "a quota of the mixture")
        block = sum(self.quotas)
        needed = max(-(-each.length // quota) for each, quota in zip(bound, self.quotas, strict=True))
        blocks = needed if self.num_blocks is None else at_least_one(self.num_blocks, "num_blocks")
        slots = np.cumsum((0, *self.quotas))

        def draws(epoch: int, positions: Array) -> Array:
            which_block, slot = np.divmod(permuted_blocks(key(seed, "mixture", epoch), block, positions), block)
            which = np.searchsorted(slots, slot, side="right") - 1
            result = np.empty_like(positions)
            for part, order in enumerate(bound):
                mine = which == part
                turns = (epoch * blocks + which_block[mine]) * self.quotas[part] + slot[mine] - slots[part]
                result[mine] = mixed.joined(part, _turns(order, turns))
            return result

        described = f"{SEED_FOR_EACH}, [{', '.join(each.fingerprint for each in bound)}]"
        # Batches of such a mixture are whole blocks.
        batches = next((f"a Mixture with {each.batches}" for each in bound if each.batch > 1), "")
        described = f"Mixture({self.quotas}, {blocks}, {described})"
        return BoundOrder(blocks * block, draws, described, batch=block if batches else 1, batches=batches)


def check_order(order: Any, what: str) -> None:
    """WrongTypeError for what is no order; its message calls it `what`."""
    if isinstance(order, type) or not hasattr(order, "bound"):
        raise WrongTypeError(f"{what} is {order!r}; it is an order such as shortgop.Shuffled()")


def checked_order(given: Order | None) -> Order:
    """The order that a sampler is given; Shuffled() where it is none. WrongTypeError for what is no order."""
    if given is None:
        return Shuffled()
    check_order(given, "order")
    return given


def checked_orders(given: Order | Sequence[Order] | None, datasets: int) -> tuple[Order, ...]:
    """The orders of so many datasets; Shuffled() where none is given."""
    given = Shuffled() if given is None else given
    # An order of a user's may be a list, too.
    orders = for_each([given] * datasets if hasattr(given, "bound") else given, datasets, "orders")
    for each in orders:
        check_order(each, "an order")
    return tuple(orders)


def for_each(given: Any, datasets: int, what: str) -> list[Any]:
    """What is given for each of so many datasets, as a list, or as one for all. UsageError, whose message calls it
    `what`, for another number of them."""
    found = listed(given, what) if hasattr(given, "__iter__") else [given] * datasets
    if len(found) != datasets:
        raise UsageError(f"{what} has {len(found)} for {counted(datasets, 'dataset')}; each has one")
    return found


def _whole_quotas(shares: Sequence[Any]) -> str:
    """The quotas in the proportions of shares such as 0.75 and 0.25, for a message; empty where they are not simple."""
    if not all(isinstance(each, int | float) and 0 < each < math.inf and each is not True for each in shares):
        return ""
    exact = [Fraction(str(each)) for each in shares]
    parts = math.lcm(*(each.denominator for each in exact))
    if parts > _MOST_PARTS:
        # 0.333 is no third, but is meant as one, and so is 0.334 where three are to be 1.
        rounded = [each.limit_denominator(_MOST_ROUNDED_PARTS) for each in exact]
        digits = [Fraction(Decimal(1).scaleb(int(Decimal(str(each)).as_tuple().exponent))) for each in shares]
        most = [min(digit, _MOST_ROUNDED_BY) for digit in digits]
        if all(near > 0 and abs(near - each) <= by for near, each, by in zip(rounded, exact, most, strict=True)):
            exact = rounded
        elif parts > _MOST_EXACT_PARTS:
            return ""
    parts = math.lcm(*(each.denominator for each in exact))
    whole = [int(each * parts) for each in exact]
    named = " and ".join(map(str, shares)) if len(shares) < 3 else f"[{', '.join(map(str, shares))}]"
    return f": {named} are {[each // math.gcd(*whole) for each in whole]}"


def _turns(order: BoundOrder, turns: Array) -> Array:
    """The draws of an order that goes from epoch to epoch without end."""
    epochs, positions = np.divmod(turns, order.length)
    result = np.empty_like(turns)
    for epoch in np.unique(epochs).tolist():
        result[epochs == epoch] = order.draws(epoch, positions[epochs == epoch])
    return result


def rounds_of(wanted: int, count: int) -> int:
    """So many rounds in an epoch of `count` clips, or as many as draws of 64 bits hold."""
    return min(wanted, max(1, (1 << 62) // (count * _EPOCHS)))


def _num_samples(given: int | None, clips: Clips) -> int:
    return len(clips) if given is None else at_least_one(given, "num_samples")


def digest_of(line: WeightLine) -> str:
    """A few characters that differ where lines do."""
    digest = hashlib.blake2b(digest_size=8)
    for column in (line.bounds, line.weight, line.first_places):
        digest.update(np.ascontiguousarray(column, dtype="<i8").data)
    return digest.hexdigest()
