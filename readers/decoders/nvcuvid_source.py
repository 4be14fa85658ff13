"""NVDEC through libnvcuvid itself: its parser and decoder, fed our packets. Has not run on a GPU.

Only wanted pictures are mapped, and no picture is copied: conversions read the decoder's own surfaces. A decoder has
few of these, so pictures are converted in groups, and a surface is unmapped once its group has been read.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from ...errors import DecodeError, ShortGopError
from ...manifests.records import CodecConfig
from ...warned import warn
from ...wording import counted
from ..gpu.annex_b import units_for_parser
from ..gpu.mapped_surfaces import MappedSurfaces
from ..gpu.nvcuvid import CallError, Nvcuvid, NvdecError, Parser
from ..gpu.nvcuvid_structs import (
    CHROMA_420,
    END_OF_PICTURE,
    END_OF_STREAM,
    STATUS_CONCEALED,
    STATUS_ERROR,
    SURFACE_NV12,
    SURFACE_P016,
    TIMESTAMP,
    WEAVE,
    DecodeCallback,
    DecodeCreateInfo,
    DisplayCallback,
    ParserDisplayInfo,
    PictureParams,
    ReconfigureInfo,
    SequenceCallback,
    ShortRect,
    VideoFormat,
)
from ..gpu.nvdec_caps import CODEC_NUMBERS
from ..gpu.stream_format import stream_format
from ..gpu.surfaces import Surface
from ..gpu.torch_memory import SurfaceMemory
from ..plan import Place
from .base import GopRequest
from .gop_samples import samples_of
from .surface_source import Pictures
from .whose_error import whose_error

Thing = TypeVar("Thing")

# Pictures that are converted at once, and surfaces for them: while a group is read, the next one is mapped.
GROUP_PICTURES = 4
OUTPUT_SURFACES = 2 * GROUP_PICTURES
# dynlink_cuviddec.h: with two pictures in the decoder's queue its engine is always busy. Mapping waits for a picture.
_PICTURES_BEHIND = 2
# Beyond those that the stream needs: the queue's.
_EXTRA_DECODE_SURFACES = 2
# Of a stream of which the parser does not say how many it needs. TorchCodec and NVIDIA's DALI take 20 then.
_UNKNOWN_DECODE_SURFACES = 20
# The driver makes no decoder with more.
_MOST_DECODE_SURFACES = 31
# A decoder is created for sides up to the next multiple, so that it can be reconfigured for others.
_SIDE_STEP = 256
_UNSPECIFIED = 2  # ISO/IEC 23091-2


@dataclass(frozen=True)
class DecoderKind:
    """What a decoder is created for: it can be reconfigured for any size up to `width` and `height`."""

    codec: str
    bit_depth: int
    width: int
    height: int

    @staticmethod
    def of(config: CodecConfig) -> DecoderKind:
        width, height = (-(-side // _SIDE_STEP) * _SIDE_STEP for side in (config.width, config.height))
        return DecoderKind(config.codec, stream_format(config).bit_depth, width, height)


@dataclass(frozen=True)
class _Layout:
    """How the pictures of a stream lie in surfaces, and their colours."""

    coded: tuple[int, int]
    """Width and height in pixels."""
    num_decode_surfaces: int
    left: int
    top: int
    matrix: int
    full_range: bool


@dataclass(eq=False)
class _Handles:
    parser: Parser | None = None
    decoder: ctypes.c_void_p | None = None
    made_for: tuple[tuple[int, int], int] | None = None
    """The coded size and the number of surfaces that the decoder was last created or reconfigured for."""

    @property
    def num_decode_surfaces(self) -> int:
        """How many surfaces the decoder has; 0 without one."""
        return self.made_for[1] if self.made_for else 0


@dataclass(eq=False)
class _Gop:
    """The GOP that is being decoded."""

    config: CodecConfig
    places: dict[int, tuple[Place, ...]]
    """Of the frames that are not mapped yet."""
    convert: Callable[[Pictures], None]
    sent: int | None = None
    """The frame that the parser has been sent."""
    num_decoded: int = 0
    """Pictures that were decoded from it."""
    waiting: dict[int, int] = field(default_factory=dict)
    """By the decoder's surface, the frames that are to be mapped, in decode order."""
    mapped: list[tuple[Surface, tuple[Place, ...]]] = field(default_factory=list)
    """What is to be converted next."""


