"""LeRobot datasets, versions 2 and 3: each episode of each camera becomes a video.

The format is that of `lerobot.datasets` (github.com/huggingface/lerobot): `meta/info.json` names the cameras (features
of dtype `video` or `image`) and the pattern of their files. In version 3 `meta/episodes/**/*.parquet` has a row for
each episode, and an MP4 holds several episodes, one after the other: an episode's frame i is the one at
`from_timestamp` + i / fps. In version 2 `meta/episodes.jsonl` has a line for each episode, and each has MP4s of its
own. The pictures of cameras of dtype `image` are a column of the Parquet files in `data/`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ....arguments import exact
from ....errors import ToolError, UsageError
from ....prep.timing.stretch import Stretch
from ....wording import counted
from ..source_parts import Imported, PictureRows, Recognised

INFO, EPISODES = "meta/info.json", "meta/episodes"
"""What describes a dataset, and how the names of the files that describe its episodes begin."""
_LINES_OF_EPISODES = "meta/episodes.jsonl"
_KEPT = ("dataset_from_index", "dataset_to_index")
_PLACES_OF_ROWS = ("data/chunk_index", "data/file_index")
# What datasets of version 2 have where their meta/info.json says nothing else.
_EPISODES_IN_CHUNK = 1000


@dataclass(frozen=True)
class _Dataset:
    """`shown` is what messages call the folder, `video_path` the pattern of the names of videos in it, `data_path` that
    of the names of its rows."""

    folder: Path
    shown: str
    video_path: str
    data_path: str
    fps: Fraction


class _Cameras(NamedTuple):
    """The names of those that have videos, and of those that have pictures in the rows."""

    videos: list[str]
    pictures: list[str]


@dataclass(frozen=True)
class _Episode:
    """`kept` are columns of its videos. `files` has the name of the file of each camera that has one, and the time in
    seconds at which the episode begins there; `rows` is the name of the file of its rows, "" where no camera has its
    pictures there."""

    index: int
    length: int
    tasks: list[str]
    kept: dict[str, int]
    files: dict[str, tuple[str, Fraction]]
    rows: str


def is_lerobot(folder: Path) -> bool:
    """Whether a folder is a LeRobot dataset of version 2 or 3. UsageError where the file that says so cannot be read,
    or says nothing of it beside a description of episodes: as an ordinary folder its videos would be others."""
    info = folder / INFO
    try:
        return info.is_file() and is_info(
            info.read_bytes(), str(info), lambda: any(info.parent.glob(f"{Path(EPISODES).name}*"))
        )
    except OSError as error:
        raise UsageError(f"cannot read {str(info)!r}: {error.strerror or error}; fix that", file=str(info)) from error


def is_info(content: bytes, shown: str, has_episodes: Callable[[], bool]) -> bool:
    """Whether this is the `meta/info.json` of a dataset of version 2 or 3. UsageError if it names no version and there
    are files of episodes beside it: it was cut off or edited. `shown` is what messages call it."""
    try:
        version = json.loads(content).get("codebase_version")
    except (ValueError, AttributeError):
        version = None
    if version is None and has_episodes():
        raise UsageError(
            f"{shown!r} does not say which version of LeRobot the dataset has, and {EPISODES} is beside it; copy the "
            f"file again, or for plain videos move {EPISODES} elsewhere",
            file=shown,
        )
    return str(version).startswith(("v2.", "v3."))


def is_table_of_episodes(name: str) -> bool:
    """Whether a file of a dataset of version 3, by its path in it, describes episodes."""
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
    try:
        return _episodes_in(folder, shown, tables, opened)
    except UsageError:
        raise
    except (ArithmeticError, AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise UsageError(
            f"the metadata of the LeRobot dataset {shown!r} makes no sense: {type(error).__name__}: {error}; copy it "
            "again",
            file=shown,
        ) from error


def _episodes_in(folder: Path, shown: str, tables: Iterable[str], opened: Callable[[str], BinaryIO]) -> Recognised:
    with opened(INFO) as stream:
        info = json.load(stream)
    features: dict[str, Any] = info.get("features", {})
    depth = [name for name, feature in features.items() if feature.get("dtype") == "video" and _is_depth(feature)]
    videos, pictures = (
        [name for name, feature in features.items() if feature.get("dtype") == kind and not _is_depth(feature)]
        for kind in ("video", "image")
    )
    videos = videos if info.get("video_path") else []
    left_out = [f"{', '.join(depth)}, which {'is' if len(depth) == 1 else 'are'} depth"] if depth else []
    cameras = _Cameras(videos, pictures)
    if not (videos or pictures):
        raise UsageError(
            f"the LeRobot dataset {shown!r} has no camera: no feature of dtype video or image that is no depth; "
            "shortgop prepares videos",
            file=shown,
        )
    data_path = str(info.get("data_path", ""))
    robot = _Dataset(folder, shown, str(info.get("video_path")), data_path, exact(str(info["fps"])))
    if robot.fps <= 0:
        raise ValueError(f"fps is {robot.fps}")
    if str(info["codebase_version"]).startswith("v2."):
        found = _described_by_lines(robot, info, opened, cameras)
    else:
        found = [_described_by(row, robot, cameras) for row in _rows(shown, tables, opened, cameras)]
    episodes = sorted(found, key=lambda episode: episode.index)
    if not episodes:
        raise UsageError(f"the LeRobot dataset {shown!r} has no episodes", file=shown)
    sources = [_source(robot, camera, episode) for camera in videos for episode in episodes if camera in episode.files]
    frames_in: Counter[str] = Counter()
    for episode in episodes:
        frames_in[episode.rows] += episode.length
    sources += [
        _pictures(robot, camera, episode, Fraction(episode.length, max(1, frames_in[episode.rows])))
        for camera in pictures
        for episode in episodes
    ]
    what = f"a LeRobot dataset of {counted(len(episodes), 'episode')} and "
    what += "; left out: ".join([counted(len(videos) + len(pictures), "camera"), *left_out])
    return Recognised(what, tuple(sources))


def _is_depth(feature: dict[str, Any]) -> bool:
    details = {**(feature.get("video_info") or {}), **(feature.get("info") or {})}
    return bool(details.get("is_depth_map") or details.get("video.is_depth_map"))


def _rows(
    shown: str, tables: Iterable[str], opened: Callable[[str], BinaryIO], cameras: _Cameras
) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ToolError(f"reading {shown!r} needs pyarrow ({error}); run `pip install pyarrow`") from error
    needed = ["episode_index", "tasks", "length", *(_PLACES_OF_ROWS if cameras.pictures else ())]
    for camera in cameras.videos:
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


def _described_by(row: dict[str, Any], robot: _Dataset, cameras: _Cameras) -> _Episode:
    """The episode of a row of a dataset of version 3."""
    files = {}
    for camera in cameras.videos:
        if row[f"videos/{camera}/file_index"] is not None:
            name = robot.video_path.format(
                video_key=camera,
                chunk_index=int(row[f"videos/{camera}/chunk_index"]),
                file_index=int(row[f"videos/{camera}/file_index"]),
            )
            # A sum of durations as floats; the nearest frame is meant.
            files[camera] = name, exact(repr(float(row[f"videos/{camera}/from_timestamp"])))
    kept = {key: int(row[key]) for key in _KEPT if row.get(key) is not None}
    tasks = [str(task) for task in row["tasks"] or ()]
    rows = ""
    if cameras.pictures:
        chunk, file = (int(row[name]) for name in _PLACES_OF_ROWS)
        rows = robot.data_path.format(chunk_index=chunk, file_index=file)
    return _Episode(int(row["episode_index"]), int(row["length"]), tasks, kept, files, rows)


def _described_by_lines(
    robot: _Dataset, info: dict[str, Any], opened: Callable[[str], BinaryIO], cameras: _Cameras
) -> list[_Episode]:
    """The episodes of a dataset of version 2."""
    try:
        with opened(_LINES_OF_EPISODES) as stream:
            lines = stream.read().splitlines()
    except OSError as error:
        file = f"{robot.shown}/{_LINES_OF_EPISODES}"
        raise UsageError(f"cannot read {file!r}: {error.strerror or error}; copy it again", file=file) from error
    rows = sorted((json.loads(line) for line in lines if line.strip()), key=lambda row: int(row["episode_index"]))
    in_chunk = int(info.get("chunks_size") or _EPISODES_IN_CHUNK)
    episodes, first = [], 0
    for row in rows:
        index, length = int(row["episode_index"]), int(row["length"])
        place = {"episode_index": index, "episode_chunk": index // in_chunk}
        names = {camera: robot.video_path.format(video_key=camera, **place) for camera in cameras.videos}
        rows_name = robot.data_path.format(**place) if cameras.pictures else ""
        files = {camera: (name, Fraction(0)) for camera, name in names.items()}
        # The rows of data/ are those of the episodes, one after the other.
        kept = dict(zip(_KEPT, (first, first + length), strict=True))
        tasks = [str(task) for task in row.get("tasks") or ()]
        episodes.append(_Episode(index, length, tasks, kept, files, rows_name))
        first += length
    return episodes


def _source(robot: _Dataset, camera: str, episode: _Episode) -> Imported:
    name, start = episode.files[camera]
    place = _place(robot, episode)
    part = Stretch(start, start + episode.length / robot.fps, place, num_frames=episode.length)
    return _imported(robot, camera, episode, name, part)


def _pictures(robot: _Dataset, camera: str, episode: _Episode, share: Fraction) -> Imported:
    place = _place(robot, episode)
    part = PictureRows(camera, episode.index, episode.length, robot.fps, place, share)
    return _imported(robot, camera, episode, episode.rows, part)


def _place(robot: _Dataset, episode: _Episode) -> str:
    return f"episode {episode.index} of {robot.shown!r}"


# The id of an episode, below the folder that ids are made from.
EPISODE_ID = re.compile(r"(?:.*/)?episode_[0-9]{6,}", re.DOTALL)


def _imported(robot: _Dataset, camera: str, episode: _Episode, name: str, part: Stretch | PictureRows) -> Imported:
    attributes = {
        "episode_index": episode.index,
        "task": episode.tasks[0] if len(episode.tasks) == 1 else None,
        "tasks": episode.tasks,
        "length": episode.length,
        "camera": camera,
        **episode.kept,
    }
    return Imported(
        id=f"{camera}/episode_{episode.index:06d}",
        path=robot.folder / name,
        given=name,
        attributes=attributes,
        part=part,
        place=_place(robot, episode),
    )
