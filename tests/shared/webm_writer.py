"""A writer of WebM as browsers record it: neither a duration nor an index, and no element says how long it is."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

UNKNOWN_SIZE = b"\x01" + b"\xff" * 7
# Opus, 20 ms of silence.
_SILENCE, _SILENCE_MS = b"\xf8\xff\xfe", 20
_SOUND, _PICTURES = 1, 2


@dataclass(frozen=True)
class Block:
    """A frame, when it is shown, and whether it is a keyframe."""

    ms: int
    is_keyframe: bool
    data: bytes


def browser_recording(codec: str, size: tuple[int, int], blocks: Sequence[Block]) -> bytes:
    """A recording of sound, which begins at 0, and pictures; `codec` is Matroska's name for it."""
    opus = b"OpusHead\x01\x01\x38\x01\x80\xbb\0\0\0\0\0"
    sound = _element(0xE1, _element(0xB5, struct.pack(">d", 48000)) + _element(0x9F, b"\x01"))
    width, height = (side.to_bytes(2) for side in size)
    pictures = _element(0xE0, _element(0xB0, width) + _element(0xBA, height))
    tracks = _track(_SOUND, 2, "A_OPUS", _element(0x63A2, opus) + sound) + _track(_PICTURES, 1, codec, pictures)
    info = _element(0x2AD7B1, (1_000_000).to_bytes(3)) + _element(0x4D80, b"Chrome") + _element(0x5741, b"Chrome")
    head = _element(0x4282, b"webm") + _element(0x4287, b"\x04") + _element(0x4285, b"\x02")
    out = _element(0x1A45DFA3, head) + b"\x18\x53\x80\x67" + UNKNOWN_SIZE
    out += _element(0x1549A966, info) + _element(0x1654AE6B, tracks)
    silences = [Block(ms, True, _SILENCE) for ms in range(0, blocks[-1].ms, _SILENCE_MS)]
    found = sorted(
        [(each.ms, _PICTURES, each) for each in blocks] + [(each.ms, _SOUND, each) for each in silences],
        key=lambda one: one[:2],
    )
    begin = None
    for ms, track, block in found:
        if begin is None or (track == _PICTURES and block.is_keyframe):
            begin = ms
            out += b"\x1f\x43\xb6\x75" + UNKNOWN_SIZE + _element(0xE7, ms.to_bytes(4))
        flags = 0x80 if block.is_keyframe else 0
        out += _element(0xA3, struct.pack(">BhB", 0x80 | track, ms - begin, flags) + block.data)
    return out


def _track(number: int, kind: int, codec: str, more: bytes) -> bytes:
    numbers = _element(0xD7, bytes([number])) + _element(0x73C5, bytes([number])) + _element(0x83, bytes([kind]))
    return _element(0xAE, numbers + _element(0x86, codec.encode()) + more)


def _element(kind: int, content: bytes) -> bytes:
    """RFC 8794, 4 to 6, with a size of eight bytes."""
    return kind.to_bytes((kind.bit_length() + 7) // 8) + (1 << 56 | len(content)).to_bytes(8) + content
