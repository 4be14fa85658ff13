"""Videos of datasets that are brought into another dataset, on a disk or in a store, without encoding anything.

A few shards at a time are written to the target, with a part that names them. The name of its unit depends on nothing
but what is copied, so a copy that was interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ..errors import UsageError
from ..storage.interface import Storage
from ..wording import counted
from .edits import Drop, dropped, drops_table, last_number
from .layout import (
    Root,
    create,
    is_dataset,
    make_place,
    open_current,
    open_timeline,
    read_root,
    set_id_roots,
    set_profile,
)
from .lost import lost_shards, lost_text
from .moving import DEFAULT_SHARD_BYTES, Move, move_segments, put_together, unit_of_move
from .parts import finished_parts, write_part
from .publish import differing, publish
from .stacking import stack, take
from .stored_bytes import live_bytes
from .tables import Failures, Manifest, empty

# As many are read and written at a time: a store answers each of them late.
_AT_A_TIME = 4
_IDS_SHOWN = 3


@dataclass(frozen=True)
class Copied:
    """What `copy_videos` did: ids that it brought, and those that the target had already. `num_bytes` are those of the
    shards that it wrote; `snapshot` is the target's current one."""

    ids: tuple[str, ...]
    already: tuple[str, ...]
    num_bytes: int
    snapshot: str


@dataclass(frozen=True)
class _Source:
    """A dataset to copy from, and the rows of its videos that are wanted."""

    dataset: Storage
    root: Root
    manifest: Manifest
    rows: tuple[int, ...]


def copy_videos(
    sources: Sequence[Storage], target: Storage, *, on_bytes: Callable[[int], object] = lambda _: None
) -> Copied:
    """Bring the videos of the current snapshots of `sources` into `target`, a new dataset or one of the same profile.

    Videos come with their columns as they are now, what was dropped stays dropped, and every GOP is checked by its
    CRC-32 on the way. `on_bytes` is told the length of each shard as it is written. The same call again copies what is
    missing.

    UsageError if two videos have one id and other frames, or if profiles differ; NotADatasetError, MissingDataError or
    CorruptDataError if a source is not whole; OutputError, DatasetBusyError for the target.
    """
    opened = [(source, *open_current(source)) for source in sources]
    for source, _, manifest in opened:
        lost = lost_shards(source, manifest)
        if lost:
            raise type(next(iter(lost.values())))(lost_text(source, manifest, lost), file=source.url)
    first = opened[0][1]
    _refuse_other_profiles([(source, root) for source, root, _ in opened])
    make_place(target)
    with target.lock():
        if not is_dataset(target):
            create(target, first.profile)
            set_id_roots(target, first.id_roots)
        publish(target)
        now = _current(target)
        if not len(now.videos):
            set_profile(target, first.profile)
        _refuse_other_profiles([(target, read_root(target)), (sources[0], first)])
        wanted, already = _wanted(opened, now, target)
        number = last_number(now) + 1
        try:
            num_bytes = sum(_copy(source, target, number, on_bytes) for source in wanted)
            there = set(now.ids).union(*(manifest.ids for _, _, manifest in opened))
            _bring_the_rest([manifest for _, _, manifest in opened], target, there, number)
        finally:
            publish(target)
        return Copied(
            ids=tuple(source.manifest.ids[row] for source in wanted for row in source.rows),
            already=already,
            num_bytes=num_bytes,
            snapshot=read_root(target).snapshot or "",
        )


def _current(dataset: Storage) -> Manifest:
    return empty() if read_root(dataset).snapshot is None else open_current(dataset)[1]


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


