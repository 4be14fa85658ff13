"""Video that a file has and that FFmpeg does not read, without a message."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from av.container import InputContainer
from av.video.stream import VideoStream

from .transport_packets import other_video_behind

_ANOTHER_MP4 = "another MP4 follows in it, and FFmpeg reads the first one only; give each in a file of its own"
_ANOTHER_STREAM = (
    "its video goes on in another stream (PID), and FFmpeg reads the first one only; cut the file where the stream "
    "changes, and give both parts"
)
LEFT_OUT = "a fragment has earlier times than the one before, and FFmpeg leaves it out"


def is_fragmented(container: InputContainer, stream: VideoStream) -> bool:
    """Whether all samples of an MP4 are listed in its fragments."""
    return "mp4" in container.format.name and stream.frames == 0


def left_out(shown_pts: Collection[int], skipped_pts: Collection[int]) -> set[int]:
    """The pts of frames in fragments that FFmpeg leaves out because those before have later times. Where the frames
    shown have the same times, it is a fragment that the file has twice."""
    if not shown_pts:
        return set()
    first, last = min(shown_pts), max(shown_pts)
    return {pts for pts in skipped_pts if first < pts < last} - set(shown_pts)


def unread_video(path: str, container: InputContainer, position: int | None) -> str:
    """Which video is left unread in a file of whose stream the last packet is at this position, "" if there is none."""
    if "mp4" in container.format.name:
        kinds = [kind for kind, _ in top_boxes(path)]
        # Files of fragments may repeat their moov before each of them.
        return _ANOTHER_MP4 if kinds.count(b"moov") > 1 and b"moof" not in kinds else ""
    if container.format.name != "mpegts" or position is None:
        return ""
    known = [stream.id for stream in container.streams]
    return _ANOTHER_STREAM if other_video_behind(path, position, known) else ""


def top_boxes(path: str) -> Iterator[tuple[bytes, int]]:
    """The kind and the position of each box of an MP4 that lies in no other."""
    size, at = Path(path).stat().st_size, 0
    with Path(path).open("rb") as file:
        while at + 8 <= size:
            file.seek(at)
            header = file.read(16)
            length, kind = int.from_bytes(header[:4]), header[4:8]
            yield kind, at
            if length == 1:
                length = int.from_bytes(header[8:])
            if length < 8:
                return
            at += length
