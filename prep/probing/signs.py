"""Signs of damage in a source's packets and headers, found without decoding.

A sign is no proof: it makes prep scan the source (`kept_frames/scan.py`).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
from av.codec.context import CodecContext
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from ...manifests.ragged import Array
from ...wording import counted
from .codec_names import codec_of
from .containers.chains import Break, lacks_asf_end
from .containers.mp4_fragments import top_boxes, unread_fragments
from .containers.next_file import Chain
from .containers.sample_entry import is_encrypted, is_index_cut_off
from .containers.transport_packets import ends_in_mid_packet
from .containers.unread import fragment_sign, has_another_mp4, is_fragmented, mp4s_remedy, unread_video
from .containers.zero_tail import ends_in_zeros, lacks_content, zeros_from
from .headers.access_units import HeaderReader, has_alpha_layer, refers_to_others
from .headers.hevc_end import LastPictures
from .headers.mpeg4_headers import PictureHeaders
from .headers.picture_ends import picture_ends
from .holes import frames_behind_hole
from .picture import VP_AND_AV1
from .playlists import SCRIPT_DEMUXERS

# How much earlier than its header states a video may end without being scanned: headers round, and may state the end of
# another track.
_MISSING_SECONDS = 1
# Containers that do not state the length of a packet: their last packet may be incomplete without a sign, and later
# ones may be missing.
UNSIZED = ("mpegts", "mpeg", "mpegvideo", "h264", "hevc", "m4v", "mjpeg")
# Codecs of which the headers of all packets are read.
_READ_CODECS = ("h264", "mpeg1video", "mpeg2video")
# Codecs whose keyframes, as the container flags them, are frames at which a decoder may start. For H.264 and HEVC the
# headers say so.
_KEYFRAME_CODECS = (
    *VP_AND_AV1, "mpeg4", "mpeg1video", "mpeg2video", "mjpeg", "prores", "dnxhd", "ffv1",
)  # fmt: skip

# Demuxers that split a packet of several frames, and give each the same time.
_SPLITTING = ("asf", "mpeg", "mpegts")
_DENIES_B_FRAMES = (
    "MPEG-4 whose header says that it has no B-frames (low_delay), but it has them, so FFmpeg shows its frames in the "
    "wrong order; convert it with a program that does not rely on FFmpeg"
)
_PACKED_AND_SPLIT = (
    "MPEG-4 with packed B-frames (DivX, Xvid) that was copied from AVI as it was, so that FFmpeg shows frames at the "
    "times of others; give the AVI, or OUT.wmv of `ffmpeg -i FILE.avi -c copy -bsf:v mpeg4_unpack_bframes OUT.wmv`"
)

NO_CHAIN = "there is a break between its parts"
_WITHOUT_INDEX = (
    "without it no frame can be read, even with --salvage; copy it again or, if its camera lost power, let a program "
    "such as untrunc make the index anew"
)
_MOOV_IS_MISSING = f"its index is cut off (an MP4 without its moov box), and {_WITHOUT_INDEX}"
MOOV_IS_CUT = f"its index is cut off (the MP4 ends within its moov box), and {_WITHOUT_INDEX}"
_IS_ENCRYPTED = "it is encrypted; decrypt it first, with its key"
# Brands of HEIF and AVIF (ISO/IEC 23008-12). Some cameras keep what they know of a recording in a box like theirs.
_PICTURES, _BRAND_BYTES = re.compile(rb"(?s).{4}ftyp(hei|mif|msf|avi[fs])"), 12
_IS_A_PICTURE = "it is a still picture (AVIF, HEIF), not a video"
_JOINED = "it is several MP4s that were joined byte by byte; {remedy}"
JOIN_SEGMENTS = "join the segments with it (`cat INIT SEGMENT... > one.mp4`) and give that"
_IS_A_SEGMENT = (
    "it is a segment of a stream (HLS, DASH) without the initialization segment, which says how to decode it; "
    f"{JOIN_SEGMENTS}"
)


# What segments of a stream may begin with (ISO/IEC 14496-12, 8.16).
_SEGMENT_BOXES = (b"ftyp", b"styp", b"sidx", b"emsg", b"prft", b"moof")
# With what recordings begin whose moov is written last; QuickTime files of older cameras have no ftyp.
_FIRST_BOXES = (b"ftyp", b"wide", b"skip", b"free", b"mdat")


class PacketLog:
    """The frames of a stream in decode order, one for each packet or for two that have a field each, and the first sign
    of damage in them.

    With `keyframes_at`, the positions of the keyframes in the file, the content of packets is not looked at. FFmpeg's
    own mark is of no use then: its parsers take it from packets that have no content yet. `is_unsized`: the container
    does not state the length of a packet.
    """

    def __init__(
        self, decoder: CodecContext, *, keyframes_at: frozenset[int] | None = None, is_unsized: bool = False
    ) -> None:
        self._keyframes_at = keyframes_at
        self.pts: list[int | None] = []
        self.durations = array("q")
        self.dts: list[int | None] = []
        self.last_position: int | None = None
        self.last_end = 0
        self._last_packet: Packet[VideoStream] | None = None
        self.has_decode_times = True
        # The pts of packets of which FFmpeg shows nothing.
        self.not_coded: list[int] = []
        # Whether packets have pts that rise in the order of decoding.
        self.rises = True
        self.ends_incomplete = False
        # Whether some packets have frames that are not shown.
        self.has_hidden = False
        self._seen = 0
        self._has_false_keyframes = False
        self.suspicion = ""
        self._extradata, self._codec = decoder.extradata, codec_of(decoder)
        self._headers = HeaderReader(self._codec, decoder.extradata)
        self.has_alpha_layer = False
        self._pictures = PictureHeaders(decoder.extradata) if self._codec == "mpeg4" else None
        self.last_pictures = LastPictures(decoder) if self._codec == "hevc" and is_unsized else None
        self._ends = picture_ends(self._codec) if keyframes_at is None else None
        self._is_entry: bool | None = None
        self._is_second_field = False
        self._latest: int | None = None
        self._entries: list[int] = []

    def see(self, packet: Packet[VideoStream]) -> None:
        """Read the headers of a packet, whether its frame is shown or only referred to."""
        is_keyframe = packet.is_keyframe
        if is_keyframe and self._keyframes_at is None and refers_to_others(self._codec, packet):
            is_keyframe, self._has_false_keyframes = False, True
        if not self._seen and not is_keyframe:
            self.suspect("its video begins without a keyframe")
        if not self._seen and self._codec == "hevc":
            self.has_alpha_layer = has_alpha_layer(self._extradata, bytes(packet))
        if self._pictures is not None and self._keyframes_at is None:
            self._pictures.see(bytes(packet))
        if self._ends is not None:
            self._ends.see(bytes(packet))
        if self.last_pictures is not None:
            self.last_pictures.see(packet)
        self._seen += 1
        self._last_packet = packet
        self.last_position, self.last_end = packet.pos, (packet.pos or 0) + packet.size
        self._is_entry = is_keyframe if self._codec in _KEYFRAME_CODECS else None
        self._is_second_field = False
        if self._keyframes_at is not None:
            may_have_entries = self._codec in (*_KEYFRAME_CODECS, "h264", "hevc")
            self._is_entry = may_have_entries and packet.pos in self._keyframes_at
        elif self._codec in _READ_CODECS or (self._codec == "hevc" and packet.is_keyframe):
            unit = self._headers.read(bytes(packet))
            self._is_second_field = unit.is_second_field
            if self._codec in ("h264", "hevc"):
                self._is_entry = packet.is_keyframe and unit.is_entry
            if self._headers.misses_one(unit):
                self.suspect(f"a frame is missing before packet {len(self.pts)} of its video")
            if unit.follows_half or unit.lacks_field:
                self.suspect(f"a field is missing at packet {len(self.pts)} of its video")

    def add(self, packet: Packet[VideoStream]) -> None:
        """Note the frame of the packet that was seen last."""
        number = len(self.pts)
        if packet.is_corrupt:
            self.suspect(f"packet {number} of its video is incomplete")
        self.ends_incomplete = packet.is_corrupt
        if self._is_second_field and self.pts:
            # Its frame is the one of the packet before. Without a time of its own, both fields come from one packet of
            # the file, and FFmpeg gives each of them the duration of the frame.
            self.durations[-1] += (packet.duration or 0) if packet.pts is not None else 0
            self.dts[-1] = packet.dts
            return
        if self._pictures is not None and self._pictures.shows_nothing and packet.pts is not None:
            self.not_coded.append(packet.pts)
        self.pts.append(packet.pts)
        self.durations.append(packet.duration or 0)
        self.dts.append(packet.dts)
        self.has_decode_times = self.has_decode_times and packet.pts == packet.dts
        self.rises = self.rises and packet.pts is not None and (self._latest is None or packet.pts > self._latest)
        if packet.pts is not None:
            # Frames that are decoded before an entry and shown after it could refer to what is before the entry.
            is_latest = self._latest is None or packet.pts > self._latest
            if self._is_entry and is_latest:
                self._entries.append(packet.pts)
            self._latest = packet.pts if self._latest is None else max(self._latest, packet.pts)

    def entries(self, container_format: str) -> Array:
        """The pts of the frames at which reading and decoding may start, int64, rising; none in containers without an
        index of exact lengths and times, nor where FFmpeg may begin to read at frames that are no keyframes: of an MP4
        that lists none, each counts as one."""
        found = () if self._has_false_keyframes or not may_have_index(container_format) else self._entries
        return np.array(found, dtype=np.int64)

    def suspect(self, why: str) -> None:
        self.suspicion = self.suspicion or why

    def why_out_of_order(self, container_format: str) -> str:
        """Why FFmpeg does not show frames in their order or at their times, with what to do; "" if it does."""
        if self._pictures is not None and self._pictures.has_wrong_order:
            return _DENIES_B_FRAMES
        is_torn = self._pictures is not None and self._pictures.says_packed and container_format in _SPLITTING
        return _PACKED_AND_SPLIT if is_torn else ""

    @property
    def is_packed(self) -> bool:
        """Whether some packet of MPEG-4 has two frames, of which a later packet gives the time."""
        return self._pictures is not None and self._pictures.is_packed

    @property
    def ends_in_zeros(self) -> bool:
        """Whether the end of the last packet is zeros, as where it was not written."""
        return self._last_packet is not None and lacks_content(bytes(self._last_packet))

    @property
    def is_unpacked(self) -> bool:
        """Whether FFmpeg gave packets of their own to frames of MPEG-4 that were packed two in one."""
        return self._pictures is not None and self._pictures.is_unpacked

    @property
    def aspect_changes(self) -> bool:
        """Whether the sample aspect ratio changes within the stream, if this codec's headers are read."""
        return self._headers.aspect_changes

    @property
    def has_unknown_delay(self) -> bool:
        """Whether frames are not shown in the order of decoding, and the stream does not say how many of them a decoder
        has to hold back for that. Only for streams whose packets all state when their frames are shown."""
        if not self._headers.lacks_delay:
            return False
        known = self.known_pts
        return len(known) == len(self.pts) and known != sorted(known)

    @property
    def has_only_frames(self) -> bool:
        """Whether no frame of the stream can have two fields, by its headers. False where they were not read."""
        return self._keyframes_at is None and self._headers.has_only_frames

    @property
    def ends_in_mid_frame(self) -> bool:
        """Whether the last frame lacks a field that should follow in a packet of its own."""
        return self._headers.is_in_mid_frame

    @property
    def ends_in_mid_picture(self) -> bool:
        """Whether the last picture of Motion JPEG or of a GIF lacks its end."""
        return self._ends is not None and self._ends.is_missing

    @property
    def known_pts(self) -> list[int]:
        return [pts for pts in self.pts if pts is not None]


