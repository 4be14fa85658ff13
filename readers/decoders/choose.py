"""Which decoder reads a dataset on a device, and why a GPU cannot decode all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ...errors import ToolError, UsageError, WrongTypeError
from ...manifests.records import CodecConfig
from ..gpu.nvdec_caps import NvdecCaps, why_not
from .base import Decoder
from .device import DeviceDecoder
from .pyav import PyavDecoder
from .surface_source import SurfaceSource

# An engine waits while a decoder's thread converts and sends packets, so it gets a second one. Not measured yet.
_DECODERS_PER_ENGINE = 2
CPU = torch.device("cpu")


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
    """The device that a user named, with its number. UsageError when it is neither the CPU nor CUDA's, or not there."""
    try:
        device = torch.device("cpu" if given is None else given)
    except (RuntimeError, TypeError) as error:
        raise WrongTypeError(f'device is {given!r}; it has to be a device such as "cpu", "cuda" or "cuda:1"') from error
    if device.type == "cpu":
        return CPU
    if device.type != "cuda":
        raise UsageError(f'device is {str(given)!r}; videos are decoded on "cpu" and on CUDA devices, such as "cuda"')
    if not torch.cuda.is_available():
        raise UsageError(f"device is {str(given)!r}, and this torch ({torch.__version__}) finds no CUDA device here")
    count = torch.cuda.device_count()
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= count:
        raise UsageError(f"device is {str(given)!r}, and there are {count} CUDA devices here, numbered from 0")
    return torch.device("cuda", index)


def caps_of(device: torch.device) -> NvdecCaps:
    """What NVDEC of a CUDA device decodes, as its driver says."""
    from ..gpu.cuda_driver import primary_context, started_driver
    from ..gpu.nvdec_caps import nvdec_caps

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
    """The decoder of a choice. It starts no CUDA before the first request."""
    if choice.device.type == "cpu":
        return PyavDecoder()
    from ..gpu.surface_conversion import convert
    from ..gpu.torch_streams import TorchGpu

    on_cpu = frozenset(configs[number] for number in choice.on_cpu)
    return DeviceDecoder(
        choice.device,
        gpu=partial(TorchGpu, choice.device),
        open_source=partial(_open_source, choice.device, on_cpu),
        convert=convert,
    )


def _open_source(device: torch.device, on_cpu: frozenset[CodecConfig], config: CodecConfig) -> SurfaceSource:
    from .pyav_cuda import PyavCudaContext
    from .pyav_upload import PyavUpload

    return PyavUpload(config, device) if config in on_cpu else PyavCudaContext(config, device)
