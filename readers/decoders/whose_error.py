"""Whether the data or the GPU is to blame where NVDEC does not decode a GOP."""

from __future__ import annotations

import av

from ...errors import DecodeError, ToolError
from ..gpu.cuda_driver import lasting_error
from .base import DeviceFailsError, GopRequest
from .pyav import check_frame, feed_gop, open_context


def whose_error(error: Exception, request: GopRequest) -> DecodeError | ToolError:
    """The error to raise: DecodeError for the data, ToolError for the GPU, which is a DeviceFailsError unless all calls
    to the GPU fail from now on.

    Neither libavcodec's errors nor the driver's tell: both may say "invalid" of sound data, where there is no memory or
    no decoder. So the CPU is asked. An error of the data is one of a clip, which may be skipped; where a GPU fails, all
    clips would be.
    """
    if lasting := lasting_error():
        return ToolError(f"NVDEC fails ({error}), as every call to the GPU does now: {lasting}")
    try:
        size = (request.config.height, request.config.width)
        feed_gop(open_context(request.config), request, lambda frame, _: check_frame(frame, size))
    except (av.FFmpegError, DecodeError) as on_cpu:
        return DecodeError(f"NVDEC does not decode the GOP ({error}), and the CPU does not either: {on_cpu}")
    return DeviceFailsError(
        f"NVDEC fails at a GOP that the CPU decodes ({error}); it may have no memory or no decoder left on the GPU: "
        "give open fewer threads, or leave it more of the GPU's memory; `make gpu-check` tries NVDEC by itself"
    )
