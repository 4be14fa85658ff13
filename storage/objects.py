"""`Storage` in a bucket, or on a web server, through obstore."""

from __future__ import annotations

import contextlib
import errno
import math
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from ..whole_files import writing
from . import copies_in_parts, lease
from .bucket import Bucket
from .connections import has_boto3
from .interface import LOCK_KEY, OpenedFile, Stored, Taken, Upload
from .network import PIECE_BYTES, NetworkOptions, RequestCounts
from .opened_objects import OpenedObject
from .scratch import scratch_path
from .uploads import ObjectUpload

# How often a removal looks for what it did not see before.
_REMOVAL_ROUNDS = 5
# An upload has 10,000 parts at most. Pieces of files of more than 84 GB are longer than others.
_MAX_PIECES = 10_000


class ObjectStorage:
    """`Storage` for everything that is no disk. `url` is as `storage_at` checked it.

    Requests per call, when none fails: `find`, `read` of up to 8 MiB, `open`, `put_new`, `replace` and `take` one;
    `remove` two, and for a folder two more for 1000 files; an upload one if it has less than 8 MiB, else two and one
    for each 8 MiB; `put_new_file` from 8 MiB on as many as an upload, and four; `lock` eight, and two when it is
    released. In Azure `open` takes two for a file of more than 256 KiB, and `put_new_file` one whatever its length.
    """

    def __init__(self, url: str, options: NetworkOptions) -> None:
        self._bucket = Bucket(url, options)
        self._options = options

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[str, NetworkOptions]]:
        # In another process, such as a worker of a job, something has begun.
        return ObjectStorage, (self.url, replace(self._options, first_answer_seconds=math.inf))

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"ObjectStorage({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStorage) and other.url == self.url

    def __hash__(self) -> int:
        return hash(self.url)

    @property
    def url(self) -> str:
        return self._bucket.url

    @property
    def folder(self) -> Path | None:
        return None

    def place(self, key: str) -> str:
        return self._bucket.place(key)

    def counts(self) -> RequestCounts:
        """The counts of requests through this object so far."""
        return self._bucket.requests.counter.counts

    # Reading

    def find(self, key: str) -> Stored | None:
        return self._bucket.find(key)

    def files(self, folder: str, *, odd_keys: bool = False) -> Iterator[Stored]:
        for each in self._bucket.all_files(folder, odd_keys=odd_keys):
            if folder or not (each.key == LOCK_KEY or each.key.startswith(f"{lease.TEMPORARY}/")):
                yield each

    def read(self, key: str, start: int = 0, stop: int | None = None, *, again: bool = False) -> bytes:
        del again  # nothing is kept
        return self._bucket.read(key, start, stop)

    def open(self, key: str) -> AbstractContextManager[OpenedFile]:
        return contextlib.nullcontext(OpenedObject(self._bucket, key))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._bucket.read_ranges(key, ranges)

    def will_need(self, key: str, start: int, stop: int) -> None:
        """Nothing happens: what is read ahead is up to readers, which know how much memory there is."""

    def opens(self) -> tuple[int, int]:
        return 0, 0

    # Writing

    def scratch(self, name: str) -> Path:
        with writing(name):
            return scratch_path(name)

    def make(self, *, dry_run: bool = False) -> None:  # noqa: ARG002  # there is nothing to make
        with self._writing(""):
            next(self._bucket.all_files(""), None)

    def put_new(self, key: str, data: bytes) -> bool:
        with self._writing(key):
            return self._bucket.put(key, data, None, is_work=True) is not None

    def put_new_file(self, key: str, file: Path) -> bool:
        with self._writing(key):
            num_bytes = file.stat().st_size
            if num_bytes <= PIECE_BYTES:
                return self._bucket.put(key, file.read_bytes(), None, is_work=True) is not None
            self._check_length(key, num_bytes)
            # Azure may say that it copied a file before it has. Until then others see an empty one, and it fails if its
            # source is removed. One PUT may have 5 GB, and goes with a condition.
            put = self._bucket.put_whole if self._bucket.is_azure else self._put_in_parts
            return put(key, file) or self._has(key, file, num_bytes)

    def _check_length(self, key: str, num_bytes: int) -> None:
        """OSError if a file of this length cannot get its name here; nothing of it has been sent then."""
        root = self._bucket.root
        if num_bytes <= copies_in_parts.MAX_REQUEST_BYTES or not (self._bucket.is_azure or root.scheme == "s3"):
            return
        if self._bucket.is_azure:
            number = errno.EFBIG
            reason = "a file of more than 5 GB cannot be put into Azure on the condition that it is new"
        elif not has_boto3():
            number, reason = errno.ENOTSUP, "more than 5 GB take boto3: `pip install shortgop[s3]`"
        elif not copies_in_parts.checks_conditions(root):
            number = errno.EFBIG
            reason = "with more than 5 GB this server passes over the condition that the file is new"
        else:
            return
        raise OSError(number, f"it has {num_bytes / 1e9:.1f} GB, and {reason}", self.place(key))

    def replace(self, key: str, data: bytes, version: str | None) -> bool:
        with self._writing(key):
            return self._bucket.put(key, data, version) is not None

    def start(self, stem: str, suffix: str) -> Upload:
        key = f"{stem}-{uuid.uuid4().hex}{suffix}"
        with self._writing(key):
            return ObjectUpload(self._bucket, key)

    def remove(self, key: str) -> None:
        with self._writing(key):
            self._bucket.remove_objects([key])
            for _ in range(_REMOVAL_ROUNDS):
                below = [each.key for each in self._bucket.all_files(key)]
                if not below:
                    return
                # Files higher up first: zarr.json files, which describe a folder, lie above the chunks.
                self._bucket.remove_objects(sorted(below, key=lambda each: (each.count("/"), each)))
            raise OSError(errno.EBUSY, "files appear there as fast as they are removed", self.place(key))

    def take(self, key: str) -> Taken | None:
        with self._writing(key):
            return None if self.find(key) is None else _TakenObject(self, key)

    def lock(self) -> AbstractContextManager[None]:
        with self._writing(""):
            return lease.held(self._bucket)

    @contextlib.contextmanager
    def _writing(self, key: str) -> Iterator[None]:
        """Turns an OSError into an OutputError that names the file and the remedy."""
        with writing(self.place(key)):
            if self._bucket.is_hub:
                raise OSError(errno.EROFS, "shortgop writes nothing to the Hugging Face Hub; `hf upload` does")
            if self._bucket.is_web_server:
                raise OSError(errno.EROFS, "nothing is written to web servers")
            yield

    def _put_in_parts(self, key: str, file: Path) -> bool:
        """Put a file under a free key. False if the key is taken.

        obstore uploads nothing in parts on a condition. So the file is uploaded under another key, and the store copies
        it."""
        num_bytes = file.stat().st_size
        is_long = self._bucket.root.scheme == "s3" and num_bytes > copies_in_parts.MAX_REQUEST_BYTES
        uploaded = self._upload(key, file, num_bytes)
        try:
            if is_long:
                return copies_in_parts.copy_new_in_parts(self._bucket.root, uploaded, key, num_bytes)
            return self._bucket.copy_new(uploaded, key)
        except OSError as error:
            # Ceph 16 answers 411 to a copy that has no Content-Length, and obstore sends none.
            if error.errno != errno.ENOTSUP or is_long:
                raise
            return self._bucket.put_whole(key, file)
        finally:
            self._bucket.remove_objects([uploaded])

    def _upload(self, key: str, file: Path, num_bytes: int) -> str:
        name = key.rpartition("/")[2]
        piece_bytes = max(PIECE_BYTES, -(-num_bytes // _MAX_PIECES))
        upload = ObjectUpload(self._bucket, f"{lease.TEMPORARY}/{name}-{uuid.uuid4().hex}", piece_bytes)
        try:
            with file.open("rb") as source:
                while piece := source.read(PIECE_BYTES):
                    upload.write(piece)
            return upload.commit()
        finally:
            upload.discard()

    def _has(self, key: str, file: Path, num_bytes: int) -> bool:
        """Whether the object of this key has the content of a file."""
        found = self.find(key)
        if found is None or found.num_bytes != num_bytes:
            return False
        with file.open("rb") as source:
            for start in range(0, num_bytes, PIECE_BYTES):
                piece = source.read(PIECE_BYTES)
                if self._bucket.read(key, start, start + len(piece)) != piece:
                    return False
        return True


class _TakenObject:
    """A store has no renaming: the file keeps its key until it is removed."""

    def __init__(self, storage: ObjectStorage, key: str) -> None:
        self._storage = storage
        self._key = key

    def put_back(self) -> None:
        """Nothing happens: it was never away."""

    def remove(self) -> None:
        self._storage.remove(self._key)
