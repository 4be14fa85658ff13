"""The quality of clips beside their sources, where it can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ShortGopError
from ..jobs.finding.addresses import is_store_url
from ..jobs.finding.identity import identity_of
from ..prep.picture_quality import Quality, quality_of
from ..prep.profile import Profile
from ..prep.running.mounts import read_in_time
from ..prep.running.stalls import stall_limit
from ..readers.dataset import Dataset, reader_of

_STALL_SECONDS = 10.0


def quality_of_clip(planes: Dataset, profile: Profile, row: int, frames: Sequence[int]) -> Quality | str:
    """The quality of these frames, which rise, of a video, or why it is not measured. `planes` is the dataset, opened
    with the colour "yuv420", and `profile` its profile."""
    video, manifest = planes[row], reader_of(planes).manifest
    path = video.source_path
    if not path or is_store_url(path):
        return "the source lies in a store" if path else "it is not recorded where the source lies"
    number = manifest.row_of(video.id)
    try:
        with stall_limit(_STALL_SECONDS):
            found = read_in_time(path, lambda: identity_of(path)[0], f"{path}: reading it")
            if found != int(manifest.videos.identity[number]):
                return "the file has changed since, or the video is a stretch of it"
            pipeline = manifest.pipeline(int(manifest.videos.config[number]))
            stored: Any = video.get_frames_at(frames).data.numpy()
            return quality_of(path, profile, pipeline, video.source_pts(frames).numpy(), stored[:, 0])
    except ShortGopError as error:
        return error.message
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
