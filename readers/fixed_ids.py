"""The ids of a dataset's videos, in a list that nobody changes by mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

from ..errors import UsageError


class FixedIds(list[str]):
    """A list to read: UsageError where it is changed. Columns and the numbers of videos go by its order, so after
    `random.shuffle(dataset.ids)` each id would have the labels of another video. Copies are plain lists."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    if not TYPE_CHECKING:  # for type checkers dataset.ids is a Sequence, which has none of these

        def _refused(self, *_: object, **__: object) -> Never:
            raise UsageError(
                "dataset.ids stays as it is, since columns and the numbers of videos go by its order: shuffle, sort or "
                "change a list of your own, ids = list(dataset.ids)"
            )

        append = clear = extend = insert = pop = remove = reverse = sort = _refused
        __setitem__ = __delitem__ = __iadd__ = __imul__ = _refused
