"""The lock of the one job that writes below a prefix of a store: an object that its holder renews.

A lease that was not renewed for a while is abandoned, by the clock of the store. Nothing depends on that being so:
files come with `put_new`, and the root is replaced only if it is still the one that was read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from ..errors import DatasetBusyError, OutputError
from ..whole_files import writing
from .bucket import Bucket
from .interface import LOCK_KEY, Holder, Stored
from .scratch import remove_abandoned
from .this_process import is_gone, machine, started
from .unfinished_uploads import abort_unfinished

TEMPORARY = ".tmp"

_PROBE = f"{TEMPORARY}/probe-"
_TAKEN_OVER = f"{TEMPORARY}/taken-over-"

_ATTEMPTS = 5
_MAX_LEASE_BYTES = 64 * 1024
# Another job that is about to take the lock has a probe for some seconds.
_PROBE_SECONDS = 600
# Workers of a job on other hosts may go on for a while after it died.
_SPARED_SECONDS = 3600.0
# A block that was interrupted does not wait for a silent server for longer than this.
_GIVEN_UP_SECONDS = 3.0


@dataclass(frozen=True)
class LeaseTiming:
    """How often a lease is renewed, and for how long it holds if it is not."""

    renewed_seconds: float = 20.0
    abandoned_seconds: float = 90.0


@dataclass(frozen=True)
class Lease:
    """What a lease says. `machine` is the same for processes that see each other, `started` tells apart processes that
    had the same number; both are empty where the system does not say. `token` and `renewals` make each content new."""

    host: str = ""
    pid: int = 0
    since: str = ""
    machine: str = ""
    started: str = ""
    token: str = ""
    renewals: int = 0

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @staticmethod
    def of(data: bytes) -> Lease:
        """The lease in an object. Any other content counts as a lease without a holder, which ends with time."""
        try:
            content = json.loads(data)
            return Lease(**{name: type(getattr(Lease(), name))(content[name]) for name in asdict(Lease())})
        except (ValueError, TypeError, KeyError):
            return Lease()

    @property
    def holder(self) -> str:
        return str(Holder(self.host, self.pid, self.since)) if self.host else "a process that left no name"

    @property
    def has_ended(self) -> bool:
        """Whether the holder was a process of this machine that is no more."""
        return is_gone(self.pid, self.machine, self.started)


@contextlib.contextmanager
def held(bucket: Bucket, timing: LeaseTiming = LeaseTiming()) -> Iterator[None]:
    """Hold the lease of a store. DatasetBusyError if another process holds it, OutputError if the store cannot keep
    jobs apart. What dead writers left is gone inside the block.

    After an error or an interruption the lease is given up within about three seconds: if the store does not answer, it
    ends by itself.
    """
    holding: _Holding | None = None
    try:
        with writing(bucket.url), _probe(bucket) as probe:
            holding = _taken(bucket, probe, timing)
            holding.renewing.start()
            _remove_leftovers(bucket, probe)
        yield
    except BaseException:
        if holding is not None:
            holding.release(_GIVEN_UP_SECONDS)
        raise
    if holding is not None:
        holding.release()


@dataclass
class _Holding:
    """A lease that this process holds, and the thread that renews it."""

    bucket: Bucket
    lease: Lease
    version: str
    timing: LeaseTiming
    lost: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.renewing = threading.Thread(target=self._renew, name="shortgop-lease", daemon=True)

    def _renew(self) -> None:
        while not self.ended.wait(self.timing.renewed_seconds):
            lease = Lease(**{**asdict(self.lease), "renewals": self.lease.renewals + 1})
            try:
                version = self.bucket.put(LOCK_KEY, lease.to_bytes(), self.version)
            except (OSError, OutputError):
                continue
            if version is None:
                # Another job found the lease abandoned, and took it. This job goes on: of two writers of a file, the
                # first one counts.
                self.lost = True
                return
            self.lease, self.version = lease, version

    def release(self, max_seconds: float | None = None) -> None:
        """Remove the lease, if it is still this one. If the release fails, or takes longer than `max_seconds`, the next
        job takes the lease over once it is abandoned."""
        self.ended.set()
        removing = threading.Thread(target=self._remove, name="shortgop-lease-end", daemon=True)
        removing.start()
        removing.join(max_seconds)

    def _remove(self) -> None:
        if self.renewing.ident is not None:
            self.renewing.join()
        with contextlib.suppress(OSError):
            found = None if self.lost else self.bucket.find(LOCK_KEY)
            if found is not None and found.version == self.version:
                self.bucket.remove_objects([LOCK_KEY])


def _taken(bucket: Bucket, probe: str, timing: LeaseTiming) -> _Holding:
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    lease = Lease(socket.gethostname(), os.getpid(), since, machine(), started(os.getpid()), uuid.uuid4().hex)
    for _ in range(_ATTEMPTS):
        version = bucket.put(LOCK_KEY, lease.to_bytes(), None)
        if version is not None:
            return _Holding(bucket, lease, version, timing)
        try:
            data, found = bucket.read_tail(LOCK_KEY, _MAX_LEASE_BYTES)
        except FileNotFoundError:
            continue
        other = Lease.of(data)
        now = bucket.find(probe)
        silent_seconds = (now.modified_ns - found.modified_ns) / 1e9 if now else 0.0
        if not other.has_ended and silent_seconds < timing.abandoned_seconds:
            raise _busy(bucket.url, other, timing.abandoned_seconds - silent_seconds)
        if not other.has_ended:
            # Also for the jobs after this one: that holder may be alive.
            bucket.put(f"{_TAKEN_OVER}{uuid.uuid4().hex}", other.to_bytes(), None)
        version = bucket.put(LOCK_KEY, lease.to_bytes(), found.version)
        if version is not None:
            return _Holding(bucket, lease, version, timing)
    raise _busy(bucket.url, Lease(), timing.abandoned_seconds)


def _busy(url: str, lease: Lease, left_seconds: float) -> DatasetBusyError:
    until = datetime.fromtimestamp(datetime.now(UTC).timestamp() + left_seconds, UTC)
    return DatasetBusyError(
        f"another job is writing to {url}; wait for it, or stop it and run this again. It is {lease.holder}; if it has "
        f"died, its lock ends by itself at {until:%H:%M:%S} UTC",
        file=url,
    )


@contextlib.contextmanager
def _probe(bucket: Bucket) -> Iterator[str]:
    """The key of an object that was just written, for the time by the clock of the store. OutputError if the store does
    not keep the conditions of a PUT."""
    key = f"{_PROBE}{uuid.uuid4().hex}"
    try:
        if not _keeps_conditions(bucket, key):
            raise OutputError(
                f"{bucket.url} takes no notice of the conditions of a PUT (If-None-Match, If-Match), so two jobs could "
                "overwrite each other's files; write to a disk and copy the dataset there with the tools of the store, "
                "or use one that has them, such as S3, Google Cloud Storage, Azure or Ceph",
                file=bucket.url,
            )
        yield key
    finally:
        with contextlib.suppress(OSError):
            bucket.remove_objects([key])


def _keeps_conditions(bucket: Bucket, key: str) -> bool:
    try:
        version = bucket.put(key, b"first", None)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return False
        raise
    if bucket.put_unchecked(key, b"second", create=True) or bucket.put_unchecked(key, b"third", create=False):
        return False
    # If the condition holds, the store has to do the PUT.
    return version is not None and bucket.put(key, b"fourth", version) is not None


def _remove_leftovers(bucket: Bucket, probe: str) -> None:
    """Remove temporary files of dead writers, and abort their uploads. The probe, just written, tells the time."""
    found = list(bucket.all_files(TEMPORARY))
    left, spared_seconds = _left(found, max((each.modified_ns for each in found), default=0))
    bucket.remove_objects([key for key in left if key != probe])
    abort_unfinished(bucket.root, spared_seconds)
    remove_abandoned()


def _left(found: Sequence[Stored], now_ns: int) -> tuple[list[str], float]:
    """Of the temporary files, the keys of those that dead writers left; and the age up to which others are spared, in
    seconds: 0, unless a lease was taken over from a silent holder a short time ago."""
    ages = {each.key: (now_ns - each.modified_ns) / 1e9 for each in found}
    taken_over = [age for key, age in ages.items() if key.startswith(_TAKEN_OVER)]
    spared_seconds = _SPARED_SECONDS if min(taken_over, default=math.inf) < _SPARED_SECONDS else 0.0

    def least_age(key: str) -> float:
        if key.startswith(_TAKEN_OVER):
            return _SPARED_SECONDS
        return max(spared_seconds, _PROBE_SECONDS) if key.startswith(_PROBE) else spared_seconds

    return [key for key, age in ages.items() if age >= least_age(key)], spared_seconds
