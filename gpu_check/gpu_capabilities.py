"""What NVDEC decodes here, as libnvcuvid says."""

from __future__ import annotations

from check_record import Record
from gpu_driver import load, other_driver, require_gpu, use_primary_context

from shortgop.readers.gpu.nvdec_caps import CODEC_NUMBERS, LIBRARY, ask_codec


def nvdec(record: Record) -> None:
    """The table of codecs and bit depths; fails where H.264 of 8 bits is not decoded."""
    driver = require_gpu()
    library = load(LIBRARY)
    use_primary_context(driver)
    found = {}
    for codec in CODEC_NUMBERS:
        for bit_depth in (8, 10):
            found[codec, bit_depth] = ask_codec(library, codec, bit_depth)
            record.figure(f"{codec} {bit_depth} bits", str(found[codec, bit_depth]))
    if not found["h264", 8].supported:
        raise RuntimeError(f"NVDEC does not decode H.264 of 8 bits here: {found['h264', 8]}. {other_driver(LIBRARY)}")
