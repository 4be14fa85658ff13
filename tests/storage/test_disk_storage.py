"""Storage on a disk: what every storage does."""

from __future__ import annotations

from pathlib import Path

import pytest

from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from storage_conformance import StorageConformance


class TestDisk(StorageConformance):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        storage = storage_at(tmp_path / "dataset")
        storage.make()
        return storage
