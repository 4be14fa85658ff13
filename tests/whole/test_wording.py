"""Numbers in messages: one frame, two frames."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from example_manifests import video
from shortgop import DamagedSourceError, MissingDataError
from shortgop.manifests.merging.merge import merge
from shortgop.manifests.operations.lost import lost_text
from shortgop.prep.kept_frames.damage import Damage
from shortgop.prep.kept_frames.kept import Kept
from shortgop.prep.kept_frames.salvage import check_salvage
from shortgop.prep.options import SourcePolicy
from shortgop.storage.disk import DiskStorage
from shortgop.wording import counted, duration

DAMAGE = Damage(
    sound_pts=np.arange(39), due_pts=np.arange(40), sound_run=(0, 39), num_shown=40, has_times=True,
    kept=Kept("pts", ((0, 38),)), total=40, lost=1, first_lost_pts=20,
    complaint="a packet is incomplete", is_only_cut=False,
)  # fmt: skip


def test_one_is_not_several() -> None:
    assert [counted(number, "frame") for number in (0, 1, 2)] == ["0 frames", "1 frame", "2 frames"]


def test_parts_of_a_second_are_said_as_people_say_them() -> None:
    said = [duration(seconds) for seconds in (6.4e-05, 0.00065, 0.034, 0.466, 0.5, 0.7, 12.3)]
    assert said == ["less than 0.01 s", "less than 0.01 s", "0.03 s", "0.47 s", "0.5 s", "1 s", "12 s"]


def test_a_reason_speaks_of_one_lost_frame_or_of_several() -> None:
    with pytest.raises(DamagedSourceError, match="1 of its 40 frames is lost or refers to a lost one, at 0.800 s"):
        check_salvage("x.mp4", DAMAGE, Fraction(1, 25), SourcePolicy())
    with pytest.raises(DamagedSourceError, match="2 of its 40 frames are lost or refer to lost ones, the first"):
        check_salvage("x.mp4", replace(DAMAGE, lost=2), Fraction(1, 25), SourcePolicy())


def test_a_lost_shard_is_one_of_one_or_of_several() -> None:
    missing = {0: MissingDataError("a.shard is missing")}
    one = lost_text(DiskStorage("/d"), video("a"), missing)
    assert one.startswith("1 of 1 video of /d cannot be read, or only in part: 1 of 1 shard is missing or damaged")
    two = merge([video("a"), video("b", shard="unit-1.shard")])
    assert "1 of 2 videos of /d cannot be read, or only in part: 1 of 2 shards is missing" in lost_text(
        DiskStorage("/d"), two, missing
    )