def no_chain(position: int) -> str:
    """That the parts of a file (chunks, tags, blocks) do not follow one another up to this position and on."""
    return f"{NO_CHAIN}, at byte {position}"


def may_have_index(container_format: str) -> bool:
    """Whether containers of this format, by FFmpeg's name, have an index of exact lengths and times."""
    return container_format not in (*UNSIZED, *SCRIPT_DEMUXERS)


def suspicion_of_end(
    path: str, container: InputContainer, stream: VideoStream, packets: PacketLog, chain: Chain
) -> str:
    """A sign that the video is longer than what can be read, "" if there is none."""
    timebase = stream.time_base or Fraction(1)
    reached = max(_ends(packets), default=0) * timebase
    promised = promised_end(stream) or Fraction(0)
    last_dts = packets.dts[-1] if packets.dts else None
    is_cut = packets.ends_incomplete
    is_sized = container.format.name not in UNSIZED
    may_be_cut = is_cut or not is_sized
    broken, zeros = chain.broken, zeros_from(path)
    signs = [
        (broken is not None and not broken.is_end, "" if broken is None else no_chain(broken.position)),
        (
            promises_more_chunks(container, stream, len(packets.pts), last_dts),
            f"its header states {counted(stream.frames, 'frame')}, but {len(packets.pts)} were found",
        ),
        (
            may_lack_an_end(path, container, stream, (packets.last_end, packets.last_pictures), broken),
            "its last packet may be incomplete",
        ),
        (
            is_sized and zeros is not None and (packets.ends_in_zeros or packets.last_end > zeros),
            "its last packet ends in zeros, which go on behind it",
        ),
        (packets.ends_in_mid_frame, "its last frame lacks a field"),
        (packets.ends_in_mid_picture, "its last picture lacks its end"),
        (broken is not None and broken.is_cut, "its last chunk is incomplete"),
        (
            promised - reached > _MISSING_SECONDS,
            f"its header states an end at {float(promised):.2f} s, but the video ends at {float(reached):.2f} s",
        ),
        (
            may_be_cut and frames_behind_hole(packets.known_pts, last_dts, is_cut=is_cut) > 0,
            "frames are missing before the last one",
        ),
    ]
    said = cut_index(path, container, stream) or next((why for is_there, why in signs if is_there), "")
    if is_fragmented(container, stream):
        said = said or fragment_sign(unread_fragments(path, stream.id), has_hidden=packets.has_hidden)
    return said or unread_video(path, container, stream, packets.last_position, chain.next_begin)


