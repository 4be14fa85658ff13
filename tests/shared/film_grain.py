"""Film grain in the headers of H.264 and HEVC: messages by ITU-T H.274, which decoders add to their pictures."""

from __future__ import annotations

import subprocess
from pathlib import Path

from shortgop.prep.running.ffmpeg import find_ffmpeg

_START = b"\0\0\1"


def _unsigned(value: int) -> str:
    """ue(v) of H.264, 9.1."""
    digits = f"{value + 1:b}"
    return "0" * (len(digits) - 1) + digits


def _message(*, is_h264: bool) -> bytes:
    """A NAL unit with a film grain characteristics message (H.274, 8.5.1): grain in luma, for all of its values."""
    # It is not cancelled; model 0, no colours of its own, blending 0, a scale of 2 ** 2; luma alone has a model.
    bits = "0" + "00" + "0" + "00" + "0010" + "100"
    # One interval, of 0 to 255, and three values of it: 100, 8 and 8, as se(v).
    bits += f"{0:08b}{2:03b}{0:08b}{255:08b}" + "".join(_unsigned(2 * value - 1) for value in (100, 8, 8))
    bits += (_unsigned(1) if is_h264 else "1") + "1"
    bits += "0" * (-len(bits) % 8)
    payload = int(bits, 2).to_bytes(len(bits) // 8, "big")
    unit = (b"\x06" if is_h264 else b"\x4e\x01") + bytes([19, len(payload)]) + payload + b"\x80"
    return unit.replace(b"\0\0\0", b"\0\0\3\0").replace(b"\0\0\1", b"\0\0\3\1")


def add_film_grain(source: Path, made: Path, codec: str, first: int = 0) -> None:
    """Copy a video in "h264" or "hevc", at 30 frames per second, with such a message before each picture from number
    `first` on, as they are decoded."""
    ffmpeg = [find_ffmpeg().path, "-v", "error"]
    argv = [*ffmpeg, "-i", str(source), "-c", "copy", "-bsf:v", f"{codec}_mp4toannexb", "-f", codec, "pipe:1"]
    stream = subprocess.run(argv, check=True, capture_output=True).stdout
    is_h264, parts, pictures = codec == "h264", list[bytes](), 0
    for unit in stream.split(_START)[1:]:
        is_picture = unit[0] & 31 in (1, 5) if is_h264 else unit[0] >> 1 & 63 < 32
        parts += [*([_message(is_h264=is_h264)] if is_picture and pictures >= first else []), unit]
        pictures += is_picture
    argv = [*ffmpeg, "-r", "30", "-f", codec, "-i", "pipe:0", "-c", "copy", str(made)]
    subprocess.run(argv, check=True, input=b"".join(_START + part for part in parts))
