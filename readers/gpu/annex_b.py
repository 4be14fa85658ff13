"""Access units as NVDEC's parser reads them: ITU-T H.264 and H.265, Annex B, with a start code before each NAL unit.

In MP4 a length comes before each NAL unit, and the parameter sets lie in the avcC or hvcC box (ISO/IEC 14496-15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from ...errors import CorruptDataError
from ...manifests.records import CodecConfig
from ...manifests.unit_kinds import nal_length_bytes

START_CODE = b"\0\0\0\1"
# Bytes of the lengths that parameter sets have in both boxes.
_SET_LENGTH_BYTES = 2


@lru_cache(maxsize=256)
def parameter_sets(config: CodecConfig) -> bytes:
    """The parameter sets of a codec configuration, each after a start code, to go before an IDR picture.

    CorruptDataError for a box that ends early.
    """
    box, is_hevc = config.extradata, config.codec == "hevc"
    try:
        return b"".join(START_CODE + unit for unit in (_sets_of_hvcc(box) if is_hevc else _sets_of_avcc(box)))
    except IndexError:
        raise CorruptDataError(
            f"the codec configuration of {config.codec} ends early; the manifest is damaged"
        ) from None


def units_for_parser(config: CodecConfig) -> tuple[bytes, Callable[[memoryview], bytes]]:
    """What the parser reads before the first access unit of a GOP, and how it reads a sample."""
    return parameter_sets(config), partial(annex_b, length_bytes=nal_length_bytes(config.codec, config.extradata))


def annex_b(sample: bytes | memoryview, length_bytes: int) -> bytes:
    """The NAL units of a sample, each after a start code instead of its length.

    CorruptDataError when the lengths do not fit the sample, or a NAL unit has no bytes.
    """
    parts: list[bytes | memoryview] = []
    at = 0
    while at < len(sample):
        start = at + length_bytes
        at = start + int.from_bytes(sample[at:start], "big")
        if at > len(sample) or at <= start:
            raise CorruptDataError(
                f"a NAL unit from byte {start} to {at} of a sample of {len(sample)} bytes; the data is damaged"
            )
        parts += (START_CODE, sample[start:at])
    return b"".join(parts)


def _sets_of_avcc(box: bytes) -> Iterator[bytes]:
    at = 5
    for mask in (31, 255):
        count, at = box[at] & mask, at + 1
        for _ in range(count):
            unit, at = _set_at(box, at)
            yield unit


def _sets_of_hvcc(box: bytes) -> Iterator[bytes]:
    num_arrays, at = box[22], 23
    for _ in range(num_arrays):
        # A byte with the type of the NAL units comes before how many there are.
        count, at = (box[at + 1] << 8) + box[at + 2], at + 3
        for _ in range(count):
            unit, at = _set_at(box, at)
            yield unit


def _set_at(box: bytes, at: int) -> tuple[bytes, int]:
    """The parameter set whose length is at this byte, and where the next one begins. IndexError when it ends early."""
    start = at + _SET_LENGTH_BYTES
    stop = start + (box[at] << 8) + box[at + 1]
    if stop > len(box):
        raise IndexError
    return box[start:stop], stop
