"""Which frames of a damaged source can be used, as a pure function of the scan of its packets.

The rule prefers losing sound frames to keeping a damaged one. From a damaged or missing packet on, in decode order, no
frame is used until the next packet at which a decoder may start (an entry). Frames that are shown before that entry but
decoded after it are not used either. docs/design/prep.md gives the reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ...manifests.ragged import Array
from ..probing.containers.unread import LEFT_OUT, MISSING_FRAGMENT
from ..probing.holes import after_holes, frames_behind_hole, off_beat, spacing_of
from .complaints import FORGETS_ANOTHER, HALF, MAY_BE_INCOMPLETE, MISSING_SEGMENT
from .kept import Kept, kept_range, kept_times
from .scanned import Scan, ScannedPacket, leads_to, times_shown

# Of the frames that decode, at most one in so many may have a time that contradicts the order in which they are shown.
_MISTIMED_PART = 20
# Complaints that say nothing of the packet before.
_OF_ITSELF = (MAY_BE_INCOMPLETE, LEFT_OUT)
# Breaks on both sides of which frames are whole.
_BETWEEN_WHOLE = (MISSING_FRAGMENT, MISSING_SEGMENT)


@dataclass(frozen=True, eq=False)
class Damage:
    """What a scan found. Pts are int64, rising.

    `sound_pts`: the pts of the sound frames. `due_pts`: the same, and the pts of the lost frames between the first and
    the last of them. `sound_run`: the frames [first, stop) of the `num_shown` ones that are not corrupt, from the first
    sound one to the next lost one; without `has_times` (the packets do not state when their frames are shown) only
    these are used. `num_corrupt`: how many others may be put out, `corrupt_before` of them before the first sound one.
    `shown_pts`: the pts of all that may be put out, in the order of the decoder's output, without times NO_PTS.
    `kept` selects the frames that are used. `lost`: how many of the `total` frames of the file are lost. `complaint`:
    the first complaint. `is_only_cut`: all lost frames lie before the first or after the last sound frame, where the
    file was cut.
    """

    sound_pts: Array
    due_pts: Array
    sound_run: tuple[int, int]
    num_shown: int
    has_times: bool
    kept: Kept
    total: int
    lost: int
    first_lost_pts: int | None
    complaint: str
    is_only_cut: bool
    num_corrupt: int = 0
    corrupt_before: int = 0
    shown_pts: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def sound_run_of(self, num_decoded: int) -> range | None:
        """The sound run among the `num_decoded` frames that ffmpeg's decoder puts out; None where it is not certain.

        Of corrupt frames it puts out those that it decoded with errors, and not those that refer to frames before the
        start. Their number says which: it puts out all others.
        """
        first, stop = self.sound_run
        if not (first or self.corrupt_before) or num_decoded == self.num_shown:
            return range(first, stop)
        if num_decoded == self.num_shown + self.num_corrupt:
            return range(first + self.corrupt_before, stop + self.corrupt_before)
        return None


def assess(scan: Scan, *, max_hole_units: int) -> Damage | None:
    """Which frames are lost and which are sound; None when nothing is damaged.

    A hole between two frames of more than `max_hole_units` units of the timebase, and more than two median intervals,
    is a gap in the timestamps, not lost frames.
    """
    packets = scan.packets
    entries = [packet.is_entry for packet in packets]
    begins_late = True in entries and not entries[0]
    behind_hole = _behind_hole(scan)
    said = any(packet.complaint or packet.break_before for packet in packets)
    is_short = bool(scan.stopped or scan.left_out) or (scan.ends_early and scan.lacks_times)
    if not (said or begins_late or behind_hole or is_short or scan.begins_unmarked):
        return None
    clean = {number for number, packet in enumerate(packets) if packet.break_before == MISSING_SEGMENT}
    has_telling_times = scan.holes_tell and not scan.numbers_frames
    unsure = after_holes([each.pts for each in packets], entries, max_hole_units, clean) if has_telling_times else set()
    trusted = [each and number not in unsure for number, each in enumerate(_trusted(scan))]
    shown = set(scan.shown)
    disordered = _disordered(scan, trusted)
    # A few times that contradict the others are wrong ones, of frames that are lost so. Many say that none is reliable.
    decoded = {number for number in shown if trusted[number]}
    mistimed = disordered & decoded
    has_times = not scan.lacks_times and len(mistimed) * _MISTIMED_PART <= len(decoded)
    lost_anyhow = disordered | behind_hole
    sound = [each and number in shown and number not in lost_anyhow for number, each in enumerate(trusted)]
    is_whole = not (scan.stopped or scan.ends_early or scan.unread or clean or scan.begins_unmarked)
    if has_times and all(sound) and is_whole:
        # What was said is harmless: see `_excused`.
        return None
    is_only_cut = _is_only_cut(scan, sound if has_times else trusted)
    if is_only_cut:
        sound = _up_to_the_cut(packets, sound)
    known = _known(packets)
    sound_pts = [pts for pts, number in known if sound[number]]
    stray = off_beat(sound_pts, [pts for pts, number in known if not sound[number]])
    due = [each for each in known if each[1] not in mistimed and (sound[each[1]] or each[0] not in stray)]
    all_due = _due(due, sound, packets, max_hole_units if scan.holes_tell else 0)
    lost = {pts for pts, number in due if not sound[number]} | set(all_due).difference(sound_pts)
    total = scan.unread + sum(not packet.is_hidden for packet in packets)
    complaints = [scan.left_out, scan.stopped]
    complaints += [text for packet in packets for text in (packet.break_before, packet.complaint) if text]
    first, stop = sound_run = _sound_run(scan, trusted)
    return Damage(
        sound_pts=np.array(sound_pts, dtype=np.int64),
        due_pts=np.array(all_due, dtype=np.int64),
        sound_run=sound_run,
        num_shown=len(scan.shown) - len(scan.corrupt),
        has_times=has_times,
        kept=kept_times([(pts, sound[number]) for pts, number in known])
        if has_times
        else kept_range(range(first, stop)),
        total=total,
        lost=total - (sound.count(True) if has_times else stop - first),
        first_lost_pts=min(lost, default=None),
        complaint=next(filter(None, complaints), "it begins without a keyframe or ends too early"),
        is_only_cut=is_only_cut,
        num_corrupt=len(scan.corrupt),
        corrupt_before=_corrupt_before(scan, first),
        shown_pts=times_shown(packets, scan.shown),
    )


def _trusted(scan: Scan) -> list[bool]:
    """For each packet whether its frame, if it has one, decodes as it was encoded and has the right time."""
    packets, sound = scan.packets, []
    broken = _broken(scan)
    position = {number: place for place, number in enumerate(scan.shown)}
    entry: int | None = None
    for number, packet in enumerate(packets):
        if packet.break_before or broken[number]:
            entry = None
        if entry is None and packet.is_entry and not broken[number]:
            entry = number
        sound.append(entry is not None and not _leads(packets, position, number, entry))
    timed = _timed(scan, broken)
    return [each and number < timed for number, each in enumerate(sound)]


def _timed(scan: Scan, broken: list[bool]) -> int:
    """How many packets, from the first, have reliable times."""
    count = len(broken) if scan.timed is None else scan.timed
    if not scan.counts_time or True not in broken:
        return count
    # Parsers count on from the last timestamp, and give the next timestamp to the next frame they find, which is the
    # wrong one after a loss. Nothing is lost where a file only begins in the middle of a GOP.
    packets = scan.packets
    begin = next((number for number, each in enumerate(packets) if each.is_entry and not broken[number]), 0)
    if any(packet.break_before for packet in packets[: begin + 1]):
        begin = 0
    if True not in broken[begin:]:
        return count
    first = broken.index(True, begin)
    if first >= _cut_off_from(scan) - 1:
        return min(count, first)
    entries = [number for number in range(begin, first) if packets[number].is_entry]
    return min(count, entries[-1] if entries else 0)


def _broken(scan: Scan) -> list[bool]:
    """For each packet whether it is damaged, or may be affected by damage in its neighbour."""
    packets = scan.packets
    excused = _excused(scan)
    wrong = [number not in excused and bool(each.complaint or each.break_before) for number, each in enumerate(packets)]
    is_clean = [each.break_before in _BETWEEN_WHOLE and not each.complaint for each in packets]
    broken = [
        each and bool(packets[number].complaint or not (scan.sized or is_clean[number]))
        for number, each in enumerate(wrong)
    ]
    first_entry = next((number for number, packet in enumerate(packets) if packet.is_entry), len(packets))
    for number in (number for number, is_wrong in enumerate(wrong) if is_wrong):
        # Pictures that are decoded at once, and begin with a marker, say nothing of others.
        if scan.decodes_at_once and not packets[number].break_before:
            continue
        # Decoders finish a picture when the next one starts, and report its errors only then.
        if packets[number].complaint not in _OF_ITSELF and packets[number].break_before not in _BETWEEN_WHOLE:
            broken[max(0, number - 1)] = True
        # Without sizes, parsers search for the end of a picture, and may add bytes of the next one to it. Before the
        # first entry, decoders complain of references that are missing.
        reaches = packets[number].is_incomplete or number >= first_entry
        if not (scan.sized or is_clean[number]) and reaches and number + 1 < len(broken):
            broken[number + 1] = True
    return broken


def _excused(scan: Scan) -> set[int]:
    """Packets whose complaints are no damage, because the decoder started at the entry before them: those that are
    shown before it, as no later frame refers to them, and those that tell it to forget frames before it."""
    packets, excused = scan.packets, set[int]()
    position = {number: place for place, number in enumerate(scan.shown)}
    entry: int | None = None
    # `fresh`: since it began or a break, the decoder got no frame but entries and those that lead them. `is_broken`: it
    # got no entry since. `started_here`: the last entry is the first one since.
    fresh, is_broken, started_here = True, True, False
    for number, packet in enumerate(packets):
        if packet.is_entry and (not packet.complaint or (fresh and _forgets_another(packet))):
            entry, started_here, is_broken = number, is_broken, False
        leads = entry is not None and leads_to(packet, packets[entry].pts)
        if entry in position and number in position and None in (packet.pts, packets[entry].pts):
            leads = position[number] < position[entry]
        is_whole = not (packet.is_incomplete or packet.break_before)
        if packet.complaint and is_whole and ((fresh and leads) or (started_here and _forgets_another(packet))):
            excused.add(number)
            fresh = fresh and (leads or packet.is_entry)
        elif packet.complaint or packet.break_before:
            fresh, is_broken, started_here = True, True, False
        elif not leads and not packet.is_entry and entry is not None:
            fresh = False
    return excused


def _forgets_another(packet: ScannedPacket) -> bool:
    """Whether all that is said of a packet is that it is to forget a frame that the decoder does not have."""
    return packet.complaint == FORGETS_ANOTHER


def _disordered(scan: Scan, sound: list[bool]) -> set[int]:
    """Packets whose pts contradict the order of the decoder's output, are missing, or occur twice."""
    packets = scan.packets
    counts = Counter(packet.pts for packet in packets if not packet.is_hidden)
    wrong = {number for number, packet in enumerate(packets) if packet.pts is None or counts[packet.pts] > 1}
    times = [(packets[number].pts, number) for number in scan.shown if sound[number]]
    for (pts, number), (next_pts, next_number) in pairwise(times):
        if pts is not None and next_pts is not None and next_pts <= pts:
            wrong |= {number, next_number}
    return wrong


