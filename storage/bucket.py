"""Writes single objects below the root of a store: what obstore offers, with the errors of `Storage`.

Requests per call, when none fails: one, and for removals one for each 1000 files. A condition that does not hold takes
a second request, as the file may have come from an attempt whose answer was lost.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .connections import connect
from .interface import Stored
from .network import PIECE_BYTES, NetworkOptions, RequestCounts
from .read_bucket import ATTEMPTS, KEYS_PER_REQUEST, ReadBucket

if TYPE_CHECKING:
    from obstore import PutResult, UpdateVersion
    from obstore.store import ObjectStore

_NO_SUCH_VERSION = {"e_tag": '"never"', "version": "1"}
# Without its type a browser saves a page in place of showing it.
_PAGE_SUFFIXES, _PAGE_ATTRIBUTES = (".html", ".htm"), {"Content-Type": "text/html; charset=utf-8"}


class Bucket(ReadBucket):
    """The objects below a root, to read and to write them. Any number of threads may use it."""

    def __init__(self, url: str, options: NetworkOptions) -> None:
        super().__init__(url, options)
        # Whether conditions name versions without the quotes that an ETag comes in.
        self._has_bare_etags = False

    @cached_property
    def uploading_store(self) -> ObjectStore:
        """obstore's store for what takes several requests, which retries by itself."""
        return connect(self.root, self._options, uploads=True)

    def put(self, key: str, data: bytes, version: str | None, *, is_work: bool = False) -> str | None:
        """Put a file if it has this version, or if `version` is None and there is none. Returns its new version; None
        if the condition does not hold and the file has another content. What `is_work` is put for as long as a piece of
        an upload is."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        attributes = _PAGE_ATTRIBUTES if key.lower().endswith(_PAGE_SUFFIXES) else None
        for _ in range(ATTEMPTS):
            mode = "create" if version is None else self._update(key, version)
            put = partial(self._put, key, data, mode=mode, use_multipart=False, attributes=attributes)
            try:
                patience_seconds = self._options.upload_seconds if is_work else 0.0
                result = self.requests.make(put, self.place(key), patience_seconds)
            except (AlreadyExistsError, PreconditionError):
                # It may be there because an earlier attempt succeeded, and its answer was lost.
                found = self.find(key)
                if found is None and version is None:
                    continue  # removed in between
                if found is not None and found.version == version and not self._has_bare_etags:
                    # It has the version that was asked for: Ceph 16 compares with the quotes that an ETag comes in.
                    self._has_bare_etags = True
                    continue
                return found.version if found is not None and self._has(found, data) else None
            self.requests.counter.add(RequestCounts(bytes_written=len(data)))
            return result["e_tag"] or ""
        raise OSError(errno.EAGAIN, "it is made and removed all the time", self.place(key))

    def put_unchecked(self, key: str, data: bytes, *, create: bool) -> bool:
        """Put a file if there is none, or else if it has a version that no file ever had; without a look at what is
        there. False if the store says that the condition does not hold, or that it knows no conditions."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode = "create" if create else _NO_SUCH_VERSION
        try:
            self.requests.make(partial(self._put, key, data, mode=mode), self.place(key))
        except (AlreadyExistsError, PreconditionError):
            return False
        except OSError as error:
            if error.errno == errno.ENOTSUP:
                return False
            raise
        return True

    def put_whole(self, key: str, file: Path) -> bool:
        """Put a file of this host's disk, of any length, under a free key by one request. False if the key is taken, be
        it by an earlier attempt."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with file.open("rb") as opened:
            # obstore sends what is mapped from where it is: nothing of it is held in memory. The map ends with its last
            # user, which after an interruption is a request that still goes on.
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        # The server sends nothing until it has all, which may take as long as its pieces could by themselves.
        patience_seconds = self._options.timeout_seconds * max(1, len(data) / PIECE_BYTES)
        options = replace(self._options, timeout_seconds=patience_seconds)

        def put() -> None:
            store = connect(self.root, options, uploads=True)
            obstore.put(store, self.root.key(key), data, mode="create", use_multipart=False)

        try:
            self.requests.make(put, self.place(key))
        except (AlreadyExistsError, PreconditionError):
            return False
        self.requests.counter.add(RequestCounts(bytes_written=len(data)))
        return True

    def copy_new(self, source: str, key: str) -> bool:
        """Copy a file to a free key, inside the store. False if the key is taken, be it by an earlier attempt. In S3
        three requests."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        def copy() -> None:
            # One call makes several requests, each of which obstore makes again.
            obstore.copy(self.uploading_store, self.root.key(source), self.root.key(key), overwrite=False)

        try:
            self.requests.make(copy, self.place(key))
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def remove_objects(self, keys: Sequence[str]) -> None:
        """Remove files. Nothing happens for those that do not exist, except that in some stores others may stay: look
        again."""
        paths = [self.root.key(key) for key in keys]
        for first in range(0, len(paths), KEYS_PER_REQUEST):
            some = paths[first : first + KEYS_PER_REQUEST]
            try:
                self.requests.make(partial(self._delete, some), self.place(keys[first]))
            except FileNotFoundError:
                continue

    # The store is taken inside each request: where the region of the bucket cannot be asked for, it is asked for again.
    def _put(self, key: str, data: bytes, **how: Any) -> PutResult:
        import obstore

        return obstore.put(self._store, self.root.key(key), data, **how)

    def _delete(self, paths: Sequence[str]) -> None:
        import obstore

        obstore.delete(self._store, paths)

    def _update(self, key: str, version: str) -> UpdateVersion:
        """What obstore takes for "if it has this version". Google's own condition is a number that a listing does not
        show, so it is asked for."""
        import obstore

        if self.root.scheme != "gs":
            return {"e_tag": version.strip('"') if self._has_bare_etags else version}
        try:
            meta = self.requests.read(lambda: obstore.head(self._store, self.root.key(key)), self.place(key))
        except FileNotFoundError:
            return _NO_SUCH_VERSION  # type: ignore[return-value]
        return meta if self._stored(meta).version == version else _NO_SUCH_VERSION  # type: ignore[return-value]

    def _has(self, found: Stored, data: bytes) -> bool:
        try:
            return found.num_bytes == len(data) and self.read(found.key, 0, None) == data
        except FileNotFoundError:
            return False
