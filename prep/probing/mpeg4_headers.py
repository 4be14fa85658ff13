"""Finds MPEG-4 streams whose header says that they have no B-frames, while they do. Codes: ISO/IEC 14496-2, 6.2.3.

FFmpeg believes the header, and shows each frame as it is decoded: those before B-frames come too early.
"""

from __future__ import annotations

import re

from .h264_sps import Bits

_LAYER = re.compile(rb"\x00\x00\x01[\x20-\x2f]")
_PICTURE = b"\0\0\1\xb6"
_LAYER_BYTES = 16
_OWN_ASPECT, _B = 15, 2


class OrderCheck:
    """Looks at the packets of a stream in turn. `is_wrong`: FFmpeg shows its frames in the order of decoding."""

    def __init__(self, extradata: bytes | None) -> None:
        self._says_no_b_frames = _says_no_b_frames(extradata or b"") or False
        self.is_wrong = False

    def see(self, data: bytes) -> None:
        said = _says_no_b_frames(data)
        if said is not None:
            self._says_no_b_frames = said
        if self._says_no_b_frames and not self.is_wrong:
            self.is_wrong = any(part[:1] and part[0] >> 6 == _B for part in data.split(_PICTURE)[1:])


def _says_no_b_frames(data: bytes) -> bool | None:
    """What the header of a layer says of B-frames (low_delay); None where there is none, or it does not say."""
    found = _LAYER.search(data)
    if found is None:
        return None
    bits = Bits(data[found.end() : found.end() + _LAYER_BYTES])
    try:
        bits.take(9)  # random_accessible_vol, video_object_type_indication
        if bits.take(1):  # is_object_layer_identifier
            bits.take(7)
        if bits.take(4) == _OWN_ASPECT:
            bits.take(16)
        if not bits.take(1):  # vol_control_parameters
            return None
        bits.take(2)  # chroma_format
        return bool(bits.take(1))
    except IndexError:
        return None
