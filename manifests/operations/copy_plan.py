"""What is to be copied from some datasets into another one, decided for many videos at a time. Nothing is written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import UsageError
from ...storage.interface import Storage
from ...wording import counted
from ..dataset_files.root_file import Root
from ..matching import equal_gops, equal_lists, matching_rows
from ..merging.edits import dropped, sorted_json
from ..ragged import Array, Ragged, concatenate
from ..tables import Manifest

_IDS_SHOWN = 3
# What is known of the ids of small sources is put together, up to so many.
_MOST_TOGETHER = 1 << 20
# What becomes of a video of a source: it is copied, perhaps in the place of the target's; or it is not, since there is
# the same one already, perhaps with other columns, its id was dropped from the target, or it is not asked for.
COPIED, REPLACES, ALREADY, OTHER_COLUMNS, DROPPED, _LEFT_OUT = (1 << bit for bit in range(6))
# What is said of an id once, however many sources it is in.
_SAID = ALREADY | OTHER_COLUMNS | DROPPED


@dataclass(frozen=True, eq=False)
class CopySource:
    """A dataset to copy from. `fate` says what becomes of each of its videos, by flags; a video that several sources
    have is `ALREADY`, `OTHER_COLUMNS` or `DROPPED` in the first of them that it is for."""

    dataset: Storage
    root: Root
    manifest: Manifest
    fate: Array

    def rows(self, flag: int) -> Array:
        """The videos with this fate."""
        return np.flatnonzero(self.fate & flag)


@dataclass(frozen=True)
class _Target:
    """The dataset to copy to, and what it has now. With `update` its videos are replaced by later revisions."""

    dataset: Storage
    manifest: Manifest
    update: bool


@dataclass(frozen=True, eq=False)
class _Known:
    """What is known of some ids, which ascend, from sources: the number of the source that is to bring it, and its row
    there, -1 if none is; and what was `said` of it, by flags."""

    ids: Ragged
    owner: Array
    row: Array
    said: Array


@dataclass
class _Clashes:
    """Videos of sources that have other frames than another one of the same id: how many, the first few, each with the
    place of the other, and the first that the target has another one of."""

    count: int = 0
    shown: list[tuple[str, str, Storage]] = field(default_factory=list)
    of_target: str | None = None


def plan_copy(
    opened: Sequence[tuple[Storage, Root, Manifest]],
    target: Storage,
    now: Manifest,
    *,
    update: bool,
    include_dropped: bool,
    only: Collection[str] | None = None,
) -> list[CopySource]:
    """What to copy of each dataset into `target`, which has `now`: all videos, or those with `only` these ids.
    UsageError for ids that mean two videos."""
    out = set() if include_dropped else dropped(now).keys()
    into = _Target(target, now, update)
    sources: list[CopySource] = []
    known: list[_Known] = []
    clashes = _Clashes()
    for dataset, root, manifest in opened:
        source = CopySource(dataset, root, manifest, np.zeros(len(manifest.videos), "u1"))
        source.fate[list(manifest.row_of_id.of(out).values())] = DROPPED
        if only is not None:
            asked = list(manifest.row_of_id.of(only).values())
            fate = source.fate[asked]
            source.fate[:] = _LEFT_OUT
            source.fate[asked] = fate
        ids = manifest.videos.id
        in_known = [matching_rows(ids, each.ids) for each in known]
        for rows, rows_now in matching_rows(ids, now.videos.id):
            before = [(each, next(matches)[1]) for each, matches in zip(known, in_known, strict=True)]
            _decide(source, rows, into, rows_now, sources=sources, before=before, clashes=clashes)
        known = _with_source(known, source, len(sources))
        sources.append(source)
    if clashes.count:
        raise _clash_error(clashes, target)
    return sources


def _decide(
    source: CopySource,
    rows: Array,
    target: _Target,
    rows_now: Array,
    *,
    sources: Sequence[CopySource],
    before: Sequence[tuple[_Known, Array]],
    clashes: _Clashes,
) -> None:
    """Decide about some rows of a source. Each has the row of the target's video of its id, and of what is known of it
    from the `sources` before it; -1 where there is none."""
    fate = source.fate[rows]
    is_left = fate == 0
    owner, owner_row, said = _known_before(before, len(rows))
    # What a source before it is to bring counts in place of what the target has.
    is_new = is_left & (owner < 0)
    fate[is_new & (rows_now < 0)] = COPIED
    here = np.flatnonzero(is_new & (rows_now >= 0))
    fate[here] = _fate_beside(source.manifest, rows[here], target, rows_now[here])
    for number in np.unique(owner[is_left & (owner >= 0)]).tolist():
        here = np.flatnonzero(is_left & (owner == number))
        is_same = same_content(source.manifest, rows[here], sources[number].manifest, owner_row[here])
        fate[here[is_same]] = ALREADY
    for place in np.flatnonzero(fate == 0).tolist():
        other = target.dataset if owner[place] < 0 else sources[owner[place]].dataset
        _note_clash(clashes, source.manifest.videos.id.text(int(rows[place])), other, source.dataset, target.dataset)
    source.fate[rows] = fate & ~said


def _known_before(before: Sequence[tuple[_Known, Array]], count: int) -> tuple[Array, Array, Array]:
    """Of each of `count` ids the source before that is to bring it, and its row there, -1 where none is; and what was
    said of it. Each of `before` comes with the place of each id in it, -1 where it has none."""
    owner, owner_row, said = np.full(count, -1), np.full(count, -1), np.zeros(count, "u1")
    for known, matches in before:
        here = np.flatnonzero(matches >= 0)
        owner[here] = np.maximum(owner[here], known.owner[matches[here]])
        owner_row[here] = np.maximum(owner_row[here], known.row[matches[here]])
        said[here] |= known.said[matches[here]]
    return owner, owner_row, said


def _fate_beside(manifest: Manifest, rows: Array, target: _Target, rows_now: Array) -> Array:
    """What becomes of videos whose ids the target has: flags, 0 where it has another video that stays."""
    is_same = same_content(manifest, rows, target.manifest, rows_now)
    fate = np.where(is_same, ALREADY, 0)
    same = np.flatnonzero(is_same)
    fate[same[_other_columns(manifest, rows[same], target.manifest, rows_now[same])]] |= OTHER_COLUMNS
    if target.update:
        is_later = manifest.videos.revision[rows] > target.manifest.videos.revision[rows_now]
        fate[~is_same & is_later] = COPIED | REPLACES
    return fate


def _with_source(known: Sequence[_Known], source: CopySource, number: int) -> list[_Known]:
    """What is known with one source more. Few and long: small ones are put together, as each is looked through for each
    source that comes."""
    is_copied = source.fate & COPIED > 0
    rows = np.arange(len(is_copied))
    new = _Known(
        source.manifest.videos.id,
        np.where(is_copied, np.int32(number), np.int32(-1)),
        np.where(is_copied, rows, -1),
        source.fate & _SAID,
    )
    known = list(known)
    while known and len(known[-1].ids) <= 2 * len(new.ids) and len(known[-1].ids) + len(new.ids) <= _MOST_TOGETHER:
        new = _together(known.pop(), new)
    return [*known, new]


def _together(one: _Known, other: _Known) -> _Known:
    ids = concatenate([one.ids, other.ids])
    keys = ids.sort_keys()
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.concatenate([np.ones(min(1, len(keys)), bool), keys[1:] != keys[:-1]]))
    if not len(first):
        return one
    # At most one source is to bring an id.
    return _Known(
        ids.take(order[first]),
        np.maximum.reduceat(np.concatenate([one.owner, other.owner])[order], first),
        np.maximum.reduceat(np.concatenate([one.row, other.row])[order], first),
        np.bitwise_or.reduceat(np.concatenate([one.said, other.said])[order], first),
    )


def _note_clash(clashes: _Clashes, video_id: str, place: Storage, source: Storage, target: Storage) -> None:
    clashes.count += 1
    if len(clashes.shown) < _IDS_SHOWN:
        clashes.shown.append((video_id, place.url, source))
    if clashes.of_target is None and place.url == target.url:
        clashes.of_target = video_id


def same_content(one: Manifest, rows: Array, other: Manifest, other_rows: Array) -> Array:
    """Whether videos are the same: their rates, and the checksums of all of their GOPs."""
    is_same = equal_gops(one, rows, other, other_rows)
    for column in ("fps_num", "fps_den"):
        is_same &= getattr(one.videos, column)[rows] == getattr(other.videos, column)[other_rows]
    return is_same


def _other_columns(one: Manifest, rows: Array, other: Manifest, other_rows: Array) -> Array:
    """Whether videos have different columns: bool."""
    differs = ~equal_lists(one.videos.attributes, rows, other.videos.attributes, other_rows)
    # The same columns may be written in another way.
    for place in np.flatnonzero(differs).tolist():
        differs[place] = _columns(one, int(rows[place])) != _columns(other, int(other_rows[place]))
    return differs


def _columns(manifest: Manifest, row: int) -> str:
    return sorted_json(json.loads(manifest.videos.attributes.text(row) or "{}"))


def _clash_error(clashes: _Clashes, target: Storage) -> UsageError:
    said = "; ".join(f"{video_id!r} of {url} and of {source}" for video_id, url, source in clashes.shown)
    remedy = "drop one of them with `shortgop drop`, or prepare it again under another id"
    if clashes.of_target is not None:
        remedy += (
            f"; `shortgop drop {shlex.join([str(target), clashes.of_target])}` and then the same command with "
            "--include-dropped puts the source's video in the place of the target's"
        )
    return UsageError(
        f"{counted(clashes.count, 'id')} {'means' if clashes.count == 1 else 'mean'} two videos: {said}"
        f"{' ...' * (clashes.count > _IDS_SHOWN)}; {remedy}"
    )