def _leads(packets: tuple[ScannedPacket, ...], position: dict[int, int], number: int, entry: int) -> bool:
    """Whether a packet is shown before its entry, which precedes it in decode order."""
    pts, entry_pts = packets[number].pts, packets[entry].pts
    if pts is not None and entry_pts is not None:
        return pts < entry_pts
    return position.get(number, 0) < position.get(entry, 0)


def _corrupt_before(scan: Scan, first: int) -> int:
    """How many corrupt frames come before frame number `first` of those that are not."""
    before = 0
    for number in scan.shown:
        if number in scan.corrupt:
            before += 1
        elif first == 0:
            return before
        else:
            first -= 1
    return before


def _sound_run(scan: Scan, trusted: list[bool]) -> tuple[int, int]:
    """The frames [first, stop) that ffmpeg's decoder puts out from the first sound one on, before it gets the next
    packet that is not sound. Their times do not depend on frames that are lost after them."""
    put_out = [(number, fed) for number, fed in zip(scan.shown, scan.fed, strict=True) if number not in scan.corrupt]
    shown = [number for number, _ in put_out]
    first = next((place for place, number in enumerate(shown) if trusted[number]), len(shown))
    if first == len(shown):
        return 0, 0
    entry = trusted.index(True)
    position = {number: place for place, number in enumerate(scan.shown)}
    # A frame that the decoder puts out at the end of a cut file may belong after a frame that was cut off.
    end = len(trusted) if scan.ends_early else len(trusted) + 1
    lost = next(
        (
            number
            for number in range(entry, len(trusted))
            if not trusted[number] and not _leads(scan.packets, position, number, entry)
        ),
        end,
    )
    stop = next(
        (place for place in range(first, len(shown)) if not trusted[shown[place]] or put_out[place][1] >= lost),
        len(shown),
    )
    return first, stop


