"""Random clips of a dataset as small pictures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation

from ..errors import ShortGopError
from ..manifests.ragged import Array
from ..prep.picture_quality import Quality
from ..readers.dataset import Dataset
from ..readers.picture_files import PictureFormat, encoded
from ..readers.video import Video
from ..wording import duration
from .page_plan import Clip, Picture, Strip
from .page_words import how_many, name
from .source_pictures import source_frames

FRAMES = 4
_APART_SECONDS = Fraction(1, 2)
_MOST_WIDTH, _MOST_HEIGHT = 240, 180
# As mjpeg's scale goes: 2 is the best quality, 31 the worst.
_JPEG = PictureFormat("mjpeg", "yuvj420p", {"qmin": "4", "qmax": "4"})
_MOST_LABELS, _LABEL_CHARACTERS = 6, 40


Measure = Callable[[int, Sequence[int]], Quality | str]
"""The quality of frames of the video in a row of the dataset, or why it is not measured."""


def clips_of(
    dataset: Dataset, count: int, seed: int, most_seconds: float, measure: Measure
) -> tuple[tuple[Clip, ...], str]:
    """`count` clips, each of another video, drawn with this seed; and why there are fewer, or "". After `most_seconds`
    no other one is begun."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(dataset), min(count, len(dataset)), replace=False)).tolist()
    started = time.monotonic()
    clips: list[Clip] = []
    for row in rows:
        if time.monotonic() - started > most_seconds:
            return tuple(clips), f"{how_many(len(rows) - len(clips), 'clip')} left out: the others took too long"
        video = dataset[row]
        frames = frames_of_clip(len(video), Fraction(video.metadata.fps), rng)
        clips.append(_clip(video, frames, partial(measure, row, frames)))
    return tuple(clips), ""


def frames_of_clip(num_frames: int, fps: Fraction, rng: np.random.Generator) -> list[int]:
    """Up to four frames of a video, half a second apart or less where it is short, from a random one on."""
    count = min(FRAMES, num_frames)
    step = max(1, min(round(_APART_SECONDS * fps), (num_frames - 1) // max(1, count - 1)))
    start = int(rng.integers(num_frames - step * (count - 1)))
    return [start + step * number for number in range(count)]


def size_shown(width: int, height: int) -> tuple[int, int]:
    """Width and height of a picture of this size where it has to fit: even numbers, and no larger than it is."""
    scale = min(1.0, _MOST_WIDTH / width, _MOST_HEIGHT / height)
    return max(2, round(width * scale / 2) * 2), max(2, round(height * scale / 2) * 2)


def _clip(video: Video, frames: Sequence[int], measured: Callable[[], Quality | str]) -> Clip:
    stored, source = _stored(video, frames), _source(video, frames)
    # Why there are no pictures is said already.
    quality = "" if stored.trouble or source.trouble else measured()
    return Clip(video.id, labels_text(video.attributes), stored, source, quality)


def _stored(video: Video, frames: Sequence[int]) -> Strip:
    metadata = video.metadata
    about = (
        f"{metadata.width} x {metadata.height}, {float(metadata.fps):.4g} frames/s, {metadata.codec}, "
        f"{duration(metadata.duration_seconds)}, {metadata.bit_rate / 1e6:.2g} Mbit/s"
    )
    try:
        pictures = video.get_frames_at(frames).data.numpy()
    except ShortGopError as error:
        return Strip(about=about, trouble=error.message)
    seconds = [float(frame / video.metadata.fps) for frame in frames]
    shown = [
        _small(picture, 1.0, f"frame {frame} of {name(video.id)}, at {second:.2f} s")
        for picture, frame, second in zip(pictures, frames, seconds, strict=True)
    ]
    return Strip(tuple(shown), about)


def _source(video: Video, frames: Sequence[int]) -> Strip:
    """The frames of the source that these show. They are read again, and not taken from what prep saw."""
    try:
        found = source_frames(video.source_path or video.source, video.source_pts(list(frames)).tolist())
    except ShortGopError as error:
        return Strip(trouble=error.message)
    pictures = [
        _small(each.rgb, each.pixel_aspect, f"the source's frame that frame {frame} of {name(video.id)} shows")
        for each, frame in zip(found.pictures, frames, strict=True)
    ]
    return Strip(tuple(pictures), found.about)


def _small(rgb: Array, pixel_aspect: float, shows: str) -> Picture:
    height, width = rgb.shape[:2]
    columns, rows = size_shown(max(1, round(width * pixel_aspect)), height)
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")
    scaled = frame.reformat(columns, rows, "rgb24", interpolation=Interpolation.AREA).to_ndarray()
    return Picture(encoded(scaled, _JPEG), columns, rows, shows)


def labels_text(attributes: dict[str, object]) -> str:
    """The first labels of a video in a line."""
    shown = [
        f"{name(key, _LABEL_CHARACTERS)}: {name(_value(value), _LABEL_CHARACTERS)}"
        for key, value in list(attributes.items())[:_MOST_LABELS]
    ]
    more = len(attributes) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more > 0 else [])])


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