def may_lack_an_end(
    path: str,
    container: InputContainer,
    stream: VideoStream,
    last: tuple[int, LastPictures | None],
    broken: Break | None,
) -> bool:
    """Whether the last packet may be incomplete although neither its demuxer nor its decoder would report that. `last`:
    where it ends, and the last pictures of HEVC. `broken` is where the chain of the file breaks."""
    last_end, pictures = last
    match container.format.name:
        case "mpegts":
            # A whole packet may look cut off, where it ends at the end of a transport packet.
            may_be_cut = pictures is not None and (ends_in_mid_packet(path, stream.id) or ends_in_zeros(path))
            return may_be_cut and pictures is not None and pictures.lack_an_end
        case "hevc" | "mpeg":
            return pictures is not None and pictures.lack_an_end
        case "flv":
            return broken is not None and broken.is_end and broken.in_packet
        case "asf":
            return lacks_asf_end(path)
        case "dv":
            return last_end > Path(path).stat().st_size
    return False


def _ends(packets: PacketLog) -> Iterator[int]:
    return (pts + duration for pts, duration in zip(packets.pts, packets.durations, strict=True) if pts is not None)


def cut_index(path: str, container: InputContainer, stream: VideoStream) -> str:
    """How the index of an MP4, which lists every sample, contradicts the file's length; "" if it does not.

    A fragment lists only its own samples, so a fragmented file that was cut is simply a shorter one.
    """
    if "mp4" not in container.format.name or stream.frames == 0:
        return ""
    end = max((entry.pos + entry.size for entry in stream.index_entries), default=0)
    size = Path(path).stat().st_size
    return f"its index lists bytes up to {end}, but the file has only {size}" if end > size else ""


