"""A current snapshot that is lost or damaged, made again of the parts. Nothing is encoded, and no file is removed.

The parts of a dataset are never removed, so their rows merge to those of the snapshot: labels, edits and drops too.
What can be missing is what the dataset lost as well. Where a file tells of that, nothing is published unasked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from shlex import quote

import numpy as np

from ...errors import CorruptDataError, DatasetError, MissingDataError, UnreadableDataError
from ...storage.interface import Storage
from ...wording import byte_size, counted
from ..dataset_files.aside import copied_aside
from ..dataset_files.in_place import repairing
from ..dataset_files.layout import is_shard, part_key, shard_key, shard_lengths, snapshot_key, snapshots, unit_of_shard
from ..dataset_files.parts import finished_parts, open_part, unit_of
from ..dataset_files.publish import (
    attributes_of_snapshot,
    catch_up,
    differing,
    has_its_shards,
    next_snapshot,
    switch_to,
    write_snapshot,
)
from ..dataset_files.root_file import Root, read_root
from ..dataset_files.sections import shards_of_sections
from ..dataset_files.snapshot_files import parts_in, remedy_of, snapshot_attributes
from ..dataset_files.snapshots import open_manifest, open_once
from ..merging.folding import Folding
from ..merging.frame_runs import timeline_blocks
from ..merging.merge import merge_tables
from ..stacking import with_videos
from ..tables import Manifest
from ..zarr_files import zarr_sizes
from .snapshot_check import verify_snapshot

_FILES_SHOWN = 3


@dataclass(frozen=True)
class Recovered:
    """What `recover` did: `snapshot` was made in place of `damaged`, of so many `parts`, and has so many `videos`.

    `why` says what was wrong, and `lacking` of each file that would be needed for all of the lost snapshot what is
    wrong with that. `kept` are damaged parts, which lie under these names now.
    """

    damaged: str
    snapshot: str
    parts: int
    videos: int
    why: str = ""
    lacking: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def is_of_snapshot(dataset: Storage, file: str | None) -> bool:
    """Whether a file that an error or a problem names is one of a snapshot."""
    return file is not None and file.startswith(dataset.place("manifest/"))


def repair_snapshot(dataset: Storage, *, accept_loss: bool = False) -> Recovered | None:
    """Make the current snapshot again if its files, or those of its layers, are lost or damaged. None if they are not.
    Raises what `recover` raises."""
    snapshot = read_root(dataset).snapshot
    why = "" if snapshot is None else _trouble(dataset, snapshot)
    return recover(dataset, snapshot or "", why, accept_loss=accept_loss) if why else None


def _trouble(dataset: Storage, snapshot: str) -> str:
    """What is wrong with a snapshot; "" if nothing is."""
    try:
        manifest = open_once(dataset, snapshot)
    except (MissingDataError, CorruptDataError) as error:
        return error.message.removesuffix(f"; {remedy_of(dataset, snapshot)}")
    problems = verify_snapshot(dataset, manifest, snapshot)
    # What is wrong with a video came with its part. What cannot be read may be as it was written.
    return next((str(problem) for problem in problems if problem.video is None and not problem.is_unread), "")


def recover(dataset: Storage, damaged: str, why: str = "", *, accept_loss: bool = False) -> Recovered | None:
    """Make the snapshot `damaged` again, as a new one, if it is still the current one; None if another one is.

    Its files stay until `gc` or a later job removes them as those of any earlier snapshot. MissingDataError if the
    parts do not hold all that was in it; with `accept_loss` what they hold is published, and damaged parts get another
    name. UnreadableDataError if a part cannot be read now, DatasetBusyError if a job writes to the dataset or another
    one publishes meanwhile.
    """
    with repairing(dataset):
        listed_before = snapshots(dataset)
        root = catch_up(dataset, listed_before)
        if root.snapshot != damaged:
            return None
        return made_again(dataset, root, listed_before, why, accept_loss=accept_loss)


def made_again(
    dataset: Storage, root: Root, listed_before: Collection[str], why: str = "", *, accept_loss: bool = False
) -> Recovered:
    """Like `recover`, for a caller who holds the writer lock and knows that the root's snapshot is damaged.
    `listed_before` are the snapshots that there were before the root was read."""
    current = root.snapshot or ""
    shards_there = shard_lengths(dataset)
    parts = sorted(finished_parts(dataset))
    if not parts:
        raise MissingDataError(
            f"the current snapshot of {dataset} is lost or damaged, and its folder `parts`, of which it could be made "
            f"again, has no files; copy {dataset.place(snapshot_key(current))} or `parts` to it again, or prepare the "
            "sources into a new dataset",
            file=dataset.place("parts"),
        )
    with contextlib.closing(Folding(lambda: dataset.scratch("timelines"))) as folding:
        rows = _Rows(dataset, shards_there.keys(), folding)
        told = _read_parts(dataset, root, parts, rows)
        used, missing = _add_earlier(dataset, current, listed_before, told.used, rows)
        # Nothing is lost of a part whose rows an earlier snapshot has.
        damaged = {part: why for part, why in told.damaged.items() if part not in used}
        lacking = [
            *damaged.values(),
            *_lost_parts(dataset, root, missing - damaged.keys(), len(used | missing | damaged.keys())),
            *_unnamed_shards(dataset, current, shards_there, told),
        ]
        if lacking and not accept_loss:
            raise _not_all(dataset, lacking)
        rows.add_those_without_shards()
        came, timelines = folding.result()
        tables, runs = merge_tables(came, timelines)
        snapshot = next_snapshot(root, listed_before)
        blocks = timeline_blocks(runs, timelines, block_rows=zarr_sizes.BLOCK_ROWS)
        # Under its own name every later publication would read it.
        kept = tuple(copied_aside(dataset, part_key(part)) for part in damaged)
        write_snapshot(dataset, snapshot, tables, attributes_of_snapshot(used, root.profile), blocks)
    switch_to(dataset, snapshot, root.profile, len(used))
    for part in damaged:
        dataset.remove(part_key(part))
    return Recovered(current, snapshot, len(parts), len(tables.videos), why, tuple(lacking), kept)


class _Rows:
    """Collects the rows of the lost snapshot in `folding`. `shards_there` are the files in the folder of shards."""

    def __init__(self, dataset: Storage, shards_there: Collection[str], folding: Folding) -> None:
        self._dataset, self._shards_there, self._folding = dataset, set(shards_there), folding
        self._without_shards: list[Callable[[], Manifest]] = []

    def add(self, rows: Manifest, again: Callable[[], Manifest]) -> None:
        """Take rows in; `again` opens them once more."""
        if self._has_its_shards(rows):
            self._folding.add(rows)
            return
        # Its videos may be stored elsewhere since. What it says without them still counts.
        self._folding.add(with_videos(rows, _NONE))
        self._without_shards.append(again)

    def _has_its_shards(self, rows: Manifest) -> bool:
        if self._shards_there:
            return self._shards_there.issuperset(rows.shards.name.texts())
        return has_its_shards(self._dataset, rows)

    def add_those_without_shards(self) -> None:
        """Add those videos whose shards are missing that nothing replaced: they are lost, and their rows say what was.

        Of two that were stored at the same time, by workers of which one was thought dead, the one whose shards are
        there counts. As a rule a shard is missing because all of its videos were written into others.
        """
        if not self._without_shards:
            return
        there, _ = merge_tables(*self._folding.result())
        for again in self._without_shards:
            rows = again()
            row_of = there.row_of_id.of(rows.ids)
            newer = [
                row
                for row, video_id in enumerate(rows.ids)
                if video_id not in row_of or _age(rows, row) > _age(there, row_of[video_id])
            ]
            if newer:
                self._folding.add(with_videos(rows, np.array(newer, np.int64)))


_NONE = np.zeros(0, np.int64)


def _age(manifest: Manifest, row: int) -> tuple[int, int]:
    """What a merge compares first of two videos with one id: the greater one is kept."""
    return int(manifest.videos.after_edit[row]), int(manifest.videos.revision[row])


@dataclass
class _Told:
    """What the parts that are there tell. `used` are those whose rows were taken, and `damaged` says what is wrong with
    those that cannot be used. `shards` are those that parts name, and `units` those that have, or had, videos."""

    used: set[str] = field(default_factory=set)
    damaged: dict[str, str] = field(default_factory=dict)
    shards: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)


def _read_parts(dataset: Storage, root: Root, parts: Iterable[str], rows: _Rows) -> _Told:
    """Add the rows of all parts that can be used."""
    told = _Told()
    for part in parts:
        try:
            found, attributes = open_part(dataset, part)
        except UnreadableDataError:
            raise
        except DatasetError as error:
            told.damaged[part] = error.message.partition("; ")[0]
            continue
        told.shards.update(found.shards.name.texts(), attributes.get("unused", {}))
        if len(found.videos) or attributes.get("cleaned"):
            told.units.add(unit_of(part))
        # Its worker outlived a job with other options: no snapshot has it.
        if len(found.videos) and differing(attributes.get("profile", {}), root.profile):
            continue
        told.used.add(part)
        rows.add(found, partial(_rows_of_part, dataset, part))
    return told


def _rows_of_part(dataset: Storage, part: str) -> Manifest:
    return open_part(dataset, part)[0]


def _add_earlier(
    dataset: Storage, current: str, listed_before: Collection[str], read: Collection[str], rows: _Rows
) -> tuple[set[str], set[str]]:
    """Where parts are gone, add the rows that were made of them from earlier snapshots, the latest first.

    `read` are the parts whose rows were added already. Returns these and those that earlier snapshots were made of, and
    the parts that a snapshot names and that are still not among them.
    """
    latest_first = sorted(listed_before, key=int, reverse=True)
    named = {snapshot: _parts_named(dataset, snapshot) for snapshot in latest_first}
    used = set(read)
    missing = set().union(*named.values()) - used
    for snapshot in latest_first:
        if snapshot == current or not missing & named[snapshot]:
            continue
        again = partial(open_manifest, dataset, snapshot, timeline=True)
        with contextlib.suppress(MissingDataError, CorruptDataError):
            whole = parts_in(dataset, snapshot)
            rows.add(again(), again)
            used |= whole
            missing -= whole
    return used, missing


def _parts_named(dataset: Storage, snapshot: str) -> set[str]:
    """The parts that the file of a snapshot names, as far as it can be read."""
    with contextlib.suppress(MissingDataError, CorruptDataError):
        return set(snapshot_attributes(dataset, snapshot)["parts"])
    return set()


def _lost_parts(dataset: Storage, root: Root, missing: Collection[str], num_known: int) -> Iterator[str]:
    """Parts of which nothing is there: those that snapshots name, and those that nothing names, where fewer than the
    snapshot was made of are known."""
    for part in sorted(missing):
        yield f"{dataset.place(part_key(part))} is missing"
    # A part that set labels or dropped videos has no shard that tells of it.
    unknown = (root.num_parts or 0) - num_known
    if unknown > 0:
        yield f"{counted(unknown, 'part')} more of the {root.num_parts} of the snapshot, of unknown names"


def _unnamed_shards(dataset: Storage, current: str, lengths: Mapping[str, int], told: _Told) -> Iterator[str]:
    """Shards of which no part tells, so that their videos cannot be found. An attempt that lost against another one at
    its unit may have left some, and so may a worker that was killed. `lengths` are those of the files in the folder of
    shards."""
    strays = {
        name: num_bytes
        for name, num_bytes in lengths.items()
        if is_shard(name) and name not in told.shards and unit_of_shard(name) not in told.units
    }
    if strays:
        for name in shards_of_sections(dataset):
            strays.pop(name, None)
    for snapshot in snapshots(dataset) if strays else ():
        # Videos that are only in an earlier snapshot were dropped, and their rows taken out of the parts.
        if snapshot != current:
            with contextlib.suppress(MissingDataError, CorruptDataError):
                for name in open_once(dataset, snapshot).shards.name.texts():
                    strays.pop(name, None)
    for name, num_bytes in sorted(strays.items()):
        yield f"no part tells which videos are in {dataset.place(shard_key(name))} ({byte_size(num_bytes)})"


def _not_all(dataset: Storage, lacking: list[str]) -> MissingDataError:
    shown = "; ".join(lacking[:_FILES_SHOWN])
    more = f"; and {len(lacking) - _FILES_SHOWN} more" if len(lacking) > _FILES_SHOWN else ""
    return MissingDataError(
        f"the snapshot of {dataset} cannot be made again as it was, as {counted(len(lacking), 'file')} "
        f"{'is' if len(lacking) == 1 else 'are'} lost as well: {shown}{more}. Copy them to the dataset again; or "
        f"`shortgop verify {quote(str(dataset))} --repair --accept-loss` makes a snapshot without what was in "
        "them, videos, labels and drops, and `shortgop prep` on the same sources then makes videos again that it lacks",
        file=dataset.url,
    )
