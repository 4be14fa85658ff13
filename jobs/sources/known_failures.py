"""Failures that the dataset already records: whether a failure is new, and which ones to withdraw.

A later row with the same id and no reason withdraws a failure. So nothing has to be deleted, and the latest row counts
in any order in which parts are merged. A new row is later than the one that its id has, whatever clocks say: that of a
machine may be ahead, or be set back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from ..finding.importers.lerobot import EPISODE_ID
from ..finding.places import absolute, without_scheme
from ..finding.source_parts import Member, PictureRows
from .source_table import SourceTable

WITHDRAWN = ""


@dataclass(frozen=True)
class RecordedFailures:
    """The (id, reason) of each failure in a snapshot, the ids of failures that were withdrawn, and by id the time of
    its row, in nanoseconds since 1970."""

    failures: frozenset[tuple[str, str]] = frozenset()
    withdrawn: frozenset[str] = frozenset()
    times_ns: Mapping[str, int] = field(default_factory=dict)

    def time_of_new_row(self, source_id: str) -> int:
        """The time that a new row of an id gets, in nanoseconds since 1970: now, and later than that of its row."""
        return max(time.time_ns(), self.times_ns.get(source_id, 0) + 1)


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
        dict(zip(table.id.texts(), table.attempted_ns.tolist(), strict=True)),
    )


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
    known = recorded_failures(dataset)
    rows = [
        (table.id.text(row), table.source.text(row), WITHDRAWN, known.time_of_new_row(table.id.text(row)),
         table.path.text(row))
        for row in gone
    ]  # fmt: skip
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
    beside, cut, taken_apart, robot_files = set(), set(), set(), set()
    for source in sources.sources():
        beside.add(os.path.dirname(source.path))  # noqa: PTH120
        if isinstance(source.part, Member | PictureRows):
            taken_apart |= {source.path} & failed_in
        elif isinstance(source.part, Stretch) and not source.is_listed:
            robot_files |= {source.path} & failed_in
        elif isinstance(source.part, Stretch) and not source.id_is_given:
            cut |= {(source.path, source.id.rpartition("@")[0])} & stretches

    def is_gone(source_id: str, name: str) -> bool:
        # Of a tar, and of a file of LeRobot, all parts were found. Only of its videos lists may name stretches, too.
        if name in taken_apart or (name in robot_files and EPISODE_ID.fullmatch(source_id)):
            return True
        # The id of a stretch contains its times, so a list that corrects the times gives it another id.
        if (name, source_id.rpartition("@")[0]) in cut:
            return True
        if is_store_url(name):
            # A file below a folder of this job would have been found. Nothing is known of files elsewhere.
            return any(name.startswith(f"{url}/") for url in urls)
        path = Path(name)
        ours = str(path.parent) in beside or any(map(path.is_relative_to, folders))
        return ours and not os.path.lexists(path)

    return [row for row, source_id, path in rows if is_gone(source_id, path)]
