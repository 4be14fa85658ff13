"""Files in a list that the dataset has already, under ids that another way of naming them gave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..manifests.ragged import Array
from ..manifests.tables import Manifest
from .sources import Source
from .units import Item


class KnownPaths:
    """Finds the dataset's videos by the paths of their sources. It keeps 16 bytes of each, once anything is asked."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._sorted: tuple[Array, Array] | None = None

    def are_there(self, paths: Iterable[str]) -> list[bool]:
        """For each path, whether the dataset may have the file at it; seldom is that said of one that it has not."""
        hashes, _ = self._by_hash()
        wanted = np.fromiter(map(hash, paths), np.int64)
        if not len(hashes):
            return [False] * len(wanted)
        found: list[bool] = (hashes[np.searchsorted(hashes, wanted) % len(hashes)] == wanted).tolist()
        return found

    def with_known_id(self, item: Item) -> Item:
        """The item; a file of a list without an id of its own has the id under which the dataset has it.

        A folder that was prepared first gives paths below it as ids, and a list gives paths as they are written.
        Without this a list of labels would store all files once more. The file has to be at its path, with its content.
        """
        if not self._may_be_known(item.source):
            return item
        identities = self._manifest.videos.identity
        rows = [row for row in self._rows(item.source.path) if int(identities[row]) == item.identity]
        return replace(item, source=item.source._replace(id=self._manifest.ids[rows[-1]])) if rows else item

    def _may_be_known(self, source: Source) -> bool:
        return source.is_named_by_path and source.id not in self._manifest.row_of_id

    def _rows(self, path: str) -> list[int]:
        paths = self._manifest.videos.path
        hashes, order = self._by_hash()
        first, last = np.searchsorted(hashes, hash(path)), np.searchsorted(hashes, hash(path), side="right")
        return [row for row in order[first:last].tolist() if paths.text(row) == path]

    def _by_hash(self) -> tuple[Array, Array]:
        """The hashes of all paths, sorted, and their rows."""
        if self._sorted is None:
            paths = self._manifest.videos.path
            hashes = np.fromiter(map(hash, paths.texts()), np.int64, len(paths))
            order = np.argsort(hashes, kind="stable")
            self._sorted = hashes[order], order
        return self._sorted
