"""Items of a prepared LeRobot dataset: several cameras at the same moments, states, and the actions that follow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset
import torch

import shortgop


class LeRobotItems(shortgop.ClipDataset):
    """Clips of `episodes` of a LeRobot v3 dataset at `robot`, which was prepared into `dataset`.

    An item has what those of ClipDataset have, with `frames` of the first of the `cameras`, and

    - the frames of each other camera at the same moments, under its name;
    - `observation.state`: float32, (frames, values): the state at each of the frames;
    - `action`: float32, (horizon, values): the actions from the last frame on; `action_is_pad`: bool, (horizon,): True
      behind the end of the episode, where the last action stands in.

    The frames are chosen by `clips`: `AllClips(Offsets(seconds=[-0.1, 0]), whole=False, ends="clamp")` is an item for
    each frame of the episodes, with the frame 0.1 s before it. `options` are those of ClipDataset.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str],
        robot: str | os.PathLike[str],
        clips: Any,
        *,
        cameras: Sequence[str],
        episodes: Iterable[int],
        horizon: int,
        **options: Any,
    ) -> None:
        videos = [video_id(cameras[0], episode) for episode in episodes]
        metadata = [*options.pop("metadata", ()), "episode_index", "dataset_from_index", "length"]
        super().__init__(dataset, clips, videos=videos, metadata=metadata, **options)
        self.cameras, self.horizon = tuple(cameras), horizon
        columns = ["index", "observation.state", "action"]
        table = pyarrow.dataset.dataset(Path(robot) / "data").to_table(columns).sort_by("index")
        self.states, self.actions = (torch.tensor(np.stack(table[name].to_numpy())) for name in columns[1:])

    def items(self, draws: Sequence[int], rows: Any = None) -> list[dict[str, Any]]:
        items = super().items(draws, rows)
        for camera in self.cameras[1:]:
            wanted = [(video_id(camera, int(item["episode_index"])), item["frame_numbers"]) for item in items]
            for item, frames in zip(items, self.source.get_clips(wanted).data, strict=True):
                item[camera] = frames
        for item in items:
            first, last = int(item["dataset_from_index"]), int(item["length"]) - 1
            steps = item["frame_numbers"][-1] + torch.arange(self.horizon)
            item["observation.state"] = self.states[first + item["frame_numbers"]]
            item["action"] = self.actions[first + steps.clamp(max=last)]
            item["action_is_pad"] = steps > last
        return items


def video_id(camera: str, episode: int) -> str:
    """The id that `shortgop prep` gives an episode of a camera."""
    return f"{camera}/episode_{episode:06d}"
