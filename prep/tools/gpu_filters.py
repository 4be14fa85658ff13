"""The ffmpeg options and filters for frames in a GPU's memory, as pure functions.

Filters that only move frames in time (`select`, `settb`, `setpts`, `fps`, `tpad`) or describe them (`setparams`,
`setsar`, `sidedata`) take frames in a GPU's memory as they take others (docs/design/gpu-prep.md). So a pipeline on the
GPU has the same time filters as one on the CPU, and the same report of which frame each tick shows.
"""

from __future__ import annotations

from ..probing.source_video import SourceVideo
from .pipelines import Pipeline

# More pixels than any filter takes: the run fails.
_TOO_LARGE = "1e8"
_BYTE_BITS = 8

TELLING_OF_GRAIN = ("-export_side_data", "film_grain")
"""Options of a decoder that leave film grain out of pictures, but tell filters of it."""
# AV_FRAME_DATA_SEI_UNREGISTERED of libavutil since FFmpeg 5. The filter of FFmpeg 6.0 may not know its name.
_USER_DATA = 20
GRAIN_SHOWN = f"sidedata=mode=delete:type={_USER_DATA},showinfo=checksum=0"
"""Filters that write into ffmpeg's log, at the level info, what is told of each picture. showinfo writes each byte of
user data by a call of its own, so that is left out."""


def decoding_options(pipeline: Pipeline) -> list[str]:
    """Input options. With the output format, ffmpeg fails where NVDEC does, and does not decode on the CPU instead.

    Filters may hold any number of frames: libavcodec copies them out of NVDEC's surfaces. So these are no more than the
    stream needs, and the eight that ffmpeg adds (`-extra_hw_frames` would add more, and take memory of the GPU).
    """
    if pipeline.decoding == "software":
        return []
    return ["-hwaccel", "cuda", "-hwaccel_output_format", "cuda", *TELLING_OF_GRAIN]


def downloaded(source: SourceVideo) -> list[str]:
    """Filters that bring decoded pictures into the CPU's memory."""
    layout = "nv12" if source.picture.bits == _BYTE_BITS else "p010le"
    return ["hwdownload", f"format={layout}", f"scale=w={only_from(source.coded_size, 'iw')}:h=ih"]


def scaled_on_gpu(decoded: tuple[int, int], size: tuple[int, int], *, downloads: bool) -> list[str]:
    """Filters that scale pictures of the size `decoded` to `size` (width, height) in a GPU's memory."""
    scale = f"scale_cuda=w={only_from(decoded, str(size[0]))}:h={size[1]}:interp_algo=bicubic:format=yuv420p"
    return [scale, *(["hwdownload", "format=yuv420p"] if downloads else [])]


def only_from(size: tuple[int, int], width: str) -> str:
    """An expression for a filter's width that makes ffmpeg fail unless its input has this size.

    Pictures that a stream crops at the left or the top come out of NVDEC in another size than out of a decoder on the
    CPU: libavcodec crops frames of hardware at the right and the bottom only.
    """
    return f"'if(eq(iw,{size[0]})*eq(ih,{size[1]}),{width},{_TOO_LARGE})'"
