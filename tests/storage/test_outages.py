"""Stores that fail for minutes, as while their servers start again: who waits for them, and until when."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from flaky_proxy import Faults, FlakyProxy
from shortgop.jobs.prepare import Where, prepare
from shortgop.jobs.progress.tally import Progress
from shortgop.manifests.dataset_files.in_order import in_order
from shortgop.prep.profile import Profile
from shortgop.storage import outages
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from shortgop.storage.network import AT_THE_START, OF_A_JOB, NetworkOptions
from synthetic import SyntheticVideo

QUICK = replace(OF_A_JOB, first_backoff_seconds=0.01, max_backoff_seconds=0.02)
ENDLESS = 10**6


def begun(url: str, network: NetworkOptions = QUICK) -> Storage:
    """A store that has done something."""
    storage = storage_at(url, network=network)
    storage.put_new("a", b"content")
    return storage


@pytest.fixture(autouse=True)
def _no_job_has_ended() -> Iterator[None]:
    """One of another test in this process may have."""
    with outages.waited_for():
        yield


@pytest.mark.parametrize("status", [500, 502])
def test_a_job_waits_for_a_store_that_worked_before(proxied_url: str, s3_proxy: FlakyProxy, status: int) -> None:
    storage = storage_at(proxied_url, network=QUICK)
    s3_proxy.faults(Faults(statuses=20, status=status))
    with pytest.raises(OSError, match=f"the server answered {status}"):
        storage.find("a")
    assert storage.counts().retries == 8
    s3_proxy.faults(Faults())
    assert storage.put_new("a", b"content")
    s3_proxy.faults(Faults(statuses=20, status=status))
    assert storage.read("a") == b"content"
    version = storage.find("a")
    assert version is not None
    s3_proxy.faults(Faults(statuses=20, status=status))
    assert storage.replace("a", b"other", version.version)
    # A worker goes on from the beginning.
    worker = pickle.loads(pickle.dumps(storage))
    s3_proxy.faults(Faults(statuses=20, status=status))
    assert worker.read("a") == b"other"


def test_a_job_does_not_wait_for_ever(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    storage = begun(proxied_url, replace(QUICK, outage_seconds=0.1))
    s3_proxy.faults(Faults(statuses=ENDLESS, status=500))
    with pytest.raises(OSError, match="the server answered 500"):
        storage.read("a")
    assert 8 <= storage.counts().retries < 40


def test_who_reads_and_commands_do_not_wait(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    """Of a shard that can never be read they say so soon."""
    storage = begun(proxied_url, replace(AT_THE_START, first_backoff_seconds=0.01, max_backoff_seconds=0.02))
    s3_proxy.faults(Faults(statuses=ENDLESS, status=500))
    with pytest.raises(OSError, match="the server answered 500"):
        storage.read("a")
    assert storage.counts().retries == 8


def test_an_interruption_ends_the_waits_of_all_threads(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    """Python waits for threads before it ends. What follows, as the last publication, is tried as often as by a
    reader."""
    slow = replace(OF_A_JOB, first_backoff_seconds=50.0, max_backoff_seconds=50.0, outage_seconds=60, retries=0)
    storage, quick = begun(proxied_url, slow), begun(proxied_url)
    s3_proxy.faults(Faults(statuses=ENDLESS, status=500))
    began = time.monotonic()
    with ThreadPoolExecutor() as threads:
        reads = [threads.submit(storage.read, "a") for _ in range(3)]
        while storage.counts().retries < 3:
            time.sleep(0.01)
        with pytest.raises(KeyboardInterrupt), outages.waited_for():
            raise KeyboardInterrupt
        assert all(isinstance(each.exception(), OSError) for each in reads)
    with pytest.raises(OSError, match="the server answered 500"):
        quick.read("a")
    assert quick.counts().retries == 8
    assert time.monotonic() - began < 10


def test_the_next_job_of_the_process_waits_again(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    storage = begun(proxied_url)
    with pytest.raises(KeyboardInterrupt), outages.waited_for():
        raise KeyboardInterrupt
    s3_proxy.faults(Faults(statuses=20, status=500))
    with outages.waited_for():
        assert storage.read("a") == b"content"


def test_attempts_after_an_interruption_have_pauses(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    """A store that fails is not asked nine times at once."""
    storage = begun(proxied_url, replace(OF_A_JOB, retries=3, first_backoff_seconds=0.2))
    with pytest.raises(KeyboardInterrupt), outages.waited_for():
        raise KeyboardInterrupt
    s3_proxy.faults(Faults(statuses=ENDLESS, status=500))
    began = time.monotonic()
    with pytest.raises(OSError, match="the server answered 500"):
        storage.read("a")
    # The pauses are random: at most 0.2, 0.4 and 0.8 s.
    assert time.monotonic() - began > 0.02


@pytest.mark.parametrize("ends", [KeyboardInterrupt, RuntimeError])
def test_a_job_that_ends_in_an_outage_does_not_wait_to_publish(
    constant_video: SyntheticVideo, proxied_url: str, s3_proxy: FlakyProxy, ends: type[BaseException]
) -> None:
    place = storage_at(proxied_url, network=QUICK)
    began = 0.0

    def on_update(progress: Progress) -> None:
        nonlocal began
        if progress.frames_done and not began:
            s3_proxy.faults(Faults(statuses=ENDLESS, status=500))
            began = time.monotonic()
            raise ends

    with pytest.raises(ends):
        prepare([str(constant_video.path)], place, Profile(), where=Where("inline"), on_update=on_update)
    assert began
    assert time.monotonic() - began < 30
    # None is left that would write over the status of the next job.
    assert not [each.name for each in threading.enumerate() if each.name.startswith("status")]


def test_an_interruption_ends_the_waits_for_many_files_of_a_dataset() -> None:
    """Python leaves them only when all have ended."""
    began = time.monotonic()

    def work(number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt
        outages.pause(60)

    with pytest.raises(KeyboardInterrupt), outages.waited_for():
        list(in_order(storage_at("memory://many"), work, [1, 2, 3]))
    assert time.monotonic() - began < 30
