"""What becomes of the sources of a window, and the units that prepare them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...manifests.merging.edits import Drop, dropped, last_number
from ...manifests.tables import Manifest
from ...prep.options import Options
from ..sources.changed import Changed, next_revisions
from ..sources.known_paths import KnownPaths
from ..sources.listed_columns import with_known_columns
from ..sources.look import Looked
from ..units_of_work.unit_results import Failure
from ..units_of_work.units import Item, Unit, after_edits, changed_sources, divided, long_apart, plan_units, with_costs


class Identities(Mapping[str, int]):
    """The fingerprint of the source of each of a dataset's videos, by id. No list or dict of all ids is made."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def __getitem__(self, video_id: str) -> int:
        return int(self._manifest.videos.identity[self._manifest.row_of_id[video_id]])

    def __iter__(self) -> Iterator[str]:
        ids = self._manifest.videos.id
        return map(ids.text, range(len(ids)))

    def __len__(self) -> int:
        return len(self._manifest.videos)

    def __contains__(self, video_id: object) -> bool:
        return video_id in self._manifest.row_of_id

    def of(self, ids: Iterable[str]) -> dict[str, int]:
        """The fingerprints of those of these ids that there are, by id: faster than one by one."""
        rows = self._manifest.row_of_id.of(ids)
        return dict(
            zip(rows, self._manifest.videos.identity[np.array(list(rows.values()), np.int64)].tolist(), strict=True)
        )


@dataclass(frozen=True)
class Known:
    """What the dataset has when a job begins. `lost` says by id what is wrong with lost videos."""

    manifest: Manifest
    lost: Mapping[str, str]

    @cached_property
    def identities(self) -> Identities:
        return Identities(self.manifest)

    @cached_property
    def paths(self) -> KnownPaths:
        return KnownPaths(self.manifest)

    @cached_property
    def drops(self) -> Mapping[str, Drop]:
        return dropped(self.manifest)

    @cached_property
    def last_edit(self) -> int:
        return last_number(self.manifest)


@dataclass(frozen=True)
class SortedOut:
    """What becomes of items. `again` are the ids of videos that are made again: lost ones, and the `replaced` ones,
    whose source has changed. `kept` are the items that have changed and replace nothing. `done` are the items of which
    nothing is prepared, with their fingerprints in the dataset, by id."""

    again: frozenset[str]
    replaced: frozenset[str]
    kept: list[Item]
    done: Mapping[str, int]


def sort_out(items: Sequence[Item], known: Known, changed: Changed, aside: Mapping[str, Failure]) -> SortedOut:
    """What becomes of items, of which `aside` are not tried again."""
    identities = known.identities.of(item.source.id for item in items)
    different = changed_sources(items, identities)
    ids = frozenset(item.source.id for item in different)
    replaced = ids if changed == "replace" else frozenset[str]()
    again = frozenset(video_id for video_id in identities if video_id in known.lost and video_id not in ids) | replaced
    done = {video_id: identity for video_id, identity in identities.items() if video_id not in again}
    done |= {item.source.id: 0 for item in items if item.source.id in aside}
    return SortedOut(again, replaced, [] if replaced else different, done)


def plan_window(looked: Sequence[Looked], sorted_out: SortedOut, known: Known, options: Options) -> list[Unit]:
    """The units of all sources of a window, without what is done already."""
    items = [each.item for each in looked]
    again = next_revisions(with_known_columns(known.manifest, items), known.manifest, sorted_out.again)
    profile = options.profile
    units = plan_units(
        after_edits(again, known.last_edit, known.drops),
        profile_key=profile.key(),
        done=sorted_out.done,
        shard_bytes=profile.shard_bytes,
    )
    seconds = {each.item.source.id: each.expected.seconds for each in looked}
    units = long_apart(units, profile.key(), seconds, long_seconds=2 * options.section_seconds)
    units = list(divided(units, profile.key(), seconds, unit_seconds=options.section_seconds))
    memory = {each.item.source.id: each.expected.memory_bytes for each in looked}
    return with_costs(units, seconds, memory)