def promises_more_chunks(container: InputContainer, stream: VideoStream, count: int, last_dts: int | None) -> bool:
    """Whether the header of an AVI states more chunks than the stream has, of which `count` have a frame.

    Others are empty: they only make the frame before them last longer. A dts counts them all. The interval is a mean:
    the first frame of a copy may last less long than others.
    """
    last = last_dts or 0
    interval = max(1.0, last / max(1, count - 1))
    return container.format.name == "avi" and stream.frames > max(count, last + 1.5 * interval)


def promised_end(stream: VideoStream) -> Fraction | None:
    """The end of the track in seconds, as a Matroska file states it: its demuxer may skip the rest of a file after
    damage."""
    match = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", stream.metadata.get("DURATION", ""))
    if match is None:
        return None
    hours, minutes, seconds = match.groups()
    return 3600 * int(hours) + 60 * int(minutes) + Fraction(seconds)


def why_mp4_does_not_open(path: str) -> str:
    """Why an MP4 or MOV does not open, by its boxes; "" if that is unknown, or if it is no MP4."""
    found = list(top_boxes(path))
    kinds = [kind for kind, *_ in found]
    if b"moov" in kinds and is_index_cut_off(path, None):
        return MOOV_IS_CUT
    if b"moov" in kinds and is_encrypted(path):
        return _IS_ENCRYPTED
    if b"moov" in kinds:
        return _JOINED.format(remedy=mp4s_remedy(path, found)) if has_another_mp4(kinds) else ""
    if b"moof" in kinds and kinds[0] in _SEGMENT_BOXES:
        return _IS_A_SEGMENT
    # Pictures (AVIF, HEIF) have this box instead.
    if b"meta" in kinds and _has_brand_of_pictures(path):
        return _IS_A_PICTURE
    return _MOOV_IS_MISSING if kinds and kinds[0] in _FIRST_BOXES else ""


def _has_brand_of_pictures(path: str) -> bool:
    with Path(path).open("rb") as file:
        return _PICTURES.match(file.read(_BRAND_BYTES)) is not None
