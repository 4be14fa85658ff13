"""How much memory a unit may take, so that a machine begins no more of them than it can hold. Pure.

The figures are upper bounds of what was measured (docs/design/jobs.md): peaks of the Python process and of ffmpeg,
added up, for 256p to 4K, H.264 and HDR, made smaller or not. They hold for one thread each, which is what prep uses.
"""

from __future__ import annotations

from ...prep.options import Options
from ...prep.probing.header_estimate import Estimate
from ...prep.section_plan import expected_pixels

# Two processes that do nothing yet.
_BASE_BYTES = 150_000_000
# Decoded pictures of the source, in either process.
_BYTES_OF_SOURCE_PIXEL = 70
# The pictures that the encoder looks ahead at.
_BYTES_OF_PIXEL = {"h264": 130, "hevc": 200, "av1": 110}
# Times and places of the source's frames, as Python objects for a while; far more where all are decoded and judged.
_BYTES_OF_FRAME, _BYTES_OF_SALVAGED_FRAME = 350, 800
UNKNOWN_BYTES = 720_000_000
"""For a source whose pictures have an unknown size: enough for 1080p."""
LOOKS_OF_TASK = 4
"""How many sources a task looks at at a time."""
# For each: of a film of hours FFmpeg reads an index of up to 80 MB to see its header.
_LOOK_BYTES = 125_000_000
LOOK_BYTES = LOOKS_OF_TASK * _LOOK_BYTES
"""For a task that looks at sources."""
# Looking at files mostly waits for disks and networks, so a driver looks at more than it has cores, while no more than
# this part of its memory may be needed.
_MOST_LOOKS, _LOOKS_PART = 16, 4
ALL_BYTES = 1 << 60
"""More than any machine has: a unit that is expected to take so much runs alone on one."""
# Ray keeps a queue for each amount that is asked for.
_STEP_BYTES = 256 << 20


def task_bytes(source_pixels: int, pixels: int, codec: str, source_frames: int, *, salvage: bool) -> int:
    """The memory for a source of so many frames with pictures of `source_pixels`, encoded at `pixels`. `salvage`: it
    may be damaged, and is prepared all the same."""
    of_frame = _BYTES_OF_SALVAGED_FRAME if salvage else _BYTES_OF_FRAME
    of_pictures = source_pixels * _BYTES_OF_SOURCE_PIXEL + pixels * _BYTES_OF_PIXEL[codec]
    return _BASE_BYTES + of_pictures + source_frames * of_frame


def header_bytes(header: Estimate, options: Options) -> int | None:
    """The memory for a source with this header; None where that does not say how large its pictures are."""
    profile, source_pixels = options.profile, header.width * header.height
    if not source_pixels:
        return None
    pixels = expected_pixels(header.width, header.height, profile.size)
    return task_bytes(source_pixels, pixels, profile.codec, header.source_frames, salvage=options.policy.salvage)


def looks_of_driver(memory_bytes: int) -> int:
    """How many sources a driver looks at at a time that may have so much memory."""
    return max(1, min(_MOST_LOOKS, memory_bytes // _LOOKS_PART // _LOOK_BYTES))


def reserved_bytes(expected_bytes: int, largest_bytes: int | None) -> int:
    """What is asked for, for a unit that is expected to take `expected_bytes`, in a cluster whose largest machine has
    `largest_bytes`: where it is too much for all machines, one that does nothing else. None: there is no machine yet.
    """
    needed = -(-expected_bytes // _STEP_BYTES) * _STEP_BYTES
    return needed if largest_bytes is None else min(needed, largest_bytes)
