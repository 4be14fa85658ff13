"""Judges the packets of a scan by the frames that the decoder put out: which of them have none, and what they lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..probing.headers.h264_references import CodedFrame
from ..probing.picture import VP_AND_AV1
from .complaints import INCOMPLETE, MISSING_SEGMENT
from .scanned import ScannedPacket, leads_to
from .unmarked_entries import unmarked_entries


@dataclass
class Seen:
    """The packets and frames of a scan so far. Packets are meant by their numbers, in decode order.

    `shown`, `fed`: as in `Scan`. `keyframes`, `corrupt`: those whose frames the decoder calls so. `empty`: those that
    only say that nothing was coded. `ends`: the last ones of segments behind which others were joined, and whether
    frames are missing there. `leading`: whether a decoder leaves out their picture behind the entry at which it starts,
    None where that is not known. `frames`: what packets of H.264 say of references, None where that is not known.
    `is_interlaced`: some frame has two fields, which may be in two packets.
    """

    packets: list[ScannedPacket] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)
    fed: list[int] = field(default_factory=list)
    keyframes: set[int] = field(default_factory=set)
    corrupt: set[int] = field(default_factory=set)
    empty: set[int] = field(default_factory=set)
    ends: dict[int, bool] = field(default_factory=dict)
    leading: list[bool | None] = field(default_factory=list)
    frames: list[CodedFrame | None] = field(default_factory=list)
    is_interlaced: bool = False


def with_unmarked_entries(seen: Seen) -> bool:
    """Make those packets of H.264 entries at which a decoder may start although nothing says so. Whether FFmpeg takes
    frames for corrupt because it does not know the first entry; these are in `corrupt` no more."""
    if not any(frame is not None and frame.is_intra for frame in seen.frames):
        return False
    packets, places = seen.packets, _places(seen)
    found = unmarked_entries(seen.frames, [packet.is_entry for packet in packets], places)
    seen.packets = [replace(each, is_entry=each.is_entry or number in found) for number, each in enumerate(packets)]
    first = next((number for number, packet in enumerate(seen.packets) if packet.is_entry), None)
    if first is None or first not in found:
        return False
    behind = {number for number, place in places.items() if number >= first and place >= places[first]}
    known = seen.corrupt & behind
    seen.corrupt -= known
    return bool(known)


def _places(seen: Seen) -> dict[int, int]:
    """Where each whole frame comes in the decoder's output, those that an edit hides before or behind all. Nothing
    where several edits hide some between others: the times do not say where these come."""
    packets = seen.packets
    places = {number: place for place, number in enumerate(seen.shown)}
    times = [pts for number in seen.shown if (pts := packets[number].pts) is not None]
    begin, end = min(times, default=0), max(times, default=0)
    hidden = sorted((each.pts or 0, number) for number, each in enumerate(packets) if each.is_hidden)
    if any(begin <= pts <= end for pts, _ in hidden):
        return {}
    places.update((number, -1 if pts < begin else len(seen.shown) + rank) for rank, (pts, number) in enumerate(hidden))
    return {
        number: at
        for number, at in places.items()
        if not (packets[number].is_incomplete or packets[number].break_before)
    }


def judged(seen: Seen, codec: str, *, has_headers: bool) -> Iterator[ScannedPacket]:
    """The packets, with what is known only after all frames were put out. `has_headers`: they say themselves at which
    of them a decoder may start."""
    one_to_one = codec not in VP_AND_AV1 and not seen.is_interlaced
    shown, entry_pts = set(seen.shown), None
    # Whether no packet behind the entry had a frame yet. Pictures that may lack one, and packets without times, are
    # shown before it then, and refer to frames before it.
    begins = False
    entries = [
        packet.is_entry if has_headers else number in seen.keyframes for number, packet in enumerate(seen.packets)
    ]
    joined = list(_joined(seen, entries))
    for number, (packet, is_entry) in enumerate(zip(joined, entries, strict=True)):
        complaint = packet.complaint or ("a frame is corrupt" if number in seen.corrupt else "")
        entry_pts = packet.pts if is_entry else entry_pts
        begins = is_entry or (begins and number not in shown)
        # Decoders leave out frames that are shown before the first keyframe; that is no damage.
        is_early = seen.leading[number]
        is_early = packet.pts is None if is_early is None else is_early
        leads = leads_to(packet, entry_pts) or (begins and is_early)
        frameless = number not in shown and number not in seen.empty and not packet.is_hidden
        if one_to_one and frameless and not (leads or complaint):
            complaint = "a packet decodes to no frame"
        yield replace(packet, complaint=complaint, is_entry=is_entry)


def _joined(seen: Seen, entries: Sequence[bool]) -> Iterator[ScannedPacket]:
    """The packets, with what is missing where segments were joined."""
    behind_hole: set[int] = set()
    for number, packet in enumerate(seen.packets):
        found = packet
        if number in seen.ends:
            start = _start_behind(number, seen.packets, entries)
            if start is None:
                found = replace(found, is_incomplete=True, complaint=found.complaint or INCOMPLETE)
            elif seen.ends[number]:
                behind_hole.add(start)
        if number in behind_hole:
            found = replace(found, break_before=found.break_before or MISSING_SEGMENT)
        yield found


def _start_behind(number: int, packets: Sequence[ScannedPacket], entries: Sequence[bool]) -> int | None:
    """The number of the packet with which another segment begins behind this one; None where a frame in it may refer to
    one before it: it does not begin with an entry, or some are shown before that."""
    start = next((place for place in range(number + 1, min(number + 3, len(entries))) if entries[place]), None)
    if start is None:
        return None
    stop = next((place for place in range(start + 1, len(entries)) if entries[place]), len(entries))
    pts = packets[start].pts
    return None if any(leads_to(packet, pts) for packet in packets[start + 1 : stop]) else start
