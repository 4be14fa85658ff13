"""What ffmpeg's error lines say about a GPU, in one short text that is the same for the same cause. Pure.

The messages are those of FFmpeg's libavcodec/nvenc.c, libavcodec/nvdec.c, libavutil/hwcontext_cuda.c and of
nv-codec-headers' dynlink_loader.h.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NO_GPU = "no GPU was at hand"
NO_ENCODER = "this GPU has no such encoder"
LACKS_ENCODER = "this ffmpeg has no encoder"
_TOO_OLD = "NVENC of this ffmpeg needs driver {} or newer"
_REFUSED = "NVENC refused a session, as too many were open"
_OUT_OF_MEMORY = "the GPU was out of memory"

_MOST_CHARACTERS = 400

# The first that fits counts. What an encoder lacks it says in a warning, which only trials show.
_CAUSES = (
    (r"Cannot load libcuda|CUDA_ERROR_NO_DEVICE|no CUDA-capable device", NO_GPU),
    (
        r"Cannot load (libnvcuvid|libnvidia-encode)",
        "the driver's {} is missing; containers need NVIDIA_DRIVER_CAPABILITIES=video",
    ),
    # A function of the driver's libraries, which ffmpeg looks for before it asks the driver for its version.
    (r"Cannot load (cu[A-Za-z0-9_]+)", "the driver is too old for this ffmpeg: it has no {}"),
    (r"minimum required Nvidia driver for nvenc is ([\d.]+)", _TOO_OLD),
    (r"OpenEncodeSessionEx failed: (?:out of memory|incompatible client key)", _REFUSED),
    (r"CUDA_ERROR_OUT_OF_MEMORY|out of memory", _OUT_OF_MEMORY),
    (r"Max B-frames \d+ exceed (\d+)", "this GPU's encoder takes {} B-frames at most"),
    (r"unsupported device|Codec not supported|no encode device", NO_ENCODER),
    # What filters say of `gpu_filters.only_from`.
    (
        r"Rescaled value for width or height is too big",
        "NVDEC's pictures had another size than planned, as where a stream is cropped at the left or changes its size",
    ),
    (r"No such filter: '?(\w+)", "this ffmpeg has no filter {}"),
    (r"Unknown encoder '?(\w+)", LACKS_ENCODER + " {}"),
    # ffmpeg also says that no device was made where the driver failed, but then the driver's error comes first.
    (r"\A(?:\[\w+\] )?Device creation failed|Unrecognized hwaccel", "this ffmpeg was built without CUDA"),
    # After an error ffmpeg tries the next GPU, and ends with this whatever the errors were.
    (r"\A(?:.*\[warning\].*\n)*.*No capable devices found", NO_ENCODER),
)
_PASSING = (_REFUSED, _OUT_OF_MEMORY)
# What NVDEC is asked, copies of pictures out of a GPU's memory or within it, and waiting for them.
_LOST_PICTURE = re.compile(r"cu(?:vid\w+|Memcpy\w*|StreamSynchronize)\(.*\) failed.*|No decoder surfaces left")

# ffmpeg says so of the line before, which counts already.
_REPETITION = re.compile(r"^ *Last message repeated \d+ times$\n?", re.MULTILINE)
# The filter showinfo, of a frame. FFmpeg has written the name of the kind in either way.
_SHOWN, _GRAIN = b"[Parsed_showinfo", re.compile(rb"film grain parameters", re.IGNORECASE)


def first_reason(lines: Sequence[str]) -> str:
    """The first of ffmpeg's error lines, without its prefix: later lines are consequences of the first. Only its start,
    where it is very long: ffmpeg repeats expressions that it does not understand."""
    reason = re.sub(r"^(\[[^\]]*\] *)+", "", lines[0]) if lines else "it failed without a message"
    return reason if len(reason) <= _MOST_CHARACTERS else f"{reason[:_MOST_CHARACTERS]}..."


def cause_of(stderr: str) -> str:
    """Why ffmpeg failed at a GPU, or else its first error line. Lines may have their levels, as with
    `-v level+warning`: a warning is a cause only where it is a known one."""
    stderr = _REPETITION.sub("", stderr)
    for pattern, text in _CAUSES:
        match = re.search(pattern, stderr, re.IGNORECASE)
        if match:
            return text.format(*match.groups())
    return first_reason([line for line in stderr.splitlines() if line.strip() and "[warning]" not in line])


def lost_picture(stderr: str) -> str:
    """What ffmpeg says of a picture that the driver did not decode, map or copy, "" if there is none. ffmpeg may go on
    with what the memory holds and end with success: libavutil/hwcontext_cuda.c logs such errors and does not return
    them, and libavcodec shows a picture at its time, also if NVDEC has refused it before."""
    match = _LOST_PICTURE.search(stderr)
    return match[0] if match else ""


def tells_of_grain(line: bytes) -> bool:
    """Whether a line of ffmpeg's log is that of the filter showinfo about a frame with film grain."""
    return line.startswith(_SHOWN) and _GRAIN.search(line) is not None


def passes(cause: str) -> bool:
    """Whether the cause is one that passes: another process used the GPU's sessions or its memory."""
    return cause in _PASSING


def wanted_driver(cause: str) -> str | None:
    """The oldest driver with which NVENC of this ffmpeg would run, where that is the cause."""
    match = re.fullmatch(_TOO_OLD.format(r"([\d.]+)"), cause)
    return match[1] if match else None
