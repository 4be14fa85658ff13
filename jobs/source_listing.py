"""Finding a job's sources: the first ones at once, and all others either before anything is encoded, or meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from ..errors import ShortGopError
from ..manifests import layout
from ..prep.options import SourcePolicy
from ..prep.stalls import given_up_when
from ..storage.interface import Storage
from .ids import id_roots
from .look import search
from .source import Found, Source
from .source_table import SourceTable
from .sources import folders_of
from .windows import Window

# After so many sources progress shows how many were found.
_COUNTED = 1_000


class OnCount(Protocol):
    """Is told how many sources there are, while more are found and at the end."""

    def __call__(self, sources_total: int, *, lists_more: bool) -> object: ...


def _ignore(sources_total: int, *, lists_more: bool) -> None:
    """An OnCount that does nothing."""


class Listing:
    """The sources of a job, which go into `table` as they are found. `id_roots` are the folders that gave the sources
    their ids, `roots_before` those that the dataset remembered at that time. `first` is the window of the sources that
    were found first, if that can be told."""

    def __init__(  # noqa: PLR0917  # what the job is about, and what was found
        self,
        table: SourceTable,
        arguments: Sequence[str],
        policy: SourcePolicy,
        window_sources: int,
        id_roots: tuple[str, ...],
        roots_before: tuple[str, ...],
        left: Iterator[Found],
    ) -> None:
        self.table = table
        self.id_roots = id_roots
        self.roots_before = roots_before
        self.is_complete = False
        self.first = table.first_window(window_sources)
        self._arguments = arguments
        self._policy = policy
        self._window_sources = window_sources
        self._left = left
        # The attributes of the sources of the first window when it was planned, by id.
        self._planned: dict[str, str] = {}

    def complete(self, is_over: Callable[[], bool] = bool, on_count: OnCount = _ignore) -> None:
        """Find all other sources. CancelledError as soon as `is_over` says that nobody waits for them any more: the
        thread that finds them is not waited for, and ends when the table is closed."""
        if self.is_complete:
            return

        def left() -> Iterator[Found]:
            for number, found in enumerate(self._left, self.table.num_found):
                if not number % _COUNTED:
                    on_count(number, lists_more=True)
                yield found

        with given_up_when(is_over):
            search(lambda: self.table.add(left()), self._arguments, self._policy)
        on_count(len(self.table), lists_more=False)
        self.is_complete = True

    def windows(self, is_over: Callable[[], bool] = bool, on_count: OnCount = _ignore) -> Iterator[Window[bytes]]:
        """The windows of all sources. The first one comes before the other sources are found."""
        if self.is_complete or self.first is None:
            yield from self.table.windows(self._window_sources)
            return
        self._planned = {row.source.id: row.source.attributes for row in self.table.rows(self.first)}
        yield self.first
        try:
            self.complete(is_over, on_count)
        except ShortGopError as error:
            error.message += "; the videos that were finished meanwhile are kept"
            raise
        yield from self.table.windows(self._window_sources)[1:]

    def labelled_later(self) -> list[Source]:
        """The sources of the first window that another find gave attributes after the window was planned."""
        found = map(self.table.find, self._planned)
        return [each for each in found if each is not None and each.attributes != self._planned[each.id]]


def list_first(  # noqa: PLR0917  # what the user gave, and where it goes
    table: SourceTable,
    arguments: Sequence[str],
    out: Storage,
    policy: SourcePolicy,
    find_below: Callable[[Sequence[str]], Iterator[Found]],
    window_sources: int,
    id_root: str | None = None,
) -> Listing:
    """Find the first sources of a job: all of them if they are no more than `window_sources`. `find_below` finds
    sources, given the folders that ids are below. UsageError for what is wrong with an argument or with one of these
    sources, SourceError if a folder does not answer."""
    roots_before = layout.read_root(out).id_roots if layout.is_dataset(out) else ()

    def find() -> Listing:
        roots = id_roots(roots_before, folders_of(arguments), id_root)
        left = find_below(roots)
        table.add_first(islice(left, window_sources + 1))
        return Listing(table, arguments, policy, window_sources, roots, roots_before, left)

    listing = search(find, arguments, policy)
    if listing.first is None or table.num_found <= window_sources:
        listing.complete()
    return listing
