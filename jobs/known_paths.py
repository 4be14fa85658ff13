"""Files in a list that the dataset has already, under ids that another way of naming them gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..manifests.tables import Manifest
from .sources import Source
from .units import Item


def with_known_ids(items: Sequence[Item], manifest: Manifest) -> list[Item]:
    """The items; a file of a list without an id of its own has the id under which the dataset has it.

    A folder that was prepared first gives paths below it as ids, and a list gives paths as they are written. Without
    this a list of labels would store all files once more. The file has to be at its path, with its content. Of an item
    that is given in both ways the one from the list stays, which has labels.
    """
    there = manifest.row_of_id
    if all(not _may_be_known(item.source) or item.source.id in there for item in items):
        return list(items)
    paths = zip(manifest.videos.path.texts(), manifest.videos.identity.tolist(), manifest.ids, strict=True)
    known = {(path, identity): video_id for path, identity, video_id in paths}
    found: dict[str, Item] = {}
    for item in items:
        source = item.source
        video_id = source.id
        if _may_be_known(source) and source.id not in there:
            video_id = known.get((source.path, item.identity), source.id)
        if video_id not in found or source.is_listed:
            found[video_id] = replace(item, source=replace(source, id=video_id))
    return list(found.values())


def _may_be_known(source: Source) -> bool:
    return source.is_listed and not source.id_is_given and source.part is None
