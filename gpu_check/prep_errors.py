"""What prep's errors leave out, and a report that is read elsewhere has to have: all that ffmpeg said, and what an
encoder wrote in place of what was planned."""

from __future__ import annotations

import io

import av
from av.video.frame import PictureType

from shortgop.prep.command import Encode, encode_argv
from shortgop.prep.running.attempts import FfmpegFailedError
from shortgop.prep.running.gpu_errors import first_reason
from shortgop.prep.running.processes import run

# The first lines of ffmpeg, of which an error has one, and the first frames of a video.
_MOST_LINES, _MOST = 12, 40
_TIMEOUT_SECONDS = 100


def told(error: Exception) -> str:
    """The error's text. Where ffmpeg failed, with the other lines that it said first."""
    if not isinstance(error, FfmpegFailedError):
        return str(error)
    lines = [line for line in error.stderr.splitlines() if line.strip() and first_reason([line]) not in str(error)]
    return f"{error}; ffmpeg said: {' | '.join(lines[:_MOST_LINES])}" if lines else str(error)


def written(encode: Encode, ffmpeg: str) -> str:
    """What the encode writes: the types of its first pictures in the order of display, K for a keyframe, and the
    numbers of its frames in the order of decoding. Or why that is not known."""
    try:
        done = run([ffmpeg, *encode_argv(encode, "/dev/null")], timeout_seconds=_TIMEOUT_SECONDS)
    except (TimeoutError, OSError) as error:
        return f"nothing that can be read: {error}"
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()][:_MOST_LINES]
    ended = f", and ffmpeg ended with {done.returncode}: {' | '.join(lines)}" if lines or done.returncode else ""
    try:
        with av.open(io.BytesIO(done.stdout), "r") as container:
            packets = [packet for packet in container.demux(video=0) if packet.size]
        with av.open(io.BytesIO(done.stdout), "r") as container:
            frames = [(frame.key_frame, frame.pict_type) for frame in container.decode(video=0)]
    except av.FFmpegError as error:
        return f"nothing that can be read: {error}{ended}"
    numbers = [f"{(packet.pts or 0) // encode.frame_ticks}{'K' * packet.is_keyframe}" for packet in packets]
    types = ["K" if is_key else PictureType(kind).name for is_key, kind in frames]
    return f"{''.join(types[:_MOST])} as they are shown, and {' '.join(numbers[:_MOST])} as they are decoded{ended}"
