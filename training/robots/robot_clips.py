"""LeRobotClips: items as LeRobot's own Dataset has them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...arguments import exact_number, integer
from ...errors import UsageError, WrongTypeError
from ...manifests.ragged import Array
from ...readers.dataset import Dataset
from ...storage.interface import Storage
from ...storage.locate import storage_at
from ...warned import warn
from ...wording import counted
from ..datasets.clip_dataset import ClipDataset, OnError
from ..datasets.drawn_items import OF_ITEMS, Item
from ..datasets.reading_options import dataset_to_read
from ..datasets.unreadable import read_what_can_be
from ..pixels.outputs import Output
from ..pixels.rows import Rows
from ..pixels.transforms import Transform
from ..which_clips.clips import Clip
from ..which_clips.offsets import Offsets, listed
from ..which_clips.policies import AllClips
from .robot_cameras import (
    ELSEWHERE,
    OutputsOfCamera,
    by_name,
    check_entries,
    entry_of,
    of_outputs,
    one_time_axes,
    outputs_of,
    seed_of,
    transforms_of,
)
from .robot_rows import as_item, rate_of, rows_of, tasks_of

# In seconds: as in LeRobot, delta timestamps may be so far from a frame.
_TOLERANCE = 1e-4
# Episodes that a warning names.
_NAMED = 5
# The entries of items of one camera. MixedClips, which add the number of a dataset, never have these.
_OF_CAMERA = tuple(name for name in OF_ITEMS if name != "dataset")


class _OfCamera(ClipDataset):
    """The clips of one camera."""

    _ENTRIES = _OF_CAMERA


class LeRobotClips(ClipDataset):
    """The frames of a LeRobot dataset that was prepared, with states and actions: an item for each frame of the
    episodes, as LeRobotDataset has them.

        dataset = shortgop.LeRobotClips("DATASET", "my_robot", delta_timestamps={
            "observation.images.front": [-0.1, 0],
            "observation.state": [-0.1, 0],
            "action": [step / 30 for step in range(50)],
        }, episodes=range(40), dtype=torch.float32)
        dataset[0]["action"]  # (50, values), and dataset[0]["action_is_pad"], (50,)

    An item is a dict:

    - each camera under its name: (times, 3, height, width), or (3, height, width) where there is one time; with
      `outputs`, `<camera>_crop`, int64, (top, left, height, width) in pixels of the decoded frame, and `<camera>_flip`,
      bool, too; where a camera has several outputs, `<camera>_<output>` for each but that which is called "frames", and
      `<camera>_crop_<output>` and `<camera>_flip_<output>` where several have no `shared`;
    - each column of numbers in the Parquet files under its name ("observation.state", "action", "timestamp",
      "frame_index", "episode_index", "index", "task_index", ...), and `task`, a text;
    - for each key of `delta_timestamps` `<key>_is_pad`: bool, (times,): True where the episode has no such frame, so
      that its first or last one stands in;
    - `video`: the number of the first camera's video; `draw`; and the columns named in `metadata`.

    Parameters:

    - `dataset`: as for ClipDataset. With a path, what is not named here is passed on to shortgop.open, and is the same
      for all cameras: `size`, `crop`, `interpolation`, `dtype`, ...
    - `robot`: the LeRobot dataset that was prepared, a folder or a URL: its rows are read from there.
    - `delta_timestamps`: of cameras and columns, the times in seconds from the item's frame on. What is not in it comes
      at the item's frame alone.
    - `episodes`: their numbers; all by default. Their order does not matter.
    - `cameras`: their names; all by default.
    - `drop_first_frames`, `drop_last_frames`: so many frames of each episode have no item, though those of others may
      have them. LeRobot's policies call the latter `drop_n_last_frames`.
    - `outputs`: a shortgop.Output for all cameras, or a dict of one for each, in place of `size`, `crop`, `dtype` and
      so on: with random crops and flips, which all times of a camera share. For several outputs of one decode, the dict
      has a dict of them for the camera, as ClipDataset takes it: {"frames": Output(...), "small": Output(...)}.
    - `transform`: a callable on the frames of one camera of one item, (times, 3, height, width), also where there is
      one time; or a dict of them for some of the cameras. Where a camera has a dict of outputs, it gets a dict of them
      and returns one. Seeded as that of ClipDataset.
    - `same_for_cameras`: whether crops, flips and transforms draw the same random numbers for all cameras of an item.
      By default each camera draws by itself, as with LeRobot.
    - `on_error`, `max_skipped`: as for ClipDataset. An item of which a camera cannot be read is replaced as a whole.
    - `seed`, `metadata`: as for ClipDataset.

    UsageError where a time is no frame's, and where rows and videos do not go together.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Dataset,
        robot: str | os.PathLike[str],
        *,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        episodes: Iterable[int] | None = None,
        cameras: Sequence[str] | None = None,
        drop_first_frames: int = 0,
        drop_last_frames: int = 0,
        seed: int = 0,
        metadata: Sequence[str] = (),
        outputs: Output | Mapping[str, OutputsOfCamera] | None = None,
        transform: Transform | Mapping[str, Transform] | None = None,
        same_for_cameras: bool = False,
        on_error: OnError = "raise",
        max_skipped: int = 100,
        **reading: Any,
    ) -> None:
        dataset = dataset_to_read(dataset, reading, "LeRobotClips", ELSEWHERE)
        place = storage_at(robot)
        self._deltas = _frames_of(delta_timestamps or {}, rate_of(place))
        videos = _videos_of(dataset, cameras, episodes)
        skip = (integer(drop_first_frames, "drop_first_frames"), integer(drop_last_frames, "drop_last_frames"))
        made = outputs_of(outputs, tuple(videos))
        transforms = transforms_of(transform, tuple(videos))
        # Where the dimension of times is in what is read of each camera, if it goes since there is one time.
        self._axes = {name: one_time_axes(given, len(self._frames(name))) for name, given in made.items()}
        self.cameras: tuple[str, ...] = tuple(videos)

        def view(camera: str) -> ClipDataset:
            return _OfCamera(
                dataset,
                AllClips(Offsets(frames=self._frames(camera)), whole=False, ends="clamp", skip=skip),
                videos=videos[camera],
                seed=seed_of(integer(seed, "seed"), camera, same_for_cameras=same_for_cameras),
                outputs=by_name(made[camera]),
                transform=of_outputs(transforms[camera], made[camera]),
                # Of the first camera alone.
                metadata=metadata if camera == self.cameras[0] else (),
            )

        self._views = {camera: view(camera) for camera in self.cameras}
        super().__init__(
            dataset,
            AllClips(1, whole=False, ends="clamp", skip=skip),
            videos=self._views[self.cameras[0]].video_numbers,
            seed=seed,
            metadata=self._views[self.cameras[0]].metadata_names,
            on_error=on_error,
            max_skipped=max_skipped,
        )
        self._read_rows(place)
        _check_keys(self._deltas, [*self._views, *self._robot.columns])
        self._stays(LeRobotClips)

    def _frames(self, camera: str) -> tuple[int, ...]:
        """The distances in frames at which a camera is read."""
        return self._deltas.get(camera, (0,))

    def _read_rows(self, place: Storage) -> None:
        """Read the rows of the episodes, which lie at `place`."""
        numbers, columns = self.video_numbers, self.source.columns
        # A list may have a column of this name, which says something else.
        frames = columns.built_in["num_frames"]
        self.episodes: tuple[int, ...] = tuple(columns["episode_index"][numbers].astype(np.int64).tolist())
        lengths = frames[numbers]
        _check_lengths(self.source, self._views, frames, lengths)
        self._firsts = dict(zip(numbers.tolist(), (np.cumsum(lengths) - lengths).tolist(), strict=True))
        self._lengths = dict(zip(numbers.tolist(), lengths.tolist(), strict=True))
        self._robot = rows_of(place, np.array(self.episodes, dtype=np.int64), lengths)
        self._tasks = tasks_of(place)
        unnamed = set(np.unique(self.rows.get("task_index", ())).astype(int).tolist()) - self._tasks.keys()
        if self._tasks and unnamed:
            raise UsageError(
                f"the rows in {place} have the task {min(unnamed)}, which its files of tasks do not name; give the "
                "LeRobot dataset that was prepared, with all of its files"
            )
        check_entries(self._axes, self._robot.columns)

    def __repr__(self) -> str:
        return (
            f"<LeRobotClips of {self.source!r}: {counted(len(self), 'item')} of "
            f"{counted(len(self.episodes), 'episode')}, {', '.join(self.cameras)}>"
        )

    @property
    def rows(self) -> Mapping[str, Array]:
        """The columns of the chosen episodes, (rows, ...), one episode after the other, such as for statistics:
        `rows["action"].mean(0)`. They cannot be written to."""
        return self._robot.columns

    @property
    def is_random(self) -> bool:
        """As ClipDataset.is_random, of any of the cameras."""
        return any(view.is_random for view in self._views.values())

    @property
    def has_transform(self) -> bool:
        """As ClipDataset.has_transform, of any of the cameras."""
        return any(view.has_transform for view in self._views.values())

    def items(self, draws: Sequence[int], rows: Rows | None = None) -> list[Item]:
        moments = self.clip_index.clips(draws)
        if self._skipping is None:
            found = self._of_cameras(moments, rows)
        else:
            # All cameras of an item together: each would choose another moment in the place of one that is lost.
            moments, found = read_what_can_be(
                moments, rows, self._of_cameras, index=self.clip_index, shared=self._shared, how=self._skipping
            )
        items = []
        for place, moment in enumerate(moments):
            item: Item = {}
            for camera in self.cameras:
                item |= self._of_camera(camera, found[camera][place])
            of_first = found[self.cameras[0]][place]
            item |= self._of_frame(of_first["video"], moment.start)
            item |= {name: of_first[name] for name in ("video", "draw", *self.metadata_names)}
            items.append(item)
        return items

    def _of_cameras(self, moments: Sequence[Clip], rows: Rows | None) -> dict[str, list[Item]]:
        """The items of each camera at these moments."""
        draws = [moment.draw for moment in moments]
        return {camera: view.items(draws, self._rows_for(camera, rows)) for camera, view in self._views.items()}

    def _of_camera(self, camera: str, read: Item) -> Item:
        """The entries of an item that are those of a camera."""
        axes, others = self._axes[camera], (*_OF_CAMERA, *self._views[camera].metadata_names)
        item: Item = {}
        for name, value in read.items():
            axis = axes.get(name)
            if name == "mask" and camera in self._deltas:
                item[f"{camera}_is_pad"] = ~value
            elif axis is not None and isinstance(value, torch.Tensor):
                item[entry_of(camera, name)] = value.squeeze(axis)
            elif name not in others:
                item[entry_of(camera, name)] = value
        return item

    def will_need(self, draws: Sequence[int]) -> None:
        for view in self._views.values():
            view.will_need(draws)

    def _rows_for(self, camera: str, rows: Rows | None) -> Rows | None:
        if rows is None or self._views[camera].has_transform:
            return None
        tensors = {}
        for name, axis in self._axes[camera].items():
            tensor = rows.tensors.get(entry_of(camera, name))
            if tensor is not None:
                tensors[name] = tensor if axis is None else tensor.unsqueeze(1 + axis)
        return Rows(tensors, rows.numbers)

    def _of_frame(self, video: int, frame: int) -> Item:
        """What the rows say of a frame of an episode, and of those around it."""
        first, last = self._firsts[video], self._lengths[video] - 1
        item: Item = {}
        for name, column in self._robot.columns.items():
            deltas = self._deltas.get(name)
            if deltas is None:
                item[name] = as_item(column[first + frame])
                continue
            frames = frame + np.array(deltas)
            item[name] = as_item(column[first + frames.clip(0, last)])
            item[f"{name}_is_pad"] = torch.from_numpy((frames < 0) | (frames > last))
        if self._tasks and "task_index" in item:
            item["task"] = self._tasks[int(item["task_index"])]
        return item


