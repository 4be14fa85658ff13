"""Videos of datasets that are brought into another dataset, on a disk or in a store, without encoding anything.

A few shards at a time are written to the target, with a part that names them. The name of its unit depends on nothing
but what is copied, so a copy that was interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from shlex import quote

import numpy as np

from ...errors import UsageError
from ...storage.interface import Storage
from ...storage.locate import lies_inside
from ..chosen_ids import ChosenIds
from ..dataset_files.parts import finished_parts, unit_of_content, write_part
from ..dataset_files.publish import differing, publish
from ..dataset_files.root_file import Root, create, is_dataset, make_place, read_root, set_profile
from ..dataset_files.snapshots import open_current, timeline_of
from ..id_patterns import known_ids, meant_ids, pattern_of_folder
from ..matching import matching_rows
from ..merging.edits import Drop, dropped, drops_table, last_number
from ..near_ids import did_you_mean, near_ids
from ..ragged import Array
from ..shared_memory.host_copies import copies_in
from ..stacking import stack, take
from ..tables import Failures, Manifest, empty
from .copy_plan import ALREADY, COPIED, DROPPED, OTHER_COLUMNS, REPLACES, CopySource, plan_copy, same_content
from .lost import lost_shards, lost_text
from .moving import DEFAULT_SHARD_BYTES, Move, in_shards, move_segments, put_together, unit_of_move
from .stored_bytes import live_bytes

# How many new shards are written at a time: a store takes long to answer each request.
_AT_A_TIME = 4


@dataclass(frozen=True)
class Copied:
    """What `copy_videos` did: ids that it brought, and those that the target had already. `num_bytes` are those of the
    shards that it wrote; `snapshot` is the target's current one.

    `replaced` are those of `ids` of which the target had an earlier revision. `dropped` were left out, since they were
    dropped in the target. `dropped_in_source` were dropped in a source, and the target still has them. `other_columns`
    are those of `already` whose columns differ from the source's; the target keeps its own. Of ids that were asked for,
    `without_video` are those of which no source has a video: it was dropped there, or could not be prepared. `unknown`
    are others, and patterns that fit none, and `near` ids that look like the first one.
    """

    ids: Sequence[str]
    already: Sequence[str]
    num_bytes: int
    snapshot: str
    replaced: Sequence[str] = ()
    dropped: Sequence[str] = ()
    dropped_in_source: Sequence[str] = ()
    other_columns: Sequence[str] = ()
    without_video: Sequence[str] = ()
    unknown: Sequence[str] = ()
    near: Sequence[str] = ()


def copy_videos(
    sources: Sequence[Storage],
    target: Storage,
    *,
    ids: Sequence[str] | None = None,
    patterns: Sequence[str] | None = None,
    update: bool = False,
    include_dropped: bool = False,
    on_bytes: Callable[[int], object] = lambda _: None,
) -> Copied:
    """Bring the videos of the current snapshots of `sources` into `target`, a new dataset or one of the same profile.

    With `ids`, or `patterns` that stand for the ids that fit them, only these videos and failures come. Videos come
    with their columns as they are now, what was dropped stays dropped, whatever comes, and every GOP is checked by its
    CRC-32 on the way. `on_bytes` is called with the length of each shard as it is written. The same call again copies
    what is missing. A source that is named twice counts once.

    Videos that were dropped in the target stay out, unless `include_dropped`. With `update` a video of a source takes
    the place of the target's video of that id, columns included, if its frames differ and its revision is greater.

    UsageError if no source knows any of the ids, if two videos have one id and other frames, if profiles differ, or if
    `target` lies inside a source; NotADatasetError, MissingDataError or CorruptDataError if a source has lost something
    of what is to come; OutputError, DatasetBusyError for the target.
    """
    _refuse_inside(sources, target)
    opened = [
        (source, *open_current(source, copies=copies_in(None)))
        for source in {source.url: source for source in sources}.values()
    ]
    manifests = [manifest for _, _, manifest in opened]
    only = None if ids is None and patterns is None else [*(ids or ()), *meant_ids(manifests, patterns or ())]
    known = known_ids(manifests, only or ())
    unknown = [each for each in dict.fromkeys(only or ()) if each not in known]
    near = near_ids(manifests[0].videos.id, unknown[0]) if unknown else ()
    if unknown and not known:
        raise _none_known(sources[0], unknown, near)
    for source, _, manifest in opened:
        _refuse_lost(source, manifest, only)
    first = opened[0][1]
    _refuse_other_profiles([(source, root) for source, root, _ in opened])
    make_place(target)
    with target.lock():
        if not is_dataset(target):
            create(target, first.profile, first.id_roots)
        publish(target)
        now = _current(target)
        if not len(now.videos):
            set_profile(target, first.profile)
        _refuse_other_profiles([(target, read_root(target)), (sources[0], first)])
        plan = plan_copy(opened, target, now, update=update, include_dropped=include_dropped, only=only)
        try:
            num_bytes = sum(_copy(source, target, now, on_bytes) for source in plan)
            _bring_the_rest(manifests, target, now, only)
        finally:
            publish(target)
        done = _result(plan, _current(target), num_bytes, read_root(target), only)
    without_video = tuple(sorted(known - _of_any(known, manifests)))
    return replace(done, without_video=without_video, unknown=tuple(unknown), near=near)


def _none_known(source: Storage, unknown: Sequence[str], near: Sequence[str]) -> UsageError:
    place = quote(str(source))
    said = (
        f"{unknown[0]!r} is not" if len(unknown) == 1 else f"none of {len(unknown)} ids, the first {unknown[0]!r}, is"
    )
    return UsageError(
        f"{said} in the dataset; `shortgop info {place}` lists the ids{pattern_of_folder(unknown, near)}"
        f"{did_you_mean(unknown[0], near)}",
        file=source.url,
    )


def _refuse_lost(source: Storage, manifest: Manifest, only: Collection[str] | None) -> None:
    """The error of the first shard that is lost, of those that hold videos with `only` these ids."""
    lost = lost_shards(source, manifest)
    if lost and only is not None:
        videos = np.array(sorted(manifest.row_of_id.of(only).values()), np.int64)
        needed = set(in_shards(manifest, videos).shards.tolist())
        lost = {shard: error for shard, error in lost.items() if shard in needed}
    if lost:
        raise type(next(iter(lost.values())))(lost_text(source, manifest, lost), file=source.url)


def _result(
    plan: Sequence[CopySource], after: Manifest, num_bytes: int, root: Root, only: Collection[str] | None
) -> Copied:
    """`after` is what the target has now."""
    came = [_that_came(source, after) for source in plan]
    manifests = [source.manifest for source in plan]
    dropped_in_sources = {video_id for manifest in manifests for video_id in dropped(manifest)}
    if only is not None:
        dropped_in_sources.intersection_update(only)
    only_in_target = after.row_of_id.of(dropped_in_sources).keys() - _of_any(dropped_in_sources, manifests)

    def ids_of(rows: Iterable[Array]) -> ChosenIds:
        return ChosenIds([(source.manifest.videos.id, each) for source, each in zip(plan, rows, strict=True)])

    def with_fate(flag: int) -> ChosenIds:
        return ids_of(source.rows(flag) for source in plan)

    return Copied(
        ids=ids_of(came),
        already=with_fate(ALREADY),
        num_bytes=num_bytes,
        snapshot=root.snapshot or "",
        replaced=ids_of(rows[source.fate[rows] & REPLACES > 0] for source, rows in zip(plan, came, strict=True)),
        dropped=with_fate(DROPPED),
        dropped_in_source=tuple(sorted(only_in_target)),
        other_columns=with_fate(OTHER_COLUMNS),
    )


def _that_came(source: CopySource, after: Manifest) -> Array:
    """The rows of those videos to copy that the target has now."""
    has_any = bool((source.fate & COPIED).any())
    came = [np.zeros(0, np.int64)]
    for block, matches in matching_rows(source.manifest.videos.id, after.videos.id) if has_any else ():
        here = np.flatnonzero((source.fate[block] & COPIED > 0) & (matches >= 0))
        is_same = same_content(source.manifest, block[here], after, matches[here])
        came.append(block[here[is_same]])
    return np.concatenate(came)


def _of_any(ids: Collection[str], manifests: Iterable[Manifest]) -> set[str]:
    """Those of these ids of which any of the manifests has a video."""
    return set().union(*(manifest.row_of_id.of(ids) for manifest in manifests))


def _current(dataset: Storage) -> Manifest:
    return empty() if read_root(dataset).snapshot is None else open_current(dataset, copies=copies_in(None))[1]


def _refuse_inside(sources: Sequence[Storage], target: Storage) -> None:
    """UsageError if the target would be among the files of a source."""
    for source in sources:
        if lies_inside(target, source):
            raise UsageError(
                f"{target} lies inside the dataset {source}; name a place that is not inside it", file=target.url
            )


def _refuse_other_profiles(roots: Sequence[tuple[Storage, Root]]) -> None:
    (first, one), *others = roots
    for dataset, other in others:
        names = differing(one.profile, other.profile)
        if names:
            said = ", ".join(f"{name} {one.profile[name]!r} and {other.profile[name]!r}" for name in names)
            raise UsageError(
                f"{first} and {dataset} were prepared with other options ({said}); a dataset has one profile, so "
                "prepare the sources of one of them again with the options of the other",
                file=dataset.url,
            )


def _copy(source: CopySource, target: Storage, now: Manifest, on_bytes: Callable[[int], object]) -> int:
    """Copy the wanted videos of a dataset to the target, which has `now`. Returns the bytes that were written."""
    dataset, snapshot, manifest = source.dataset, source.root.snapshot or "", source.manifest
    done, number, drops = finished_parts(target), last_number(now) + 1, dropped(now)

    def run(move: Move) -> int:
        # An earlier copy's part has the videos as they were before they were dropped.
        ids = manifest.videos.id.take(move.videos).texts() if drops else []
        again = [(video_id, drops[video_id].number) for video_id in ids if video_id in drops]
        unit = unit_of_move(f"copied {again}" if again else "copied", manifest, move)
        if unit in done:
            return 0
        pts = timeline_of(dataset, snapshot, manifest, move.videos)
        rows = move_segments(dataset, manifest, move, target, unit, pts=pts)
        after = np.full(len(rows.videos), number, dtype="<i8")
        write_part(target, unit, replace(rows, videos=replace(rows.videos, after_edit=after)), source.root.profile)
        num_bytes = int(rows.shards.length.sum())
        on_bytes(num_bytes)
        return num_bytes

    shard_bytes = int(source.root.profile.get("shard_bytes", DEFAULT_SHARD_BYTES))
    num_bytes = live_bytes(manifest, source.fate & COPIED > 0)
    moves = put_together(in_shards(manifest, source.rows(COPIED)), num_bytes, shard_bytes)
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="shortgop-copy") as pool:
        return sum(pool.map(run, moves))


def _bring_the_rest(
    manifests: Sequence[Manifest], target: Storage, now: Manifest, only: Collection[str] | None
) -> None:
    """Write a part of what was dropped, and of the failures, of ids that are not among the videos, unless the target,
    which has `now`, knows of it. Of failures those with `only` these ids come; of drops all do, or a later job would
    take into the target what was taken out of a source."""
    known, number = dropped(now), last_number(now) + 1
    drops_of_each = [dropped(manifest) for manifest in manifests]
    mentioned = set().union(*drops_of_each, *(manifest.failures.id.texts() for manifest in manifests))
    there = _of_any(mentioned, [now, *manifests])
    drops = {
        video_id: Drop(number, drop.revision)
        for of_each in drops_of_each
        for video_id, drop in of_each.items()
        if video_id not in there and (video_id not in known or known[video_id].revision < drop.revision)
    }
    attempted = dict(zip(now.failures.id.texts(), now.failures.attempted_ns.tolist(), strict=True))
    out = there | known.keys() | drops.keys()
    asked = None if only is None else set(only)
    failures = stack([_later(manifest.failures, attempted, without=out, only=asked) for manifest in manifests])
    if drops or len(failures):
        unit = unit_of_content((sorted(drops), failures.id.texts()))
        write_part(target, unit, replace(empty(), drops=drops_table(drops), failures=failures))


def _later(
    failures: Failures, attempted: Mapping[str, int], *, without: Collection[str], only: Collection[str] | None
) -> Failures:
    """The failures after these times of attempts, by id, but for some ids, and with `only` these ids."""
    times = zip(failures.id.texts(), failures.attempted_ns.tolist(), strict=True)
    rows = [
        row
        for row, (each, at) in enumerate(times)
        if each not in without and (only is None or each in only) and attempted.get(each, -1) < at
    ]
    return take(failures, np.array(rows, np.int64))
