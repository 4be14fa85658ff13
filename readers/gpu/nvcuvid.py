"""The calls of libnvcuvid that parse and decode, each with the error that the driver names. Has not run on a GPU.

All of them need a current CUDA context, and one thread at a time for a parser and its decoder.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...errors import DecodeError
from .cuda_driver import error_name, load
from .nvcuvid_structs import (
    DecodeCreateInfo,
    DecodeStatus,
    ParserParams,
    PictureParams,
    ProcessingParams,
    ReconfigureInfo,
    SourceDataPacket,
)
from .nvdec_caps import LIBRARY


class NvdecError(DecodeError):
    """NVDEC did not do what it should. That does not say whether the data or the GPU is to blame."""


class CallError(NvdecError):
    """A call of the driver failed."""


@dataclass(frozen=True, eq=False)
class Parser:
    """A parser, and the callbacks that it calls: ctypes frees a callback that no Python object refers to."""

    handle: ctypes.c_void_p
    callbacks: Sequence[Any]


class Nvcuvid:
    """libnvcuvid, with the driver's library for the names of errors."""

    def __init__(self, library: Any, driver: Any) -> None:
        self._library, self._driver = library, driver

    def create_parser(self, codec: int, on_sequence: Any, on_decode: Any, on_display: Any) -> Parser:
        """A parser that calls back for parameter sets, for pictures in decode order, and in the order of display."""
        # The sequence callback says how many surfaces there are. Without a delay and for whole access units, each
        # picture comes in the call that has its data.
        params = ParserParams(codec=codec, max_num_decode_surfaces=1, max_display_delay=0)
        params.on_sequence, params.on_decode, params.on_display = on_sequence, on_decode, on_display
        handle = ctypes.c_void_p()
        self._check("cuvidCreateVideoParser", (ctypes.byref(handle), ctypes.byref(params)), f"codec {codec}")
        return Parser(handle, (on_sequence, on_decode, on_display))

    def parse(self, parser: Parser, data: bytes, timestamp: int, flags: int) -> None:
        """Send the parser an access unit, in Annex B. Its callbacks run before this returns."""
        packet = SourceDataPacket(flags=flags, payload_size=len(data), payload=data or None, timestamp=timestamp)
        self._check("cuvidParseVideoData", (parser.handle, ctypes.byref(packet)), packet)

    def destroy_parser(self, parser: Parser) -> None:
        self._check("cuvidDestroyVideoParser", (parser.handle,))

    def create_decoder(self, info: DecodeCreateInfo) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._check("cuvidCreateDecoder", (ctypes.byref(handle), ctypes.byref(info)), info)
        return handle

    def reconfigure(self, decoder: ctypes.c_void_p, info: ReconfigureInfo) -> None:
        """Only within the sequence callback."""
        self._check("cuvidReconfigureDecoder", (decoder, ctypes.byref(info)), info)

    def destroy_decoder(self, decoder: ctypes.c_void_p) -> None:
        self._check("cuvidDestroyDecoder", (decoder,))

    def decode_picture(self, decoder: ctypes.c_void_p, params: PictureParams) -> None:
        """Start to decode a picture into the decoder's surface `params.picture_index`."""
        self._check("cuvidDecodePicture", (decoder, ctypes.byref(params)), params)

    def map_picture(self, decoder: ctypes.c_void_p, index: int, stream: int) -> tuple[int, int]:
        """Lend the picture in a surface of the decoder: address and bytes of a line, once `stream` comes to it."""
        address, pitch = ctypes.c_ulonglong(), ctypes.c_uint()
        params = ProcessingParams(progressive_frame=1, output_stream=stream)
        self._check(
            "cuvidMapVideoFrame64",
            (decoder, index, ctypes.byref(address), ctypes.byref(pitch), ctypes.byref(params)),
            f"surface {index}",
        )
        return address.value, pitch.value

    def unmap_picture(self, decoder: ctypes.c_void_p, address: int) -> None:
        self._check("cuvidUnmapVideoFrame64", (decoder, ctypes.c_ulonglong(address)))

    def decode_status(self, decoder: ctypes.c_void_p, index: int) -> int | None:
        """cuvidDecodeStatus of the picture in a surface; None where the driver does not say it.

        NVIDIA's own decoder takes no error of this call for one of the picture, which is mapped without one.
        """
        status = DecodeStatus()
        error = self._library.cuvidGetDecodeStatus(decoder, index, ctypes.byref(status))
        return None if error else int(status.status)

    def _check(self, call: str, arguments: tuple[Any, ...], what: object = "") -> None:
        """`what` says what the call was given: where it fails, often nobody can ask the same machine again."""
        error = getattr(self._library, call)(*arguments)
        if error:
            raise CallError(f"{call}({what}) of NVIDIA's driver returns {error_name(self._driver, error)}")


@cache
def load_nvcuvid() -> Nvcuvid:
    """The driver's libraries. ToolError says what to install."""
    return Nvcuvid(load(LIBRARY), load("libcuda.so.1"))
