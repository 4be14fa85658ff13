"""The shapes of frames: as they are in the dataset, and as the options it was opened with make them."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..manifests.records import CodecConfig
from ..manifests.tables import Manifest
from .frame_format import FrameFormat, Geometry


def buckets_by(what: str) -> str:
    """What makes batches of one size, or one length, each. A BucketSampler takes MixedClips alone."""
    return f"shortgop.MixedClips of one dataset for each {what}, with a shortgop.BucketSampler"


class FrameShapes:
    """The shapes of the frames of each video, which is named by its row.

    Each is worked out once for each codec configuration, of which a dataset has only a few.
    """

    def __init__(self, manifest: Manifest, configs: Sequence[CodecConfig], frame_format: FrameFormat) -> None:
        self._videos = manifest.videos
        self._configs = configs
        self._format = frame_format
        self._known: dict[int, tuple[Geometry, tuple[int, ...]]] = {}

    def frame_size(self, video: int) -> tuple[int, int]:
        """The (height, width) of a video's frames in the dataset."""
        config = self._configs[self._videos.config[video]]
        return config.height, config.width

    def geometry(self, video: int) -> Geometry:
        """How a video's frames are cropped and resized. UsageError when the crop does not fit."""
        return self._geometry_and_shape(video)[0]

    def shape(self, video: int) -> tuple[int, ...]:
        """The shape of a video's frames as tensors. UsageError when the crop does not fit."""
        return self._geometry_and_shape(video)[1]

    def shared_shape(self, videos: list[int]) -> tuple[int, ...]:
        """The shape that the frames of these videos have as tensors. UsageError when they differ, or the crop does not
        fit."""
        if not videos:
            return self._shape_of_no_video()
        first = self.shape(videos[0])
        for video in videos:
            if self.shape(video) != first:
                one, other = self._id(videos[0]), self._id(video)
                raise UsageError(
                    f"frames of video {other!r} have shape {self.shape(video)}, those of video {one!r} "
                    f"{first}: open the dataset with size=(height, width) to read both in one batch, and with "
                    f'crop="center" to keep proportions; where sizes are to differ, take {buckets_by("size")}',
                    video=other,
                )
        return first

    def _shape_of_no_video(self) -> tuple[int, ...]:
        """The shape of all frames of the dataset if it is the same; otherwise sides that differ are 0."""
        try:
            shapes = {self._format.frame_shape(config.height, config.width) for config in self._configs}
        except UsageError:
            shapes = set()
        return shapes.pop() if len(shapes) == 1 else self._format.shape_of_no_frame()

    def _geometry_and_shape(self, video: int) -> tuple[Geometry, tuple[int, ...]]:
        config = int(self._videos.config[video])
        if config not in self._known:
            size = self._configs[config]
            try:
                geometry = self._format.geometry(size.height, size.width)
                shape = self._format.frame_shape(size.height, size.width)
            except UsageError as error:
                name = self._id(video)
                raise UsageError(f"video {name!r}: {error.message}", video=name) from None
            self._known[config] = geometry, shape
        return self._known[config]

    def _id(self, video: int) -> str:
        return self._videos.id.text(video)