def _wanted(
    opened: Sequence[tuple[Storage, Root, Manifest]], now: Manifest, target: Storage
) -> tuple[list[_Source], tuple[str, ...]]:
    """What to copy of each dataset, and the ids that are there already. UsageError for ids that mean two videos."""
    owner: dict[str, tuple[str, bytes]] = {
        video_id: (target.url, content) for video_id, content in zip(now.ids, _contents(now), strict=True)
    }
    wanted, already, clashes = [], [], []
    for source, root, manifest in opened:
        rows = []
        for row, (video_id, content) in enumerate(zip(manifest.ids, _contents(manifest), strict=True)):
            known = owner.setdefault(video_id, (source.url, content))
            if known == (source.url, content) and known[0] != target.url:
                rows.append(row)
            elif known[1] == content:
                already.append(video_id)
            else:
                clashes.append(f"{video_id!r} of {known[0]} and of {source}")
        wanted.append(_Source(source, root, manifest, tuple(rows)))
    if clashes:
        raise UsageError(
            f"{counted(len(clashes), 'id')} {'means' if len(clashes) == 1 else 'mean'} two videos: "
            f"{'; '.join(clashes[:_IDS_SHOWN])}{' ...' * (len(clashes) > _IDS_SHOWN)}; drop one of them with "
            "`shortgop drop`, or prepare it again under another id"
        )
    return wanted, tuple(already)


def _contents(manifest: Manifest) -> list[bytes]:
    """What tells whether two videos are the same: the checksums of all GOPs, and the rate."""
    ends = manifest.first_gops.tolist()
    rates = zip(manifest.videos.fps_num.tolist(), manifest.videos.fps_den.tolist(), strict=True)
    return [
        hashlib.blake2b(manifest.gops.crc32[start:stop].tobytes(), digest_size=8, key=f"{rate}".encode()[:64]).digest()
        for (start, stop), rate in zip(pairwise(ends), rates, strict=True)
    ]


def _copy(source: _Source, target: Storage, number: int, on_bytes: Callable[[int], object]) -> int:
    """Copy the wanted videos of a dataset. Returns the bytes that were written."""
    dataset, snapshot, manifest = source.dataset, source.root.snapshot or "", source.manifest
    first_segments, first_frames = manifest.first_segments.tolist(), manifest.first_frames.tolist()
    done = finished_parts(target)

    def run(move: Move) -> int:
        unit = unit_of_move("copied", manifest, move)
        if unit in done:
            return 0
        pts = [open_timeline(dataset, snapshot, first_frames[row], first_frames[row + 1]) for row in move.videos]
        rows = move_segments(dataset, manifest, move, target, unit, pts=pts)
        after = np.full(len(rows.videos), number, dtype="<i8")
        write_part(target, unit, replace(rows, videos=replace(rows.videos, after_edit=after)), source.root.profile)
        num_bytes = int(rows.shards.length.sum())
        on_bytes(num_bytes)
        return num_bytes

    shards_of = {
        row: sorted(set(manifest.segments.shard[first_segments[row] : first_segments[row + 1]].tolist()))
        for row in source.rows
    }
    shard_bytes = int(source.root.profile.get("shard_bytes", DEFAULT_SHARD_BYTES))
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="shortgop-copy") as pool:
        return sum(pool.map(run, put_together(shards_of, live_bytes(manifest).tolist(), shard_bytes)))


def _bring_the_rest(manifests: Sequence[Manifest], target: Storage, there: set[str], number: int) -> None:
    """Write a part of what was dropped, and of the failures, of ids that are not among the videos."""
    drops = {
        video_id: Drop(number, drop.revision)
        for manifest in manifests
        for video_id, drop in dropped(manifest).items()
        if video_id not in there
    }
    failures = stack([_without(manifest.failures, there | drops.keys()) for manifest in manifests])
    if drops or len(failures):
        unit = hashlib.blake2b(repr((sorted(drops), failures.id.texts())).encode("utf-8", "backslashreplace"))
        write_part(
            target,
            unit.hexdigest()[:16],
            replace(empty(), drops=drops_table(drops), failures=failures),
        )


def _without(failures: Failures, ids: Collection[str]) -> Failures:
    return take(failures, np.array([row for row, each in enumerate(failures.id.texts()) if each not in ids], np.int64))
