"""The examples run as they are, and come to what they say: those that take long in a sweep."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweep import only_in_a_sweep

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str) -> str:
    # One thread each: the tests share the machine.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / example)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_network_learns_to_tell_motions_apart() -> None:
    accuracies = re.findall(r"accuracy ([\d.]+)", run("train_classifier.py"))
    assert float(accuracies[-1]) > 0.95


# Half a minute of training.
@only_in_a_sweep
def test_a_network_enlarges_frames_of_other_videos_better_than_bicubic_interpolation() -> None:
    """Bicubic interpolation has 31 dB; 22 where the target is cut 2 pixels aside, 19 where it is the next frame."""
    found = re.search(r"network ([\d.]+) dB, bicubic ([\d.]+) dB", run("super_resolution.py"))
    assert found is not None
    network, bicubic = map(float, found.groups())
    assert bicubic > 29
    assert network > bicubic + 2


# `test_robot_clips.py` has the items.
@only_in_a_sweep
def test_a_policy_learns_from_two_cameras_and_the_actions_that_follow() -> None:
    """With one camera they would be 7 pixels away, with one frame of each 4."""
    errors = re.findall(r"are ([\d.]+) pixels away", run("robot_policy.py"))
    assert float(errors[-1]) < 1.5


# Five processes that train. `test_training_sampler.py` starts again with other numbers of ranks, `test_loader_chaos.py`
# kills.
@only_in_a_sweep
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes with a signal")
def test_two_ranks_are_killed_and_three_go_on() -> None:
    said = run("ddp_resume.py")
    assert "two ranks were killed with signal 9" in said
    assert "3 ranks continue from sample 48" in said
    assert "84 samples, 84 of them different, of 84" in said


# It starts Ray. `test_ray_data.py` reads clips there.
@only_in_a_sweep
def test_clips_are_nearest_to_clips_of_the_same_motion() -> None:
    said = run("embed_with_ray.py")
    assert "96 clips of 24 videos, each of them once" in said
    assert "96 of 96 clips are nearest to a clip that moves in the same direction" in said
