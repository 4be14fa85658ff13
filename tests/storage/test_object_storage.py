"""Storage in memory, in S3, and in S3 over a network where one request in ten fails: what every storage does."""

from __future__ import annotations

import uuid

import pytest

from flaky_proxy import Faults, FlakyProxy
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from shortgop.storage.network import NetworkOptions
from storage_conformance import StorageConformance

QUICK = NetworkOptions(first_backoff_seconds=0.01, retries=12)


class TestMemory(StorageConformance):
    @pytest.fixture
    def storage(self) -> Storage:
        return storage_at(f"memory://{uuid.uuid4().hex}/dataset")


class TestS3(StorageConformance):
    @pytest.fixture
    def storage(self, s3_url: str) -> Storage:
        return storage_at(s3_url)


@pytest.mark.long
class TestFlakyS3(StorageConformance):
    @pytest.fixture
    def storage(self, proxied_url: str, s3_proxy: FlakyProxy) -> Storage:
        s3_proxy.faults(Faults(seed=1, failed=0.1, cut=0.1, lost=0.1))
        return storage_at(proxied_url, network=QUICK)


@pytest.mark.long
class TestS3ThatCopiesNothing:
    """As Ceph's gateway of version 16, which asks for a header that obstore does not send."""

    @pytest.fixture
    def storage(self, proxied_url: str, s3_proxy: FlakyProxy) -> Storage:
        s3_proxy.faults(Faults(no_copies=True))
        return storage_at(proxied_url)

    # Nothing else is copied inside a store.
    large = StorageConformance.large
    test_a_file_of_the_disk_is_put = StorageConformance.test_a_file_of_the_disk_is_put
