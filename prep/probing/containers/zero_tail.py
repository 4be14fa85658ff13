"""Files that end in zeros, which were reserved for what was not written, as by a recorder that lost power."""

from __future__ import annotations

from pathlib import Path

_FEWEST_ZEROS, _READ_BYTES = 512, 1 << 20
_ZEROS_AT_END = 4
_GIF, _GIF_END = b"GIF8", b";"


def zeros_from(path: str) -> int | None:
    """From where on a file has only zeros; None where it does not end in many of them, or where they lie behind the
    byte with which a GIF ends: FFmpeg takes them for a part of its last picture."""
    if not ends_in_zeros(path):
        return None
    at, data = Path(path).stat().st_size, b""
    with Path(path).open("rb") as file:
        while at > 0:
            start = max(0, at - _READ_BYTES)
            file.seek(start)
            data = file.read(at - start).rstrip(b"\0")
            if data:
                at = start + len(data)
                break
            at = start
        size = file.seek(0, 2)
        file.seek(0)
        is_whole_gif = data.endswith(_GIF_END) and file.read(len(_GIF)) == _GIF
        return at if size - at >= _FEWEST_ZEROS and not is_whole_gif else None


def lacks_content(packet: bytes) -> bool:
    """Whether the end of a packet is zeros, as codecs write none there."""
    return not packet[-_ZEROS_AT_END:].strip(b"\0")


def ends_in_zeros(path: str) -> bool:
    """Whether a file has many zeros at its end."""
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        file.seek(max(0, size - _FEWEST_ZEROS))
        return not file.read(_FEWEST_ZEROS).strip(b"\0")
