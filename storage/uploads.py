"""Uploads to object stores: a file goes up in parts while it is written, and appears when all of it is there."""

from __future__ import annotations

import contextlib
import errno
import time
from typing import Any

from ..whole_files import writing
from .bucket import Bucket
from .network import PIECE_BYTES, RequestCounts
from .object_errors import system_error
from .retrying import check_process

# Parts on their way at once. One more fills up here, and one in obstore: four of 8 MiB for each upload.
_CONCURRENT_PARTS = 2


class ObjectUpload:
    """`Upload` to an object store. `key` must be one that nothing else has or gets."""

    def __init__(self, bucket: Bucket, key: str, piece_bytes: int = PIECE_BYTES) -> None:
        self._bucket = bucket
        self._key = key
        self._piece_bytes = piece_bytes
        # What has not been sent yet, always less than a part: just that can be taken back.
        self._unsent = bytearray()
        self._sent_bytes = 0
        self._writer: Any = None

    @property
    def num_bytes(self) -> int:
        return self._sent_bytes + len(self._unsent)

    def write(self, data: bytes) -> None:
        with writing(self._bucket.place(self._key)):
            rest = memoryview(data)
            while rest:
                taken = rest[: self._piece_bytes - len(self._unsent)]
                self._unsent += taken
                rest = rest[len(taken) :]
                if len(self._unsent) == self._piece_bytes:
                    self._send()

    def cut(self, num_bytes: int) -> int:
        del self._unsent[max(0, num_bytes - self._sent_bytes) :]
        return self.num_bytes

    def commit(self) -> str:
        with writing(self._bucket.place(self._key)):
            if self._writer is None:
                self._bucket.put(self._key, bytes(self._unsent), None, is_work=True)
            else:
                if self._unsent:
                    self._send()
                self._close()
        self._writer = None
        return self._key

    def discard(self) -> None:
        self._unsent.clear()
        writer, self._writer = self._writer, None
        if writer is not None:
            # What cannot be removed now, the next job removes. obstore aborts when an error leaves its block.
            with contextlib.suppress(Exception):
                writer.__exit__(RuntimeError, RuntimeError("discarded"), None)

    def _send(self) -> None:
        import obstore
        from obstore.exceptions import BaseError

        check_process(self._bucket.url)
        requests, counter = self._bucket.requests, self._bucket.requests.counter
        if self._writer is None:
            # The region of the bucket may have to be asked for. obstore repeats all other requests of an upload.
            self._writer = requests.make(
                lambda: obstore.open_writer(
                    self._bucket.uploading_store,
                    self._bucket.root.key(self._key),
                    buffer_size=self._piece_bytes,
                    max_concurrency=_CONCURRENT_PARTS,
                ),
                self._bucket.place(self._key),
            )
        began = time.monotonic()
        try:
            self._writer.write(bytes(self._unsent))
        except (BaseError, OSError) as error:
            raise self._system_error(error) from None
        counter.add(RequestCounts(requests=1, bytes_written=len(self._unsent), waited_seconds=time.monotonic() - began))
        self._sent_bytes += len(self._unsent)
        self._unsent.clear()

    def _close(self) -> None:
        from obstore.exceptions import BaseError

        began = time.monotonic()
        try:
            self._writer.close()
        except (BaseError, OSError) as error:
            # Perhaps only the answer was lost.
            found = self._bucket.find(self._key)
            if found is None:
                raise self._system_error(error) from None
            if found.num_bytes != self._sent_bytes:
                raise OSError(errno.EIO, "the store has another length of it than was sent") from None
        finally:
            self._bucket.requests.counter.add(RequestCounts(requests=1, waited_seconds=time.monotonic() - began))

    def _system_error(self, error: BaseException) -> OSError:
        return system_error(error, self._bucket.place(self._key), self._bucket.requests.credentials())
