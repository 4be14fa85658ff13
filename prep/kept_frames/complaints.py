"""What FFmpeg logs, and which of it may be about damage."""

from __future__ import annotations

import re
from collections.abc import Sequence

# FFmpeg logs these for sound streams too: about B-frames after the first keyframe of a stream, about values that
# encoders declare, about headers of H.264 that it splits from their frames, and about ffmpeg's own output.
_HARMLESS = (
    "co located POCs unavailable", "number of reference frames (0+", "non monotonically increasing dts to muxer",
    "deprecated pixel format used", "Last message repeated", "missing picture in access unit",
)  # fmt: skip
INCOMPLETE = "a packet is incomplete"
MAY_BE_INCOMPLETE = "it may be incomplete"
HALF = "a frame lacks a field"
MISSING_SEGMENT = "frames are missing between two segments of the stream, as where one was not received"
# What FFmpeg says where the packets of a transport stream do not go on.
NO_SYNC = "max resync size reached"
# What FFmpeg says of a message of H.264 that states a wrong length, as captions of servers do. It may also be all that
# FFmpeg says where damage took the beginning of the picture behind the message.
_WRONG_LENGTH = "SEI type "
# What FFmpeg says of a command of H.264 to forget a frame that it does not have.
FORGETS_ANOTHER = "mmco: unref short failure"


def first_complaint(lines: Sequence[str]) -> str:
    """The first of FFmpeg's log lines that may be about damage, "" if there is none; FORGETS_ANOTHER only where there
    is no other."""
    said = (re.sub(r"^(\[[^\]]*\] *)+", "", line.strip()).rstrip(".") for line in lines)
    found = [line for line in said if line and not any(harmless in line for harmless in _HARMLESS)]
    return next((line for line in found if line != FORGETS_ANOTHER), found[0] if found else "")


def complaint_of_packet(messages: Sequence[str]) -> str:
    """The same of what FFmpeg logs of one packet. That a message in it states a wrong length is none: whether its
    pictures are whole, their frame says."""
    return first_complaint([message for message in messages if not message.startswith(_WRONG_LENGTH)])
