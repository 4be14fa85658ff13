"""The rows of a table by their ids. Small tables get a dict. In large ones ids are found by binary search, so that what
a writer pays for looking up a few of ten million ids grows with the few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress, islice

from ..lazy import lazy
from .ragged import Ragged, from_texts

# A table with more rows is that of a snapshot, or rows of one in their order, so its ids ascend. A dict of them would
# take seconds to make, and memory of each process.
_MAX_DICT_ROWS = 1 << 17
# Ids that are searched at a time: their keys, and those of as many rows, are in memory.
_SEARCHED_IDS = 1 << 14


class RowOfId:
    """The row of each id of a column of ids, which differ. They ascend if there are more than 131,072.

    It is no Mapping: intersecting its keys with those of a dict would go through all ids. `of` looks up many at once.
    """

    # Otherwise Python would try 0, 1, ... as ids.
    __iter__ = None

    def __init__(self, ids: Ragged) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, each: object) -> bool:
        return isinstance(each, str) and self.get(each) is not None

    def __getitem__(self, each: str) -> int:
        """The row of an id; KeyError if there is none."""
        row = self.get(each)
        if row is None:
            raise KeyError(each)
        return row

    def get(self, each: str) -> int | None:
        """The row of an id; None if there is none."""
        return self._ids.find(each) if self._is_large else self._dict.get(each)

    def of(self, ids: Iterable[str]) -> dict[str, int]:
        """The rows of those of these ids that there are, by id, in the order in which they are given."""
        if self._is_large:
            return dict(self._searched(ids))
        return {each: self._dict[each] for each in ids if each in self._dict}

    def _searched(self, ids: Iterable[str]) -> Iterator[tuple[str, int]]:
        left = filter(_is_unicode, ids)
        while some := list(islice(left, _SEARCHED_IDS)):
            rows, found = self._ids.search(from_texts(some))
            yield from compress(zip(some, rows.tolist(), strict=True), found.tolist())

    @property
    def _is_large(self) -> bool:
        return len(self._ids) > _MAX_DICT_ROWS

    @lazy
    def _dict(self) -> dict[str, int]:
        return {each: row for row, each in enumerate(self._ids.texts())}


def _is_unicode(text: str) -> bool:
    """Whether a column can have a text as it is. `from_texts` writes any other with other characters, and these may be
    the id of another row."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
