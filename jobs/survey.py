"""What a job has to know of all its sources before it encodes the first one.

Of the sources of a small job everything is looked at here. Of those of a large one only what the dataset may have:
these may have changed, and then the job may end without having encoded anything. All others are looked at window after
window, see `planning`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..prep.options import Options
from ..wording import counted
from .changed import Changed, refuse_changed, refuse_two_files
from .look import Looked, Looking, There, count_in_stores, other_files
from .planning import Known, sort_out
from .source_table import SourceTable
from .units import Item, changed_sources
from .windows import Window
from .work import Failure


@dataclass(frozen=True)
class Survey:
    """What becomes of the sources of a job. `to_prepare` counts those that are prepared, `there` those that the dataset
    has as they are. `kept` are the sources that have changed and do not replace their videos, `replaced` the ids of
    those that do."""

    to_prepare: int
    there: int
    kept: list[Item]
    replaced: frozenset[str]


def look_first(  # noqa: PLR0917  # what is known of sources and dataset
    table: SourceTable,
    windows: Sequence[Window[bytes]],
    known: Known,
    options: Options,
    changed: Changed,
    looking: Looking,
    note: Callable[[str], object],
) -> None:
    """Look at what has to be known of before anything is encoded, and keep it in the table: all sources if there is one
    window, otherwise those that the dataset may have. UsageError or SourceError if the job should not go on; nothing
    has been changed then."""
    if len(windows) > 1 and not len(known.manifest.videos):
        return
    note(f"looking at {counted(len(table), 'source')}")
    there = There(known.identities, known.lost.keys(), replace=changed == "replace")
    found: list[Item] = []
    done = 0
    for window in windows:
        sources = [row.source for row in table.rows(window)]
        num_in_store = count_in_stores(sources)
        if len(windows) > 1:
            sources = [each for each in sources if each.id in known.identities or known.paths.may_be_there(each)]
            note(f"looking for sources that have changed: {done} of {counted(len(table), 'source')}")
        looked = looking.look_at(sources, options, there, num_in_store=num_in_store)
        found += changed_sources([each.item for each in looked], known.identities)
        table.save(
            (source, Looked(known.paths.with_known_id(each.item), each.expected))
            for source, each in zip(sources, looked, strict=True)
        )
        done += window.count
    refuse_two_files(found, known.manifest, other_files(options.policy))
    if changed == "fail":
        refuse_changed(found)
    table.merge()


def survey(
    table: SourceTable,
    windows: Sequence[Window[bytes]],
    known: Known,
    changed: Changed,
    aside: Mapping[str, Failure],
) -> Survey:
    """What becomes of all sources, after `look_first`. `aside` are the failures of those that are not tried again."""
    kept: list[Item] = []
    replaced: set[str] = set()
    num_looked = num_done = 0
    for window in windows:
        items = [each.item for each in table.looked_at(window)]
        sorted_out = sort_out(items, known, changed, aside)
        kept += sorted_out.kept
        replaced |= sorted_out.replaced
        num_looked += len(items)
        num_done += len(sorted_out.done)
    # What was not looked at is not in the dataset.
    num_done += sum(not table.was_looked_at(source_id) for source_id in aside)
    to_prepare = len(table) - num_done
    return Survey(to_prepare, len(table) - to_prepare - len(kept) - len(aside), kept, frozenset(replaced))
