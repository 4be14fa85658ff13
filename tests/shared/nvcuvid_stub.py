"""The library of nvcuvid_stub.c, which records the calls of libnvcuvid, with the CPU's memory as its device's."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import torch

from shortgop.manifests.records import CodecConfig
from shortgop.readers.decoders.base import GopRequest
from shortgop.readers.decoders.nvcuvid_source import NvcuvidSource
from shortgop.readers.decoders.surface_source import Pictures
from shortgop.readers.gpu.dlpack import tensor_at
from shortgop.readers.gpu.nvcuvid import Nvcuvid
from shortgop.readers.gpu.surfaces import Surface

CODEC_NUMBERS = {"h264": 4, "hevc": 8}
STREAM = 77


class Event:
    """It has passed when a thread waits for it."""

    def __init__(self, stub: Stub, number: int) -> None:
        self._stub, self._number = stub, number

    def synchronize(self) -> None:
        self._stub.note(f"passed {self._number}")


class Stub:
    """The library, and the CPU's memory as its device's. See `SurfaceMemory`."""

    def __init__(self, library: Any) -> None:
        self.library = library
        library.log_text.restype, library.log_stream.restype = ctypes.c_char_p, ctypes.c_size_t
        library.forget()
        library.misbehave(-1, 0, 0, 0)
        library.fail(b"", 0, 0)
        self.events = 0

    def note(self, text: str) -> None:
        self.library.note(text.encode())

    @property
    def log(self) -> list[str]:
        text: bytes = self.library.log_text()
        return text.decode().splitlines()

    def of_kind(self, *kinds: str) -> list[str]:
        return [line for line in self.log if line.startswith(kinds)]

    @property
    def sent(self) -> bytes:
        data = ctypes.c_void_p()
        size = self.library.log_stream(ctypes.byref(data))
        return ctypes.string_at(data, size)

    @property
    def open_handles(self) -> tuple[int, ...]:
        """Parsers, decoders, and mapped surfaces."""
        counts = (ctypes.c_int * 3)()
        self.library.open_handles(counts)
        return tuple(counts)

    def stream_is(
        self, config: CodecConfig, *, coded: tuple[int, int] | None = None, bits: int = 8, surfaces: int = 4
    ) -> None:
        """What the parser finds in parameter sets."""
        number, size = CODEC_NUMBERS[config.codec], (config.width, config.height)
        self.library.set_format(number, *size, *(coded or size), bits, surfaces)

    def stream(self) -> int:
        return STREAM

    def record(self) -> Event:
        self.events += 1
        self.note(f"record {self.events}")
        return Event(self, self.events)

    def tensor_at(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> torch.Tensor:
        return tensor_at(torch.device("cpu"), address, shape, strides, dtype)

    def context(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def compiled(folder: Path) -> Any:
    """The library, made in this folder by gcc."""
    made = folder / "libnvcuvid.so"
    source = Path(__file__).with_name("nvcuvid_stub.c")
    subprocess.run(["gcc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


def source_for(stub: Stub, config: CodecConfig) -> NvcuvidSource:
    stub.stream_is(config)
    return NvcuvidSource(config, Nvcuvid(stub.library, stub.library), stub)


def found_in(stub: Stub, source: NvcuvidSource, request: GopRequest) -> dict[int, Surface]:
    """The pictures that come of a request, copied as a conversion would, by the frames that they are wanted for."""
    found: dict[int, Surface] = {}

    def copy(pictures: Pictures) -> None:
        frames = [request.frames[places[0].slot] for _, places in pictures]
        stub.note(f"convert {' '.join(map(str, frames))}")
        for frame, (surface, _) in zip(frames, pictures, strict=True):
            found[frame] = dataclasses.replace(surface, y=surface.y.clone(), uv=surface.uv.clone())

    source.decode(request, copy)
    return found


def shows(surface: Surface, frame: int) -> bool:
    """Whether every sample says this frame, as the stub writes them."""
    shift = 0 if surface.bit_depth == 8 else 6
    y, u, v = (plane.to(torch.int32) >> shift for plane in (surface.y, surface.uv[..., 0], surface.uv[..., 1]))
    return bool((y == frame).all() and (u == frame + 100).all() and (v == frame + 200).all())
