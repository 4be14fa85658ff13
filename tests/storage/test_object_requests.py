"""How many requests a store gets for what, and what happens when they fail or take long."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import GenericError

from flaky_proxy import Faults, FlakyProxy
from shortgop.errors import OutputError, UsageError
from shortgop.storage.locate import storage_at
from shortgop.storage.network import PIECE_BYTES, NetworkOptions, RequestCounter, RequestCounts
from shortgop.storage.objects import ObjectStorage
from shortgop.storage.opened_objects import coalesced
from shortgop.storage.retrying import Requests, backoff_seconds

QUICK = NetworkOptions(first_backoff_seconds=0.01)


def test_what_was_turned_away_does_not_count_as_a_failure_before_another_one() -> None:
    """A store that is busy for a while may also fail once."""
    statuses = [429] * 12 + [500] + [429] * 3

    def request() -> str:
        if statuses:
            raise GenericError(f"Generic S3 error: Server returned non-2xx status code: {statuses.pop(0)}")
        return "answer"

    quick = NetworkOptions(first_backoff_seconds=0.001, max_backoff_seconds=0.002, retries=2)
    assert Requests(quick, lambda: "").make(request, "s3://bucket/key") == "answer"
    statuses += [429] * 5 + [500] * 3
    with pytest.raises(OSError, match="answered 500"):
        Requests(quick, lambda: "").make(request, "s3://bucket/key")


def opened(url: str, options: NetworkOptions = QUICK) -> ObjectStorage:
    storage = storage_at(url, network=options)
    assert isinstance(storage, ObjectStorage)
    return storage


def upload(storage: ObjectStorage, num_bytes: int) -> None:
    started = storage.start("shards/u1", ".shard")
    started.write(bytes(num_bytes))
    started.commit()


def open_and_read(storage: ObjectStorage) -> None:
    with storage.open("zarr.json") as file:
        file.read(0, 3)
        file.read(1, 2)


def read_members(storage: ObjectStorage) -> None:
    with storage.open("large") as file:
        file.will_need([(0, 1000), (2000, 3000), (PIECE_BYTES, PIECE_BYTES + 10)])
        file.read(100, 200)
        file.read(2000, 3000)


def read_across_pieces(storage: ObjectStorage) -> None:
    with storage.open("large") as file:
        file.will_need([(0, PIECE_BYTES + 10)])
        assert file.read(PIECE_BYTES - 5, PIECE_BYTES + 5) == bytes(10)
        # Neither the pieces nor the end of the file, which came first, have the bytes in between.
        assert len(file.read(PIECE_BYTES + 5, PIECE_BYTES + 100_000)) == 99_995


def lock(storage: ObjectStorage) -> None:
    with storage.lock():
        pass


@pytest.mark.parametrize(
    ("expected", "operation"),
    [
        ({"HEAD": 1}, lambda storage: storage.find("zarr.json")),
        ({"GET": 1}, lambda storage: storage.read("zarr.json")),
        ({"GET": 1}, open_and_read),
        ({"GET": 3}, read_members),
        ({"GET": 4}, read_across_pieces),
        ({"GET": 2}, lambda storage: storage.read("large")),
        ({"GET": 2}, lambda storage: storage.read_ranges("large", [(0, 5), (9, 20)])),
        ({"GET": 1}, lambda storage: list(storage.files(""))),
        ({"PUT": 1}, lambda storage: storage.put_new("new", b"abc")),
        ({"PUT": 1, "HEAD": 1, "GET": 1}, lambda storage: storage.put_new("zarr.json", b"one")),
        ({"PUT": 1, "HEAD": 1}, lambda storage: storage.put_new("zarr.json", b"other")),
        ({"HEAD": 1}, lambda storage: storage.take("zarr.json")),
        ({"POST": 1, "GET": 1}, lambda storage: storage.remove("zarr.json")),
        ({"PUT": 1}, lambda storage: upload(storage, PIECE_BYTES - 1)),
        ({"POST": 2, "PUT": 3}, lambda storage: upload(storage, 2 * PIECE_BYTES + 1)),
        ({"PUT": 5, "GET": 2, "POST": 2, "HEAD": 1}, lock),
        ({"GET": 1}, lambda storage: storage.make()),
    ],
)
def test_requests_of_each_operation(
    proxied_url: str, s3_proxy: FlakyProxy, expected: dict[str, int], operation: Callable[[ObjectStorage], object]
) -> None:
    storage = opened(proxied_url)
    storage.put_new("zarr.json", b"one")
    storage.put_new("large", bytes(PIECE_BYTES + 300_000))
    s3_proxy.forget()
    operation(storage)
    assert s3_proxy.counts() == expected


def test_what_was_asked_is_counted(proxied_url: str) -> None:
    storage = opened(proxied_url)
    storage.put_new("a", bytes(1000))
    storage.read_ranges("a", [(0, 10), (20, 40)])
    counts = storage.counts()
    assert (counts.requests, counts.bytes_written, counts.bytes_read) == (3, 1000, 30)
    assert (counts.retries, counts.hedged) == (0, 0)
    assert counts.waited_seconds > 0


def test_the_fastest_answer_says_how_far_a_store_is(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    """Many answers that come at once, and one that failed before, do not make it look farther away."""
    storage, latency_seconds = opened(proxied_url), 0.05
    storage.put_new("a", bytes(1000))
    s3_proxy.faults(Faults(latency_seconds=latency_seconds, statuses=2))
    storage = opened(proxied_url)
    storage.read_ranges("a", [(start, start + 1) for start in range(64)])
    counts = storage.counts()
    assert counts.waited_seconds > counts.retries * latency_seconds > 0
    assert latency_seconds <= counts.least_seconds < counts.waited_seconds / counts.requests


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(proxied_url: str, s3_proxy: FlakyProxy, status: int) -> None:
    storage = opened(proxied_url)
    s3_proxy.faults(Faults(statuses=2, status=status))
    assert storage.put_new("a", b"abc")
    s3_proxy.faults(Faults(statuses=2, status=status))
    assert storage.read("a") == b"abc"
    assert storage.counts().retries == 4


def test_a_request_that_is_made_again_takes_none_of_trainings_random_numbers(
    proxied_url: str, s3_proxy: FlakyProxy
) -> None:
    storage = opened(proxied_url)
    storage.put_new("a", b"abc")
    s3_proxy.faults(Faults(statuses=2))
    before = random.getstate()
    storage.read("a")
    assert storage.counts().retries == 2
    assert random.getstate() == before


@pytest.mark.parametrize("status", [400, 403, 501])
def test_what_does_not_pass_is_not_tried_again(proxied_url: str, s3_proxy: FlakyProxy, status: int) -> None:
    storage = opened(proxied_url)
    s3_proxy.faults(Faults(statuses=100, status=status))
    with pytest.raises(OSError, match=f"the server answered {status}"):
        storage.read("a")
    assert len(s3_proxy.requests()) == 1


def test_a_body_that_is_cut_is_read_again(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    storage = opened(proxied_url)
    content = bytes(range(256)) * 1000
    storage.put_new("a", content)
    s3_proxy.faults(Faults(seed=3, cut=0.6))
    for start in range(10):
        assert storage.read("a", start, 200_000) == content[start:200_000]
    assert storage.counts().retries > 3


def test_the_answer_of_a_put_may_be_lost(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    storage = opened(proxied_url)
    s3_proxy.faults(Faults(lost_puts=1))
    assert storage.put_new("a", b"one")
    found = storage.find("a")
    assert found is not None
    s3_proxy.faults(Faults(lost_puts=1))
    assert storage.replace("a", b"two", found.version)
    assert storage.read("a") == b"two"
    # The store did it, and another writer was faster: the key is taken, by another content.
    s3_proxy.faults(Faults(lost_puts=1))
    assert not storage.put_new("a", b"three")


def test_an_upload_goes_on_while_requests_fail(proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path) -> None:
    storage = opened(proxied_url)
    s3_proxy.faults(Faults(seed=5, failed=0.2, lost=0.1))
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 100_000)
    assert storage.put_new_file("a", file)
    s3_proxy.faults(Faults())
    assert storage.read("a") == file.read_bytes()


def test_an_upload_whose_requests_all_fail_says_why(proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path) -> None:
    storage = opened(proxied_url, NetworkOptions(first_backoff_seconds=0.01, upload_seconds=1))
    s3_proxy.faults(Faults(lost_puts=1000))
    file = tmp_path / "file"
    # The last of two parts: its error has no more than one line.
    file.write_bytes(bytes(PIECE_BYTES + 1))
    with pytest.raises(OutputError, match="the connection broke before the answer"):
        storage.put_new_file("a", file)


def test_a_slow_read_is_made_twice(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    storage = opened(proxied_url, NetworkOptions(hedge_after_seconds=0.2, timeout_seconds=20))
    storage.put_new("a", b"abc")
    s3_proxy.faults(Faults(silent=1))
    began = time.monotonic()
    assert storage.read("a") == b"abc"
    assert time.monotonic() - began < 15
    assert storage.counts().hedged == 1
    assert storage.counts().retries == 0


def test_a_quick_read_is_made_once(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    storage = opened(proxied_url, NetworkOptions(hedge_after_seconds=20.0))
    storage.put_new("a", b"abc")
    assert storage.read("a") == b"abc"
    assert storage.counts().hedged == 0
    assert s3_proxy.counts() == {"GET": 1, "PUT": 1}


def test_ranges_are_read_several_at_once_but_not_all(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    storage = opened(proxied_url, NetworkOptions(max_concurrent_requests=5))
    storage.put_new("a", bytes(1000))
    s3_proxy.faults(Faults(latency_seconds=0.3))
    began = time.monotonic()
    storage.read_ranges("a", [(10 * number, 10 * number + 5) for number in range(10)])
    # Two rounds of five; one after the other would take 3 s, all at once 0.3 s.
    assert 0.6 <= time.monotonic() - began < 2.5


def test_a_silent_server_is_a_timeout(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    storage = opened(proxied_url, NetworkOptions(timeout_seconds=0.3, retries=1, first_backoff_seconds=0.01))
    s3_proxy.faults(Faults(silent=2))
    with pytest.raises(TimeoutError, match="no answer in time"):
        storage.read("a")


@pytest.mark.parametrize("status", [503, 429])
def test_requests_wait_while_a_store_asks_for_fewer(proxied_url: str, s3_proxy: FlakyProxy, status: int) -> None:
    storage = opened(proxied_url, NetworkOptions(first_backoff_seconds=0.01, max_backoff_seconds=0.02))
    storage.put_new("a", b"content")
    # More often than any other failure is tried again.
    s3_proxy.faults(Faults(statuses=20, status=status))
    assert storage.read("a") == b"content"
    assert storage.counts().retries == 20
    s3_proxy.faults(Faults(statuses=20, status=status))
    assert storage.put_new("b", b"content")
    s3_proxy.faults(Faults(statuses=20, status=status))
    assert sorted(each.key for each in storage.files("")) == ["a", "b"]
    s3_proxy.faults(Faults(statuses=20, status=status))
    assert storage.find("a") is not None
    assert storage.counts().retries == 80


@pytest.mark.parametrize("status", [500, 503])
def test_an_upload_is_not_lost_where_the_store_fails_for_a_while(
    proxied_url: str, s3_proxy: FlakyProxy, status: int
) -> None:
    storage = opened(proxied_url, NetworkOptions(first_backoff_seconds=0.01, max_backoff_seconds=0.02))
    started = storage.start("shards/u1", ".shard")
    started.write(bytes(PIECE_BYTES))
    s3_proxy.faults(Faults(statuses=40, status=status))
    started.write(bytes(PIECE_BYTES))
    started.commit()
    (shard,) = storage.files("shards")
    assert shard.num_bytes == 2 * PIECE_BYTES


def test_a_file_of_one_request_is_not_lost_there_either(proxied_url: str, s3_proxy: FlakyProxy, tmp_path: Path) -> None:
    """A small shard, a part or a snapshot is the work of a unit or of a job, as a large shard is."""
    storage = opened(proxied_url, NetworkOptions(first_backoff_seconds=0.01, max_backoff_seconds=0.02))
    shard = storage.start("shards/u1", ".shard")
    shard.write(b"segments")
    s3_proxy.faults(Faults(statuses=40, status=500))
    assert storage.read(shard.commit()) == b"segments"
    s3_proxy.faults(Faults(statuses=40, status=500))
    assert storage.put_new("parts/u1.zip", b"rows")
    s3_proxy.faults(Faults(statuses=40, status=500))
    snapshot = tmp_path / "snapshot"
    snapshot.write_bytes(b"rows")
    assert storage.put_new_file("manifest/000001.zip", snapshot)


@pytest.mark.parametrize(("status", "num_bytes"), [(503, 2 * PIECE_BYTES), (500, 1)])
def test_an_upload_to_a_store_that_does_not_come_back_is_an_error(
    proxied_url: str, s3_proxy: FlakyProxy, status: int, num_bytes: int
) -> None:
    options = NetworkOptions(first_backoff_seconds=0.01, max_backoff_seconds=0.02, upload_seconds=1)
    started = opened(proxied_url, options).start("shards/u1", ".shard")
    s3_proxy.faults(Faults(statuses=100_000, status=status))

    def write() -> None:
        started.write(bytes(num_bytes))
        started.commit()

    with pytest.raises(OutputError, match=f"the server answered {status}"):
        write()


def test_a_store_that_asks_for_fewer_requests_too_long_is_an_error(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    options = NetworkOptions(first_backoff_seconds=0.01, max_backoff_seconds=0.02, throttled_seconds=0.5)
    storage = opened(proxied_url, options)
    s3_proxy.faults(Faults(statuses=100_000, status=503))
    began = time.monotonic()
    with pytest.raises(OSError, match="the server answered 503 SlowDown"):
        storage.read("a")
    assert time.monotonic() - began > 0.4
    assert storage.counts().retries > 8


def test_throttling_is_waited_for_no_longer_than_a_caller_wants(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    hurried = opened(proxied_url, NetworkOptions(give_up_after_seconds=2))
    s3_proxy.faults(Faults(statuses=100_000, status=503))
    began = time.monotonic()
    with pytest.raises(OSError, match="the server answered 503 SlowDown"):
        hurried.read("a")
    assert time.monotonic() - began < 60


def test_a_store_that_asks_for_fewer_requests_is_not_called_silent(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    """The time may be up while the last of several requests has no answer yet."""
    hurried = opened(proxied_url, NetworkOptions(give_up_after_seconds=2, max_backoff_seconds=0.01))
    hurried.put_new("a", b"content")
    s3_proxy.faults(Faults(statuses=1, status=503, slow=1.0, slow_seconds=4.0))
    with pytest.raises(OSError, match="the server answered 503 SlowDown"):
        hurried.read("a")


@given(st.integers(0, 2000), st.floats(0, 1, exclude_max=True), st.floats(0, 2), st.floats(0.1, 60))
def test_back_off_grows_and_is_bounded(attempt: int, draw: float, first: float, longest: float) -> None:
    options = NetworkOptions(first_backoff_seconds=first, max_backoff_seconds=longest)
    seconds = backoff_seconds(attempt, options, draw)
    assert 0 <= seconds <= min(longest, first * 2 ** min(attempt, 60))
    assert seconds <= backoff_seconds(attempt + 1, options, draw)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(0, 10))
def test_joined_ranges_hold_all_and_little_more(ranges: list[tuple[int, int]], gap: int) -> None:
    joined = coalesced(ranges, gap)
    wanted = {at for start, stop in ranges for at in range(start, stop)}
    read = [at for start, stop in joined for at in range(start, stop)]
    assert wanted <= set(read)
    assert len(read) == len(set(read))
    for (_, stop), (start, _) in itertools.pairwise(joined):
        assert start - stop > gap


def test_counts_add_up() -> None:
    counter = RequestCounter()
    counter.add(RequestCounts(requests=2, retries=1))
    counter.add(RequestCounts(requests=1, bytes_read=5))
    assert (counter.counts.requests, counter.counts.retries, counter.counts.bytes_read) == (3, 1, 5)


@pytest.mark.parametrize(
    "name",
    ["timeout_seconds", "hedge_after_seconds", "give_up_after_seconds", "max_concurrent_requests", "retries"],
)
def test_limits_that_make_no_sense(name: str) -> None:
    limits: dict[str, Any] = {name: -1}
    with pytest.raises(UsageError, match=f"{name} is -1"):
        NetworkOptions(**limits)
