"""What a scan says of a source: its packets, and the frames that they gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...manifests.ragged import Array
from ..running.frame_report import NO_PTS
from .complaints import MAY_BE_INCOMPLETE


@dataclass(frozen=True, slots=True)
class ScannedPacket:
    """One packet of a scan; lists of them are in decode order.

    `is_entry`: a decoder may start here, by the packet's own headers; `promised_entry`: by the container's keyframe
    flag. `is_incomplete`: the demuxer did not get all of its bytes. `complaint`: why its frame is not used, "" if it
    is. `break_before`: why something is missing between the previous packet and this one, "" if nothing is.
    `is_hidden`: an edit list does not show its frame, but other frames may refer to it. `is_before_start`: the demuxer
    gives it no time, because that lies before the start of the file. `lacks_picture`: its headers have none, although
    the container states where each picture begins.
    """

    pts: int | None
    dts: int | None
    is_entry: bool
    promised_entry: bool = False
    is_incomplete: bool = False
    complaint: str = ""
    break_before: str = ""
    is_hidden: bool = False
    is_before_start: bool = False
    lacks_picture: bool = False


@dataclass(frozen=True)
class Scan:
    """The result of decoding a stream packet by packet.

    `shown` lists the packets (by number) whose frames the decoder put out, in that order. `fed` says for each of these
    frames which packet the decoder had been given last; after the end of the stream it is the number of packets.
    `corrupt`: the packets whose frames are shown only if the decoder is told to put out corrupt ones; ffmpeg's is not,
    unless it `begins_unmarked`: the first entry of H.264 is one that nothing marks as one (`unmarked_entries.py`), so
    that FFmpeg takes frames behind it for corrupt.
    `stopped`: why reading ended before the end of the file, "" if it did not; `unread`: how many packets an index lists
    after that, or are in fragments that are left out or missing, or in a stream that FFmpeg does not read: `left_out`
    says so then. `ends_early`: the file was cut at its end. `sized`: the container states the size of each packet.
    `timed`: how many packets, from the first, have reliable times; None for all. `counts_time`: some packets of this
    container have no time of their own, and the parser counts on from earlier ones. `lacks_times`: only the decoder's
    output says when a frame is shown. `numbers_frames`: frames that others refer to are numbered, so that packets say
    where one is missing. `holes_tell`: a hole in the times tells of missing frames; in those that FFmpeg counts for a
    raw stream, and in the delays of a GIF, it does not. `decodes_at_once`: no packet waits for the next one to be
    decoded (Motion JPEG, GIF), so that what a decoder says of it is said of no other one.
    """

    packets: tuple[ScannedPacket, ...]
    shown: tuple[int, ...]
    fed: tuple[int, ...]
    corrupt: frozenset[int] = frozenset()
    begins_unmarked: bool = False
    stopped: str = ""
    unread: int = 0
    left_out: str = ""
    ends_early: bool = False
    sized: bool = True
    timed: int | None = None
    counts_time: bool = False
    lacks_times: bool = False
    numbers_frames: bool = True
    holes_tell: bool = True
    decodes_at_once: bool = False


def leads_to(packet: ScannedPacket, entry_pts: int | None) -> bool:
    """Whether a packet is shown before the entry at `entry_pts` that precedes it in decode order."""
    if entry_pts is None:
        return False
    return packet.is_before_start or (packet.pts is not None and packet.pts < entry_pts)


def in_doubt(packets: Sequence[ScannedPacket], count: int) -> list[ScannedPacket]:
    """The packets, of which so many at the end may be incomplete."""
    begin = max(0, len(packets) - count)
    doubtful = (
        replace(each, is_incomplete=True, complaint=each.complaint or MAY_BE_INCOMPLETE) for each in packets[begin:]
    )
    return [*packets[:begin], *doubtful]


def times_shown(packets: Sequence[ScannedPacket], shown: Sequence[int]) -> Array:
    """The pts of the frames of these packets, int64, NO_PTS where a packet has none."""
    pts = (packets[number].pts for number in shown)
    return np.array([NO_PTS if each is None else each for each in pts], dtype=np.int64)
