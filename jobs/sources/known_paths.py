"""Files in a list that the dataset has already, under ids that another way of naming them gave."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ...manifests.ragged import Array
from ...manifests.tables import Manifest
from ..finding.plain_values import valid_text
from ..units_of_work.units import Item

# Paths that are decoded at a time.
_BLOCK_ROWS = 1 << 16


class KnownPaths:
    """Finds the dataset's videos by the paths of their sources. It keeps 16 bytes of each, once anything is asked."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._sorted: tuple[Array, Array] | None = None

    def are_there(self, paths: Iterable[str]) -> list[bool]:
        """For each path, whether the dataset may have the file at it; seldom is that said of one that it has not."""
        hashes, _ = self._by_hash()
        wanted = np.fromiter((_hash(valid_text(path)) for path in paths), np.int64)
        if not len(hashes):
            return [False] * len(wanted)
        found: list[bool] = (hashes[np.searchsorted(hashes, wanted) % len(hashes)] == wanted).tolist()
        return found

    def with_known_ids(self, items: Sequence[Item]) -> list[Item]:
        """The items; a file of a list without an id of its own has the id under which the dataset has it.

        A folder that was prepared first gives paths below it as ids, and a list gives paths as they are written.
        Without this a list of labels would store all files once more. The file has to be at its path, with its content.
        """
        named = [item.source.id for item in items if item.source.is_named_by_path]
        others = set(named).difference(self._manifest.row_of_id.of(named))
        return [self._with_known_id(item) if item.source.id in others else item for item in items]

    def id_at(self, path: str, part: str) -> str | None:
        """The id of the video that was made from the file at this path, or from a part of it. None if there is none, or
        several."""
        ids = self._manifest.videos.id
        found = [each for each in map(ids.text, self._rows(path)) if not part or each.endswith(f"@{part}")]
        return found[0] if len(found) == 1 else None

    def columns_at(self, path: str) -> set[str]:
        """The columns of the videos that were made from the file at this path."""
        texts = self._manifest.videos.attributes
        return {column for row in self._rows(path) for column in json.loads(texts.text(row) or "{}")}

    def columns_of(self, video_id: str) -> set[str]:
        """The columns of the video of this id."""
        texts = self._manifest.videos.attributes
        rows = self._manifest.row_of_id.of([video_id]).values()
        return {column for row in rows for column in json.loads(texts.text(row) or "{}")}

    def _with_known_id(self, item: Item) -> Item:
        videos = self._manifest.videos
        rows = [row for row in self._rows(item.source.path) if int(videos.identity[row]) == item.identity]
        return replace(item, source=item.source._replace(id=videos.id.text(rows[-1]))) if rows else item

    def _rows(self, path: str) -> list[int]:
        paths = self._manifest.videos.path
        hashes, order = self._by_hash()
        path = _without_dots(valid_text(path))
        hashed = hash(path)
        first, last = np.searchsorted(hashes, hashed), np.searchsorted(hashes, hashed, side="right")
        return [row for row in order[first:last].tolist() if _without_dots(paths.text(row)) == path]

    def _by_hash(self) -> tuple[Array, Array]:
        """The hashes of all paths, sorted, and their rows."""
        if self._sorted is None:
            paths = self._manifest.videos.path
            hashes = np.empty(len(paths), np.int64)
            for start in range(0, len(paths), _BLOCK_ROWS):
                some = paths.between(start, min(start + _BLOCK_ROWS, len(paths)))
                hashes[start : start + len(some)] = np.fromiter(map(_hash, some.texts()), np.int64, len(some))
            order = np.argsort(hashes, kind="stable")
            self._sorted = hashes[order], order
        return self._sorted


def _hash(path: str) -> int:
    return hash(_without_dots(path))


def _without_dots(path: str) -> str:
    """A path that was given with `..` as one without: lists and jobs name files from different folders."""
    return posixpath.normpath(path) if "/../" in path else path