def _frames_of(delta_timestamps: Mapping[str, Sequence[float]], fps: float) -> dict[str, tuple[int, ...]]:
    """The distances in frames. UsageError for a time between two frames, as LeRobot has it."""
    if not isinstance(delta_timestamps, Mapping):
        raise WrongTypeError(f"delta_timestamps is {delta_timestamps!r}; it is a dict of lists of seconds")
    found = {}
    for key, times in delta_timestamps.items():
        given = listed(times, f"the times of {key!r}")
        seconds = [float(exact_number(time, "a time of delta_timestamps")) for time in given]
        frames = tuple(round(time * fps) for time in seconds)
        if not frames:
            raise UsageError(f"delta_timestamps has no times for {key!r}; leave it out, or give [0]")
        for time, frame in zip(seconds, frames, strict=True):
            if abs(time * fps - frame) / fps > _TOLERANCE:
                raise UsageError(
                    f"delta_timestamps has {time} s for {key!r}, which lies between two frames at {fps:g} frames per "
                    f"second; give frames / {fps:g}, such as {frame / fps:.6g}"
                )
        found[str(key)] = frames
    return found


def _check_keys(deltas: Mapping[str, tuple[int, ...]], known: Sequence[str]) -> None:
    """UsageError for delta timestamps of what is no camera and no column."""
    for key in deltas:
        if key not in known:
            raise UsageError(
                f"delta_timestamps has {key!r}, which is neither a camera nor a column; there are {', '.join(known)}"
            )