def _behind_hole(scan: Scan) -> set[int]:
    known = _known(scan.packets)
    if not known or not (scan.ends_early or scan.stopped or not scan.sized):
        return set()
    is_cut = scan.ends_early or bool(scan.stopped)
    # Holes before the first entry are those of a file that begins in the middle of a GOP.
    begin = next((packet.pts for packet in scan.packets if packet.is_entry and packet.pts is not None), known[0][0])
    count = frames_behind_hole([pts for pts, _ in known if pts >= begin], scan.packets[-1].dts, is_cut=is_cut)
    return {number for _pts, number in known[len(known) - count :]}


def _up_to_the_cut(packets: tuple[ScannedPacket, ...], sound: list[bool]) -> list[bool]:
    """The sound frames that are shown before the first frame that was cut off."""
    if True not in sound:
        return sound
    last = len(sound) - 1 - sound[::-1].index(True)
    cut_off = [packet.pts for packet in packets[last + 1 :] if packet.pts is not None]
    times = sorted(pts for pts, number in _known(packets) if sound[number] and pts < min(cut_off, default=pts + 1))
    if cut_off:
        behind = frames_behind_hole(times, packets[last].dts, is_cut=True)
        times = times[: len(times) - behind]
    kept = set(times)
    return [each and packet.pts in kept for each, packet in zip(sound, packets, strict=True)]


