"""The lock of the one job that writes to a store, and stores that cannot keep jobs apart."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime, timedelta

import pytest

from flaky_proxy import Faults, FlakyProxy
from shortgop.errors import DatasetBusyError, OutputError
from shortgop.storage.bucket import Bucket
from shortgop.storage.interface import LOCK_KEY, Stored
from shortgop.storage.lease import TEMPORARY, Lease, LeaseTiming, _left, held
from shortgop.storage.locate import storage_at
from shortgop.storage.network import NetworkOptions
from shortgop.storage.unfinished_uploads import is_old

SHORT = LeaseTiming(renewed_seconds=0.2, abandoned_seconds=2.0)
REFUSED = "takes no notice of the conditions of a PUT"
NEVER_RENEWED = LeaseTiming(renewed_seconds=100.0, abandoned_seconds=2.0)


@pytest.fixture
def bucket(s3_url: str) -> Bucket:
    return Bucket(s3_url, NetworkOptions())


def other_host(bucket: Bucket) -> None:
    """Leave the lease of a process of another host."""
    lease = Lease("elsewhere", 17, "2026-11-22 07:00:00 UTC", "another boot", "12", "token")
    assert bucket.put(LOCK_KEY, lease.to_bytes(), None) is not None


def test_a_lease_is_renewed(bucket: Bucket) -> None:
    with held(bucket, SHORT):
        time.sleep(3.5)
        with pytest.raises(DatasetBusyError), held(bucket, SHORT):
            pass
        assert Lease.of(bucket.read(LOCK_KEY, 0, None)).renewals >= 2
    assert bucket.find(LOCK_KEY) is None


def test_a_lease_of_another_host_ends_with_time_and_who_lost_it_is_spared_by_later_jobs(bucket: Bucket) -> None:
    other_host(bucket)
    message = "process 17 on elsewhere, since .* ends by itself at .* UTC"
    with pytest.raises(DatasetBusyError, match=message), held(bucket, SHORT):
        pass
    time.sleep(3)
    with held(bucket, SHORT):
        assert Lease.of(bucket.read(LOCK_KEY, 0, None)).host != "elsewhere"
    # That one took the lease over. The next one finds none, but the first may still be writing.
    bucket.put(f"{TEMPORARY}/u1.zip-0123", b"abc", None)
    with held(bucket, SHORT):
        assert f"{TEMPORARY}/u1.zip-0123" in [each.key for each in bucket.all_files(TEMPORARY)]


def test_what_is_no_lease_ends_with_time_too(bucket: Bucket) -> None:
    bucket.put(LOCK_KEY, b"{}", None)
    with pytest.raises(DatasetBusyError, match="a process that left no name"), held(bucket, SHORT):
        pass


@pytest.mark.long
def test_losing_a_lease_is_no_error(bucket: Bucket) -> None:
    with held(bucket, NEVER_RENEWED):
        time.sleep(3.2)
        with held(bucket, SHORT):
            mine = bucket.find(LOCK_KEY)
    # The first one left the other's lease alone, and that one was released.
    assert mine is not None
    assert bucket.find(LOCK_KEY) is None


def test_a_lost_lease_is_not_removed(bucket: Bucket) -> None:
    with held(bucket, SHORT):
        bucket.remove_objects([LOCK_KEY])
        other_host(bucket)
        time.sleep(0.6)
    assert Lease.of(bucket.read(LOCK_KEY, 0, None)).host == "elsewhere"


def test_temporary_files_of_dead_writers_are_removed(bucket: Bucket) -> None:
    bucket.put(f"{TEMPORARY}/u1.zip-0123", b"abc", None)
    bucket.put(f"{TEMPORARY}/probe-of-a-job-that-starts-now", b"abc", None)
    with held(bucket, SHORT):
        assert [each.key for each in bucket.all_files(TEMPORARY)] == [f"{TEMPORARY}/probe-of-a-job-that-starts-now"]


@pytest.mark.parametrize("hidden", [("If-None-Match",), ("If-Match",), ("If-None-Match", "If-Match")])
def test_a_store_without_conditional_puts_is_refused(
    proxied_url: str, s3_proxy: FlakyProxy, hidden: tuple[str, ...]
) -> None:
    s3_proxy.faults(Faults(hidden_headers=hidden))
    with pytest.raises(OutputError, match=REFUSED) as caught, storage_at(proxied_url).lock():
        pass
    assert "write to a disk" in str(caught.value)
    assert list(storage_at(proxied_url).files(TEMPORARY)) == []


def test_a_store_that_refuses_conditions_is_refused(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    s3_proxy.faults(Faults(statuses=1, status=501))
    with pytest.raises(OutputError, match=REFUSED), storage_at(proxied_url).lock():
        pass


def test_a_lock_is_taken_while_requests_fail(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    s3_proxy.faults(Faults(seed=4, failed=0.2, lost=0.2))
    storage = storage_at(proxied_url, network=NetworkOptions(first_backoff_seconds=0.01))
    for _ in range(3):
        with storage.lock():
            assert storage.find(LOCK_KEY) is not None


def test_temporary_files_of_workers_that_may_go_on_are_spared() -> None:
    def left(*ages: tuple[str, int]) -> set[str]:
        now_seconds = 100_000
        found = [Stored(f"{TEMPORARY}/{name}", 3, (now_seconds - age) * 10**9, "") for name, age in ages]
        keys, spared_seconds = _left(found, now_seconds * 10**9)
        assert spared_seconds == (3600 if any(name == "taken-over-1" and age < 3600 for name, age in ages) else 0)
        return {key.removeprefix(f"{TEMPORARY}/") for key in keys}

    assert left(("u1.zip-0123", 1)) == {"u1.zip-0123"}
    assert left(("u1.zip-0123", 3500), ("u2.zip-0123", 3700), ("taken-over-1", 10)) == {"u2.zip-0123"}
    assert left(("u1.zip-0123", 10), ("taken-over-1", 3700)) == {"u1.zip-0123", "taken-over-1"}
    assert left(("probe-0123", 500), ("probe-4567", 700)) == {"probe-4567"}


def test_uploads_of_workers_that_may_go_on_are_spared() -> None:
    now = datetime(2026, 11, 22, 8, tzinfo=UTC)
    assert not is_old(now - timedelta(minutes=59), now, 3600)
    assert is_old(now - timedelta(minutes=61), now, 3600)
    assert is_old(now + timedelta(minutes=5), now, 0), "clocks differ"


def test_an_interruption_does_not_wait_for_a_silent_server(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    began = 0.0
    with contextlib.suppress(KeyboardInterrupt), held(Bucket(proxied_url, NetworkOptions()), SHORT):
        s3_proxy.faults(Faults(silent=100))
        # The request that renews the lease gets no answer.
        time.sleep(0.5)
        began = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - began < 20


def test_an_error_releases_the_lease_of_a_server_that_answers(bucket: Bucket) -> None:
    with pytest.raises(KeyboardInterrupt), held(bucket, SHORT):
        raise KeyboardInterrupt
    assert bucket.find(LOCK_KEY) is None
