"""Ten seconds of killing what belongs to a loader; `make chaos` goes on for as long as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from loader_chaos import cases, make_and_drop
from loader_helpers import clips, make_clips

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="processes are looked up in /proc")


def test_whatever_is_killed_training_sees_the_undisturbed_sequence(tmp_path: Path) -> None:
    done = list(cases(10, 3, tmp_path))
    assert sum(case.counts["batches"] for case in done) > 0


def test_loaders_that_were_made_and_dropped_leave_nothing(tmp_path: Path) -> None:
    make_and_drop(clips(make_clips(tmp_path)), 20)
