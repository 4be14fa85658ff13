"""LeRobot datasets in the layouts that lerobot writes: in version 3 the episodes of each camera lie one after the other
in few files, and in version 2 each has a file."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from synthetic import burn, make_video

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
    (root / "data/chunk-000").mkdir(parents=True)
    pq.write_table(_rows(lengths, fps), root / "data/chunk-000/file-000.parquet")
    tasks = pa.table({"task_index": range(len(TASKS)), "__index_level_0__": TASKS})
    (root / "meta").mkdir()
    pq.write_table(tasks, root / "meta/tasks.parquet")
    episodes = root / "meta/episodes/chunk-000/file-000.parquet"
    episodes.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), episodes)
    (root / "meta/info.json").write_text(json.dumps(written, indent=4))
    return root


def write_lerobot_2(root: Path, lengths: list[int], *, fps: int = 30, per_chunk: int = 1000, **info: Any) -> Path:
    """The same episodes in a dataset of version 2.1, with `per_chunk` episodes in each folder."""
    features = {name: feature("video") for name in CAMERAS} | {"action": feature("float32")}
    written = {
        "codebase_version": "v2.1", "fps": fps, "chunks_size": per_chunk, "total_episodes": len(lengths),
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": features, **info,
    }  # fmt: skip
    rows = _rows(lengths, fps)
    lines = []
    for index, length in enumerate(lengths):
        lines.append(json.dumps({"episode_index": index, "tasks": [TASKS[index % 2]], "length": length}))
        first = sum(lengths[:index])
        data = root / f"data/chunk-{index // per_chunk:03d}/episode_{index:06d}.parquet"
        data.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.slice(first, length), data)
        for number, camera in enumerate(CAMERAS):
            path = root / f"videos/chunk-{index // per_chunk:03d}/{camera}/episode_{index:06d}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            make_video(
                path, pts=range(length), timebase=Fraction(1, fps), gop=2, b_frames=0,
                first_number=10_000 * number + first,
            )  # fmt: skip
    (root / "meta").mkdir()
    (root / "meta/episodes.jsonl").write_text("\n".join(lines) + "\n")
    tasks = [json.dumps({"task_index": index, "task": task}) for index, task in enumerate(TASKS)]
    (root / "meta/tasks.jsonl").write_text("\n".join(tasks) + "\n")
    (root / "meta/info.json").write_text(json.dumps(written, indent=4))
    return root


def with_pictures(root: Path, *, suffix: str = "png", cameras: Sequence[str] = CAMERAS) -> Path:
    """Make the videos of these cameras pictures in the rows, as lerobot writes features of dtype `image`. They show the
    same numbers."""
    info = json.loads((root / "meta/info.json").read_text())
    for name in cameras:
        info["features"][name]["dtype"] = "image"
    if set(cameras) == set(CAMERAS):
        info["video_path"] = None
    (root / "meta/info.json").write_text(json.dumps(info))
    for file in (root / "data").glob("*/*.parquet"):
        table = pq.read_table(file)
        for camera in cameras:
            first = 10_000 * CAMERAS.index(camera)
            pictures = [
                {"bytes": _picture(first + index, suffix), "path": f"frame_{index:06d}.{suffix}"}
                for index in table["index"].to_pylist()
            ]
            table = table.append_column(camera, pa.array(pictures))
        # lerobot has one group for each episode, or for a hundred pictures.
        pq.write_table(table, file, row_group_size=5)
    for file in (root / "meta/episodes").glob("*/*.parquet"):
        table = pq.read_table(file)
        gone = [name for name in table.column_names if any(name.startswith(f"videos/{camera}/") for camera in cameras)]
        pq.write_table(table.drop_columns(gone), file)
    return root


def _picture(number: int, suffix: str) -> bytes:
    written = io.BytesIO()
    Image.fromarray(burn(number, 96, 64)).save(written, "PNG" if suffix == "png" else "JPEG")
    return written.getvalue()


def _rows(lengths: list[int], fps: int) -> pa.Table:
    frames = range(sum(lengths))
    of_episode = [(index, frame) for index, length in enumerate(lengths) for frame in range(length)]
    columns = {
        "observation.state": pa.array([[float(each)] for each in frames], pa.list_(pa.float32(), 1)),
        "action": pa.array([[-float(each), 0.5] for each in frames], pa.list_(pa.float32(), 2)),
        "timestamp": pa.array([frame / fps for _, frame in of_episode], pa.float32()),
        "frame_index": [frame for _, frame in of_episode],
        "episode_index": [episode for episode, _ in of_episode],
        "index": frames,
        "task_index": [episode % len(TASKS) for episode, _ in of_episode],
    }
    return pa.table(columns)
