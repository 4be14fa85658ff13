"""Decodes a stream packet by packet, and records what demuxer and decoder log about each packet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import av
from av.codec.context import Flags, ThreadType
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ..probing.codec_names import codec_of
from ..probing.containers.transport_packets import REPEATED, Continuity
from ..probing.containers.unread import MISSING_FRAGMENT
from ..probing.containers.zero_tail import lacks_content
from ..probing.headers.access_units import HeaderReader, refers_to_others
from ..probing.headers.h264_references import ReferenceReader
from ..probing.headers.hevc_end import LastPictures
from ..probing.headers.picture_ends import picture_ends
from ..probing.packet_times import falls
from ..probing.signs import UNSIZED, no_chain
from .complaints import HALF, INCOMPLETE, NO_SYNC, complaint_of_packet
from .judged import Seen, judged, with_unmarked_entries
from .scanned import Scan, ScannedPacket, in_doubt

# Formats in which some packets have no timestamp of their own.
_COUNTING = ("mpeg", "mpegvideo", "h264", "hevc", "m4v")
# Raw streams, whose times FFmpeg counts, and pictures that state how long each is shown: no frame is missing in a hole.
_WITHOUT_HOLES = ("mpegvideo", "gif", "apng")
# What demuxers log where the file ends within an element.
_ENDS_EARLY = ("ended prematurely", "partial file")
# MPEG-4 in AVI has packets without a frame: they only say that nothing was coded. They are at most this long.
_EMPTY_BYTES = 16
# How much of what was written before the zeros at the end of a file may not be read.
_MOST_UNREAD_BYTES = 1 << 20


@dataclass(frozen=True)
class Beforehand:
    """What is known of a file before its packets are read, all of it by positions in the file.

    `break_at`: where its chain of chunks breaks. `zeros_from`: from where on it has zeros to its end. `ends_in_zeros`:
    it is a transport stream of which nothing is missing before the zeros with which it ends. `missing_before`: before
    which packets fragments are missing, rising. `continuity`: what the counters of a transport stream say, for the
    packets that FFmpeg calls incomplete.
    """

    break_at: int | None = None
    zeros_from: int | None = None
    ends_in_zeros: bool = False
    missing_before: tuple[int, ...] = ()
    continuity: Callable[[], Continuity | None] | None = None


_NOTHING_KNOWN = Beforehand()


class Scanner:
    """A scan of one stream, by `run`. After that `last_position` and `last_end` say where the last packet lies,
    `latest_pts` when the last frame is shown, and `last_pictures` has the end of HEVC that does not state sizes."""

    def __init__(
        self,
        container: InputContainer,
        stream: VideoStream,
        packets: Iterator[Packet[VideoStream]],
        known: Beforehand = _NOTHING_KNOWN,
        most: int | None = None,
    ) -> None:
        self.last_position: int | None = None
        self.last_end = 0
        self.latest_pts = 0
        self._demuxed = packets
        self._most = most
        self._known = known
        self._break_at = known.break_at
        self._missing_before = list(known.missing_before)
        # How many of the last packets end in zeros.
        self._lacking = 0
        self._sized = container.format.name not in UNSIZED
        self._is_avi = container.format.name == "avi"
        self._is_matroska = "matroska" in container.format.name
        self._holes_tell = container.format.name not in _WITHOUT_HOLES
        self._counts_time = container.format.name in _COUNTING
        self._decoder = stream.codec_context
        self._decoder.thread_count, self._decoder.thread_type = 1, ThreadType.NONE
        self._decoder.flags |= Flags.copy_opaque | Flags.output_corrupt
        self._codec = codec_of(self._decoder)
        self._headers = HeaderReader(self._codec, self._decoder.extradata)
        is_open = self._codec == "hevc" and not self._sized
        self.last_pictures = LastPictures(self._decoder) if is_open else None
        self._picture_ends = picture_ends(self._codec)
        # Of these codecs `HeaderReader` reads what a frame is, and its number.
        self._has_headers = self._codec in ("h264", "hevc")
        self._references = ReferenceReader(self._decoder.extradata) if self._codec == "h264" else None
        self._timed: int | None = None
        self._seen = Seen()

    def run(self) -> Scan:
        broken, stopped = self._take_all()
        self._decode(None)
        seen = self._seen
        zeros_from = self._known.zeros_from
        # What was not written begins behind the last packet, or in it.
        is_unwritten = zeros_from is not None and self.last_end + _MOST_UNREAD_BYTES >= zeros_from
        if is_unwritten:
            seen.packets = in_doubt(seen.packets, self._lacking)
            stopped = ""
        has_decode_times = self._read_times()
        if self._headers.is_in_mid_frame and seen.packets:
            last = seen.packets[-1]
            seen.packets[-1] = replace(last, is_incomplete=True, complaint=last.complaint or HALF)
        if self._picture_ends is not None and self._picture_ends.is_missing:
            seen.packets = in_doubt(seen.packets, 1)
        if self._break_at is not None:
            stopped = stopped or no_chain(self._break_at)
        is_end = is_unwritten or any(words in broken for words in _ENDS_EARLY)
        ends_early = (is_end and bool(broken)) or bool(seen.packets and seen.packets[-1].is_incomplete)
        begins_unmarked = with_unmarked_entries(seen)
        return Scan(
            packets=tuple(judged(seen, self._codec, has_headers=self._has_headers)),
            shown=tuple(seen.shown),
            fed=tuple(seen.fed),
            corrupt=frozenset() if begins_unmarked else frozenset(seen.corrupt),
            begins_unmarked=begins_unmarked,
            stopped=stopped or ("" if is_end else broken),
            ends_early=ends_early,
            sized=self._sized,
            timed=self._timed,
            counts_time=self._counts_time,
            lacks_times=self._counts_time or has_decode_times or (self._is_avi and seen.shown != sorted(seen.shown)),
            numbers_frames=self._has_headers,
            holes_tell=self._holes_tell,
            decodes_at_once=self._picture_ends is not None,
        )

    def _take_all(self) -> tuple[str, str]:
        """Read all packets. Returns what the demuxer logged behind the last one, and why it did not go on."""
        broken, stopped = "", ""
        while self._most is None or len(self._seen.packets) < self._most:
            with av.logging.Capture() as logs:
                try:
                    packet = next(self._demuxed, None)
                except av.error.FFmpegError as error:
                    packet, stopped = None, error.strerror or str(error)
            said = _first_complaint(logs)
            broken = broken or ("" if self._known.ends_in_zeros and NO_SYNC in said else said)
            if packet is None or not packet.size:
                break
            self._take(packet, broken)
            is_short = self._known.zeros_from is not None and self.last_end > self._known.zeros_from
            # Without sizes, parsers add zeros to the last packet.
            is_short = self._sized and (is_short or lacks_content(bytes(packet)))
            self._lacking = self._lacking + 1 if is_short else 0
            broken = ""
        return broken, stopped

    def _read_times(self) -> bool:
        """Note the latest time of a packet. Whether packets have only times of decoding, which are left out then."""
        seen = self._seen
        times = [packet.pts for packet in seen.packets]
        self.latest_pts = max((time for time in times if time is not None), default=0)
        has_decode_times = falls([times[number] for number in seen.shown]) > falls(times)
        if has_decode_times:
            # When frames are shown, only the decoder's output says.
            seen.packets = [replace(packet, pts=None) for packet in seen.packets]
        return has_decode_times

    def _take(self, packet: Packet[VideoStream], broken: str) -> None:
        self.last_position, self.last_end = packet.pos, (packet.pos or 0) + packet.size
        data = bytes(packet)
        unit = self._headers.read(data)
        if self.last_pictures is not None:
            self.last_pictures.see(packet)
        if self._picture_ends is not None:
            self._picture_ends.see(data)
        if self._headers.misses_one(unit):
            broken = broken or "a frame is missing"
        if self._missing_before and (packet.pos or 0) >= self._missing_before[0]:
            broken = MISSING_FRAGMENT
            del self._missing_before[0]
        seen, number = self._seen, len(self._seen.packets)
        frame = self._references.read(data) if self._references is not None else None
        if unit.is_second_field and number:
            self._complete(packet, broken)
            return
        if unit.follows_half and number:
            seen.packets[-1] = replace(seen.packets[-1], complaint=seen.packets[-1].complaint or HALF)
        # PyAV finds it by its address, and forgets it with the first packet that has it: each has a tuple of its own.
        packet.opaque = (number,)
        if packet.size <= _EMPTY_BYTES:
            seen.empty.add(number)
        seen.leading.append(self._headers.leads(data))
        seen.frames.append(frame)
        if self._break_at is not None and (packet.pos or 0) >= self._break_at:
            broken = broken or no_chain(self._break_at)
            self._timed = number if self._is_avi else None
            self._break_at = None
        said, refers = self._decode(packet), refers_to_others(self._codec, packet)
        incomplete = self._why_incomplete(packet)
        seen.packets.append(
            ScannedPacket(
                pts=packet.pts,
                dts=packet.dts,
                is_entry=bool(unit.is_entry),
                promised_entry=packet.is_keyframe and self._headers.has_sequence and not refers,
                is_incomplete=bool(incomplete),
                complaint=incomplete or said or (HALF if unit.lacks_field else ""),
                break_before=broken,
                is_hidden=packet.is_discard,
                # Matroska's demuxer gives no times before 0.
                is_before_start=self._is_matroska and packet.pts is None,
                lacks_picture=self._sized and not unit.has_picture,
            )
        )

    def _complete(self, packet: Packet[VideoStream], broken: str) -> None:
        """Take the packet with the second field of the last frame."""
        # Decoders give the frame the number of its first packet.
        first = self._seen.packets.pop()
        said = self._decode(packet)
        incomplete = self._why_incomplete(packet)
        self._seen.packets.append(
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
        continuity = self._known.continuity() if self._known.continuity is not None else None
        if continuity is None:
            return INCOMPLETE
        if continuity.excuses(packet.pos):
            if continuity.ends_recording(packet.pos):
                self._seen.ends[len(self._seen.packets)] = continuity.precedes_hole(packet.pos)
            return ""
        return REPEATED if continuity.repeats(packet.pos) else INCOMPLETE

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
            self._note(frame)
        return _first_complaint(logs) or failure

    def _note(self, frame: VideoFrame) -> None:
        """Note a frame that the decoder put out, if it says of which packet it is."""
        if not isinstance(frame.opaque, tuple):
            return
        seen, (number,) = self._seen, frame.opaque
        seen.shown.append(number)
        seen.fed.append(len(seen.packets))
        seen.is_interlaced = seen.is_interlaced or frame.interlaced_frame
        if frame.is_corrupt:
            seen.corrupt.add(number)
        if frame.key_frame:
            seen.keyframes.add(number)


def _first_complaint(logs: list[tuple[int, str, str]]) -> str:
    return complaint_of_packet([message for _level, _name, message in logs])
