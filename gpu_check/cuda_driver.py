"""CUDA's driver library through ctypes: whether there is a GPU, and which context a thread has. No torch."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from typing import Any

from check_record import Skipped

# Where containers and cloud machines mount the driver's libraries, whether or not the loader looks there.
FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
)


def load(library: str) -> Any:
    """A library of the driver, from where the loader looks, or else from FOLDERS; Skipped where it cannot be loaded."""
    try:
        return ctypes.CDLL(library)
    except OSError as error:
        for file in (Path(folder, library) for folder in FOLDERS):
            if file.exists():
                with contextlib.suppress(OSError):
                    return ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
        raise Skipped(f"{library} cannot be loaded: {error}") from error


def preload_video_libraries() -> None:
    """Load those for video, as far as they exist: libavcodec finds them by name then, wherever they lie."""
    for library in ("libnvcuvid.so.1", "libnvidia-encode.so.1"):
        with contextlib.suppress(Skipped):
            load(library)


def require_gpu() -> Any:
    """The driver library, initialised; Skipped where it finds no GPU."""
    driver = load("libcuda.so.1")
    count = ctypes.c_int()
    for name, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
        error = getattr(driver, name)(*arguments)
        if error:
            raise Skipped(f"there is no GPU that can be used: {name} returns error {error}")
    if not count.value:
        raise Skipped("the driver lists no GPU")
    return driver


def use_primary_context(driver: Any, device: int = 0) -> None:
    """Make the primary context, the one that torch uses, current in the calling thread. It is never released."""
    context = ctypes.c_void_p()
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def driver_version(driver: Any) -> str:
    """The highest version of CUDA that the driver offers."""
    version = ctypes.c_int()
    check(driver.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def check(error: int, call: str) -> None:
    """RuntimeError for an error of the driver."""
    if error:
        raise RuntimeError(f"{call} returns error {error}")
