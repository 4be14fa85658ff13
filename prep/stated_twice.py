"""Sources whose headers and container both say how they are turned, or that they are stereo 3D. ffmpeg fails on both,
and gets them without the messages of their headers."""

from __future__ import annotations

from contextlib import suppress

from av.bitstream import BitStreamFilterContext
from av.error import FFmpegError

from ..errors import DamagedSourceError
from .probing.opening import open_source, packets_of, stream_at
from .probing.source_video import SourceVideo
from .running.attempts import STATED_ONCE
from .running.mounts import read_in_time

# The units of a stream that have its messages (SEI; those of HEVC that lie before a picture).
_MESSAGE_UNITS = {"h264": 6, "hevc": 39}
WITHOUT_MESSAGES = "give OUT.mp4 of `ffmpeg -i FILE -map 0:v:0 -c copy -bsf:v filter_units=remove_types=39 OUT.mp4`"
"""What to do with such HEVC."""


def message_filter(codec: str) -> str:
    """The bitstream filter that leaves the messages out."""
    return f"filter_units=remove_types={_MESSAGE_UNITS[codec]}"


def check_damaged(source: SourceVideo, complaint: str) -> None:
    """DamagedSourceError for a damaged source of which the filter does not take a packet: ffmpeg would end there."""
    if not source.picture.stated_twice or read_in_time(source.path, lambda: _takes_all(source), "reading it"):
        return
    remedy = STATED_ONCE if source.codec == "h264" else WITHOUT_MESSAGES
    raise DamagedSourceError(
        f"{source.path} is damaged ({complaint}), and says both in its headers and in its container how it is turned, "
        f"or that it is stereo 3D: ffmpeg fails on both, and on leaving one of them out of damaged packets; {remedy}, "
        "which is without these packets, and prepare that with --salvage",
        file=source.path,
    )


def _takes_all(source: SourceVideo) -> bool:
    with open_source(source.path) as container:
        stream = stream_at(container, source.stream_index)
        messages = BitStreamFilterContext(message_filter(source.codec), stream)
        # The file may break off, for ffmpeg too.
        with suppress(FFmpegError):
            for packet in packets_of(container, stream):
                try:
                    if packet.size:
                        messages.filter(packet)
                except FFmpegError:
                    return False
    return True
