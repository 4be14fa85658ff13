"""Failures that the dataset already records: whether a failure is new, and which ones to withdraw.

A later row with the same id and no reason withdraws a failure. So nothing has to be deleted, and the latest row counts
in any order in which parts are merged. A new row is later than all that are there, whatever clocks say: that of a
machine may be ahead, or be set back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ...manifests.dataset_files.layout import file_at, snapshot_key
from ...manifests.dataset_files.parts import unit_of_content, write_part
from ...manifests.dataset_files.root_file import read_root
from ...manifests.dataset_files.snapshots import open_failures
from ...manifests.tables import Failures, empty, failures_table
from ...prep.timing.stretch import Stretch
from ...storage.interface import Storage
from ..finding.addresses import is_store_url, parse
from ..finding.places import absolute, without_scheme
from .source_table import SourceTable

WITHDRAWN = ""


@dataclass(frozen=True)
class RecordedFailures:
    """The (id, reason) of each failure in a snapshot, the ids of failures that were withdrawn, and the time of the
    latest row, in nanoseconds since 1970."""

    failures: frozenset[tuple[str, str]] = frozenset()
    withdrawn: frozenset[str] = frozenset()
    latest_ns: int = 0


def recorded_failures(dataset: Storage) -> RecordedFailures:
    """The failures in the current snapshot. A process reads each snapshot once."""
    snapshot = read_root(dataset).snapshot
    if snapshot is None:
        return RecordedFailures()
    stored = file_at(dataset, snapshot_key(snapshot))
    return _failures_in(dataset, snapshot, stored and stored.version)


@lru_cache(maxsize=1)
def _failures_in(dataset: Storage, snapshot: str, _which: str | None) -> RecordedFailures:
    # `_which` differs if a dataset was removed and made again at the same path.
    table = open_failures(dataset, snapshot)
    rows = list(zip(table.id.texts(), table.reason.texts(), strict=True))
    return RecordedFailures(
        frozenset(row for row in rows if row[1] != WITHDRAWN),
        frozenset(source_id for source_id, reason in rows if reason == WITHDRAWN),
        int(table.attempted_ns.max(initial=0)),
    )


def time_of_new_rows(dataset: Storage) -> int:
    """The time that new rows get, in nanoseconds since 1970: now, and later than that of all that are there."""
    return max(time.time_ns(), recorded_failures(dataset).latest_ns + 1)


def withdraw_gone(dataset: Storage, arguments: Sequence[str], sources: SourceTable) -> bool:
    """Withdraw the failures of files that no longer exist in the folders of this job, of samples and episodes that its
    tars and datasets no longer have, and of stretches that its lists now name with other times. Returns whether there
    were any.

    `arguments` are those of the job, `sources` what they stand for. The caller holds the writer lock and publishes.
    """
    snapshot = read_root(dataset).snapshot
    if snapshot is None:
        return False
    table = open_failures(dataset, snapshot)
    gone = _gone(table, arguments, sources)
    if not gone:
        return False
    now = time_of_new_rows(dataset)
    rows = [(table.id.text(row), table.source.text(row), WITHDRAWN, now, table.path.text(row)) for row in gone]
    write_part(dataset, unit_of_content(rows), replace(empty(), failures=failures_table(rows)))
    return True


def _gone(table: Failures, arguments: Sequence[str], sources: SourceTable) -> list[int]:
    columns = zip(table.id.texts(), table.path.texts(), table.reason.texts(), strict=True)
    rows = [
        (row, source_id, path)
        for row, (source_id, path, reason) in enumerate(columns)
        if path and reason != WITHDRAWN and source_id not in sources
    ]
    if not rows:
        return []
    urls = [parse(argument).url for argument in arguments if is_store_url(argument)]
    paths = [absolute(Path(without_scheme(argument))) for argument in arguments if not is_store_url(argument)]
    folders = [path for path in paths if os.path.isdir(path)]  # noqa: PTH112  # Path.is_dir raises for some names
    # There may be a million sources: keep only what concerns these failures.
    stretches = {(path, source_id.rpartition("@")[0]) for _, source_id, path in rows}
    failed_in = {path for _, _, path in rows}
    beside, cut, taken_apart = set(), set(), set()
    for source in sources.sources():
        beside.add(os.path.dirname(source.path))  # noqa: PTH120
        if source.part is not None and not source.is_listed:
            taken_apart |= {source.path} & failed_in
        if isinstance(source.part, Stretch) and source.is_listed and not source.id_is_given:
            cut |= {(source.path, source.id.rpartition("@")[0])} & stretches

    def is_gone(source_id: str, name: str) -> bool:
        # Of a tar or a file of episodes all parts were found. The id of a stretch contains its times, so a list that
        # corrects the times gives it another id.
        if name in taken_apart or (name, source_id.rpartition("@")[0]) in cut:
            return True
        if is_store_url(name):
            # A file below a folder of this job would have been found. Nothing is known of files elsewhere.
            return any(name.startswith(f"{url}/") for url in urls)
        path = Path(name)
        ours = str(path.parent) in beside or any(map(path.is_relative_to, folders))
        return ours and not os.path.lexists(path)

    return [row for row, source_id, path in rows if is_gone(source_id, path)]
