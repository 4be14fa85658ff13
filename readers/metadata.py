"""What is known of a video and of a dataset without decoding anything."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..manifests.records import CodecConfig, VideoRow
from ..manifests.summary import FailureSummary
from .times import seconds_of

# FFmpeg's names of the code points of ISO/IEC 23091-2, as in libavutil's pixdesc.c; 2 is unspecified.
_PRIMARIES = {
    1: "bt709", 4: "bt470m", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 8: "film", 9: "bt2020", 10: "smpte428",
    11: "smpte431", 12: "smpte432", 22: "ebu3213",
}  # fmt: skip
_TRANSFERS = {
    1: "bt709", 4: "bt470m", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 8: "linear", 9: "log100", 10: "log316",
    11: "iec61966-2-4", 12: "bt1361e", 13: "iec61966-2-1", 14: "bt2020-10", 15: "bt2020-12", 16: "smpte2084",
    17: "smpte428", 18: "arib-std-b67",
}  # fmt: skip
_MATRICES = {
    0: "gbr", 1: "bt709", 4: "fcc", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 8: "ycgco", 9: "bt2020nc",
    10: "bt2020c", 11: "smpte2085", 12: "chroma-derived-nc", 13: "chroma-derived-c", 14: "ictcp",
}  # fmt: skip


@dataclass(frozen=True)
class VideoMetadata:
    """A video as it is in the dataset. Names are those of TorchCodec's VideoStreamMetadata, and values those that it
    has for the exported MP4, but for `bit_rate`.

    All of it is exact but for what floats round; `fps` is exact. Sides are in pixels, which are square, and rotation
    has been applied. Colour names are FFmpeg's, None where the video does not say. What names end in `_from_content`
    and `_from_header` is the same here, but for the number of frames: a fragmented MP4's header has none.
    """

    stream_index: int
    num_frames: int
    num_frames_from_content: int
    num_frames_from_header: int | None
    fps: Fraction
    average_fps: float
    average_fps_from_header: float
    begin_stream_seconds: float
    begin_stream_seconds_from_content: float
    begin_stream_seconds_from_header: float
    end_stream_seconds: float
    end_stream_seconds_from_content: float
    duration_seconds: float
    duration_seconds_from_header: float
    bit_rate: float
    """Of what is read to decode it: pictures, and each GOP's sample table, which TorchCodec leaves out."""
    codec: str
    width: int
    height: int
    pixel_format: str
    pixel_aspect_ratio: Fraction
    rotation: float | None
    color_primaries: str | None
    color_transfer_characteristic: str | None
    color_space: str | None
    gop_frames: int
    """Frames in each GOP but the last: as many neighbours cost little more to read than one of them."""
    attributes: dict[str, Any]
    """The columns that the source list gave this video."""


def video_metadata(video: VideoRow, config: CodecConfig, num_bytes: int) -> VideoMetadata:
    """From a video's row, its codec configuration, and the bytes that its GOPs have together."""
    end = seconds_of(video.num_frames, video.fps)
    return VideoMetadata(
        stream_index=0,
        num_frames=video.num_frames,
        num_frames_from_content=video.num_frames,
        num_frames_from_header=None,
        fps=video.fps,
        # Rounded as TorchCodec's, so that its samplers draw the same times.
        average_fps=video.num_frames / end,
        average_fps_from_header=float(video.fps),
        begin_stream_seconds=0.0,
        begin_stream_seconds_from_content=0.0,
        begin_stream_seconds_from_header=0.0,
        end_stream_seconds=end,
        end_stream_seconds_from_content=end,
        duration_seconds=end,
        duration_seconds_from_header=end,
        bit_rate=float(8 * num_bytes / video.duration),
        codec=config.codec,
        width=config.width,
        height=config.height,
        # FFmpeg's name for full range, which it keeps for 8 bit and 4:2:0.
        pixel_format="yuvj420p" if config.full_range else "yuv420p",
        pixel_aspect_ratio=Fraction(1),
        rotation=None,
        color_primaries=_PRIMARIES.get(config.primaries),
        color_transfer_characteristic=_TRANSFERS.get(config.transfer),
        color_space=_MATRICES.get(config.matrix),
        gop_frames=video.gop_frames,
        attributes=video.attributes,
    )


@dataclass(frozen=True)
class CpuFallbackStatus:
    """What TorchCodec's VideoDecoder says of decoding on the CPU instead of a GPU. False: a dataset's videos are
    decoded where they were asked to be."""

    status_known: bool = True

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return "[CPU] Fallback status: No fallback required"


@dataclass(frozen=True)
class DatasetMetadata:
    """A dataset at one snapshot. `profile` says how its videos were encoded; `num_bytes` are those of its shards."""

    format_version: int
    snapshot: str
    profile: dict[str, Any]
    num_videos: int
    num_frames: int
    num_gops: int
    num_bytes: int
    duration_seconds: float
    failures: tuple[FailureSummary, ...]
    """The sources that are not in the dataset, each with its reason."""
