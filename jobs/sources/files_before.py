"""The files of which the videos of a dataset were made: whether they still lie where they were."""

from __future__ import annotations

import os

from ...errors import SourceError
from ...prep.options import SourcePolicy
from ...prep.running.stalls import StalledError
from ..finding.addresses import is_store_url, parse
from ..finding.identity import identity_of
from ..finding.store_files import StoreFile, identity_of_file
from .look import looked_in_time


class FilesBefore:
    """Looks for files where they were. After the first disk that does not answer it looks for none any more."""

    def __init__(self, policy: SourcePolicy) -> None:
        self._policy = policy
        self._has_stalled = False

    def is_other(self, path: str, source_path: str, identity: int | None) -> bool:
        """Whether a file lies at `path` that has this identity (None: any), and is not the file at `source_path`."""
        if self._has_stalled or path == source_path:
            return False
        try:
            return looked_in_time(path, self._policy, lambda: _is_other(path, source_path, identity))
        except StalledError:
            self._has_stalled = True
        except SourceError:
            pass
        return False


def _is_other(path: str, source_path: str, identity: int | None) -> bool:
    if is_store_url(path):
        found = identity_of_file(StoreFile(parse(path)))[0]
        return identity is None or found == identity
    if os.path.realpath(path) == os.path.realpath(source_path):
        return False
    return os.path.lexists(path) if identity is None else identity_of(path)[0] == identity