def _videos_of(dataset: Dataset, cameras: Sequence[str] | None, episodes: Iterable[int] | None) -> dict[str, list[int]]:
    """The numbers of the videos of each camera, in the order of episodes, which are the same for all."""
    columns = dataset.columns
    if "camera" not in columns or "episode_index" not in columns:
        raise UsageError(
            "the dataset has no columns 'camera' and 'episode_index': it was not made of a LeRobot dataset; give the "
            "one that `shortgop prep` made of such a dataset"
        )
    of_camera: dict[str, dict[int, int]] = {}
    for video, (camera, episode) in enumerate(zip(columns["camera"], columns["episode_index"], strict=True)):
        if not isinstance(camera, str) or np.isnan(episode):
            continue
        there = of_camera.setdefault(camera, {})
        if int(episode) in there:
            raise UsageError(
                f"the dataset has {dataset.ids[there[int(episode)]]!r} and {dataset.ids[video]!r}, one camera and one "
                "episode; choose the videos of one robot with dataset.where(...)"
            )
        there[int(episode)] = video
    names = sorted(of_camera) if cameras is None else [str(each) for each in listed(cameras, "cameras")]
    unknown = [name for name in names if name not in of_camera]
    if unknown or not names:
        asked = repr(unknown[0]) if unknown else "no name"
        raise UsageError(f"cameras has {asked}; the dataset has {', '.join(sorted(of_camera)) or 'no camera'}")
    of_each = [set(of_camera[name]) for name in names]
    whole, some = set.intersection(*of_each), set.union(*of_each)
    if episodes is None:
        if partly := some - whole:
            named = f"{', '.join(map(str, sorted(partly)[:_NAMED]))}{', ...' if len(partly) > _NAMED else ''}"
            warn(
                f"the dataset lacks a camera of {counted(len(partly), 'episode')}, left out here: "
                f"{named}; `shortgop info` says which sources could not be prepared"
            )
        chosen = whole
    else:
        chosen = {integer(each, "an episode") for each in listed(episodes, "episodes")}
        if lacking := sorted(chosen - whole):
            if some and lacking[0] not in some:
                raise UsageError(
                    f"the dataset has no episode {lacking[0]}: it has {counted(len(some), 'episode')}, {min(some)} to "
                    f"{max(some)}; `shortgop info` says which sources could not be prepared"
                )
            raise UsageError(
                f"the dataset lacks episode {lacking[0]} of one of {', '.join(names)}; `shortgop info` says which "
                "sources could not be prepared"
            )
    if not chosen:
        raise UsageError("there are no episodes; give the numbers of some")
    return {name: [of_camera[name][episode] for episode in sorted(chosen)] for name in names}


def _check_lengths(dataset: Dataset, views: Mapping[str, ClipDataset], frames: Array, lengths: Array) -> None:
    """UsageError where the videos of an episode differ in length. `frames` are those of all videos, `lengths` those of
    the first camera's."""
    for view in views.values():
        others = frames[view.video_numbers]
        for place in np.flatnonzero(others != lengths)[:1].tolist():
            raise UsageError(
                f"{dataset.ids[view.video_numbers[place]]!r} has {counted(int(others[place]), 'frame')}, and the first "
                f"camera {lengths[place]}; leave the episode out by episodes=, or take out its videos with `shortgop "
                "drop` and prepare them again at the rate of the LeRobot dataset with --include-dropped"
            )
