"""Work on many files of a dataset: several at once in a store, with results in the order of the files."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from example_manifests import failure
from flaky_proxy import Faults, FlakyProxy
from shortgop.manifests.dataset_files.in_order import in_order
from shortgop.manifests.dataset_files.parts import write_part
from shortgop.manifests.dataset_files.publish import publish
from shortgop.manifests.dataset_files.root_file import create
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at

_PATIENCE_SECONDS = 60


@pytest.fixture
def store() -> Storage:
    return storage_at("memory://in-order")


def test_results_come_in_order_though_later_ones_are_done_first(store: Storage) -> None:
    second_is_done = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert second_is_done.wait(_PATIENCE_SECONDS)
        if item == 1:
            second_is_done.set()
        return 10 * item

    assert list(in_order(store, work, range(100))) == [10 * item for item in range(100)]


def test_an_error_comes_where_its_result_would(store: Storage) -> None:
    results = in_order(store, lambda item: 1 // (5 - item), range(100))
    assert [next(results) for _ in range(5)] == [0, 0, 0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_only_some_items_are_begun_ahead_of_the_results(store: Storage) -> None:
    begun: list[int] = []
    results = in_order(store, begun.append, range(1000))
    next(results)
    results.close()
    assert len(begun) < 20


def test_on_a_disk_one_item_follows_the_other(tmp_path: Path) -> None:
    begun: list[int] = []
    results = in_order(storage_at(tmp_path), begun.append, range(1000))
    next(results)
    assert begun == [0]


@pytest.mark.long
def test_parts_of_a_store_are_read_at_once(proxied_url: str, s3_proxy: FlakyProxy) -> None:
    dataset, num_parts, latency_seconds = storage_at(proxied_url), 60, 0.2
    create(dataset, {})
    ids = [f"source{number:02}" for number in range(num_parts)]
    for each in ids:
        write_part(dataset, each, failure(each, "cut short"))
    s3_proxy.faults(Faults(latency_seconds=latency_seconds))
    start = time.monotonic()
    publish(dataset)
    # One after the other, the parts alone would take longer.
    assert time.monotonic() - start < num_parts * latency_seconds
    assert open_current(dataset)[1].failures.id.texts() == ids
