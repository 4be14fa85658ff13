"""Storage on a disk: what every storage does."""

from __future__ import annotations

from pathlib import Path

import pytest

from file_permissions import modes_count
from shortgop.errors import OutputError
from shortgop.storage.interface import Storage
from shortgop.storage.locate import storage_at
from storage_conformance import StorageConformance


class TestDisk(StorageConformance):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        storage = storage_at(tmp_path / "dataset")
        storage.make()
        return storage


def test_a_file_that_may_not_be_taken_aside_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    """Each job looks for shards that nothing names, and one of another user's folder ended it with a traceback."""
    storage = storage_at(tmp_path)
    storage.put_new("shards/u1.shard", b"abc")
    (tmp_path / "shards").chmod(0o500)
    with modes_count(), pytest.raises(OutputError, match="u1.shard: Permission denied; give yourself permission"):
        storage.take("shards/u1.shard")
    (tmp_path / "shards").chmod(0o700)
    assert storage.read("shards/u1.shard") == b"abc"


def test_a_file_that_was_taken_aside_and_may_not_be_removed_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    storage = storage_at(tmp_path)
    storage.put_new("shards/u1.shard", b"abc")
    taken = storage.take("shards/u1.shard")
    assert taken is not None
    (tmp_path / ".tmp").chmod(0o500)
    with modes_count(), pytest.raises(OutputError, match="u1.shard: Permission denied; give yourself permission"):
        taken.remove()
    (tmp_path / ".tmp").chmod(0o700)
