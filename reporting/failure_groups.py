"""Failures with the same reason: a reason names its file and has numbers in it, so no two are the same text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..manifests.ragged import Array
from ..manifests.tables import Failures

_EXAMPLES = 3
# Random ones of more: a page need not wait for the words of a million reasons.
_MOST_LOOKED_AT = 100_000
_NUMBER = re.compile(r"(?<![A-Za-z0-9])\d+(?:[.,:]\d+)*")


@dataclass(frozen=True)
class FailureGroup:
    """So many failures of one kind. `reason` is the whole reason of the first, `ids` are those of the first few."""

    count: int
    reason: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class FailureGroups:
    """All failures of a dataset: how many, and the largest groups of those `looked_at`, largest first. `kinds` counts
    all groups."""

    count: int = 0
    looked_at: int = 0
    kinds: int = 0
    groups: tuple[FailureGroup, ...] = ()


def kind_of_reason(reason: str, *names: str) -> str:
    """The reason without what differs from file to file: these names, and numbers."""
    for name in sorted(filter(None, names), key=len, reverse=True):
        reason = reason.replace(name, "…")
    return _NUMBER.sub("…", reason)


def random_rows(column: Array, most: int) -> Array:
    """All values of a column, or so many random ones in their order, always the same."""
    if len(column) <= most:
        return column
    return column[np.sort(np.random.default_rng(0).integers(len(column), size=most))]


def failure_summary(table: Failures, max_groups: int) -> FailureGroups:
    """The failures that the table lists, without those that were withdrawn."""
    # A withdrawn failure has no reason, so its row is empty.
    lengths = table.reason.offsets[1:] - table.reason.offsets[:-1]
    rows = lengths.nonzero()[0]
    looked_at = random_rows(rows, _MOST_LOOKED_AT).tolist()
    kinds = _by_kind(
        (table.id.text(row), table.reason.text(row), table.source.text(row), table.path.text(row)) for row in looked_at
    )
    largest = sorted(kinds, key=lambda group: -group.count)[:max_groups]
    return FailureGroups(len(rows), len(looked_at), len(kinds), tuple(largest))


def _by_kind(rows: Iterable[tuple[str, str, str, str]]) -> list[FailureGroup]:
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    ids: dict[str, list[str]] = {}
    for source_id, reason, *names in rows:
        kind = kind_of_reason(reason, source_id, *names)
        counts[kind] = counts.get(kind, 0) + 1
        reasons.setdefault(kind, reason)
        examples = ids.setdefault(kind, [])
        if len(examples) < _EXAMPLES:
            examples.append(source_id)
    return [FailureGroup(counts[kind], reasons[kind], tuple(ids[kind])) for kind in counts]
