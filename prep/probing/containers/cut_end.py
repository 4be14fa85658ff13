"""Files that were cut off: they end before the end that they state themselves, as after a download that broke off.

FFmpeg reads such a file as a shorter one, without a message. A recording that broke off looks otherwise: its length is
written at its end, and until then it is left open.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from ....manifests.mp4 import boxes
from .chains import asf_data_end
from .matroska_elements import segment_end
from .mp4_fragments import top_boxes
from .sample_entry import DAMAGED_BOXES

# The length of a RIFF file that its writer has not completed.
_OPEN_RIFF_BYTES = (0, 0xFFFFFFFF)
_MAX_SIDX_BYTES = 1 << 24


def is_cut_off(path: str, container: str) -> bool:
    """Whether a file ends before the end that its container (FFmpeg's name) states. Of an MP4 with one index it is not
    said: that lists the samples, and `cut_index` compares them with the file."""
    size = Path(path).stat().st_size
    return max(_stated_ends(path, container), default=0) > size


def _stated_ends(path: str, container: str) -> Iterator[int]:
    if "matroska" in container:
        yield segment_end(path) or 0
    elif "mp4" in container:
        yield from _fragment_ends(path)
    elif container == "avi":
        with Path(path).open("rb") as file:
            _, length = struct.unpack("<4sI", file.read(8))
        # Without the header of eight bytes, which some writers count too.
        yield 0 if length in _OPEN_RIFF_BYTES else length
    elif container == "asf":
        yield asf_data_end(path) or 0


def _fragment_ends(path: str) -> Iterator[int]:
    """Where the fragments of an MP4 end, by their headers and by indexes of them (ISO/IEC 14496-12, 8.16.3)."""
    is_fragmented = False
    for kind, start, length in top_boxes(path):
        is_fragmented = is_fragmented or kind in (b"moof", b"sidx")
        if kind in (b"moof", b"mdat") and is_fragmented:
            yield start + length
        if kind == b"sidx" and length <= _MAX_SIDX_BYTES:
            with Path(path).open("rb") as file:
                file.seek(start)
                yield _indexed_end(file.read(length), start)


def _indexed_end(data: bytes, position: int) -> int:
    """The end of what the sidx in `data`, at this position, lists; 0 where it is damaged."""
    try:
        sidx = next(boxes(data))
        at = sidx.body + (20 if data[sidx.body] else 16)
        first_offset, _, count = struct.unpack_from(">QHH" if data[sidx.body] else ">IHH", data, at)
        sizes = struct.unpack_from(">" + "I8x" * count, data, at + (12 if data[sidx.body] else 8))
    except DAMAGED_BOXES:
        return 0
    # The first bit of a size tells another index from samples.
    return int(position + sidx.stop + first_offset + sum(each & 0x7FFFFFFF for each in sizes))
