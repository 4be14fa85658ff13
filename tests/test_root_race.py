"""Two processes that change one dataset at one moment, without a lock. `make race` does so a thousand times."""

from __future__ import annotations

import pytest

from dataset_places import Places
from root_race import race


class RootRace:
    where: str

    @pytest.mark.parametrize("rounds", [30])
    def test_one_winner_each_time_and_nothing_lost(self, places: Places, rounds: int) -> None:
        assert race(rounds, places, answers_are_lost=self.where == "flaky").rounds == rounds


class TestRootRaceOnADisk(RootRace):
    where = "disk"


class TestRootRaceInS3(RootRace):
    where = "s3"


class TestRootRaceOverAFlakyNetwork(RootRace):
    where = "flaky"
