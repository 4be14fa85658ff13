"""Reads objects below the root of a store: what obstore offers, with the errors of `Storage`.

Requests per call, when none fails: one, except `all_files` with one for each 1000 files, and reads of more than 8 MiB
with one for each 8 MiB.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from .connections import StoreRoot, connect, credentials_tried
from .hub import hub_place, page_of_files
from .interface import Stored
from .network import PIECE_BYTES, NetworkOptions, RequestCounts
from .object_errors import NO_STORE, failure
from .odd_keys import pages_behind
from .retrying import Requests

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore

KEYS_PER_REQUEST = 1000
# How often an operation is repeated because another process changed the file meanwhile.
ATTEMPTS = 10


class ReadBucket:
    """The objects below a root, to read them by their keys below it. Any number of threads may use it."""

    def __init__(self, url: str, options: NetworkOptions) -> None:
        self.url = url
        self.root = StoreRoot.of(url)
        self.requests = Requests(options, partial(credentials_tried, self.root.scheme))
        self._options = options

    def place(self, key: str) -> str:
        return f"{self.url}/{key}" if key else self.url

    @property
    def is_web_server(self) -> bool:
        """Whether files are read as those of a web server, and nothing is written. The Hub's can be listed too."""
        return self.root.scheme in ("http", "https", "hf")

    @property
    def is_hub(self) -> bool:
        return self.root.scheme == "hf"

    @property
    def is_azure(self) -> bool:
        return self.root.scheme in ("az", "abfss")

    @cached_property
    def _store(self) -> ObjectStore:
        return connect(self.root, self._options)

    def find(self, key: str) -> Stored | None:
        import obstore

        if self.is_hub:
            return self._find_by_reading(key)
        try:
            meta = self.requests.read(lambda: obstore.head(self._store, self.root.key(key)), self.place(key))
        except FileNotFoundError:
            return None
        if not meta["e_tag"] and not self.is_web_server:
            raise OSError(errno.EINVAL, NO_STORE, self.place(key))
        return self._stored(meta)

    def _find_by_reading(self, key: str) -> Stored | None:
        """Like `find`, by reading a byte: the signed URLs that the Hub leads to may be for reading (GET) alone."""
        try:
            return self._stored(self._get(key, {"range": (0, 1)})[1])
        except FileNotFoundError:
            return None
        except _NothingThereError:
            return Stored(key, 0, 0, "empty")

    def all_files(self, folder: str, *, odd_keys: bool = False) -> Iterator[Stored]:
        """Like `Storage.files`, with the lock and temporary files."""
        import obstore

        if self.is_hub:
            yield from self._files_on_the_hub(folder)
            return
        if self.is_web_server:
            raise OSError(errno.ENOTSUP, "a web server does not list its files", self.place(folder))
        prefix = self.root.key(folder) if folder else self.root.prefix
        last: str | None = None
        pages: Any = None

        def next_page() -> Sequence[ObjectMeta]:
            nonlocal pages
            if pages is None:
                pages = obstore.list(self._store, prefix or None, offset=last, chunk_size=KEYS_PER_REQUEST)
            try:
                page: Sequence[ObjectMeta] = next(pages, ())
            except BaseException:
                # The listing goes on in a new one, behind the last key that came.
                pages = None
                raise
            return page

        try:
            while page := self.requests.make(next_page, self.place(folder)):
                yield from map(self._stored, page)
                last = page[-1]["path"]
        except OSError as error:
            if not odd_keys or error.errno != errno.EILSEQ:
                raise
            refused = error
        else:
            return
        for page in pages_behind(self.root, prefix, last, refused):
            self.requests.counter.add(RequestCounts(requests=1))
            yield from map(self._stored, page)

    def _files_on_the_hub(self, folder: str) -> Iterator[Stored]:
        """Without times and versions: the Hub's own version of a file is not the one that answers to reads have."""
        root, place = hub_place(self.url).path, self.place(folder)
        page = hub_place(place).listing_url
        while page:
            files, page = self.requests.make(partial(page_of_files, page, self._options.timeout_seconds), place)
            for file in files:
                yield Stored(file.path.removeprefix(f"{root}/"), file.num_bytes, 0, "")

    def read(self, key: str, start: int, stop: int | None) -> bytes:
        if stop is not None:
            return self.read_ranges(key, [(start, stop)])[0]
        for _ in range(ATTEMPTS):
            try:
                # This piece says how large the file is.
                data, meta = self._piece(key, start, start + PIECE_BYTES, None)
            except _NothingThereError:
                return b""
            if start + len(data) >= meta["size"]:
                return data
            try:
                return data + self._ranges(key, [(start + len(data), meta["size"])], meta["e_tag"])[0]
            except _ReplacedError:
                continue
        raise self._changing(key)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        for _ in range(ATTEMPTS):
            try:
                return self._ranges(key, ranges, None)
            except _ReplacedError:
                continue
        raise self._changing(key)

    def read_version(self, key: str, ranges: Sequence[tuple[int, int]], version: str) -> list[bytes]:
        """Bytes [start, stop) of a file for each range, if the file still has this version; else OSError."""
        try:
            return self._ranges(key, ranges, version)
        except _ReplacedError:
            raise self._changing(key) from None

    def read_tail(self, key: str, max_bytes: int) -> tuple[bytes, Stored]:
        """The last bytes of a file, at most `max_bytes`, and what the file is. An empty file takes two requests, and in
        Azure, which counts no ranges from the end, so does a file of more than `max_bytes`."""
        with contextlib.suppress(_NothingThereError):
            if self.is_azure:
                return self._tail_after_start(key, max_bytes)
            data, meta = self._get(key, {"range": {"suffix": max_bytes}})
            return data, self._stored(meta)
        for _ in range(ATTEMPTS):
            found = self.find(key)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "there is no such object", self.place(key))
            start = max(0, found.num_bytes - max_bytes)
            try:
                return self._ranges(key, [(start, found.num_bytes)], found.version)[0], found
            except _ReplacedError:
                continue
        raise self._changing(key)

    def _stored(self, meta: ObjectMeta) -> Stored:
        path = meta["path"]
        key = path[len(self.root.prefix) + 1 :] if self.root.prefix else path
        modified = meta["last_modified"]
        modified_ns = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000
        tag = meta["e_tag"]
        if tag and self.is_azure and not tag.startswith('"'):
            # Its listings leave out the quotes that its other answers have.
            tag = f'"{tag}"'
        return Stored(key, meta["size"], modified_ns, tag or f"{meta['size']} {modified_ns}")

    def _ranges(self, key: str, ranges: Sequence[tuple[int, int]], version: str | None) -> list[bytes]:
        """Bytes [start, stop) for each range, all of one version of the file: of `version`, if that is given. Pieces of
        ranges come several at once. _ReplacedError if they are of several versions."""
        pieces = [
            (number, at, min(stop, at + PIECE_BYTES))
            for number, (start, stop) in enumerate(ranges)
            for at in range(start, stop, PIECE_BYTES)
        ]
        try:
            got = self.requests.all([partial(self._piece, key, start, stop, version) for _, start, stop in pieces])
        except _NothingThereError:
            raise self._too_short(key, max(stop for _, stop in ranges)) from None
        if len({meta["e_tag"] for _, meta in got}) > 1:
            raise _ReplacedError
        of_range: list[list[bytes]] = [[] for _ in ranges]
        for (number, start, stop), (data, _) in zip(pieces, got, strict=True):
            if len(data) < stop - start:
                raise self._too_short(key, stop)
            of_range[number].append(data)
        return [each[0] if len(each) == 1 else b"".join(each) for each in of_range]

    def _tail_after_start(self, key: str, max_bytes: int) -> tuple[bytes, Stored]:
        """Like `read_tail`, by a request for the start of the file, which says how long it is. _NothingThereError if it
        is empty."""
        for _ in range(ATTEMPTS):
            data, meta = self._piece(key, 0, max_bytes, None)
            found = self._stored(meta)
            if len(data) == found.num_bytes:
                return data, found
            tail = found.num_bytes - max_bytes, found.num_bytes
            try:
                return self._ranges(key, [tail], found.version)[0], found
            except _ReplacedError:
                continue
        raise self._changing(key)

    def _too_short(self, key: str, stop: int) -> EOFError:
        return EOFError(f"{self.place(key)} ends before byte {stop}")

    def _changing(self, key: str) -> OSError:
        return OSError(errno.ESTALE, "the file was replaced while it was read", self.place(key))

    def _piece(self, key: str, start: int, stop: int, version: str | None) -> tuple[bytes, ObjectMeta]:
        """Bytes [start, stop) of a file that has this version, or fewer at its end. _ReplacedError if not."""
        from obstore.exceptions import PreconditionError

        options: GetOptions = {"range": (start, stop)}
        # Only a version that `_stored` made for a server without ETags has a space. The server does not know it. The
        # Hub's own ETags are not those of where it leads to.
        if version is not None and " " not in version and not self.is_hub:
            options["if_match"] = version
        try:
            data, meta = self._get(key, options)
        except PreconditionError as error:
            raise _ReplacedError from error
        if self.is_hub and version is not None and self._stored(meta).version != version:
            raise _ReplacedError
        return data, meta

    def _get(self, key: str, options: GetOptions) -> tuple[bytes, ObjectMeta]:
        """_NothingThereError if the file ends before the range begins, or if the store has no such ranges."""
        import obstore
        from obstore.exceptions import BaseError, NotSupportedError

        def get() -> tuple[bytes, ObjectMeta]:
            try:
                answer = obstore.get(self._store, self.root.key(key), options=options)
                return bytes(answer.bytes()), answer.meta
            except NotSupportedError as error:
                if self.is_web_server:
                    raise
                raise _NothingThereError from error
            except BaseError as error:
                what = failure(error)
                if what.is_short or (what.has_no_ranges and not self.is_web_server):
                    raise _NothingThereError from error
                raise

        data, meta = self.requests.read(get, self.place(key))
        self.requests.counter.add(RequestCounts(bytes_read=len(data)))
        return data, meta


class _NothingThereError(EOFError):
    """There is nothing in the range that was asked for, or the store does not know such ranges."""


class _ReplacedError(Exception):
    """The file is no longer the one of which the first bytes were read."""
