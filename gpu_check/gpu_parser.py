"""What libnvcuvid's parser makes of our packets: when it calls back, and what it asks for. Nothing is decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from check_record import Record
from gpu_driver import require_gpu, use_primary_context
from sample_gops import gops_of, samples

from shortgop.manifests.records import CodecConfig
from shortgop.readers.decoders.base import GopRequest
from shortgop.readers.decoders.gop_samples import samples_of
from shortgop.readers.gpu.annex_b import units_for_parser
from shortgop.readers.gpu.nvcuvid import CallError, Nvcuvid, load_nvcuvid
from shortgop.readers.gpu.nvcuvid_structs import (
    END_OF_PICTURE,
    END_OF_STREAM,
    TIMESTAMP,
    DecodeCallback,
    DisplayCallback,
    ParserDisplayInfo,
    PictureParams,
    SequenceCallback,
    VideoFormat,
)
from shortgop.readers.gpu.nvdec_caps import CODEC_NUMBERS

# Behind the first GOP the parser has seen the end of a stream.
_GOPS = 2
_DEFAULT_SURFACES = 8


@dataclass(frozen=True)
class Heard:
    """What the parser called within the call for one packet, in order; `frame` is None for the end of a stream."""

    frame: int | None
    calls: tuple[str, ...]

    def __str__(self) -> str:
        sent = "end of stream" if self.frame is None else f"frame {self.frame}"
        return f"{sent}: {', '.join(self.calls) or 'nothing'}"


def callbacks(record: Record) -> None:
    """Every call of the parser for two GOPs of each codec. RuntimeError where the reader relies on others."""
    use_primary_context(require_gpu())
    library = load_nvcuvid()
    wrong = []
    for codec in ("h264", "hevc"):
        gops = gops_of(samples(record, codec))[:_GOPS]
        requests = [
            GopRequest(gop.config, gop.pattern, gop.data, tuple(range(len(gop.pattern))), (), ()) for gop in gops
        ]
        for number, heard in enumerate(heard_of(library, gops[0].config, requests)):
            record.figure(f"{codec}, GOP {number}", [str(each) for each in heard])
            wrong += [f"{codec}, GOP {number}, {each}" for each in unexpected(heard)]
    if wrong:
        raise RuntimeError("; ".join(wrong))


def heard_of(library: Nvcuvid, config: CodecConfig, gops: Sequence[GopRequest]) -> list[list[Heard]]:
    """What a new parser calls for these GOPs of one configuration, sent as the reader sends them."""
    calls: list[str] = []
    parser = library.create_parser(
        CODEC_NUMBERS[config.codec],
        SequenceCallback(partial(_noted, calls, _sequence)),
        DecodeCallback(partial(_noted, calls, _decode)),
        DisplayCallback(partial(_noted, calls, _display)),
    )

    def sent(data: bytes, frame: int | None, flags: int) -> Heard:
        calls.clear()
        try:
            library.parse(parser, data, frame or 0, flags)
        except CallError as error:
            calls.append(error.message)
        return Heard(frame, tuple(calls))

    found = []
    try:
        for gop in gops:
            (sets, unit_of), heard = units_for_parser(config), list[Heard]()
            for frame, sample in samples_of(gop):
                heard.append(sent(sets + unit_of(sample), frame, END_OF_PICTURE | TIMESTAMP))
                sets = b""
            found.append([*heard, sent(b"", None, END_OF_STREAM)])
    finally:
        library.destroy_parser(parser)
    return found


def unexpected(heard: Sequence[Heard]) -> list[str]:
    """What of a GOP is not as `NvcuvidSource` relies on it: one picture for each packet, within its call."""
    return [
        str(each)
        for each in heard
        if sum(call.startswith("decode") for call in each.calls) != (0 if each.frame is None else 1)
    ]


def _noted(calls: list[str], text_of: Callable[[Any], tuple[str, int]], _: Any, pointer: Any) -> int:
    """Note a call, and answer it."""
    try:
        text, answer = text_of(pointer.contents)
    except Exception as error:  # noqa: BLE001  # no exception passes through C
        text, answer = f"{type(error).__name__}: {error}", 0
    calls.append(text)
    return answer


def _sequence(found: VideoFormat) -> tuple[str, int]:
    area = found.display_area
    text = (
        f"sequence {found.coded_width}x{found.coded_height} shows {area.left},{area.top} to {area.right},{area.bottom} "
        f"of {found.min_num_decode_surfaces} surfaces, matrix {found.matrix_coefficients}, "
        f"{'full' if found.full_range else 'limited'} range, {found.bit_depth_luma_minus8 + 8} bits"
    )
    return text, max(found.min_num_decode_surfaces, _DEFAULT_SURFACES)


def _decode(found: PictureParams) -> tuple[str, int]:
    return f"decode into {found.picture_index}", 1


def _display(found: ParserDisplayInfo) -> tuple[str, int]:
    return f"display {found.picture_index} of frame {found.timestamp}", 1
