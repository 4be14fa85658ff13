"""Video that a file has and that FFmpeg does not read, without a message."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from av.container import InputContainer
from av.video.stream import VideoStream

from .matroska_elements import files_behind
from .mp4_fragments import Unread, top_boxes
from .programs import frames_meanwhile
from .taking_apart import parts_remedy
from .transport_packets import other_video_behind

# As elsewhere, a longer index is damaged.
_MAX_INDEX_BYTES = 1 << 26
_ANOTHER_MP4 = "another MP4 follows in it, and FFmpeg reads the first one only; {remedy}"
_EACH_APART = "give each in a file of its own"
ANOTHER_FRAGMENTED = f"another MP4 follows in it, of which FFmpeg leaves out fragments; {_EACH_APART}"
_ANOTHER_FILE = "another file follows in it from byte {begin} on, which FFmpeg does not read; {remedy}"
_ANOTHER_STREAM = (
    "its video goes on in another stream (PID), and FFmpeg reads the first one only; cut the file where the stream "
    "changes, and give both parts"
)
MEANWHILE = (
    "for a part of the file its tables list another stream (PID), as for an advertisement or where its video goes on, "
    "and FFmpeg reads the first one only; cut the file where the stream changes, and give each part"
)
LEFT_OUT = "a fragment has earlier times than the one before, and FFmpeg leaves it out"
MISSING_FRAGMENT = "a fragment is missing by the numbers of those around it"


def is_fragmented(container: InputContainer, stream: VideoStream) -> bool:
    """Whether all samples of an MP4 are listed in its fragments."""
    return "mp4" in container.format.name and stream.frames == 0


def fragment_sign(unread: Unread, *, has_hidden: bool) -> str:
    """What tells that fragments are not read, "" if nothing does. `has_hidden`: FFmpeg says of some packets that their
    frames are not to be shown, as it does of those that it leaves out."""
    if unread.left_out and has_hidden:
        return ANOTHER_FRAGMENTED if unread.is_joined else LEFT_OUT
    return MISSING_FRAGMENT if unread.missing else ""


def unread_video(
    path: str, container: InputContainer, stream: VideoStream, position: int | None, next_begin: int | None
) -> str:
    """Which video is left unread in a file of whose stream the last packet is at this position, "" if there is none.
    `next_begin`: where another file begins by the chain of this one."""
    suffix = Path(path).suffix
    if "mp4" in container.format.name:
        found = _without_repeated_index(path)
        if has_another_mp4([kind for kind, *_ in found]):
            return _ANOTHER_MP4.format(remedy=mp4s_remedy(path, found))
    elif "matroska" in container.format.name and next_begin is None and position is not None:
        next_begin = next(files_behind(path, position), None)
        if next_begin is not None:
            return _ANOTHER_FILE.format(begin=next_begin, remedy=parts_remedy([*files_behind(path)], suffix))
    if next_begin is not None:
        return _ANOTHER_FILE.format(begin=next_begin, remedy=parts_remedy([next_begin], suffix))
    if container.format.name != "mpegts" or position is None:
        return ""
    known = [each.id for each in container.streams]
    if frames_meanwhile(path, stream.id):
        return MEANWHILE
    return _ANOTHER_STREAM if other_video_behind(path, position, known) else ""


def _without_repeated_index(path: str) -> list[tuple[bytes, int, int]]:
    """The boxes of an MP4, without an index that is written again, in case the first one is lost."""
    found = list(top_boxes(path))
    begins = [place for place, (kind, *_) in enumerate(found) if kind == b"ftyp"]
    moovs = [place for place, (kind, *_) in enumerate(found) if kind == b"moov"]
    if len(moovs) < 2 or len(begins) > 1 or any(found[place][2] > _MAX_INDEX_BYTES for place in moovs):
        return found
    with Path(path).open("rb") as file:
        indexes = set[bytes]()
        for place in moovs:
            file.seek(found[place][1])
            indexes.add(file.read(found[place][2]))
    return found if len(indexes) > 1 else [box for place, box in enumerate(found) if place not in moovs[1:]]


def mp4s_remedy(path: str, found: Sequence[tuple[bytes, int, int]]) -> str:
    """What to do with a file of several MP4s, of which these are the boxes."""
    starts = [place for place, (kind, *_) in enumerate(found) if kind == b"ftyp"]
    parts = [found[start:stop] for start, stop in pairwise([*starts, len(found)])]
    begins = [part[0][1] for part in parts if part[0][1] and b"moov" in [kind for kind, *_ in part]]
    return parts_remedy(begins, Path(path).suffix) if begins else _EACH_APART


def has_another_mp4(kinds: list[bytes]) -> bool:
    """Whether a file with these boxes is two MP4s, one behind the other, of which one is not in fragments. Files of
    fragments may repeat their beginning, ftyp and moov, before each of them."""
    parts: list[list[bytes]] = [[]]
    for kind in kinds:
        if kind == b"ftyp":
            parts.append([])
        parts[-1].append(kind)
    is_plain = any(b"moov" in part and b"mdat" in part and b"moof" not in part for part in parts)
    return kinds.count(b"moov") > 1 and is_plain
