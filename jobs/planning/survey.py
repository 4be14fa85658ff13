"""What a job has to know of its sources before it encodes the first one, and what became of them all.

Of the sources of a small job everything is looked at first. Of those of a large one only what may end the job before
it has written anything, or may be a video that the dataset has under another id. All others are looked at window after
window, see `window_plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from ...prep.options import Options
from ...wording import counted
from ..sources.changed import Changed, refuse_changed, refuse_two_files
from ..sources.files_before import FilesBefore
from ..sources.look import Looked, There, count_in_stores
from ..sources.source_columns import Named
from ..sources.source_table import Row, SourceTable, SourceWindow
from ..sources.where_to_look import Looking
from ..units_of_work.unit_results import Failure
from ..units_of_work.units import Item, changed_sources
from .planning import Known, SortedOut, sort_out

LookingAtMany = Callable[[int], Looking]
"""Returns where so many sources are looked at before anything is encoded."""

# Returns which of the rows of the window with this number are to be looked at.
_Choose = Callable[[int, Sequence[Row]], Iterable[Row]]


@dataclass(frozen=True, eq=False)
class ToLookAt:
    """The sources of a job before anything is encoded: those of `windows`, in the order of `table`, which keeps what is
    found. `known` is what the dataset has of them. `note` is told what the job is doing."""

    table: SourceTable
    windows: Sequence[SourceWindow]
    known: Known
    options: Options
    changed: Changed
    looking_at: LookingAtMany
    note: Callable[[str], object]


@dataclass(frozen=True)
class Survey:
    """What becomes of sources. `to_prepare` counts those that are prepared, `there` those that the dataset has as they
    are. `kept` are the sources that have changed and do not replace their videos, `replaced` the ids of those that
    do."""

    to_prepare: int = 0
    there: int = 0
    kept: tuple[Item, ...] = ()
    replaced: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Due:
    """A window, and how many of its sources are to be prepared: at least those that the dataset lacks or has lost."""

    window: SourceWindow
    to_prepare: int


def there_of(known: Known, changed: Changed) -> There:
    """What the dataset has, for looking at sources."""
    return There(known.identities, known.lost.keys(), replace=changed == "replace")


def look_first(given: ToLookAt) -> None:
    """Look at what has to be known of before anything is encoded, and keep it in the table: all sources if there is one
    window. UsageError or SourceError if the job should not go on; nothing has been changed then."""
    table, windows, known, changed = given.table, given.windows, given.known, given.changed
    is_one_window = len(windows) == 1
    if not is_one_window and not len(known.manifest.videos):
        return
    given.note(f"looking at {counted(len(table), 'source')}")

    counts, wanted = [window.count for window in windows], list[bytes]()
    if not is_one_window:
        for number, window in enumerate(windows):
            # Rows come in this order, too. A bit for each: there may be ten million.
            marks = _wanted_first(sorted(table.names(window)), known, changed)
            counts[number] = sum(marks)
            wanted.append(np.packbits(marks).tobytes())

    def choose(number: int, rows: Sequence[Row]) -> Iterable[Row]:
        if is_one_window:
            return rows
        return compress(rows, np.unpackbits(np.frombuffer(wanted[number], "u1"), count=len(rows)).tolist())

    found = _look(given, counts, choose)
    refuse_two_files(found, known.manifest, FilesBefore(given.options.policy).is_other)
    if changed == "fail":
        refuse_changed(found)
    table.merge_renamed()


def _wanted_first(named: Sequence[Named], known: Known, changed: Changed) -> list[bool]:
    """Of each of some sources, whether it has to be looked at before anything is encoded.

    Those that may belong to another file than the one in the dataset, which has to be at another path; those of which
    the dataset may have the file under another id; and all that it has where one that has changed ends the job.
    """
    rows, paths = known.manifest.row_of_id.of(each.id for each in named), known.manifest.videos.path
    new = [each for each in named if each.is_named_by_path and each.id not in rows]
    are_there = known.paths.are_there(each.path for each in new) if new else []
    elsewhere = {each.id for each, is_there in zip(new, are_there, strict=True) if is_there}

    def is_wanted(each: Named) -> bool:
        row = rows.get(each.id)
        if row is None:
            return each.id in elsewhere
        return changed == "fail" or (not each.id_is_given and paths.text(row) not in ("", each.path))

    return [is_wanted(each) for each in named]


def look_at_others(given: ToLookAt) -> None:
    """Look at all sources that `look_first` did not look at, and keep it in the table."""

    def choose(_number: int, rows: Sequence[Row]) -> Iterable[Row]:
        return (row for row in rows if row.looked is None)

    # Those that were looked at count, too: how many they are is known only when a window is read.
    _look(given, [window.count for window in given.windows], choose)


def _look(given: ToLookAt, counts: Sequence[int], choose: _Choose) -> list[Item]:
    """Look at those sources of each window that `choose` gives, and keep it in the table. Returns those that have
    changed. `counts` has about how many they are in each window; 0 says that there is none."""
    table, windows, known = given.table, given.windows, given.known
    looking, there = given.looking_at(sum(counts)), there_of(known, given.changed)
    found: list[Item] = []
    for number, window in enumerate(windows):
        if not counts[number]:
            continue
        if len(windows) > 1:
            done = sum(counts[:number])
            given.note(f"looking for sources that have changed: {done} of {counted(sum(counts), 'source')}")
        rows = table.rows(window)
        sources = [row.source for row in choose(number, rows)]
        num_in_store = count_in_stores(row.source for row in rows)
        looked = looking.look_at(sources, given.options, there, num_in_store=num_in_store)
        items = [each.item for each in looked]
        found += changed_sources(items, known.identities.of(item.source.id for item in items))
        table.save(
            (source, Looked(item, each.expected))
            for source, each, item in zip(sources, looked, known.paths.with_known_ids(items), strict=True)
        )
    return found


def due(
    table: SourceTable, windows: Iterable[SourceWindow], known: Known, aside: Mapping[str, Failure]
) -> Iterator[Due]:
    """The windows, each with the number of sources that the dataset lacks or has lost, after `look_first`. `aside` are
    the failures of those that are not tried again."""
    lost = known.lost
    for window in windows:
        ids = table.ids(window)
        there = known.manifest.row_of_id.of(ids)
        yield Due(window, sum((each not in there or each in lost) and each not in aside for each in ids))


def surveyed(items: Sequence[Item], sorted_out: SortedOut, aside: Mapping[str, Failure]) -> Survey:
    """What becomes of all items of a window."""
    num_done, num_aside = len(sorted_out.done), sum(item.source.id in aside for item in items)
    return Survey(
        len(items) - num_done, num_done - len(sorted_out.kept) - num_aside, tuple(sorted_out.kept), sorted_out.replaced
    )


def survey(
    table: SourceTable, windows: Iterable[SourceWindow], known: Known, changed: Changed, aside: Mapping[str, Failure]
) -> Iterator[Survey]:
    """What becomes of the sources of each window, after all of them were looked at."""
    for window in windows:
        items = [each.item for each in table.looked_at(window)]
        yield surveyed(items, sort_out(items, known, changed, aside), aside)


def together(surveys: Iterable[Survey]) -> Survey:
    """What becomes of the sources of several windows, in any order."""
    to_prepare = there = 0
    kept: list[Item] = []
    replaced: set[str] = set()
    for each in surveys:
        to_prepare, there = to_prepare + each.to_prepare, there + each.there
        kept += each.kept
        replaced |= each.replaced
    kept.sort(key=lambda item: item.source.id)
    return Survey(to_prepare, there, tuple(kept), frozenset(replaced))
