"""Train a policy on a LeRobot dataset with two cameras: python examples/robot_policy.py

A dot swings. One camera shows how far to the right it is, the other one how far down, and the actions are where it is
at that moment and at the next three. No camera alone shows an action, and one frame does not show how the dot swings
on: the policy needs both cameras, and of each the frame a quarter of a second before, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import nn

import shortgop
import small_videos

CAMERAS = ("observation.images.right", "observation.images.up")
EPISODES, FRAMES, SIDE, HORIZON, BEFORE = 40, 24, 64, 4, 4


def write_robot(folder: Path) -> Path:
    """A LeRobot v3 dataset: the episodes of each camera in one MP4, and their actions in a Parquet file."""
    robot, rng = folder / "robot", np.random.default_rng(0)
    phases = rng.uniform(0, 2 * np.pi, (EPISODES, 1, 2)) + 0.2 * np.arange(FRAMES)[:, None]
    places = (SIDE / 2 + 20 * np.sin(phases)).reshape(-1, 2)
    for number, camera in enumerate(CAMERAS):
        video = robot / f"videos/{camera}/chunk-000/file-000.mp4"
        video.parent.mkdir(parents=True)
        small_videos.write_video(video, map(picture, places[:, number], rng.uniform(8, SIDE - 8, len(places))))
    index = np.arange(len(places))
    columns = {
        "index": index, "episode_index": index // FRAMES, "frame_index": index % FRAMES,
        "timestamp": (index % FRAMES / small_videos.RATE).astype(np.float32),
        "action": [*places.astype(np.float32)],
    }  # fmt: skip
    write_table(robot / "data/chunk-000/file-000.parquet", pa.table(columns))
    episodes = [
        {
            "episode_index": number, "tasks": ["follow the dot"], "length": FRAMES,
            "dataset_from_index": number * FRAMES, "dataset_to_index": (number + 1) * FRAMES,
            **{f"videos/{camera}/{index}_index": 0 for camera in CAMERAS for index in ("chunk", "file")},
            **{f"videos/{camera}/from_timestamp": number * FRAMES / small_videos.RATE for camera in CAMERAS},
        }
        for number in range(EPISODES)
    ]  # fmt: skip
    write_table(robot / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(episodes))
    about = {
        "codebase_version": "v3.0",
        "fps": small_videos.RATE,
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {camera: {"dtype": "video", "shape": [SIDE, SIDE, 3]} for camera in CAMERAS},
    }
    (robot / "meta/info.json").write_text(json.dumps(about))
    return robot


def write_table(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True)
    pq.write_table(table, path)


def picture(across: float, along: float) -> NDArray[np.uint8]:
    """A dot, of which the place along the other axis says nothing."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    dot = 255 * np.exp(-((columns - across) ** 2 + (rows - along) ** 2) / 18)
    return np.repeat(dot[:, :, None], 3, axis=2).round().astype(np.uint8)


def pictures_of(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Both cameras, both frames, one channel: (items, pixels)."""
    cameras = [batch[camera] for camera in CAMERAS]
    return torch.cat([frames[:, :, 0].flatten(1) for frames in cameras], dim=1).float() / 255


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--workers", type=int, default=1, help="processes that read ahead; 0 for none")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        robot, dataset = write_robot(Path(folder)), Path(folder) / "dataset"
        command = [sys.executable, *("-m", "shortgop", "prep"), str(robot), "--out", str(dataset), "--runner", "inline"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        deltas = {camera: [-BEFORE / small_videos.RATE, 0] for camera in CAMERAS}
        deltas["action"] = [step / small_videos.RATE for step in range(HORIZON)]

        def items(episodes: range) -> shortgop.LeRobotClips:
            return shortgop.LeRobotClips(
                dataset, robot, delta_timestamps=deltas, episodes=episodes, drop_first_frames=BEFORE, size=(16, 16)
            )

        training, validation = items(range(32)), items(range(32, EPISODES))
        sampler = shortgop.ElasticSampler(training, global_batch_size=32)
        loader = shortgop.ClipLoader(training, sampler, workers=arguments.workers)
        in_order = shortgop.ElasticSampler(validation, 32, order=shortgop.Sequential(), drop_last=False)
        held_out = shortgop.ClipLoader(validation, in_order, workers=arguments.workers)
        policy = nn.Linear(2 * 2 * 16 * 16, HORIZON * 2)
        optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs * len(loader))
        for epoch in range(arguments.epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                errors = policy(pictures_of(batch)).view(-1, HORIZON, 2) * SIDE - batch["action"]
                loss = errors[~batch["action_is_pad"]].square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            with torch.no_grad():
                found = [
                    (policy(pictures_of(batch)).view(-1, HORIZON, 2) * SIDE - batch["action"])[~batch["action_is_pad"]]
                    for batch in held_out
                ]
            error = torch.cat(found).abs().mean().item()
            print(f"epoch {epoch}: actions of other episodes are {error:.2f} pixels away, of {SIDE}", flush=True)
        loader.close()
        held_out.close()


if __name__ == "__main__":
    main()
