"""Which decoder reads a dataset on a device, and why a GPU cannot decode all of it."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ...errors import ToolError, UsageError, WrongTypeError
from ...manifests.records import CodecConfig
from ..gpu.cuda_driver import primary_context, started_driver, visible_gpus
from ..gpu.nvdec_caps import NvdecCaps, nvdec_caps, why_not
from .base import Decoder
from .device import HOW_TO_START, DeviceDecoder
from .pyav import PyavDecoder
from .surface_source import SurfaceSource

# An engine waits while a decoder's thread converts and sends packets, so it gets a second one. Not measured yet.
_DECODERS_PER_ENGINE = 2
CPU = torch.device("cpu")
_NVDEC_VARIABLE = "SHORTGOP_NVDEC"
_NVDEC_WAYS = ("pyav", "nvcuvid")


@dataclass(frozen=True)
class DeviceChoice:
    """Where a dataset is decoded to: `engines` NVDEC engines of `device`, and on the CPU for those configurations whose
    numbers are in `on_cpu`."""

    device: torch.device = CPU
    engines: int = 0
    on_cpu: frozenset[int] = frozenset()

    def threads(self, given: int | None) -> int:
        """How many threads decode, unless the user says so."""
        return given if given is not None else max(1, _DECODERS_PER_ENGINE * self.engines)


ON_CPU = DeviceChoice()


def device_of(given: torch.device | str | int | None) -> torch.device:
    """The device that a user named, with its number; a number alone is that of a CUDA device. UsageError when it is
    neither the CPU nor a CUDA device, or not there."""
    # Where torch finds no GPU it does not take a number alone.
    named = f"cuda:{given}" if isinstance(given, int) and not isinstance(given, bool) else given
    try:
        device = torch.device("cpu" if named is None else named)
    except (RuntimeError, TypeError) as error:
        raise WrongTypeError(f'device is {given!r}; it has to be a device such as "cpu", "cuda" or "cuda:1"') from error
    if device.type == "cpu":
        return CPU
    if device.type != "cuda":
        raise UsageError(f'device is {str(given)!r}; it has to be "cpu" or a CUDA device, such as "cuda"')
    return cuda_device(device, f"device is {str(named)!r}")


def cuda_device(device: torch.device, said: str) -> torch.device:
    """A CUDA device with its number. UsageError when it is not there, which begins with what the user said."""
    cuda: Any = torch.cuda
    if cuda._is_in_bad_fork():  # noqa: SLF001  # is_available says no there, and not why
        raise UsageError(
            f"{said}, and this process was forked from one that uses CUDA, which does not survive a fork: "
            f"{HOW_TO_START}"
        )
    if not torch.cuda.is_available():
        raise UsageError(f"{said}, and this torch ({torch.__version__}) finds no CUDA device here{visible_gpus()}")
    count = torch.cuda.device_count()
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= count:
        raise UsageError(f"{said}, and there are {count} CUDA devices here, numbered from 0{visible_gpus()}")
    return torch.device("cuda", index)


def caps_of(device: torch.device) -> NvdecCaps:
    """What NVDEC of a CUDA device decodes, as its driver says."""
    try:
        with primary_context(started_driver(), device.index):
            return nvdec_caps()
    except ToolError as error:
        return NvdecCaps({}, missing=error.message)


def chosen(
    device: torch.device, caps: NvdecCaps, configs: Sequence[CodecConfig], *, fallback: bool
) -> tuple[DeviceChoice, dict[int, str]]:
    """What is decoded where, and why not on the device, by the numbers of the configurations. Pure.

    Without `fallback` nothing is decoded on the CPU: the caller raises what the second result says.
    """
    reasons = {number: why for number, config in enumerate(configs) if (why := why_not(config, caps)) is not None}
    on_cpu = frozenset(reasons) if fallback else frozenset()
    return DeviceChoice(device, caps.engines, on_cpu), reasons


def decoder_for(choice: DeviceChoice, configs: Sequence[CodecConfig]) -> Decoder:
    """The decoder of a choice."""
    if choice.device.type == "cpu":
        return PyavDecoder()
    from ..gpu.surface_conversion import convert
    from ..gpu.torch_streams import TorchGpu

    on_cpu = frozenset(configs[number] for number in choice.on_cpu)
    way = nvdec_way()
    if way == "pyav":
        from .pyav_cuda import check_pyav

        check_pyav()
    return DeviceDecoder(
        choice.device,
        gpu=partial(TorchGpu, choice.device, own_stream=way == "nvcuvid"),
        open_source=partial(_open_source, choice.device, on_cpu, way),
        convert=convert,
        kind=partial(_kind, on_cpu, way),
    )


def nvdec_way() -> str:
    """The library through which NVDEC decodes: libavcodec ("pyav"), or libnvcuvid ("nvcuvid") if the environment says
    so.

    The second is no public option before it has run on a GPU.
    """
    way = os.environ.get(_NVDEC_VARIABLE, _NVDEC_WAYS[0])
    if way not in _NVDEC_WAYS:
        raise UsageError(f"{_NVDEC_VARIABLE} is {way!r}; it has to be one of {', '.join(_NVDEC_WAYS)}")
    return way


def _open_source(device: torch.device, on_cpu: frozenset[CodecConfig], way: str, config: CodecConfig) -> SurfaceSource:
    if config in on_cpu:
        from .pyav_upload import PyavUpload

        return PyavUpload(config, device)
    if way == "nvcuvid":
        if config.codec == "av1":
            raise ToolError(f"{_NVDEC_VARIABLE}=nvcuvid reads H.264 and HEVC, and this video is AV1; leave it out")
        from ..gpu.nvcuvid import load_nvcuvid
        from ..gpu.torch_memory import TorchMemory
        from .nvcuvid_source import NvcuvidSource

        return NvcuvidSource(config, load_nvcuvid(), TorchMemory(device))
    from .pyav_cuda import PyavCudaContext

    return PyavCudaContext(config, device)


def _kind(on_cpu: frozenset[CodecConfig], way: str, config: CodecConfig) -> Hashable:
    """The configurations that one open source decodes: one alone, or with libnvcuvid all that its decoder can be
    reconfigured for."""
    if way != "nvcuvid" or config in on_cpu:
        return config
    from .nvcuvid_source import DecoderKind

    return DecoderKind.of(config)
