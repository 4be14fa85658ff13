"""Make a feature of every clip of a dataset with Ray Data, and find neighbours: python examples/embed_with_ray.py

Read tasks decode clips, two actors make features of them, and these are written to Parquet. The nearest clip of another
video should show a dot that circles the same way. A single frame does not show which way that is.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import ray
import torch

import shortgop
from moving_dots import make_dataset

VIDEOS, CLIPS_PER_VIDEO = 24, 4
DIRECTIONS = ("counterclockwise", "clockwise")


class MotionFeature:
    """The feature of each clip of a batch. A network would be loaded in `__init__`, once in each actor."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        # A copy, since torch has no tensors that cannot be written.
        frames = torch.tensor(batch.pop("frames"))
        return {**batch, "feature": motion(frames).numpy()}


def motion(frames: torch.Tensor) -> torch.Tensor:
    """How the bright part of the picture moves about the middle: (clips, frames, 3, height, width) to (clips, 6).

    For steps of 1, 2 and 3 frames: the mean sine and cosine of the angle between where it is and where it is after the
    step.
    """
    bright = (frames[:, :, 0] > 128).float()
    height, width = bright.shape[2:]
    share = bright / bright.sum(dim=(2, 3), keepdim=True)
    y = (share.sum(dim=3) * (torch.arange(height) - (height - 1) / 2)).sum(dim=2)
    x = (share.sum(dim=2) * (torch.arange(width) - (width - 1) / 2)).sum(dim=2)
    place = torch.nn.functional.normalize(torch.stack([x, y], dim=2), dim=2)
    feature = []
    for step in (1, 2, 3):
        before, after = place[:, :-step], place[:, step:]
        sine = before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0]
        feature += [sine.mean(dim=1), (before * after).sum(dim=2).mean(dim=1)]
    return torch.stack(feature, dim=1)


def main() -> None:
    # Two CPUs for the actors, and two for tasks that read. On a cluster: ray.init("auto").
    ray.init("local", num_cpus=4, include_dashboard=False, logging_level=logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory() as folder:
        path, features = make_dataset(Path(folder), count=VIDEOS), Path(folder) / "features"
        clips = shortgop.ray_dataset(
            path,
            shortgop.UniformClips(8, clips_per_video=CLIPS_PER_VIDEO),
            metadata=["id", "label"],
            override_num_blocks=8,
        )
        actors = ray.data.ActorPoolStrategy(size=2)
        clips.map_batches(MotionFeature, compute=actors, batch_size=16).write_parquet(str(features))
        written = len(list(features.glob("*.parquet")))
        table = pq.read_table(features, columns=["draw", "id", "label", "start", "feature"]).sort_by("draw")
    ray.shutdown()
    if table["draw"].to_pylist() != list(range(VIDEOS * CLIPS_PER_VIDEO)):
        raise SystemExit("a clip is missing, or came twice")
    print(f"{len(table)} clips of {VIDEOS} videos, each of them once, in {written} files")
    show_neighbours(table.to_pylist())


def show_neighbours(clips: list[dict[str, Any]]) -> None:
    """Print the nearest clip of another video for some clips, and how often it shows the same direction."""
    features = np.array([clip["feature"] for clip in clips])
    ids, labels = np.array([clip["id"] for clip in clips]), np.array([clip["label"] for clip in clips])
    distances = np.linalg.norm(features[:, None] - features[None], axis=2)
    distances[ids[:, None] == ids] = np.inf
    nearest = distances.argmin(axis=1)
    for clip in range(0, len(clips), 17):
        names = [
            f"{clips[each]['id']} from frame {clips[each]['start']:2} ({DIRECTIONS[clips[each]['label']]})"
            for each in (clip, int(nearest[clip]))
        ]
        print(f"{names[0]} is nearest to {names[1]}")
    alike = int((labels == labels[nearest]).sum())
    print(f"{alike} of {len(clips)} clips are nearest to a clip that moves in the same direction")


if __name__ == "__main__":
    main()
