"""The ids of a dataset's videos as a plain list, and whether that was changed in place."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UsageError

# So many ids are kept apart, however long the list is: of a shuffle some of them tell, where the list is longer.
_MOST_KEPT = 64


class CheckedIds:
    """A list for users, and up to 64 of its ids kept apart, evenly spaced. Columns and the numbers of videos go by its
    order, so after `random.shuffle(dataset.ids)` each id would have the labels of another video."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.given = list(ids)
        self._count = len(self.given)
        kept = min(self._count, _MOST_KEPT)
        places = {number * (self._count - 1) // max(1, kept - 1) for number in range(kept)}
        self._kept = [(place, self.given[place]) for place in sorted(places)]

    def check(self) -> None:
        """UsageError where the list has another length, or another id in a place that is kept."""
        if len(self.given) != self._count or any(self.given[place] != kept for place, kept in self._kept):
            raise UsageError(
                "dataset.ids was changed in place, and no longer goes with the columns and the numbers of videos: "
                "shuffle, sort or change a list of your own, ids = list(dataset.ids)"
            )
