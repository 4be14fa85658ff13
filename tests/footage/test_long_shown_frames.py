"""Frames that are shown for long, as in recordings of screens: their pictures are converted once."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from shortgop.prep.command import encode_argv
from shortgop.prep.timing.grid import FrameGrid, TickRule, plan_grid
from synthetic import make_video
from test_command import ENCODE

pytestmark = pytest.mark.long

RATE = Fraction(25)


def grid_of(pts: list[int], fps: int = 25) -> FrameGrid:
    rule = TickRule.of(np.array(pts), 1 / RATE, Fraction(fps), 1 / RATE)
    return plan_grid(np.array(pts), pts[-1] + 1, rule)


@pytest.mark.parametrize(
    ("pts", "fps", "converts_first"),
    [
        pytest.param([*range(50)], 25, False, id="one picture for each tick"),
        pytest.param([*range(50)], 10, False, id="fewer ticks than pictures"),
        pytest.param([*range(50)], 50, True, id="more ticks than pictures"),
        pytest.param([0, 1, 2, 4, 5], 25, True, id="a frame is missing"),
        pytest.param([*range(50), 50 + 15 * 5], 5, False, id="fewer ticks, and a frame for 16 of them"),
        pytest.param([*range(50), 50 + 17 * 5], 5, True, id="fewer ticks, and a frame for more"),
    ],
)
def test_pictures_are_converted_first_where_that_is_less_work_or_memory(
    pts: list[int], fps: int, converts_first: bool
) -> None:
    assert grid_of(pts, fps).converts_first == converts_first


@pytest.mark.parametrize("converts_first", [False, True])
def test_the_order_of_the_filters(converts_first: bool) -> None:
    argv = encode_argv(replace(ENCODE, converts_first=converts_first), "pipe:9")
    filters = argv[argv.index("-vf") + 1]
    places = [filters.index(name) for name in ("setpts=", "fps=", "tpad=", "format=yuv420p")]
    assert (places == sorted(places)) != converts_first
    assert max(places) == places[2 if converts_first else 3]


_PREPARE = """
import resource, sys
import shortgop
shortgop.prepare(sys.argv[1], sys.argv[2], gaps="keep", size=(960, 720), upscale=True, runner="inline", gop=25, crf=40)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_a_frame_that_is_shown_for_long_takes_no_memory(tmp_path: Path) -> None:
    """400 repetitions of 960x720 pictures are 415 MB."""

    def memory(name: str, pts: list[int]) -> int:
        source = make_video(tmp_path / f"{name}.mkv", pts=pts, timebase=Fraction(1, 25))
        command = [sys.executable, "-c", _PREPARE, str(source.path), str(tmp_path / name)]
        return 1024 * int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])

    assert memory("long", [*range(10), *range(410, 420)]) < memory("short", [*range(20)]) + 60e6
