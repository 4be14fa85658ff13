"""The profile of Dolby Vision, as the container states it.

FFmpeg finds it in the frames too, but not in all files, and PyAV does not expose what containers say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress

from .matroska_elements import elements, track_of
from .sample_entry import sample_entry_boxes

NOT_CONVERTIBLE = (
    "is Dolby Vision profile {profile}, whose colours ffmpeg cannot convert; convert it to HDR10 or BT.709 with other "
    "software first"
)
"""What is said of a video of such a profile."""

_CONFIGURATIONS = (b"dvcC", b"dvvC", b"dvwC")
# RFC 9559 (Matroska), 5.1.4.1.17.
_MAPPING, _MAPPING_TYPE, _MAPPING_DATA = 0x41E4, 0x41E7, 0x41ED
_ALWAYS_WITHOUT_BASE, _MAYBE_WITHOUT_BASE = 5, 10


def profile_without_base(path: str, format_name: str, stream_index: int, track_id: int) -> int:
    """The profile of a video whose pictures have colours that only Dolby Vision defines; 0 for any other video.

    `format_name` is FFmpeg's name for the container, `track_id` its id for the stream.
    """
    for configuration in _configurations(path, format_name, stream_index, track_id):
        with suppress(struct.error):
            # The version, then 7 bits of profile; the upper half of the fifth byte says what the base layer is.
            _version, packed, _level, base = struct.unpack_from(">HBBB", configuration)
            profile = int(packed >> 1)
            if profile == _ALWAYS_WITHOUT_BASE or (profile == _MAYBE_WITHOUT_BASE and base >> 4 == 0):
                return profile
    return 0


def _configurations(path: str, format_name: str, stream_index: int, track_id: int) -> Iterator[bytes]:
    if "mp4" in format_name:
        found = sample_entry_boxes(path, track_id)
        yield from (found[kind] for kind in _CONFIGURATIONS if kind in found)
    elif "matroska" in format_name:
        with suppress(OSError):
            for mapping in (list(elements(body)) for kind, body in track_of(path, stream_index) if kind == _MAPPING):
                if dict(mapping).get(_MAPPING_TYPE, b"")[-4:] in _CONFIGURATIONS:
                    yield dict(mapping).get(_MAPPING_DATA, b"")