class NvcuvidSource:
    """See `SurfaceSource`. It decodes configurations of one `DecoderKind`."""

    def __init__(self, config: CodecConfig, library: Nvcuvid, memory: SurfaceMemory) -> None:
        self._kind, self._library, self._memory = DecoderKind.of(config), library, memory
        self._config: CodecConfig | None = None
        self._layout: _Layout | None = None
        self._gop: _Gop | None = None
        self._error: BaseException | None = None
        handles = self._handles = _Handles()
        self._mapped = MappedSurfaces(
            lambda address: library.unmap_picture(_existing(handles.decoder), address), most=OUTPUT_SURFACES
        )
        self._close = weakref.finalize(self, _close, os.getpid(), library, memory, handles, self._mapped)
        # The driver closes all of it when the process ends.
        self._close.atexit = False

    def decode(self, request: GopRequest, convert: Callable[[Pictures], None]) -> int:
        """See `SurfaceSource.decode`."""
        try:
            return self._decode(request, convert)
        except BaseException as error:
            with contextlib.suppress(RuntimeError):
                # What was launched before the error may still read.
                self._mapped.read_before(self._memory.record())
            self._close()
            if isinstance(error, NvdecError):
                raise whose_error(error, request) from error
            raise
        finally:
            self._gop = None

    def _decode(self, request: GopRequest, convert: Callable[[Pictures], None]) -> int:
        config = request.config
        if config != self._config:
            self._open_parser(config)
        samples = samples_of(request)
        gop = self._gop = _Gop(config, dict(zip(request.frames, request.places, strict=True)), convert)
        # Sent before every GOP: after the end of a stream the parser has no parameter sets.
        sets, unit_of = units_for_parser(config)
        for frame, sample in samples:
            gop.sent, gop.num_decoded = frame, 0
            self._parse(sets + unit_of(sample), frame, END_OF_PICTURE | TIMESTAMP)
            if gop.num_decoded != 1:
                raise NvdecError(
                    f"NVDEC's parser finds {counted(gop.num_decoded, 'picture')} in the data of frame {frame} of a GOP"
                )
            sets = b""
        gop.sent = None
        while gop.waiting:
            self._map_next(gop)
        self._convert(gop)
        # The next GOP is another stream to the parser.
        self._parse(b"", 0, END_OF_STREAM)
        return len(samples)

    def _open_parser(self, config: CodecConfig) -> None:
        """A new parser reads all parameter sets. One that has read others may not call back for those that differ only
        in crop or colours."""
        if self._handles.parser is not None:
            self._library.destroy_parser(self._handles.parser)
        self._handles.parser = self._layout = None
        this = weakref.ref(self)
        self._handles.parser = self._library.create_parser(
            CODEC_NUMBERS[config.codec],
            SequenceCallback(_calling(this, NvcuvidSource._on_sequence)),
            DecodeCallback(_calling(this, NvcuvidSource._on_decode)),
            DisplayCallback(_calling(this, NvcuvidSource._on_display)),
        )
        self._config = config

    def _parse(self, data: bytes, timestamp: int, flags: int) -> None:
        try:
            self._library.parse(_existing(self._handles.parser), data, timestamp, flags)
        except DecodeError:
            # An error of a callback comes back as one without its reason.
            if self._error is None:
                raise
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _on_sequence(self, found: VideoFormat) -> int:
        """The parser has read parameter sets: the decoder is made ready for them. Returns how many surfaces it has."""
        gop = _existing(self._gop)
        layout = self._layout = self._checked_layout(found, gop.config)
        made_for = (layout.coded, layout.num_decode_surfaces)
        if self._handles.decoder is None:
            self._handles.decoder = self._library.create_decoder(self._create_info(layout))
        elif self._handles.made_for != made_for:
            if gop.waiting or gop.mapped:
                raise NvdecError("the stream has another coded size within a GOP")
            self._mapped.unmap_all()
            self._reconfigure(self._handles.decoder, layout)
        self._handles.made_for = made_for
        return layout.num_decode_surfaces

    def _reconfigure(self, decoder: ctypes.c_void_p, layout: _Layout) -> None:
        """Make a decoder ready for another size, or put a new one in its place: NVIDIA's DALI writes that a decoder may
        have to be created for the largest pictures that it is to give."""
        try:
            self._library.reconfigure(decoder, _reconfigure_info(layout))
        except CallError as error:
            warn(f"NVDEC does not give an open decoder another size, and opens a new one for it: {error.message}")
            self._handles.decoder = None
            self._library.destroy_decoder(decoder)
            self._handles.decoder = self._library.create_decoder(self._create_info(layout))

    def _on_decode(self, params: PictureParams) -> int:
        gop = _existing(self._gop)
        if gop.sent is None or self._layout is None:
            raise NvdecError("NVDEC's parser finds a picture that no packet has, or one without parameter sets")
        gop.num_decoded += 1
        # The decoder is about to write into this surface.
        while params.picture_index in gop.waiting:
            self._map_next(gop)
        self._library.decode_picture(_existing(self._handles.decoder), params)
        if gop.sent in gop.places:
            gop.waiting[params.picture_index] = gop.sent
        while len(gop.waiting) > _PICTURES_BEHIND:
            self._map_next(gop)
        return 1

    def _on_display(self, _: ParserDisplayInfo) -> int:
        """The pattern of the GOP says which frame a picture shows, so nothing waits for the order of display."""
        return 1

    def _map_next(self, gop: _Gop) -> None:
        """Map the picture that has waited longest, and convert those that are mapped when they are a group."""
        decoder = _existing(self._handles.decoder)
        index = next(iter(gop.waiting))
        frame = gop.waiting.pop(index)
        self._mapped.make_room()
        address, pitch = self._library.map_picture(decoder, index, self._memory.stream())
        self._mapped.add(address)
        if self._library.decode_status(decoder, index) in (STATUS_ERROR, STATUS_CONCEALED):
            raise NvdecError(f"NVDEC says that frame {frame} of the GOP is damaged")
        gop.mapped.append((self._surface(address, pitch, gop.config), gop.places.pop(frame)))
        if len(gop.mapped) == GROUP_PICTURES:
            self._convert(gop)

    def _convert(self, gop: _Gop) -> None:
        if gop.mapped:
            gop.convert(gop.mapped)
            self._mapped.read_before(self._memory.record())
            gop.mapped = []

    def _surface(self, address: int, pitch: int, config: CodecConfig) -> Surface:
        """The visible part of a mapped picture: lines of luma, and after an even number of them those of chroma."""
        layout = _existing(self._layout)
        size, dtype = (1, torch.uint8) if self._kind.bit_depth == 8 else (2, torch.uint16)
        y = address + layout.top * pitch + layout.left * size
        uv = address + (-(-layout.coded[1] // 2) * 2 + layout.top // 2) * pitch + layout.left // 2 * 2 * size
        chroma = (-(-config.height // 2), -(-config.width // 2), 2)
        return Surface(
            self._memory.tensor_at(y, (config.height, config.width), (pitch, size), dtype),
            self._memory.tensor_at(uv, chroma, (pitch, 2 * size, size), dtype),
            bit_depth=self._kind.bit_depth,
            matrix=layout.matrix,
            full_range=layout.full_range,
        )

    def _checked_layout(self, found: VideoFormat, config: CodecConfig) -> _Layout:
        """NvdecError when the stream is not what the manifest says."""
        area, coded = found.display_area, (found.coded_width, found.coded_height)
        size = (area.right - area.left, area.bottom - area.top)
        if size != (config.width, config.height):
            raise NvdecError(f"frames of {size[0]}x{size[1]}, the manifest says {config.width}x{config.height}")
        codec, bits = CODEC_NUMBERS[self._kind.codec], self._kind.bit_depth
        depths = (found.bit_depth_luma_minus8 + 8, found.bit_depth_chroma_minus8 + 8)
        if (found.codec, found.chroma_format, *depths) != (codec, CHROMA_420, bits, bits):
            raise NvdecError(
                f"the stream has codec {found.codec}, chroma format {found.chroma_format} and {depths[0]} and "
                f"{depths[1]} bits; the manifest says {codec}, {CHROMA_420} and {bits}"
            )
        if coded[0] > self._kind.width or coded[1] > self._kind.height:
            raise NvdecError(f"frames of {size[0]}x{size[1]} are coded as {coded[0]}x{coded[1]}, which is too large")
        # A stream that does not say its colours has those of its MP4, as with libavcodec.
        matrix = found.matrix_coefficients if found.matrix_coefficients not in (0, _UNSPECIFIED) else config.matrix
        least = found.min_num_decode_surfaces or _UNKNOWN_DECODE_SURFACES
        if least > _MOST_DECODE_SURFACES:
            raise NvdecError(f"the stream needs {least} surfaces, and NVDEC has {_MOST_DECODE_SURFACES} at the most")
        # A decoder is never given fewer than it has. NVIDIA's DALI keeps the largest number too (pull request 6460).
        surfaces = max(min(least + _EXTRA_DECODE_SURFACES, _MOST_DECODE_SURFACES), self._handles.num_decode_surfaces)
        return _Layout(coded, surfaces, area.left, area.top, matrix, found.full_range or config.full_range)

    def _create_info(self, layout: _Layout) -> DecodeCreateInfo:
        # The whole coded picture is mapped as it is. What is shown of it is a view: the driver's own cropping was
        # stale or refused in other projects.
        width, height = layout.coded
        return DecodeCreateInfo(
            width=width,
            height=height,
            num_decode_surfaces=layout.num_decode_surfaces,
            codec=CODEC_NUMBERS[self._kind.codec],
            chroma_format=CHROMA_420,
            bit_depth_minus8=self._kind.bit_depth - 8,
            max_width=self._kind.width,
            max_height=self._kind.height,
            display_area=ShortRect(0, 0, width, height),
            output_format=SURFACE_NV12 if self._kind.bit_depth == 8 else SURFACE_P016,
            deinterlace_mode=WEAVE,
            target_width=width,
            target_height=height,
            num_output_surfaces=OUTPUT_SURFACES,
        )


def _reconfigure_info(layout: _Layout) -> ReconfigureInfo:
    width, height = layout.coded
    return ReconfigureInfo(
        width=width,
        height=height,
        target_width=width,
        target_height=height,
        num_decode_surfaces=layout.num_decode_surfaces,
        display_area=ShortRect(0, 0, width, height),
    )


def _calling(source: weakref.ref[NvcuvidSource], method: Callable[[NvcuvidSource, Any], int]) -> Callable[..., int]:
    """A callback that keeps its error for after the parser's call, and returns failure for it.

    It refers to the source weakly: the source closes its decoder when nothing else refers to it.
    """

    def called(_: Any, pointer: Any) -> int:
        target = source()
        if target is None:
            return 0
        try:
            return method(target, pointer.contents)
        except BaseException as error:  # noqa: BLE001  # no exception passes through C
            # The parser may call once more within the same packet, and the first error says what is wrong.
            target._error = target._error or error  # noqa: SLF001  # this is a part of the class
            return 0

    return called


def _close(process: int, library: Nvcuvid, memory: SurfaceMemory, handles: _Handles, mapped: MappedSurfaces) -> None:
    """Close the decoder and the parser, in any thread. After an error these calls may fail too, which says nothing new.
    A forked process has no CUDA, and the handles that it inherits are its parent's."""
    if os.getpid() != process:
        return
    with contextlib.suppress(ShortGopError), memory.context():
        with contextlib.suppress(ShortGopError, RuntimeError):
            mapped.unmap_all()
        # In NVIDIA's order: a parser that gives pictures while it is destroyed finds the decoder still there.
        if handles.parser is not None:
            with contextlib.suppress(ShortGopError):
                library.destroy_parser(handles.parser)
        if handles.decoder is not None:
            with contextlib.suppress(ShortGopError):
                library.destroy_decoder(handles.decoder)


def _existing(thing: Thing | None) -> Thing:
    """The thing itself, which the order of the parser's calls guarantees to exist."""
    if thing is None:
        raise NvdecError("NVDEC's parser calls back out of order")
    return thing
