"""Finding a job's sources: the first ones at once, and all others either before anything is encoded, or meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from itertools import islice
from typing import Protocol, TypeVar

from ...errors import ShortGopError, SourceError
from ...manifests.dataset_files import root_file
from ...prep.options import SourcePolicy
from ...prep.running.stalls import REMEDY, StalledError, given_up_when, in_time, stall_limit
from ...storage.interface import Storage
from ..finding.addresses import shown
from ..finding.ids import id_roots
from ..finding.source import Found
from ..finding.sources import folders_of
from ..units_of_work.windows import Window
from .source_table import SourceTable, SourceWindow
from .temporary_database import TableBusyError

# After so many sources progress shows how many were found.
_COUNTED = 1_000
# So often it is asked whether the sources of the next window are found.
_ASK_SECONDS = 0.1

_T = TypeVar("_T")


class OnCount(Protocol):
    """Is told how many sources there are, while more are found and at the end."""

    def __call__(self, sources_total: int, *, lists_more: bool) -> object: ...


def _ignore(sources_total: int, *, lists_more: bool) -> None:
    """An OnCount that does nothing."""


class Listing:
    """The sources of a job, which go into `table` as they are found. `id_roots` are the folders that gave the sources
    their ids, `roots_before` those that the dataset remembered at that time."""

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
        self._arguments = arguments
        self._policy = policy
        self._window_sources = window_sources
        self._left = left
        self._finding: Future[None] | None = None
        self._failure: ShortGopError | None = None

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

        self._search(lambda: self.table.add(left()), is_over)
        on_count(len(self.table), lists_more=False)
        self.is_complete = True

    def windows(self, is_over: Callable[[], bool] = bool, on_count: OnCount = _ignore) -> Iterator[SourceWindow]:
        """The windows of all sources. Those before the first stretch of a file come while others are still found, which
        begins after the first window."""
        number = 0 if self.is_complete else (yield from self._windows_meanwhile(is_over, on_count))
        yield from self.table.windows(self._window_sources, number)

    def _windows_meanwhile(self, is_over: Callable[[], bool], on_count: OnCount) -> Generator[SourceWindow, None, int]:
        """The windows that come while others are found. Returns the number of the last source in them."""
        is_closed = threading.Event()

        def nobody_waits() -> bool:
            return is_closed.is_set() or is_over()

        number = 0
        with ThreadPoolExecutor(1, thread_name_prefix="list-sources") as pool, contextlib.ExitStack() as at_end:
            # Before the pool waits for its thread.
            at_end.callback(is_closed.set)
            while (window := self._next_window(number, is_over)) is not None:
                number = window.last
                if window.count:
                    yield window
                self._finding = self._finding or pool.submit(self._complete_meanwhile, nobody_waits, on_count)
            if self._finding is not None:
                self._finding.result()
        return number

    def _complete_meanwhile(self, is_over: Callable[[], bool], on_count: OnCount) -> None:
        with self._failing():
            self.complete(is_over, on_count)

    def _next_window(self, number: int, is_over: Callable[[], bool]) -> Window[int] | None:
        """The window after the source with this number, as soon as its sources are found. None where it has to wait for
        all others, where these are the last ones, and where finding them has failed."""
        last = number + self._window_sources if number else 1
        while True:
            if self.table.num_found >= last:
                with contextlib.suppress(TableBusyError), self._failing():
                    return self._search(lambda: self.table.plan_window_after(number, self._window_sources), is_over)
            if self._finding is not None and self._finding.done():
                return None
            if is_over():
                raise CancelledError
            time.sleep(_ASK_SECONDS)

    def _search(self, find: Callable[[], _T], is_over: Callable[[], bool]) -> _T:
        with given_up_when(is_over):
            return _search(find, self._arguments, self._policy)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Notes the error that ends the finding of sources while others are encoded."""
        try:
            yield
        except ShortGopError as error:
            error.message += "; the videos that were finished meanwhile are kept"
            self._failure = error
            raise

    def check(self) -> None:
        """Raise what has ended the finding of sources. `windows` may come to it much later."""
        if self._failure is not None:
            raise self._failure


def _search(find: Callable[[], _T], arguments: Sequence[str], policy: SourcePolicy) -> _T:
    """What `find`, which looks for the sources of a job, returns. SourceError if a folder does not answer."""
    with stall_limit(float(policy.max_stall_seconds)):
        try:
            return in_time(find, f"looking for sources in {', '.join(map(shown, arguments))}")
        except StalledError as error:
            raise SourceError(f"{error.message}: {REMEDY}") from error


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
    roots_before = root_file.read_root(out).id_roots if root_file.is_dataset(out) else ()

    def find() -> Listing:
        roots = id_roots(roots_before, folders_of(arguments), id_root)
        left = find_below(roots)
        table.add_some(islice(left, window_sources + 1))
        table.merge_found()
        return Listing(table, arguments, policy, window_sources, roots, roots_before, left)

    listing = _search(find, arguments, policy)
    # Stretches of a file among the first sources may have others further on.
    if table.num_found <= window_sources or table.window_after(0, window_sources) is None:
        listing.complete()
    return listing
