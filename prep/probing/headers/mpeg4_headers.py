"""What the headers of MPEG-4 say of the order of frames, and of those that are not coded. Codes: ISO/IEC 14496-2, 6.2.3
and 6.2.5.

Where the header of a layer says that there are no B-frames, FFmpeg believes it, and shows each frame as it is decoded:
those before B-frames come too early. Of a picture that is not coded, the one before it is to be shown again, and FFmpeg
shows nothing.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace

from .h264_sps import Bits

_LAYER = re.compile(rb"\x00\x00\x01[\x20-\x2f]")
_PICTURE = b"\0\0\1\xb6"
# What DivX and Xvid write of themselves ends in p where they pack B-frames.
_PACKED = re.compile(rb"DivX\d+(?:b|Build)\d+p")
# FFmpeg's mpeg4_unpack_bframes puts a zero in place of the p.
_UNPACKED = re.compile(rb"DivX\d+(?:b|Build)\d+\x00\x00\x00\x01")
_LAYER_BYTES, _PICTURE_BYTES = 32, 16
_OWN_ASPECT, _B = 15, 2
_VBV_BITS = 79


class PictureHeaders:
    """Looks at the packets of a stream in turn. `has_wrong_order`: FFmpeg shows its frames in the order of decoding.
    `is_packed`: a packet has a B-frame behind another frame, and a later one without a coded picture stands for it.
    `says_packed`: the encoder says that it packed B-frames so, and there are some. `is_unpacked`: it did, and FFmpeg
    gave each its packet. `shows_nothing`: the one picture of the last packet is not coded, and stands for none."""

    def __init__(self, extradata: bytes | None) -> None:
        self._layer = _layer(extradata or b"", _Layer())
        self.has_wrong_order = False
        self.is_packed = False
        self.says_packed = False
        self._may_be_packed = _PACKED.search(extradata or b"") is not None
        self.is_unpacked = _UNPACKED.search(extradata or b"") is not None
        self.shows_nothing = False
        self._waiting = 0

    def see(self, data: bytes) -> None:
        self._layer = _layer(data, self._layer)
        pictures = data.split(_PICTURE)[1:]
        if self._layer.says_no_b_frames and not self.has_wrong_order:
            self.has_wrong_order = any(part[:1] and part[0] >> 6 == _B for part in pictures)
        if not self.says_packed:
            self._may_be_packed = self._may_be_packed or _PACKED.search(data) is not None
            self.says_packed = self._may_be_packed and any(part[:1] and part[0] >> 6 == _B for part in pictures)
        self._waiting += max(0, len(pictures) - 1)
        self.is_packed = self.is_packed or len(pictures) > 1
        is_empty = len(pictures) == 1 and not _is_coded(pictures[0], self._layer.time_bits)
        self.shows_nothing = is_empty and not self._waiting
        self._waiting -= is_empty and self._waiting > 0


@dataclass(frozen=True)
class _Layer:
    """Whether the header of a layer says that there are no B-frames (low_delay), and how many bits a picture's time
    has (vop_time_increment), 0 where that is not known."""

    says_no_b_frames: bool = False
    time_bits: int = 0


def _layer(data: bytes, before: _Layer) -> _Layer:
    """What the header of a layer says in these data; what the one `before` said, where there is none or it does not
    say."""
    found = _LAYER.search(data)
    if found is None:
        return before
    bits, layer = Bits(data[found.end() : found.end() + _LAYER_BYTES]), before
    with contextlib.suppress(IndexError):
        bits.take(9)  # random_accessible_vol, video_object_type_indication
        if bits.take(1):  # is_object_layer_identifier
            bits.take(7)
        if bits.take(4) == _OWN_ASPECT:
            bits.take(16)
        if bits.take(1):  # vol_control_parameters
            bits.take(2)  # chroma_format
            layer = replace(layer, says_no_b_frames=bool(bits.take(1)))
            if bits.take(1):  # vbv_parameters
                bits.take(_VBV_BITS)
        is_rectangle = not bits.take(2)  # video_object_layer_shape: other ones have other fields here
        bits.take(1)
        resolution = bits.take(16)  # vop_time_increment_resolution
        layer = replace(layer, time_bits=max(1, (resolution - 1).bit_length()) if is_rectangle else 0)
    return layer


def _is_coded(picture: bytes, time_bits: int) -> bool:
    """Whether a picture says that it is coded (vop_coded), or that is not known."""
    bits = Bits(picture[:_PICTURE_BYTES])
    try:
        bits.take(2)  # vop_coding_type
        while bits.take(1):  # modulo_time_base
            pass
        bits.take(1 + time_bits + 1)
        return not time_bits or bool(bits.take(1))
    except IndexError:
        return True
