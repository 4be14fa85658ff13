"""Videos of datasets that are brought into another dataset, on a disk or in a store, without encoding anything.

A few shards at a time are written to the target, with a part that names them. The name of its unit depends on nothing
but what is copied, so a copy that was interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ..errors import UsageError
from ..storage.interface import Storage
from ..wording import counted
from .edits import Drop, dropped, drops_table, last_number, sorted_json
from .layout import Root, create, is_dataset, make_place, read_root, set_profile
from .lost import lost_shards, lost_text
from .moving import DEFAULT_SHARD_BYTES, Move, move_segments, put_together, unit_of_move
from .parts import finished_parts, write_part
from .publish import differing, publish
from .snapshots import open_current, timeline_of
from .stacking import stack, take
from .stored_bytes import live_bytes
from .tables import Failures, Manifest, empty

# How many new shards are written at a time: a store takes long to answer each request.
_AT_A_TIME = 4
_IDS_SHOWN = 3


@dataclass(frozen=True)
class Copied:
    """What `copy_videos` did: ids that it brought, and those that the target had already. `num_bytes` are those of the
    shards that it wrote; `snapshot` is the target's current one.

    `replaced` are those of `ids` of which the target had an earlier revision. `dropped` were left out, since they were
    dropped in the target. `dropped_in_source` were dropped in a source, and the target still has them. `other_columns`
    are those of `already` whose columns differ from the source's; the target keeps its own.
    """

    ids: tuple[str, ...]
    already: tuple[str, ...]
    num_bytes: int
    snapshot: str
    replaced: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    dropped_in_source: tuple[str, ...] = ()
    other_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Source:
    """A dataset to copy from, and the rows of its videos that are wanted."""

    dataset: Storage
    root: Root
    manifest: Manifest
    rows: tuple[int, ...]


@dataclass(frozen=True)
class _Plan:
    """What to copy, and ids as `Copied` has them. `contents` are those of the videos to copy, by id."""

    sources: tuple[_Source, ...]
    contents: Mapping[str, bytes]
    already: tuple[str, ...]
    replaced: tuple[str, ...]
    dropped: tuple[str, ...]
    other_columns: tuple[str, ...]


def copy_videos(
    sources: Sequence[Storage],
    target: Storage,
    *,
    update: bool = False,
    include_dropped: bool = False,
    on_bytes: Callable[[int], object] = lambda _: None,
) -> Copied:
    """Bring the videos of the current snapshots of `sources` into `target`, a new dataset or one of the same profile.

    Videos come with their columns as they are now, what was dropped stays dropped, and every GOP is checked by its
    CRC-32 on the way. `on_bytes` is called with the length of each shard as it is written. The same call again copies
    what is missing. A source that is named twice counts once.

    Videos that were dropped in the target stay out, unless `include_dropped`. With `update` a video of a source takes
    the place of the target's video of that id, columns included, if its frames differ and its revision is greater.

    UsageError if two videos have one id and other frames, or if profiles differ; NotADatasetError, MissingDataError or
    CorruptDataError if a source is not whole; OutputError, DatasetBusyError for the target.
    """
    opened = [(source, *open_current(source)) for source in {source.url: source for source in sources}.values()]
    for source, _, manifest in opened:
        lost = lost_shards(source, manifest)
        if lost:
            raise type(next(iter(lost.values())))(lost_text(source, manifest, lost), file=source.url)
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
        plan = _plan(opened, now, target, update=update, include_dropped=include_dropped)
        try:
            num_bytes = sum(_copy(source, target, now, on_bytes) for source in plan.sources)
            _bring_the_rest([manifest for _, _, manifest in opened], target, now)
        finally:
            publish(target)
        return _result(plan, [manifest for _, _, manifest in opened], _current(target), num_bytes, read_root(target))


def _result(plan: _Plan, sources: Sequence[Manifest], after: Manifest, num_bytes: int, root: Root) -> Copied:
    """`after` is what the target has now."""
    contents = dict(zip(after.ids, _contents(after), strict=True)) if plan.contents else {}
    # Keys of a dict: they are looked up, and keep their order.
    came = {video_id: None for video_id, content in plan.contents.items() if contents.get(video_id) == content}
    there = set(after.ids).difference(*(manifest.ids for manifest in sources))
    return Copied(
        ids=tuple(came),
        already=plan.already,
        num_bytes=num_bytes,
        snapshot=root.snapshot or "",
        replaced=tuple(video_id for video_id in plan.replaced if video_id in came),
        dropped=plan.dropped,
        dropped_in_source=tuple(sorted(there.intersection(each for manifest in sources for each in dropped(manifest)))),
        other_columns=plan.other_columns,
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


def _plan(
    opened: Sequence[tuple[Storage, Root, Manifest]],
    now: Manifest,
    target: Storage,
    *,
    update: bool,
    include_dropped: bool,
) -> _Plan:
    """What to copy of each dataset into `target`, which has `now`. UsageError for ids that mean two videos."""
    owner: dict[str, tuple[str, bytes]] = {
        video_id: (target.url, content) for video_id, content in zip(now.ids, _contents(now), strict=True)
    }
    out = set() if include_dropped else dropped(now).keys()
    # As keys, since a video may be in several sources.
    already, left_out, other_columns = dict[str, None](), dict[str, None](), dict[str, None]()
    sources, contents, replaced, clashes = [], dict[str, bytes](), [], []
    for source, root, manifest in opened:
        rows = []
        for row, (video_id, content) in enumerate(zip(manifest.ids, _contents(manifest), strict=True)):
            if video_id in out:
                left_out[video_id] = None
                continue
            url, known = owner.get(video_id, (None, content))
            if known != content:
                if not (update and url == target.url and _is_later(manifest, row, now)):
                    clashes.append((video_id, url, source))
                    continue
                replaced.append(video_id)
            elif url is not None:
                already[video_id] = None
                if url == target.url and _columns(manifest, row) != _columns(now, now.row_of(video_id)):
                    other_columns[video_id] = None
                continue
            owner[video_id] = source.url, content
            contents[video_id] = content
            rows.append(row)
        sources.append(_Source(source, root, manifest, tuple(rows)))
    if clashes:
        raise _clash_error(clashes, target)
    return _Plan(tuple(sources), contents, tuple(already), tuple(replaced), tuple(left_out), tuple(other_columns))


def _is_later(manifest: Manifest, row: int, now: Manifest) -> bool:
    return int(manifest.videos.revision[row]) > int(now.videos.revision[now.row_of(manifest.ids[row])])


def _columns(manifest: Manifest, row: int) -> str:
    return sorted_json(json.loads(manifest.videos.attributes.text(row) or "{}"))


def _clash_error(clashes: Sequence[tuple[str, str | None, Storage]], target: Storage) -> UsageError:
    said = "; ".join(f"{video_id!r} of {url} and of {source}" for video_id, url, source in clashes[:_IDS_SHOWN])
    remedy = "drop one of them with `shortgop drop`, or prepare it again under another id"
    of_target = next((video_id for video_id, url, _ in clashes if url == target.url), None)
    if of_target is not None:
        remedy += (
            f"; `shortgop drop {shlex.join([str(target), of_target])}` and then the same command with "
            "--include-dropped puts the source's video in the place of the target's"
        )
    return UsageError(
        f"{counted(len(clashes), 'id')} {'means' if len(clashes) == 1 else 'mean'} two videos: {said}"
        f"{' ...' * (len(clashes) > _IDS_SHOWN)}; {remedy}"
    )


def _contents(manifest: Manifest) -> list[bytes]:
    """What tells whether two videos are the same: the checksums of all GOPs, and the rate."""
    ends = manifest.first_gops.tolist()
    rates = zip(manifest.videos.fps_num.tolist(), manifest.videos.fps_den.tolist(), strict=True)
    return [
        hashlib.blake2b(manifest.gops.crc32[start:stop].tobytes(), digest_size=8, key=f"{rate}".encode()[:64]).digest()
        for (start, stop), rate in zip(pairwise(ends), rates, strict=True)
    ]


def _copy(source: _Source, target: Storage, now: Manifest, on_bytes: Callable[[int], object]) -> int:
    """Copy the wanted videos of a dataset to the target, which has `now`. Returns the bytes that were written."""
    dataset, snapshot, manifest = source.dataset, source.root.snapshot or "", source.manifest
    first_segments = manifest.first_segments.tolist()
    done, number, drops = finished_parts(target), last_number(now) + 1, dropped(now)

    def run(move: Move) -> int:
        # An earlier copy's part has the videos as they were before they were dropped.
        ids = [manifest.ids[row] for row in move.videos]
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

    shards_of = {
        row: sorted(set(manifest.segments.shard[first_segments[row] : first_segments[row + 1]].tolist()))
        for row in source.rows
    }
    shard_bytes = int(source.root.profile.get("shard_bytes", DEFAULT_SHARD_BYTES))
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="shortgop-copy") as pool:
        return sum(pool.map(run, put_together(shards_of, live_bytes(manifest).tolist(), shard_bytes)))


def _bring_the_rest(manifests: Sequence[Manifest], target: Storage, now: Manifest) -> None:
    """Write a part of what was dropped, and of the failures, of ids that are not among the videos, unless the target,
    which has `now`, knows of it."""
    there = set(now.ids).union(*(manifest.ids for manifest in manifests))
    known, number = dropped(now), last_number(now) + 1
    drops = {
        video_id: Drop(number, drop.revision)
        for manifest in manifests
        for video_id, drop in dropped(manifest).items()
        if video_id not in there and (video_id not in known or known[video_id].revision < drop.revision)
    }
    attempted = dict(zip(now.failures.id.texts(), now.failures.attempted_ns.tolist(), strict=True))
    out = there | known.keys() | drops.keys()
    failures = stack([_later(manifest.failures, attempted, without=out) for manifest in manifests])
    if drops or len(failures):
        unit = hashlib.blake2b(repr((sorted(drops), failures.id.texts())).encode("utf-8", "backslashreplace"))
        write_part(
            target,
            unit.hexdigest()[:16],
            replace(empty(), drops=drops_table(drops), failures=failures),
        )


def _later(failures: Failures, attempted: Mapping[str, int], *, without: Collection[str]) -> Failures:
    """The failures after these times of attempts, by id, but for some ids."""
    times = zip(failures.id.texts(), failures.attempted_ns.tolist(), strict=True)
    rows = [row for row, (each, at) in enumerate(times) if each not in without and attempted.get(each, -1) < at]
    return take(failures, np.array(rows, np.int64))
