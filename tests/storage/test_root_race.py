"""Two processes that change one dataset at one moment, without a lock. `make race` does so a thousand times."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataset_places import Places, folders
from root_race import race
from sweep import only_in_a_sweep

pytestmark = pytest.mark.long


class RootRace:
    where: str
    rounds: int

    def test_one_winner_each_time_and_nothing_lost(self, places: Places) -> None:
        assert race(self.rounds, places, answers_are_lost=self.where == "flaky").rounds == self.rounds


def test_where_no_lock_is_granted_no_part_and_no_snapshot_is_lost(tmp_path: Path) -> None:
    assert race(20, folders(tmp_path), has_locks=False).rounds == 20


class TestRootRaceOnADisk(RootRace):
    where = "disk"
    rounds = 20


# Over a flaky network it is the same store.
@only_in_a_sweep
class TestRootRaceInS3(RootRace):
    where = "s3"
    rounds = 10


class TestRootRaceOverAFlakyNetwork(RootRace):
    where = "flaky"
    rounds = 10
