"""Sources that have changed since their videos were prepared: which they are, and what a job does about them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from ...errors import SourceError, UsageError
from ...manifests.tables import Manifest
from ...wording import counted
from ..finding.addresses import is_store_url
from ..finding.source import Source
from ..units_of_work.unit_results import Failure
from ..units_of_work.units import Item

Changed = Literal["keep", "replace", "fail"]

_NAMED = 10


def check_choice(changed: str) -> None:
    """UsageError for anything but the words that `--changed` takes."""
    if changed not in get_args(Changed):
        raise UsageError(f"--changed is {changed!r}; it takes {', '.join(get_args(Changed))}")


def refuse_changed(changed: Sequence[Item]) -> None:
    """SourceError if any source has changed. It names them."""
    if not changed:
        return
    names = ", ".join(f"{item.source.path} (id {item.source.id!r})" for item in changed[:_NAMED])
    more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
    raise SourceError(
        f"{counted(len(changed), 'source')} changed since being prepared: {names}{more}. Nothing was encoded; run "
        "again with --changed replace to put the new files in the place of the old ones, or with --changed keep to "
        "keep the frames of the old ones"
    )


def refuse_two_files(
    changed: Sequence[Item], manifest: Manifest, is_other_file: Callable[[str, str, int | None], bool]
) -> None:
    """UsageError if the id of a changed source belongs to another file, which is still where it was prepared.

    Two files in two folders may have the same path below them: neither is a new version of the other. A source whose
    list gives its id is what its list says. `is_other_file` is that of `FilesBefore`.
    """
    for item in changed:
        row, source = manifest.row_of(item.source.id), item.source
        other = manifest.videos.path.text(row)
        # A part of a file has another fingerprint than the file. Parts may move to another file beside it.
        identity = int(manifest.videos.identity[row]) if source.part is None else None
        is_beside = source.part is not None and os.path.dirname(other) == os.path.dirname(source.path)  # noqa: PTH120
        if not source.id_is_given and other and not is_beside and is_other_file(other, source.path, identity):
            both = _folder_of_both(source, other)
            root = f"add --id-root {both}, so that their ids differ, or " if both else ""
            raise UsageError(
                f"{source.path} would get the id {source.id!r}, which another file has in the dataset: {other}; "
                f"{'' if source.is_listed else root}give it in a list with an `id` column, or prepare it into a "
                "dataset of its own. If it is to take the place of the other file, remove that one, or give it in a "
                "list with the same `id`",
                file=source.path,
            )


def _folder_of_both(source: Source, other: str) -> Path | None:
    """A folder below which the source has another path than its id; None where they are in a store."""
    if is_store_url(source.path) or is_store_url(other):
        return None
    folder = Path(os.path.commonpath([other, source.path]))
    return folder.parent if os.path.relpath(source.path, folder) == source.id else folder


def next_revisions(items: Sequence[Item], manifest: Manifest, again: Collection[str]) -> list[Item]:
    """The items. Those whose ids are in `again` have the next revision, since their videos are to be made again."""

    def revised(item: Item) -> Item:
        if item.source.id not in again:
            return item
        return replace(item, revision=int(manifest.videos.revision[manifest.row_of(item.source.id)]) + 1)

    return [revised(item) for item in items]


def changed_failure(item: Item, lost: Mapping[str, str]) -> Failure:
    """The failure of a source that has changed and does not replace its video. `lost` says what is wrong with lost
    videos, by id."""
    source = item.source
    if source.id in lost:
        reason = (
            f"{source.path} has changed since it was prepared as {source.id!r}, so the lost frames of the old file "
            f"({lost[source.id]}) cannot be made again; run prep with --changed replace to put the new file in "
            "its place, bring back the old file, or copy the shard to the dataset again"
        )
    else:
        reason = (
            f"{source.path} has changed since it was prepared as {source.id!r}, and the dataset has the frames of the "
            "old file; run prep with --changed replace to put the new file in its place"
        )
    return Failure(source.id, source.given, reason, source.path)