def _known(packets: Sequence[ScannedPacket]) -> list[tuple[int, int]]:
    """(pts, number) of the packets whose frames are shown, in the order of their pts."""
    return sorted(
        (packet.pts, number) for number, packet in enumerate(packets) if packet.pts is not None and not packet.is_hidden
    )


def _due(
    known: list[tuple[int, int]], sound: list[bool], packets: tuple[ScannedPacket, ...], max_hole_units: int
) -> list[int]:
    """The pts of all frames from the first to the last sound one. Holes at breaks are filled in steps of the median
    interval, up to `max_hole_units`."""
    places = [place for place, (_pts, number) in enumerate(known) if sound[number]]
    if not places:
        return []
    kept = known[places[0] : places[-1] + 1]
    spacing = spacing_of([pts for pts, _ in known])
    step = spacing.interval
    due = [kept[0][0]]
    for (pts, number), (next_pts, next_number) in pairwise(kept):
        both = sound[number] and sound[next_number]
        is_intact = not spacing.is_even and both and not _breaks_between(packets, number, next_number)
        if max_hole_units and not is_intact and spacing.is_hole(pts, next_pts, max_hole_units):
            due.extend(range(pts + step, next_pts - step // 2, step))
        due.append(next_pts)
    return sorted(set(due))


def _breaks_between(packets: tuple[ScannedPacket, ...], one: int, other: int) -> bool:
    first, last = sorted((one, other))
    return any(packet.break_before for packet in packets[first + 1 : last + 1])


def _is_only_cut(scan: Scan, sound: list[bool]) -> bool:
    """Whether the only damage is that of a file that starts late or ends early."""
    packets = scan.packets
    if scan.stopped or scan.left_out or True not in sound:
        return False
    excused = _excused(scan)
    wrong = [
        number
        for number, packet in enumerate(packets)
        if (packet.complaint or packet.break_before) and number not in excused
    ]
    # Behind the first entry that is whole nothing is missing because of a cut at the start.
    begin = next(
        (number for number, packet in enumerate(packets) if packet.is_entry and number not in wrong), sound.index(True)
    )
    head = [number for number in wrong if number <= begin and not (packets[number].complaint and sound[number])]
    # A recording may begin between the two fields of a frame.
    is_half = not packets[0].is_entry and packets[0].complaint == HALF
    damaged = [number for number in head[is_half:] if packets[number].complaint]
    if any(packets[number].promised_entry or packets[number].lacks_picture for number in damaged):
        return False
    end = _cut_off_from(scan)
    return all(number >= end for number in wrong if number not in head)


def _cut_off_from(scan: Scan) -> int:
    """The number of the first packet that a cut at the end left incomplete."""
    packets = scan.packets
    end = len(packets)
    if packets and (packets[-1].is_incomplete or not scan.sized):
        end -= 1
        # A parser may split the incomplete end of a stream into several packets, and several may not have been written.
        while end and packets[end - 1].is_incomplete:
            end -= 1
    return end
