"""Scans a source that may be damaged: decodes every packet and records what demuxer and decoder log about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import av
from av.codec.context import Flags, ThreadType
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ..probing.access_units import HeaderReader
from ..probing.chains import first_break, lacks_movi
from ..probing.hevc_end import LastPictures
from ..probing.motion_jpeg import PictureEnds
from ..probing.mp4_fragments import Unread, unread_fragments
from ..probing.opening import HOLDING_BACK, open_source, packets_from, packets_of
from ..probing.packet_times import falls
from ..probing.programs import frames_meanwhile
from ..probing.signs import NO_CHAIN, UNSIZED, cut_index, may_lack_an_end, promised_end, promises_more_chunks
from ..probing.transport_packets import REPEATED, Continuity, continuity_of, has_only_zeros_behind
from ..probing.unread import (
    ANOTHER_FRAGMENTED,
    LEFT_OUT,
    MEANWHILE,
    MISSING_FRAGMENT,
    is_fragmented,
    left_out,
    unread_video,
)
from ..probing.zero_tail import lacks_content, zeros_from
from .complaints import HALF, MAY_BE_INCOMPLETE, MISSING_SEGMENT, NO_SYNC, first_complaint
from .scanned import Scan, ScannedPacket, leads_to

# Formats in which some packets have no timestamp of their own.
_COUNTING = ("mpeg", "mpegvideo", "h264", "hevc", "m4v")
# Decoders of codecs in which some packets have a frame that is only for reference, and never shown.
_HIDDEN_FRAMES = ("vp8", "libvpx", "vp9", "libvpx-vp9", "av1", "libdav1d", "libaom-av1")
# What demuxers log where the file ends within an element.
_ENDS_EARLY = ("ended prematurely", "partial file")
# MPEG-4 in AVI has packets without a frame: they only say that nothing was coded. They are at most this long.
_EMPTY_BYTES = 16
# How much of what was written before the zeros at the end of a file may not be read.
_MOST_UNREAD_BYTES = 1 << 20
_INCOMPLETE = "a packet is incomplete"


def scan(path: str, stream_index: int, *, has_unknown_delay: bool = False) -> Scan:
    """Decode a stream packet by packet. The result has what demuxer and decoder log about each packet."""
    with open_source(path) as container, _complaints_heard():
        stream = _video(container, stream_index, has_unknown_delay=has_unknown_delay)
        broken_at = first_break(path, container.format.name)
        break_at = broken_at.position if broken_at and not broken_at.is_end else None
        scanner = _Scanner(container, stream, packets_of(container, stream), break_at)
        scanner.zeros_from = zeros_from(path)
        if container.format.name == "mpegts":
            scanner.ends_in_zeros = has_only_zeros_behind(path)
            scanner.continuity = cache(partial(continuity_of, path, stream.id, stream.codec_context.name))
        fragments = unread_fragments(path, stream.id) if is_fragmented(container, stream) else Unread()
        scanner.missing_before.extend(fragments.missing_before)
        found = _with_left_out(scanner.run(), fragments)
        promised, timebase = promised_end(stream), stream.time_base or Fraction(1)
        reached = scanner.latest_pts * timebase
        if may_lack_an_end(path, container, stream, (scanner.last_end, scanner.last_pictures), broken_at):
            ends_early = found.ends_early or container.format.name != "mpegts"
            found = replace(found, packets=tuple(_in_doubt(found.packets, 1)), ends_early=ends_early)
        last_dts = found.packets[-1].dts if found.packets else None
        promises_more = promises_more_chunks(container, stream, len(found.packets), last_dts)
        if promises_more and lacks_movi(path):
            # Those that are missing may be the first ones, so that no time is right.
            found = replace(found, stopped=NO_CHAIN, timed=0)
        cut = cut_index(path, container, stream)
        unread = unread_video(path, container, stream, scanner.last_position) or (
            ANOTHER_FRAGMENTED if fragments.is_joined else ""
        )
        if unread == MEANWHILE:
            # The stream itself is all there.
            found, unread = replace(found, unread=frames_meanwhile(path, stream.id), left_out=unread), ""
        return replace(
            found,
            stopped=cut or found.stopped or unread,
            unread=max(0, stream.frames - len(found.packets)) if cut else found.unread,
            ends_early=found.ends_early
            or (promised is not None and promised - reached > 1)
            or promises_more
            or (broken_at is not None and broken_at.is_cut),
        )


def scan_stretch(
    path: str, stream_index: int, first_pts: int | None, packets: int, *, has_unknown_delay: bool = False
) -> Scan:
    """Scan the packets of this number of frames, beginning with the one at `first_pts`, to which the container can seek
    (None: the first)."""
    with open_source(path) as container, _complaints_heard():
        stream = _video(container, stream_index, has_unknown_delay=has_unknown_delay)
        return _Scanner(container, stream, packets_from(container, stream, first_pts), None, most=packets).run()


def _video(container: InputContainer, stream_index: int, *, has_unknown_delay: bool) -> VideoStream:
    stream = container.streams[stream_index]
    if not isinstance(stream, VideoStream):
        raise TypeError(f"stream {stream_index} is no video")
    if has_unknown_delay:
        stream.codec_context.options = HOLDING_BACK
    return stream


def _with_left_out(found: Scan, fragments: Unread) -> Scan:
    """The scan with the frames of fragments that are left out or missing as lost ones."""
    if not fragments.left_out:
        return replace(found, unread=fragments.missing)
    hidden = [packet.pts for packet in found.packets if packet.is_hidden and packet.pts is not None]
    lost = left_out([each.pts for each in found.packets if not each.is_hidden and each.pts is not None], hidden)
    packets = tuple(
        replace(each, is_hidden=False, complaint=each.complaint or LEFT_OUT) if each.pts in lost else each
        for each in found.packets
    )
    # Others have the times of frames that are shown.
    uncounted = max(0, min(fragments.left_out, len(hidden)) - len(lost))
    stopped = found.stopped or (LEFT_OUT if uncounted and not fragments.is_joined else "")
    return replace(found, packets=packets, stopped=stopped, unread=fragments.missing + uncounted)


def _in_doubt(packets: Sequence[ScannedPacket], count: int) -> list[ScannedPacket]:
    """The packets, of which so many at the end may be incomplete."""
    begin = max(0, len(packets) - count)
    doubtful = (
        replace(each, is_incomplete=True, complaint=each.complaint or MAY_BE_INCOMPLETE) for each in packets[begin:]
    )
    return [*packets[:begin], *doubtful]


class _Scanner:
    """The packets and frames of one scan so far."""

    def __init__(
        self,
        container: InputContainer,
        stream: VideoStream,
        packets: Iterator[Packet[VideoStream]],
        break_at: int | None,
        most: int | None = None,
    ) -> None:
        # What the counters of a transport stream say, for the packets that FFmpeg calls incomplete.
        self.continuity: Callable[[], Continuity | None] = _unknown
        # From where on the file has zeros to its end, and how many of the last packets end in zeros.
        self.zeros_from: int | None = None
        self._lacking = 0
        # Of a transport stream, whether nothing is missing before the zeros with which it ends.
        self.ends_in_zeros = False
        self.last_position: int | None = None
        self.last_end = 0
        self.latest_pts = 0
        # The positions before which fragments are missing, rising.
        self.missing_before: list[int] = []
        self._demuxed = packets
        self._most = most
        self._sized = container.format.name not in UNSIZED
        self._is_avi = container.format.name == "avi"
        self._is_matroska = "matroska" in container.format.name
        self._counts_time = container.format.name in _COUNTING
        self._decoder = stream.codec_context
        self._decoder.thread_count, self._decoder.thread_type = 1, ThreadType.NONE
        self._decoder.flags |= Flags.copy_opaque | Flags.output_corrupt
        self._headers = HeaderReader(self._decoder.name, self._decoder.extradata)
        is_open = self._decoder.name == "hevc" and not self._sized
        self.last_pictures = LastPictures(self._decoder) if is_open else None
        self._picture_ends = PictureEnds() if self._decoder.name == "mjpeg" else None
        # Of these codecs `HeaderReader` reads what a frame is, and its number.
        self._has_headers = self._decoder.name in ("h264", "hevc")
        self._break_at = break_at
        self._timed: int | None = None
        self._packets: list[ScannedPacket] = []
        self._shown: list[int] = []
        self._fed: list[int] = []
        self._keyframes: set[int] = set()
        self._corrupt: set[int] = set()
        self._empty: set[int] = set()
        # The last packets of segments behind which others were joined, and whether frames are missing there.
        self._ends: dict[int, bool] = {}
        # Whether a decoder leaves out the picture of a packet behind the entry at which it starts, where that is known.
        self._leading: dict[int, bool | None] = {}
        self._interlaced = False

    def run(self) -> Scan:
        broken, stopped = "", ""
        while self._most is None or len(self._packets) < self._most:
            with av.logging.Capture() as logs:
                try:
                    packet = next(self._demuxed, None)
                except av.error.FFmpegError as error:
                    packet, stopped = None, error.strerror or str(error)
            said = _first_complaint(logs)
            broken = broken or ("" if self.ends_in_zeros and NO_SYNC in said else said)
            if packet is None or not packet.size:
                break
            self._take(packet, broken)
            is_short = self.zeros_from is not None and self.last_end > self.zeros_from
            # Without sizes, parsers add zeros to the last packet.
            is_short = self._sized and (is_short or lacks_content(bytes(packet)))
            self._lacking = self._lacking + 1 if is_short else 0
            broken = ""
        self._decode(None)
        # What was not written begins behind the last packet, or in it.
        is_unwritten = self.zeros_from is not None and self.last_end + _MOST_UNREAD_BYTES >= self.zeros_from
        if is_unwritten:
            self._packets = _in_doubt(self._packets, self._lacking)
            stopped = ""
        times = [packet.pts for packet in self._packets]
        self.latest_pts = max((time for time in times if time is not None), default=0)
        has_decode_times = falls([times[number] for number in self._shown]) > falls(times)
        if has_decode_times:
            # When frames are shown, only the decoder's output says.
            self._packets = [replace(packet, pts=None) for packet in self._packets]
        if self._headers.is_in_mid_frame and self._packets:
            last = self._packets[-1]
            self._packets[-1] = replace(last, is_incomplete=True, complaint=last.complaint or HALF)
        if self._picture_ends is not None and self._picture_ends.is_missing:
            self._packets = _in_doubt(self._packets, 1)
        if self._break_at is not None:
            stopped = stopped or NO_CHAIN
        is_end = is_unwritten or any(words in broken for words in _ENDS_EARLY)
        ends_early = (is_end and bool(broken)) or bool(self._packets and self._packets[-1].is_incomplete)
        return Scan(
            packets=tuple(self._judged()),
            shown=tuple(self._shown),
            fed=tuple(self._fed),
            corrupt=frozenset(self._corrupt),
            stopped=stopped or ("" if is_end else broken),
            ends_early=ends_early,
            sized=self._sized,
            timed=self._timed,
            counts_time=self._counts_time,
            lacks_times=self._counts_time or has_decode_times or (self._is_avi and self._shown != sorted(self._shown)),
            numbers_frames=self._has_headers,
            decodes_at_once=self._picture_ends is not None,
        )

    def _take(self, packet: Packet[VideoStream], broken: str) -> None:
        self.last_position, self.last_end = packet.pos, (packet.pos or 0) + packet.size
        unit = self._headers.read(bytes(packet))
        if self.last_pictures is not None:
            self.last_pictures.see(packet)
        if self._picture_ends is not None:
            self._picture_ends.see(bytes(packet))
        if self._headers.misses_one(unit):
            broken = broken or "a frame is missing"
        if self.missing_before and (packet.pos or 0) >= self.missing_before[0]:
            broken = MISSING_FRAGMENT
            del self.missing_before[0]
        if unit.is_second_field and self._packets:
            self._complete(packet, broken)
            return
        if unit.follows_half and self._packets:
            self._packets[-1] = replace(self._packets[-1], complaint=self._packets[-1].complaint or HALF)
        # PyAV finds it by its address, and forgets it with the first packet that has it: each has a tuple of its own.
        packet.opaque = (len(self._packets),)
        if packet.size <= _EMPTY_BYTES:
            self._empty.add(len(self._packets))
        self._leading[len(self._packets)] = self._headers.leads(bytes(packet))
        if self._break_at is not None and (packet.pos or 0) >= self._break_at:
            broken = broken or NO_CHAIN
            self._timed = len(self._packets) if self._is_avi else None
            self._break_at = None
        said = self._decode(packet)
        incomplete = self._why_incomplete(packet)
        self._packets.append(
            ScannedPacket(
                pts=packet.pts,
                dts=packet.dts,
                is_entry=bool(unit.is_entry),
                promised_entry=packet.is_keyframe and self._headers.has_sequence,
                is_incomplete=bool(incomplete),
                complaint=incomplete or said or (HALF if unit.lacks_field else ""),
                break_before=broken,
                is_hidden=packet.is_discard,
                # Matroska's demuxer gives no times before 0.
                is_before_start=self._is_matroska and packet.pts is None,
            )
        )

    def _complete(self, packet: Packet[VideoStream], broken: str) -> None:
        """Take the packet with the second field of the last frame."""
        # Decoders give the frame the number of its first packet.
        first = self._packets.pop()
        said = self._decode(packet)
        incomplete = self._why_incomplete(packet)
        self._packets.append(
            replace(
                first,
                is_incomplete=first.is_incomplete or bool(incomplete),
                complaint=first.complaint or incomplete or said or broken,
            )
        )

    def _why_incomplete(self, packet: Packet[VideoStream]) -> str:
        """Why not all of a packet is there, "" if it is."""
        if not packet.is_corrupt:
            return ""
        continuity = self.continuity()
        if continuity is None:
            return _INCOMPLETE
        if continuity.excuses(packet.pos):
            if continuity.ends_recording(packet.pos):
                self._ends[len(self._packets)] = continuity.precedes_hole(packet.pos)
            return ""
        return REPEATED if continuity.repeats(packet.pos) else _INCOMPLETE

    def _decode(self, packet: Packet[VideoStream] | None) -> str:
        failure = ""
        frames: list[VideoFrame] = []
        with av.logging.Capture() as logs:
            try:
                frames = self._decoder.decode(packet)
            except av.error.EOFError:
                pass
            except av.error.FFmpegError as error:
                failure = error.strerror or str(error)
        for frame in frames:
            label = frame.opaque
            if isinstance(label, tuple):
                (number,) = label
                self._shown.append(number)
                self._fed.append(len(self._packets))
                self._interlaced = self._interlaced or frame.interlaced_frame
                (self._corrupt if frame.is_corrupt else set()).add(number)
                (self._keyframes if frame.key_frame else set()).add(number)
        return _first_complaint(logs) or failure

    def _judged(self) -> Iterator[ScannedPacket]:
        """The packets, with what is known only after all frames were put out."""
        one_to_one = self._decoder.name not in _HIDDEN_FRAMES and not self._interlaced
        shown, entry_pts = set(self._shown), None
        # Whether no packet behind the entry had a frame yet. Pictures that may lack one, and packets without times, are
        # shown before it then, and refer to frames before it.
        begins = False
        entries = [self._is_entry(number) for number in range(len(self._packets))]
        behind_hole: set[int] = set()
        for number, is_entry in enumerate(entries):
            packet = self._packets[number]
            if number in self._ends:
                start = self._start_behind(number, entries)
                if start is None:
                    packet = replace(packet, is_incomplete=True, complaint=packet.complaint or _INCOMPLETE)
                elif self._ends[number]:
                    behind_hole.add(start)
            if number in behind_hole:
                packet = replace(packet, break_before=packet.break_before or MISSING_SEGMENT)
            complaint = packet.complaint or ("a frame is corrupt" if number in self._corrupt else "")
            entry_pts = packet.pts if is_entry else entry_pts
            begins = is_entry or (begins and number not in shown)
            # Decoders leave out frames that are shown before the first keyframe; that is no damage.
            is_early = self._leading[number]
            is_early = packet.pts is None if is_early is None else is_early
            leads = leads_to(packet, entry_pts) or (begins and is_early)
            frameless = number not in shown and number not in self._empty and not packet.is_hidden
            if one_to_one and frameless and not (leads or complaint):
                complaint = "a packet decodes to no frame"
            yield replace(packet, complaint=complaint, is_entry=is_entry)

    def _is_entry(self, number: int) -> bool:
        return self._packets[number].is_entry if self._has_headers else number in self._keyframes

    def _start_behind(self, number: int, entries: list[bool]) -> int | None:
        """The number of the packet with which another segment begins behind this one; None where a frame in it may
        refer to one before it: it does not begin with an entry, or some are shown before that."""
        start = next((place for place in range(number + 1, min(number + 3, len(entries))) if entries[place]), None)
        if start is None:
            return None
        stop = next((place for place in range(start + 1, len(entries)) if entries[place]), len(entries))
        pts = self._packets[start].pts
        return None if any(leads_to(packet, pts) for packet in self._packets[start + 1 : stop]) else start


def _unknown() -> None:
    """The counters of a stream that has none."""


def _first_complaint(logs: list[tuple[int, str, str]]) -> str:
    return first_complaint([message for _level, _name, message in logs])


@contextmanager
def _complaints_heard() -> Iterator[None]:
    level, skips = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)
    try:
        yield
    finally:
        av.logging.set_level(level)
        av.logging.set_skip_repeated(skips)
