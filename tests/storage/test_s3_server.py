"""The S3 server of the tests, and the proxy in front of it that makes requests fail."""

from __future__ import annotations

import concurrent.futures

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from flaky_proxy import Faults, FlakyProxy

NO_RETRIES = {"max_retries": 0}


def store(url: str) -> S3Store:
    return S3Store.from_url(url, retry_config=NO_RETRIES)  # type: ignore[arg-type]


def test_s3_urls_mean_the_server(s3_url: str) -> None:
    obstore.put(store(s3_url), "a", b"abc")
    assert bytes(obstore.get(store(s3_url), "a").bytes()) == b"abc"
    assert [each["path"] for each in obstore.list(store(s3_url)).collect()] == ["a"]


def test_the_server_keeps_conditions(s3_url: str) -> None:
    place = store(s3_url)
    first = obstore.put(place, "a", b"abc", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(place, "a", b"abd", mode="create")
    obstore.put(place, "a", b"xyz", mode={"e_tag": first["e_tag"]})
    with pytest.raises(PreconditionError):
        obstore.put(place, "a", b"abd", mode={"e_tag": first["e_tag"]})


def test_of_many_who_replace_a_version_one_wins(s3_url: str) -> None:
    place = store(s3_url)
    version = obstore.put(place, "a", b"0")
    for number in range(10):

        def replace(name: int, e_tag: str | None = version["e_tag"], number: int = number) -> bool:
            try:
                obstore.put(place, "a", f"{number} {name}".encode(), mode={"e_tag": e_tag})
            except PreconditionError:
                return False
            return True

        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            assert sum(threads.map(replace, range(4))) == 1
        version = {"e_tag": obstore.head(place, "a")["e_tag"], "version": None}


def test_requests_are_counted(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    place = store(proxied_url)
    obstore.put(place, "a", b"abcdef")
    obstore.get_range(place, "a", start=1, end=3)
    assert s3_proxy.counts() == {"GET": 1, "PUT": 1}
    assert [each.range for each in s3_proxy.requests("GET", holding="a")] == ["bytes=1-2"]


def test_requests_of_other_tests_are_neither_counted_nor_made_to_fail(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    place, other = store(proxied_url), store(f"{proxied_url.rpartition('/')[0]}/another")
    obstore.put(place, "a", b"abc")
    s3_proxy.forget()
    s3_proxy.faults(Faults(statuses=2))
    obstore.put(other, "a", b"abc")
    obstore.delete(other, ["a", "b"])
    for _ in range(2):
        with pytest.raises((BaseError, OSError)):
            obstore.head(place, "a")
    obstore.delete(place, ["a", "b"])
    assert s3_proxy.counts() == {"HEAD": 2, "POST": 1}


def test_faults_of_some_keys_leave_keys_of_other_tests_alone_that_are_called_alike(
    proxied_url: str, s3_proxy: FlakyProxy
) -> None:
    place, other = store(proxied_url), store(f"{proxied_url.rpartition('/')[0]}/another")
    for each in (place, other):
        obstore.put(each, "shards/a", b"abc")
    obstore.put(place, "zarr.json", b"abc")
    s3_proxy.faults(Faults(statuses=1, only="shards"))
    obstore.head(other, "shards/a")
    obstore.head(place, "zarr.json")
    with pytest.raises((BaseError, OSError)):
        obstore.head(place, "shards/a")


def test_requests_fail_as_often_as_they_are_told_to(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    place = store(proxied_url)
    obstore.put(place, "a", bytes(1000))
    s3_proxy.faults(Faults(failed=0.3))

    def failures() -> int:
        count = 0
        for _ in range(50):
            try:
                obstore.head(place, "a")
            except (BaseError, OSError):
                count += 1
        return count

    assert 5 < failures() < 25


def test_a_body_is_cut(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    place = store(proxied_url)
    obstore.put(place, "a", bytes(1000))
    s3_proxy.faults(Faults(cut=1.0))
    with pytest.raises(BaseError):
        obstore.get(place, "a").bytes()


def test_the_answer_of_a_put_is_lost(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    place = store(proxied_url)
    s3_proxy.faults(Faults(lost_puts=1))
    with pytest.raises(BaseError):
        obstore.put(place, "a", b"abc", mode="create")
    assert bytes(obstore.get(place, "a").bytes()) == b"abc"


def test_conditions_are_hidden(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    place = store(proxied_url)
    obstore.put(place, "a", b"abc")
    s3_proxy.faults(Faults(hidden_headers=("If-None-Match",)))
    obstore.put(place, "a", b"abd", mode="create")
    assert bytes(obstore.get(place, "a").bytes()) == b"abd"
