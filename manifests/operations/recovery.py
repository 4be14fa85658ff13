"""A current snapshot that is lost or damaged, made again of the parts. Nothing is encoded, and no file is removed.

The parts of a dataset are never removed, so their rows merge to those of the snapshot: labels, edits and drops too.
What can be missing is what the dataset lost as well. Where a file tells of that, nothing is published unasked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

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
from .verify import verify_snapshot

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
    # What is wrong with a video came with its part.
    return next((str(problem) for problem in problems if problem.video is None), "")


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
    found = _Found(dataset, root)
    parts = sorted(finished_parts(dataset))
    if not parts:
        raise MissingDataError(
            f"the current snapshot of {dataset} is lost or damaged, and its folder `parts`, of which it could be made "
            f"again, has no files; copy {dataset.place(snapshot_key(current))} or `parts` to it again, or prepare the "
            "sources into a new dataset",
            file=dataset.place("parts"),
        )
    with contextlib.closing(Folding(lambda: dataset.scratch("timelines"))) as folding:
        for part in parts:
            found.add_part(part, folding)
        _add_earlier(dataset, current, listed_before, found, folding)
        lacking = [*found.damaged.values(), *_lost_parts(dataset, found), *_unnamed_shards(dataset, current, found)]
        if lacking and not accept_loss:
            raise _not_all(dataset, lacking)
        _add_newer(found, folding)
        came, timelines = folding.result()
        tables, runs = merge_tables(came, timelines)
        snapshot = next_snapshot(root, listed_before)
        blocks = timeline_blocks(runs, timelines, block_rows=zarr_sizes.BLOCK_ROWS)
        # Under its own name every later publication would read it.
        kept = tuple(copied_aside(dataset, part_key(part)) for part in found.damaged)
        write_snapshot(dataset, snapshot, tables, attributes_of_snapshot(found.names, root.profile), blocks)
    switch_to(dataset, snapshot, root.profile, len(found.names))
    for part in found.damaged:
        dataset.remove(part_key(part))
    return Recovered(current, snapshot, len(parts), len(tables.videos), why, tuple(lacking), kept)


@dataclass
class _Found:
    """What the files of a dataset hold of the lost snapshot.

    `lengths` are those of the files in the folder of shards. `names` are the parts whose rows are there, and `gone`
    those that a snapshot names and that are not. `lost` opens the rows again of which a shard is missing. `damaged`
    says what is wrong with parts that cannot be used. `shards` are those that parts name, and `units` those that have,
    or had, videos.
    """

    dataset: Storage
    root: Root
    lengths: Mapping[str, int] = field(init=False)
    names: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    lost: list[Callable[[], Manifest]] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)
    shards: set[str] = field(default_factory=set)
    units: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lengths = shard_lengths(self.dataset)

    def add_part(self, part: str, folding: Folding) -> None:
        try:
            rows, attributes = open_part(self.dataset, part)
        except UnreadableDataError:
            raise
        except DatasetError as error:
            self.damaged[part] = error.message.partition("; ")[0]
            return
        self.shards.update(rows.shards.name.texts(), attributes.get("unused", {}))
        if len(rows.videos) or attributes.get("cleaned"):
            self.units.add(unit_of(part))
        # Its worker outlived a job with other options: no snapshot has it.
        if len(rows.videos) and differing(attributes.get("profile", {}), self.root.profile):
            return
        self.names.add(part)
        self.add_rows(rows, folding, lambda: open_part(self.dataset, part)[0])

    def add_rows(self, rows: Manifest, folding: Folding, again: Callable[[], Manifest]) -> None:
        """Take rows in; `again` opens them once more."""
        if self._has_its_shards(rows):
            folding.add(rows)
            return
        # Its videos may be stored elsewhere since. What it says without them still counts.
        folding.add(with_videos(rows, _NONE))
        self.lost.append(again)

    def _has_its_shards(self, rows: Manifest) -> bool:
        if self.lengths:
            return self.lengths.keys() >= set(rows.shards.name.texts())
        return has_its_shards(self.dataset, rows)


_NONE = np.zeros(0, np.int64)


def _add_newer(found: _Found, folding: Folding) -> None:
    """Add those videos whose shards are missing that nothing replaced: they are lost, and their rows say what was.

    Of two that were stored at the same time, by workers of which one was thought dead, the one whose shards are there
    counts. As a rule a shard is missing because all of its videos were written into others.
    """
    if not found.lost:
        return
    there, _ = merge_tables(*folding.result())
    for again in found.lost:
        rows = again()
        row_of = there.row_of_id.of(rows.ids)
        newer = [
            row
            for row, video_id in enumerate(rows.ids)
            if video_id not in row_of or _age(rows, row) > _age(there, row_of[video_id])
        ]
        if newer:
            folding.add(with_videos(rows, np.array(newer, np.int64)))


def _age(manifest: Manifest, row: int) -> tuple[int, int]:
    """What a merge compares first of two videos with one id: the greater one is kept."""
    return int(manifest.videos.after_edit[row]), int(manifest.videos.revision[row])


def _add_earlier(
    dataset: Storage, current: str, listed_before: Collection[str], found: _Found, folding: Folding
) -> None:
    """Where parts are gone, take the rows that were made of them from earlier snapshots, the latest first."""
    latest_first = sorted(listed_before, key=int, reverse=True)
    named = {snapshot: _parts_named(dataset, snapshot) for snapshot in latest_first}
    found.gone = set().union(*named.values()) - found.names
    for snapshot in latest_first:
        if snapshot == current or not found.gone & named[snapshot]:
            continue
        again = partial(open_manifest, dataset, snapshot, timeline=True)
        with contextlib.suppress(MissingDataError, CorruptDataError):
            whole = parts_in(dataset, snapshot)
            found.add_rows(again(), folding, again)
            found.names |= whole
            found.gone -= whole
    for part in found.names & found.damaged.keys():
        # Nothing of it is lost.
        del found.damaged[part]


def _parts_named(dataset: Storage, snapshot: str) -> set[str]:
    """The parts that the file of a snapshot names, as far as it can be read."""
    with contextlib.suppress(MissingDataError, CorruptDataError):
        return set(snapshot_attributes(dataset, snapshot)["parts"])
    return set()


def _lost_parts(dataset: Storage, found: _Found) -> Iterator[str]:
    for part in sorted(found.gone - found.damaged.keys()):
        yield f"{dataset.place(part_key(part))} is missing"
    # A part that set labels or dropped videos has no shard that tells of it.
    unknown = (found.root.num_parts or 0) - len(found.names | found.gone | found.damaged.keys())
    if unknown > 0:
        yield f"{counted(unknown, 'part')} more of the {found.root.num_parts} of the snapshot, of unknown names"


def _unnamed_shards(dataset: Storage, current: str, found: _Found) -> Iterator[str]:
    """Shards of which no part tells, so that their videos cannot be found. An attempt that lost against another one at
    its unit may have left some, and so may a worker that was killed."""
    strays = {
        name: num_bytes
        for name, num_bytes in found.lengths.items()
        if is_shard(name) and name not in found.shards and unit_of_shard(name) not in found.units
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
        f"`shortgop verify {dataset} --repair --accept-loss` makes a snapshot without what was in them, videos, labels "
        "and drops, and `shortgop prep` on the same sources then makes videos again that it lacks",
        file=dataset.url,
    )
