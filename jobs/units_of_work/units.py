"""The plan that cuts a corpus into units of work. Pure: the same items give the same units, on any machine."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ...manifests.merging.edits import Drop
from ...prep.timing.stretch import Stretch
from ..finding.source import Source
from .task_memory import UNKNOWN_BYTES

UNITS_PER_CORPUS = 64
MAX_VIDEOS_PER_UNIT = 256
MIN_TARGET_BYTES = 250_000
# The length of a file in a store is not looked up if there are many. A video of 1080p that takes one core two minutes
# has about so many bytes at 2.3 Mbit/s.
MAY_BE_LONG_BYTES = 256_000_000
# The assumption for a source of which only the size is known: 1080p of 5 Mbit/s, made smaller.
_SECONDS_OF_A_BYTE = 2e-7


@dataclass(frozen=True)
class Item:
    """A source with its fingerprint and size from `identity_of`. `revision` counts how often its video was stored
    again, because its frames in the dataset were lost or it was `dropped`, this time included. `after_edit` is the
    number of the last edit or drop in the dataset."""

    source: Source
    identity: int
    size_bytes: int
    revision: int = 0
    after_edit: int = 0
    dropped: bool = False


@dataclass(frozen=True)
class Unit:
    """The work of one task: several short videos, or one long one. `id` is 16 hexadecimal digits. With `is_long` its
    one video may be encoded in sections, by several tasks. `expected_seconds` is how long one core takes for it, about;
    `is_guess`: most of that rests on bytes alone. `expected_bytes` is how much memory it takes; `guesses_memory`: it is
    not known how large the pictures of some of its sources are."""

    id: str
    items: tuple[Item, ...]
    is_long: bool = False
    expected_seconds: float = field(default=0.0, compare=False)
    is_guess: bool = field(default=False, compare=False)
    expected_bytes: int = field(default=UNKNOWN_BYTES, compare=False)
    guesses_memory: bool = field(default=True, compare=False)


class BytesOfFiles:
    """Adds up the bytes of sources: those of a file from which several stretches are taken count once."""

    def __init__(self) -> None:
        self.total = 0
        self._files: set[tuple[str, str]] = set()

    def add(self, item: Item) -> int:
        """Returns how many bytes of this source are new."""
        if isinstance(item.source.part, Stretch):
            if item.source.file in self._files:
                return 0
            self._files.add(item.source.file)
        self.total += item.size_bytes
        return item.size_bytes


def plan_units(items: Sequence[Item], *, profile_key: str, done: Mapping[str, int], shard_bytes: int) -> list[Unit]:
    """The units of work for all items whose id is not in `done` (id -> identity in the dataset).

    The ids of items must differ. Items are sorted by id, and neighbours share a unit of up to 1/64 of the corpus, but
    at least 250 kB and at most `shard_bytes` of source, and up to 256 videos. A file of that size or more is a unit of
    its own.

    The cuts are made over all items; only then are the items in `done` taken out. So the cuts do not depend on how far
    an earlier job came. A job that was interrupted and started again plans exactly the units that an undisturbed one
    would still have to do, with the same ids, and both end in the same dataset. Cuts over only the rest would shift
    every boundary after the first finished video.

    Stretches of one file come one after the other, in the order of their times, and are in one unit, up to 256 of them:
    a unit reads and decodes the file once for all. They count as the size of the file together.

    An item whose id is in `done` is left out even if its identity has changed; `changed_sources` finds those.
    """
    blocks = _blocks(items)
    total_bytes = sum(block[0].size_bytes for block in blocks)
    target_bytes = min(shard_bytes, max(MIN_TARGET_BYTES, total_bytes // UNITS_PER_CORPUS))
    groups = _groups(blocks, target_bytes)
    remaining = (tuple(item for item in group if item.source.id not in done) for group in groups)
    return [Unit(_unit_id(profile_key, group), group) for group in remaining if group]


def long_apart(
    units: Sequence[Unit], profile_key: str, seconds: Mapping[str, float], *, long_seconds: float
) -> list[Unit]:
    """The units, with each whole file, and each stretch of one, that takes `long_seconds` or more in a unit of its own;
    these come first. `seconds` has how long each source is expected to take, by its id.

    A large file in a store of which that is not known may be long: a worker finds out.
    """

    def is_long(item: Item) -> bool:
        part = item.source.part
        if not (part is None or isinstance(part, Stretch)):
            return False
        expected = seconds.get(item.source.id, 0.0)
        is_unknown = part is None and item.source.in_store is not None and not expected
        return expected >= long_seconds or (is_unknown and item.size_bytes >= MAY_BE_LONG_BYTES)

    long: list[Unit] = []
    others: list[Unit] = []
    for unit in units:
        apart = [item for item in unit.items if is_long(item)]
        rest = tuple(item for item in unit.items if not is_long(item))
        long += [Unit(_unit_id(profile_key, (item,)), (item,), is_long=True) for item in apart]
        if rest:
            others.append(Unit(_unit_id(profile_key, rest), rest) if apart else unit)
    return long + others


def divided(
    units: Iterable[Unit], profile_key: str, seconds: Mapping[str, float], *, unit_seconds: float
) -> Iterator[Unit]:
    """The units, divided into shorter ones. One ends with the first file that makes it last `unit_seconds` or more. In
    a file whose stretches all have their length in `seconds`, it ends with the first stretch that makes it last twice
    as long: a file that is divided is read anew for each unit. `seconds` is as for `with_costs`.

    So bytes bound a unit where they take long to read, and seconds where they take long to encode. Where a unit ends
    depends on its own items alone, and what follows begins anew: if some of the units are done when a job is started
    again, what is left is still divided at the same places, although nothing is known of what is done.
    """
    for unit in units:
        runs: list[list[Item]] = []
        lasts = math.inf
        for file in same_file(unit.items):
            limit = unit_seconds
            for items in _indivisible(file, seconds):
                if lasts >= limit:
                    runs.append([])
                    lasts = 0.0
                runs[-1] += items
                lasts += sum(_expected_seconds(items, seconds))
                limit = 2 * unit_seconds
        if len(runs) == 1:
            yield unit
        else:
            yield from (Unit(_unit_id(profile_key, run), tuple(run)) for run in runs)


def _indivisible(file: list[Item], seconds: Mapping[str, float]) -> list[list[Item]]:
    """The stretches of a file one by one, or all together where it is not known how long they take."""
    return [[item] for item in file] if all(seconds.get(item.source.id) for item in file) else [file]


def with_costs(
    units: Iterable[Unit], seconds: Mapping[str, float], memory_bytes: Mapping[str, int | None]
) -> list[Unit]:
    """The units with how long they are expected to take, and how much memory. `seconds` and `memory_bytes` have that of
    each source, by its id; 0 seconds for one of which only the size is known, and None for unknown memory."""

    def with_cost(unit: Unit) -> Unit:
        files = [_expected_seconds(items, seconds) for items in same_file(unit.items)]
        known, guessed = (sum(each) for each in zip(*files, strict=True))
        memory = [memory_bytes[item.source.id] for item in unit.items]
        return replace(
            unit,
            expected_seconds=known + guessed,
            is_guess=guessed > known,
            # One source after the other.
            expected_bytes=max(UNKNOWN_BYTES if each is None else each for each in memory),
            guesses_memory=None in memory,
        )

    return [with_cost(unit) for unit in units]


def _expected_seconds(items: Sequence[Item], seconds: Mapping[str, float]) -> tuple[float, float]:
    """How long the videos of a file are expected to take: what is known, and what is guessed where nothing is."""
    known = sum(seconds.get(item.source.id, 0.0) for item in items)
    # Stretches of a file are of the size of the file together.
    return known, 0.0 if known else items[0].size_bytes * _SECONDS_OF_A_BYTE


def after_edits(items: Sequence[Item], number: int, drops: Mapping[str, Drop]) -> list[Item]:
    """The items with the number of the last edit. Those that were dropped get a greater revision than they had."""
    return [
        replace(
            item,
            after_edit=number,
            dropped=item.source.id in drops,
            revision=drops[item.source.id].revision + 1 if item.source.id in drops else item.revision,
        )
        for item in items
    ]


def changed_sources(items: Sequence[Item], done: Mapping[str, int]) -> list[Item]:
    """Items whose id is in the dataset with another identity, sorted by id."""
    return [item for item in _by_id(items) if done.get(item.source.id, item.identity) != item.identity]


def _by_id(items: Iterable[Item]) -> list[Item]:
    return sorted(items, key=lambda item: item.source.id)


def same_file(items: Iterable[Item]) -> list[list[Item]]:
    """Runs of neighbours that are stretches of one file. Any other item is alone."""
    runs: list[list[Item]] = []
    before: Source | None = None
    for item in items:
        source = item.source
        both = before is not None and isinstance(source.part, Stretch) and isinstance(before.part, Stretch)
        if both and before is not None and before.file == source.file:
            runs[-1].append(item)
        else:
            runs.append([item])
        before = source
    return runs


def _blocks(items: Sequence[Item]) -> list[list[Item]]:
    """What no cut divides, sorted by id: single items, and the stretches of one file, up to 256 of them."""
    leaders: dict[tuple[str, str], str] = {}
    for item in items:
        source = item.source
        if isinstance(source.part, Stretch):
            leaders[source.file] = min(source.id, leaders.get(source.file, source.id))

    def place(item: Item) -> tuple[str, Fraction, str]:
        source = item.source
        if isinstance(source.part, Stretch):
            return leaders[source.file], source.part.start, source.id
        return source.id, Fraction(0), source.id

    return [
        run[first : first + MAX_VIDEOS_PER_UNIT]
        for run in same_file(sorted(items, key=place))
        for first in range(0, len(run), MAX_VIDEOS_PER_UNIT)
    ]


def _groups(blocks: Iterable[list[Item]], target_bytes: int) -> Iterator[list[Item]]:
    """Runs of neighbours of up to `target_bytes` together, or a single larger one."""
    group: list[Item] = []
    group_bytes = 0
    for block in blocks:
        size_bytes = block[0].size_bytes
        one_is_long = max(group_bytes, size_bytes) >= target_bytes
        too_much = group_bytes + size_bytes > target_bytes or len(group) + len(block) > MAX_VIDEOS_PER_UNIT
        if group and (one_is_long or too_much):
            yield group
            group, group_bytes = [], 0
        group = [*group, *block]
        group_bytes += size_bytes
    if group:
        yield group


def _unit_id(profile_key: str, items: Iterable[Item]) -> str:
    digest = hashlib.blake2b(digest_size=8)

    def add(text: str) -> None:
        # The length before each text keeps two texts from running into each other.
        data = text.encode()
        digest.update(len(data).to_bytes(8, "big") + data)

    add(profile_key)
    for item in items:
        add(item.source.id)
        digest.update(item.identity.to_bytes(8, "big"))
        if item.revision:
            # So a part of the unit that first made the video never counts as a part of this unit.
            digest.update(b"revision" + item.revision.to_bytes(4, "big"))
    return digest.hexdigest()


def split_unit(unit: Unit, profile_key: str) -> list[Unit]:
    """One unit for each source of a unit whose worker keeps dying."""
    expected = unit.expected_seconds / len(unit.items)
    return [
        replace(unit, id=_unit_id(profile_key, (item,)), items=(item,), is_long=False, expected_seconds=expected)
        for item in unit.items
    ]
