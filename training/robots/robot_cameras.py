"""What the pictures of each camera of a robot become: sizes, crops and transforms, alike for all cameras or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import UsageError, WrongTypeError
from ..datasets.reading_options import OF_LOADERS
from ..pixels.outputs import Output
from ..pixels.transforms import Transform, check_transform
from ..which_clips.keyed import key

FRAMES = "frames"
"""What items of one camera call its pictures: an output of this name has the camera's own name in items of robots."""

OutputsOfCamera = Output | Mapping[str, Output]
"""What the pictures of a camera become: one thing, or several by name."""

ELSEWHERE = {
    "image_transforms": "transform= is that, and outputs= has crops that take no time of their own",
    "drop_n_last_frames": "drop_last_frames= is that",
    **dict.fromkeys(("repo_id", "root"), "the LeRobot dataset is the second argument"),
    **dict.fromkeys(
        ("tolerance_s", "video_backend", "revision", "download_videos", "force_cache_sync"),
        "leave it out: frames are read from the dataset that was prepared, by their numbers",
    ),
    **dict.fromkeys(("videos", "split"), "episodes= says which episodes, and cameras= which cameras"),
    "transform_batch": "a transform gets the frames of one camera of one item",
    **OF_LOADERS,
}
"""Where what is often looked for in LeRobotClips is, such as the parameters of LeRobotDataset."""

# What a camera's only output has that the other parameters of LeRobotClips say.
_NOT_HERE = {
    "frames": "delta_timestamps says which frames a camera has",
    "shared": "same_for_cameras=True gives all cameras the same crops and flips",
}


@dataclass(frozen=True)
class _OfOutputs:
    """A transform of frames as one of outputs, which gets them by name."""

    transform: Transform

    def __call__(self, read: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        return {FRAMES: self.transform(read[FRAMES])}


def of_outputs(transform: Transform | None, outputs: OutputsOfCamera | None) -> Transform | None:
    """The transform of a camera as one of these outputs: where it has only one, it is a transform of frames."""
    return _OfOutputs(transform) if isinstance(outputs, Output) and callable(transform) else transform


def by_name(outputs: OutputsOfCamera | None) -> Mapping[str, Output] | None:
    """The outputs of a camera as ClipDataset takes them."""
    return {FRAMES: outputs} if isinstance(outputs, Output) else outputs


def one_time_axes(outputs: OutputsOfCamera | None, num_times: int) -> dict[str, int | None]:
    """For each of the names that items of a camera have for its pictures, where the dimension of times is if they have
    one time, of `num_times` that the camera has; None if they have several."""
    axes: dict[str, int | None] = {}
    for name, output in (by_name(outputs) or {FRAMES: Output()}).items():
        times = num_times if output.frames is None else len(output.frames)
        axes[name] = output.layout.index("T") if times == 1 else None
    return axes


def entry_of(camera: str, name: str) -> str:
    """What items of robots call what items of a camera call `name`."""
    return camera if name == FRAMES else f"{camera}_{name}"


def check_entries(names: Mapping[str, Iterable[str]], columns: Iterable[str]) -> None:
    """UsageError where outputs of these names, by camera, have that of something else in items."""
    taken = {*columns, *names, *(f"{camera}_is_pad" for camera in names)}
    for camera, of_camera in names.items():
        for name in of_camera:
            entry = entry_of(camera, name)
            if entry in taken and name != FRAMES:
                raise UsageError(f"outputs has {name!r} for {camera!r}, and items have {entry!r} already: rename it")
            taken.add(entry)


def outputs_of(
    outputs: Output | Mapping[str, OutputsOfCamera] | None, cameras: Sequence[str]
) -> dict[str, OutputsOfCamera | None]:
    """The outputs of each camera; None for all where there are none. UsageError where they are missing, or have what
    cameras have no use for."""
    if outputs is None:
        return dict.fromkeys(cameras)
    found = _of_each("outputs", outputs, cameras)
    lacking = [camera for camera in cameras if camera not in found]
    if lacking:
        raise UsageError(f"outputs has none for the camera {lacking[0]!r}; give each camera one, or one Output for all")
    for camera, output in found.items():
        if isinstance(output, Mapping) and output:
            continue
        if not isinstance(output, Output):
            raise WrongTypeError(
                f"outputs has {output!r} for {camera!r}; it has to be a shortgop.Output, or a dict of them by name"
            )
        for name, remedy in _NOT_HERE.items():
            if getattr(output, name) is not None:
                raise UsageError(f"the output of {camera!r} has {name}={getattr(output, name)!r}: {remedy}")
    return dict(found)


def transforms_of(
    transform: Transform | Mapping[str, Transform] | None, cameras: Sequence[str]
) -> dict[str, Transform | None]:
    """The transform of each camera, None where it has none. WrongTypeError for what is none."""
    found = {} if transform is None else _of_each("transform", transform, cameras)
    for each in found.values():
        check_transform(each)
    return {camera: found.get(camera) for camera in cameras}


def seed_of(seed: int, camera: str, *, same_for_cameras: bool) -> int:
    """The seed of what is random about the pictures of a camera."""
    return seed if same_for_cameras else key(seed, "camera", camera)


def _of_each(name: str, given: Any, cameras: Sequence[str]) -> dict[str, Any]:
    """What is given for each camera, or one for all of them."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(cameras, given)
    unknown = [camera for camera in given if camera not in cameras]
    if unknown:
        raise UsageError(f"{name} has {unknown[0]!r}, which is no camera; the cameras are {', '.join(cameras)}")
    return dict(given)
