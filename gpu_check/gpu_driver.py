"""What the checks need of CUDA's driver: where the product raises an error, a check is skipped."""

from __future__ import annotations

import ctypes
from typing import Any

from check_record import Skipped

from shortgop.errors import ToolError
from shortgop.readers.gpu import cuda_driver as driver_calls
from shortgop.readers.gpu.cuda_driver import (
    driver_folders,
    driver_version,
    loaded_file,
    other_driver,
    preload_video_libraries,
    use_primary_context,
)

__all__ = [
    "compute_capability",
    "driver_folders",
    "driver_version",
    "load",
    "loaded_file",
    "other_driver",
    "preload_video_libraries",
    "require_gpu",
    "use_primary_context",
]


# cuda.h, CUdevice_attribute: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_CAPABILITY = (75, 76)


def load(library: str) -> Any:
    """A library of the driver; Skipped where it cannot be loaded."""
    try:
        return driver_calls.load(library)
    except ToolError as error:
        raise Skipped(error.message) from error


def require_gpu() -> Any:
    """The driver library, initialised; Skipped where it finds no GPU."""
    try:
        return driver_calls.started_driver()
    except ToolError as error:
        raise Skipped(error.message) from error


def compute_capability(driver: Any) -> tuple[int, ...]:
    """Of the first GPU, such as (9, 0)."""
    device = ctypes.c_int()
    driver_calls.check(driver.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet(0)")
    found = []
    for attribute in _CAPABILITY:
        value = ctypes.c_int()
        error = driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        driver_calls.check(error, f"cuDeviceGetAttribute({attribute})")
        found.append(value.value)
    return tuple(found)
