"""LeRobot v3 datasets in the layout that lerobot writes: episodes of each camera one after the other in few files."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from synthetic import make_video

CAMERAS = ("observation.images.front", "observation.images.wrist")
TASKS = ["pick up the cube", "fold the cloth"]


def feature(dtype: str, **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [64, 96, 3], "names": ["height", "width", "channels"], **more}


def write_lerobot(root: Path, lengths: list[int], *, fps: int = 30, per_file: int = 3, **info: Any) -> Path:
    """Episodes of these lengths, `per_file` of them in an MP4. The frames of a camera are numbered through all files,
    the second camera's from 10,000 on; so are the states, and the actions below zero."""
    features = {name: feature("video") for name in CAMERAS} | {"action": feature("float32")}
    written = {
        "codebase_version": "v3.0", "robot_type": "so100", "total_episodes": len(lengths), "fps": fps,
        "total_frames": sum(lengths), "total_tasks": 2, "chunks_size": 1000, "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": features, **info,
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    for index, length in enumerate(lengths):
        file, first = index // per_file, index // per_file * per_file
        # As lerobot does it: durations of files are added up as floats.
        start = sum(count / fps for count in lengths[first:index])
        row = {
            "episode_index": index, "tasks": [TASKS[index % 2]], "length": length,
            "data/chunk_index": 0, "data/file_index": 0,
            "dataset_from_index": sum(lengths[:index]), "dataset_to_index": sum(lengths[: index + 1]),
        }  # fmt: skip
        for camera in CAMERAS:
            row |= {
                f"videos/{camera}/chunk_index": 0, f"videos/{camera}/file_index": file,
                f"videos/{camera}/from_timestamp": start, f"videos/{camera}/to_timestamp": start + length / fps,
            }  # fmt: skip
        rows.append({**row, "stats/action/min": [0.0], "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
    for number, camera in enumerate(CAMERAS):
        for file, first in enumerate(range(0, len(lengths), per_file)):
            path = root / f"videos/{camera}/chunk-000/file-{file:03d}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            frames = range(sum(lengths[first : first + per_file]))
            make_video(
                path, pts=frames, timebase=Fraction(1, fps), gop=2, b_frames=0,
                first_number=10_000 * number + sum(lengths[:first]),
            )  # fmt: skip
    frames = range(sum(lengths))
    data = {
        "index": frames, "observation.state": [[float(each)] for each in frames],
        "action": [[-float(each), 0.5] for each in frames],
    }  # fmt: skip
    (root / "data/chunk-000").mkdir(parents=True)
    pq.write_table(pa.table(data), root / "data/chunk-000/file-000.parquet")
    episodes = root / "meta/episodes/chunk-000/file-000.parquet"
    episodes.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), episodes)
    (root / "meta/info.json").write_text(json.dumps(written, indent=4))
    return root
