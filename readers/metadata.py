"""What is known of a video and of a dataset without decoding."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..manifests.operations.summary import FailureSummary
from ..manifests.records import CodecConfig, VideoRow
from .times import seconds_of

# FFmpeg's names of the code points of ISO/IEC 23091-2, from libavutil's pixdesc.c; 2 is unspecified.
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
    """A video as it is in the dataset.

    Names are those of TorchCodec's VideoStreamMetadata. Values are those that TorchCodec has for the exported MP4,
    except `bit_rate`. All are exact within the precision of their type. Width and height are in square pixels, after
    rotation. Colour names are FFmpeg's; None means that the video does not say. Fields that end in `_from_content` and
    in `_from_header` agree, except the number of frames: the header of a fragmented MP4 has none.
    """

    stream_index: int
    media_type: str
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
    """Bits per second that a reader reads: packets and each GOP's sample table. TorchCodec counts packets only."""
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
    """Frames in each GOP except the last: reading all of a GOP's frames costs little more than its last one."""
    attributes: dict[str, Any]
    """The columns that the source list gave this video."""


def video_metadata(video: VideoRow, config: CodecConfig, num_bytes: int) -> VideoMetadata:
    """The metadata of a video with this codec configuration, whose GOPs have `num_bytes` bytes in total."""
    end = seconds_of(video.num_frames, video.fps)
    return VideoMetadata(
        stream_index=0,
        media_type="video",
        num_frames=video.num_frames,
        num_frames_from_content=video.num_frames,
        num_frames_from_header=None,
        fps=video.fps,
        # Rounded as TorchCodec does it, so that its samplers draw the same times.
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
        # FFmpeg has a name of its own for 8-bit 4:2:0 in full range.
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
    """TorchCodec's report of decoding on the CPU instead of a GPU. Always false: there is no such fallback here."""

    status_known: bool = True

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return "[CPU] Fallback status: No fallback required"


@dataclass(frozen=True)
class DatasetMetadata:
    """A dataset at one snapshot. `profile` says how its videos were encoded; `num_bytes` is the size of its shards, or
    of the segments of those videos that Dataset.where chose."""

    format_version: int
    snapshot: str
    profile: dict[str, Any]
    num_videos: int
    num_frames: int
    num_gops: int
    num_bytes: int
    duration_seconds: float
    failures: tuple[FailureSummary, ...]
    """The sources that are not in the dataset, each with the reason."""
