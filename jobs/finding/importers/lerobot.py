"""LeRobot datasets, version 3: each episode of each camera becomes a video.

The format is that of `lerobot.datasets` (github.com/huggingface/lerobot): `meta/info.json` names the cameras (features
of dtype `video`) and the pattern of their files, `meta/episodes/**/*.parquet` has a row for each episode. An MP4 holds
several episodes, one after the other. An episode's frame i is the one at `from_timestamp` + i / fps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

from ....arguments import exact
from ....errors import ToolError, UsageError
from ....prep.timing.stretch import Stretch
from ....wording import counted
from ..source_parts import Imported, Recognised

INFO = "meta/info.json"
_KEPT = ("dataset_from_index", "dataset_to_index")


@dataclass(frozen=True)
class _Dataset:
    """`shown` is what messages call the folder, `video_path` the pattern of the names of videos in it."""

    folder: Path
    shown: str
    video_path: str
    fps: Fraction


def is_lerobot(folder: Path) -> bool:
    """Whether a folder is a LeRobot dataset of version 3. UsageError where the file that says so cannot be read: as an
    ordinary folder its videos would be others."""
    info = folder / INFO
    try:
        return info.is_file() and is_version_3(info.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {str(info)!r}: {error.strerror or error}; fix that", file=str(info)) from error


def is_version_3(info: bytes) -> bool:
    """Whether the contents of `meta/info.json` are those of a dataset of version 3."""
    try:
        return str(json.loads(info).get("codebase_version", "")).startswith("v3.")
    except (ValueError, AttributeError):
        return False


def is_table_of_episodes(name: str) -> bool:
    """Whether a file of a dataset, by its path in it, describes episodes."""
    parts = name.split("/")
    return parts[:2] == ["meta", "episodes"] and len(parts) == 4 and name.endswith(".parquet")


def episodes_of(folder: Path) -> Recognised:
    """The videos of a LeRobot dataset on a disk."""
    tables = [file.relative_to(folder).as_posix() for file in (folder / "meta/episodes").glob("*/*.parquet")]
    return episodes_in(folder, str(folder), tables, lambda name: (folder / name).open("rb"))


def episodes_in(folder: Path, shown: str, tables: Iterable[str], opened: Callable[[str], BinaryIO]) -> Recognised:
    """The videos of a LeRobot dataset: id `<camera>/episode_<index, 6 digits>`, and the columns `episode_index`,
    `task`, `tasks`, `length`, `camera`, `dataset_from_index` and `dataset_to_index`.

    `shown` is what messages call the folder. `tables` are the files of its episodes, and `opened` opens them and
    `meta/info.json`: all are paths in the folder. UsageError where the metadata cannot be read, or names no videos.
    """
    with opened(INFO) as stream:
        info = json.load(stream)
    features: dict[str, Any] = info.get("features", {})
    cameras = [name for name, feature in features.items() if feature.get("dtype") == "video"]
    depth = [name for name in cameras if _is_depth(features[name])]
    cameras = [name for name in cameras if name not in depth]
    if not cameras or not info.get("video_path"):
        raise UsageError(
            f"the LeRobot dataset {shown!r} has no camera whose pictures are videos; shortgop prepares videos",
            file=shown,
        )
    rows = sorted(_rows(shown, tables, opened, cameras), key=lambda row: int(row["episode_index"]))
    if not rows:
        raise UsageError(f"the LeRobot dataset {shown!r} has no episodes", file=shown)
    robot = _Dataset(folder, shown, str(info["video_path"]), exact(str(info["fps"])))
    sources = [
        _episode(robot, camera, row)
        for camera in cameras
        for row in rows
        if row[f"videos/{camera}/file_index"] is not None
    ]
    left_out = f"; left out: {', '.join(depth)}, which {'is' if len(depth) == 1 else 'are'} depth" if depth else ""
    what = f"a LeRobot dataset of {counted(len(rows), 'episode')} and {counted(len(cameras), 'camera')}{left_out}"
    return Recognised(what, tuple(sources))


def _is_depth(feature: dict[str, Any]) -> bool:
    details = {**(feature.get("video_info") or {}), **(feature.get("info") or {})}
    return bool(details.get("is_depth_map") or details.get("video.is_depth_map"))


def _rows(
    shown: str, tables: Iterable[str], opened: Callable[[str], BinaryIO], cameras: list[str]
) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ToolError(f"reading {shown!r} needs pyarrow ({error}); run `pip install pyarrow`") from error
    needed = ["episode_index", "tasks", "length"]
    for camera in cameras:
        needed += [f"videos/{camera}/{name}" for name in ("chunk_index", "file_index", "from_timestamp")]
    for name in sorted(tables):
        file = f"{shown}/{name}"
        try:
            with opened(name) as stream:
                table = pq.ParquetFile(stream)
                there = table.schema_arrow.names
                missing = [column for column in needed if column not in there]
                if missing:
                    raise UsageError(
                        f"{file!r} has no column {missing[0]!r}, which LeRobot v3 datasets have; write it again "
                        "with lerobot",
                        file=file,
                    )
                yield from table.read([*needed, *(column for column in _KEPT if column in there)]).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise UsageError(f"cannot read {file!r}: {error}; copy it again", file=file) from error


def _episode(robot: _Dataset, camera: str, row: dict[str, Any]) -> Imported:
    index, length = int(row["episode_index"]), int(row["length"])
    name = robot.video_path.format(
        video_key=camera,
        chunk_index=int(row[f"videos/{camera}/chunk_index"]),
        file_index=int(row[f"videos/{camera}/file_index"]),
    )
    place = f"episode {index} of {robot.shown!r}"
    # A sum of durations as floats; the nearest frame is meant.
    start = exact(repr(float(row[f"videos/{camera}/from_timestamp"])))
    tasks = [str(task) for task in row["tasks"] or ()]
    attributes = {
        "episode_index": index,
        "task": tasks[0] if len(tasks) == 1 else None,
        "tasks": tasks,
        "length": length,
        "camera": camera,
        **{key: int(row[key]) for key in _KEPT if row.get(key) is not None},
    }
    return Imported(
        id=f"{camera}/episode_{index:06d}",
        path=robot.folder / name,
        given=name,
        attributes=attributes,
        part=Stretch(start, start + length / robot.fps, place, slack_seconds=Fraction(0)),
        place=place,
    )
