"""What the pictures of each camera of a robot become: sizes, crops and transforms, alike for all cameras or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import UsageError, WrongTypeError
from .keyed import key
from .outputs import OF_LOADERS, Output
from .transforms import Transform

FRAMES = "frames"
"""What items of one camera call its pictures."""

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

# What an output has that the other parameters of LeRobotClips say.
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


def of_outputs(transform: Transform | None) -> Transform | None:
    """The same transform where frames are an output."""
    return transform if transform is None or not callable(transform) else _OfOutputs(transform)


def outputs_of(outputs: Output | Mapping[str, Output] | None, cameras: Sequence[str]) -> dict[str, Output | None]:
    """The output of each camera; None for all where there are none. UsageError where one is missing, or has what
    cameras have no use for."""
    if outputs is None:
        return dict.fromkeys(cameras)
    found = _of_each("outputs", outputs, cameras)
    lacking = [camera for camera in cameras if camera not in found]
    if lacking:
        raise UsageError(f"outputs has none for the camera {lacking[0]!r}; give each camera one, or one Output for all")
    for camera, output in found.items():
        if not isinstance(output, Output):
            raise WrongTypeError(f"outputs has {output!r} for {camera!r}; it has to be a shortgop.Output")
        for name, remedy in _NOT_HERE.items():
            if getattr(output, name) is not None:
                raise UsageError(f"the output of {camera!r} has {name}={getattr(output, name)!r}: {remedy}")
    return dict(found)


def transforms_of(
    transform: Transform | Mapping[str, Transform] | None, cameras: Sequence[str]
) -> dict[str, Transform | None]:
    """The transform of each camera, None where it has none."""
    found = {} if transform is None else _of_each("transform", transform, cameras)
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
        raise UsageError(f"{name} has {unknown[0]!r}, which no camera is: {', '.join(cameras)}")
    return dict(given)
