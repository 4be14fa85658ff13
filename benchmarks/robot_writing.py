"""Writes a dataset with LeRobot itself, for `robots.py`, which runs this in the environment that has LeRobot.

    python benchmarks/robot_writing.py ROBOT --cameras FRONT.mp4 WRIST.mp4 --episodes 40 --frames 300

Each camera shows what its video does, from another frame on in each episode, cut to 640x480. States and actions are
random walks. Everything is as LeRobot has it by default: AV1, GOPs of 2 frames, CRF 30. A few frames as they were
before LeRobot encoded them go beside it, for the quality.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import av
import numpy as np

WIDTH, HEIGHT, RATE, VALUES = 640, 480, 30, 14
CAMERAS = ("observation.images.front", "observation.images.wrist")
KEPT_EPISODES, KEPT_EVERY = 4, 60
"""Of so many episodes, every so-manieth frame is kept as it was."""


def frames_of(video: Path, first: int) -> Iterator[Any]:
    """The frames of a video from one on, again and again, as arrays (HEIGHT, WIDTH, 3)."""
    while True:
        with av.open(str(video)) as container:
            for number, frame in enumerate(container.decode(video=0)):
                if number >= first:
                    left = (frame.width - WIDTH) // 2
                    yield frame.to_ndarray(format="rgb24")[:HEIGHT, left : left + WIDTH]
        first = 0


def main() -> None:
    # By name: the environment that checks types does not have it.
    module = import_module("lerobot.datasets.lerobot_dataset")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robot", type=Path)
    parser.add_argument("--cameras", type=Path, nargs=len(CAMERAS), required=True)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--frames", type=int, required=True, help="of each episode")
    arguments = parser.parse_args()
    if arguments.frames % KEPT_EVERY:
        parser.error(
            f"--frames is {arguments.frames}; give a multiple of {KEPT_EVERY}, by which frames are found again"
        )
    vector = {"dtype": "float32", "shape": (VALUES,), "names": None}
    picture = {"dtype": "video", "shape": (HEIGHT, WIDTH, 3), "names": ["height", "width", "channels"]}
    features = {**dict.fromkeys(CAMERAS, picture), "observation.state": vector, "action": vector}
    written = module.LeRobotDataset.create(
        "benchmark/robot", RATE, features, root=arguments.robot, streaming_encoding=True, encoder_queue_maxsize=10_000
    )
    random, kept = np.random.default_rng(0), []
    for episode in range(arguments.episodes):
        walks = random.normal(size=(2, arguments.frames, VALUES)).cumsum(axis=1).astype(np.float32)
        sources = [frames_of(video, 7 * episode) for video in arguments.cameras]
        for number, pictures in zip(range(arguments.frames), zip(*sources, strict=True), strict=False):
            state, action = walks[:, number]
            named = dict(zip(CAMERAS, pictures, strict=True))
            written.add_frame({**named, "observation.state": state, "action": action, "task": "pick up the cube"})
            if episode < KEPT_EPISODES and number % KEPT_EVERY == 0:
                kept.append(np.stack(pictures))
        written.save_episode()
        print(f"episode {episode}", flush=True)
    written.finalize()
    np.save(arguments.robot.with_name(f"{arguments.robot.name}-before.npy"), np.stack(kept))


if __name__ == "__main__":
    main()
