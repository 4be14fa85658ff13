"""Whether HEVC ends within a picture, in formats that do not state how long pictures are.

Decoders go on with whatever lies behind the end of the file, without a message, so that the rest of the picture is
noise, or that of an earlier one. A picture that is whole says where it ends: it stays the same whatever follows it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import av
from av.codec.context import CodecContext, ThreadType
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from .padded_packets import packet_of

# Neither begins another unit of the stream.
_BEHIND = (b"\x55" * 64, b"\xaa" * 64)
_START_CODE, _SLICE_TYPES = b"\0\0\1", 32
# Of a longer group of pictures it is not known.
_MOST_BYTES = 1 << 28


class LastPictures:
    """The pictures of a stream since its last keyframe, each as its packet has it."""

    def __init__(self, decoder: CodecContext) -> None:
        self._decoder = decoder
        self._pictures: list[bytes] = []
        self._bytes = 0

    def see(self, packet: Packet[VideoStream]) -> None:
        if packet.is_keyframe:
            self._pictures, self._bytes = [], 0
        self._bytes += packet.size
        self._pictures.append(bytes(packet))
        if self._bytes > _MOST_BYTES:
            self._pictures = []

    @property
    def lack_an_end(self) -> bool:
        """Whether the last one lacks its end."""
        if not self._pictures:
            return False
        *before, last = self._pictures
        units = _units(last)
        slices = sum(_is_slice(unit) for unit in units)
        if slices < min((sum(map(_is_slice, _units(each))) for each in before), default=1):
            return True
        if not _is_slice(units[-1]):
            # What is no slice follows the last one.
            return False
        one, other = (self._checksums([*before, last.rstrip(b"\0") + behind]) for behind in _BEHIND)
        without = self._checksums([*before, _START_CODE + _START_CODE.join(units[:-1])]) if slices > 1 else None
        return one != other or one == without

    def _checksums(self, packets: Sequence[bytes]) -> list[int]:
        """Those of the pictures that these packets decode to."""
        decoder = CodecContext.create(self._decoder.name, "r")
        if not isinstance(decoder, VideoCodecContext):
            raise TypeError(f"{self._decoder.name} is no video codec")
        decoder.extradata = self._decoder.extradata
        decoder.thread_count, decoder.thread_type = 1, ThreadType.NONE
        decoder.options = {"skip_loop_filter": "all"}
        found: list[int] = []
        for data in [*packets, None]:
            frames: list[VideoFrame] = []
            try:
                frames = decoder.decode(None if data is None else packet_of(data))
            except av.error.FFmpegError:
                found.append(0)
            for frame in frames:
                checksum = 0
                for plane in frame.planes:
                    checksum = zlib.crc32(bytes(plane), checksum)
                found.append(checksum)
        return found


def _units(picture: bytes) -> list[bytes]:
    return [unit for unit in picture.rstrip(b"\0").split(_START_CODE)[1:] if unit] or [b"\xff"]


def _is_slice(unit: bytes) -> bool:
    return unit[0] >> 1 & 63 < _SLICE_TYPES
