"""CUDA's driver library through ctypes: loading the driver's libraries, and which context a thread has. No torch."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import ToolError

# Where containers and cloud machines mount the driver's libraries, whether or not the loader looks there.
FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
    f"/usr/lib/{platform.machine()}-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
)
# Some mount all of the driver in one folder, or only a few of its libraries elsewhere. Those for video lie beside
# libcuda then.
_MORE_FOLDERS = ("/usr/local/nvidia/lib", "/usr/local/nvidia")
_MAPS = Path("/proc/self/maps")
_VIDEO_LIBRARIES = ("libnvcuvid.so.1", "libnvidia-encode.so.1")
# cuda.h, CUresult: after these errors the context cannot be used any more, and torch has no other one. Memory lost bits
# (214, 226) or NVLink failed (220). A kernel used a wrong address, instruction or memory, an assertion of it failed, or
# it took too long (700, 702, 710, 714 to 719, 721). The context was destroyed (709). MPS ended this client (810).
# Another device failed (911).
_LASTING = frozenset({214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 911})
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_lock = threading.Lock()


def load(library: str) -> Any:
    """A library of the driver, such as libcuda.so.1: of the version of the libcuda that is loaded, if there is one, or
    else from where the loader looks, or from `driver_folders`. ToolError says what to install."""
    for file in _of_libcudas_version(library):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
    try:
        return ctypes.CDLL(library)
    except OSError as error:
        for file in _files_of(library):
            with contextlib.suppress(OSError):
                return ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
        remedy = (
            "it comes with NVIDIA's driver, and into a container with "
            "NVIDIA_DRIVER_CAPABILITIES=video,compute,utility only"
            if library in _VIDEO_LIBRARIES
            else "install NVIDIA's driver"
        )
        raise ToolError(f"{library} cannot be loaded ({error}); {remedy}") from error


def driver_folders() -> list[Path]:
    """Where the driver's libraries may lie, likely places first."""
    beside = [file.parent] if (file := loaded_file("libcuda.so")) else []
    return [*map(Path, FOLDERS), *beside, *map(Path, _MORE_FOLDERS)]


def _of_libcudas_version(library: str) -> Iterator[Path]:
    """Files of this library whose names have the version of the libcuda that is loaded. An image may have a library of
    another driver where the loader looks, and its calls fail in odd ways."""
    stem = library.removesuffix(".1")
    if stem != "libcuda.so" and (version := loaded_version("libcuda.so")):
        yield from (file for folder in driver_folders() if (file := folder / f"{stem}.{version}").exists())


def other_driver(library: str) -> str:
    """That a loaded library and libcuda are of two drivers; empty where they are not, or no version is known."""
    stem = library.removesuffix(".1")
    own, of_libcuda = loaded_version(stem), loaded_version("libcuda.so")
    if not own or not of_libcuda or own == of_libcuda:
        return ""
    return f"{loaded_file(stem)} is of driver {own}, and libcuda of {of_libcuda}: take away the one that is not in use"


def loaded_version(stem: str) -> str | None:
    """The version of the driver in the name of a loaded library's file, such as 580.95.05."""
    file = loaded_file(stem)
    found = re.search(r"\.so\.(\d+\.[\d.]+)$", file.name) if file else None
    return found[1] if found else None


def _files_of(library: str) -> Iterator[Path]:
    """Files that may be this library. Where links were not made, only the name with the whole version exists."""
    for folder in driver_folders():
        if (folder / library).exists():
            yield folder / library
        yield from sorted(folder.glob(f"{library.removesuffix('.1')}.*"))


def loaded_file(stem: str) -> Path | None:
    """The file of a library that this process has loaded, such as libcuda.so."""
    with contextlib.suppress(OSError):
        for line in _MAPS.read_text(errors="surrogateescape").splitlines():
            # Address, permissions, offset, device, inode, and the path where there is one.
            *_, file = line.split(maxsplit=5)
            if Path(file).name.startswith(f"{stem}.") or Path(file).name == stem:
                return Path(file)
    return None


@cache
def preload_video_libraries() -> None:
    """Load those for video, as far as they exist: libavcodec finds them by name then, wherever they lie."""
    # They may lie beside it.
    with contextlib.suppress(ToolError):
        load("libcuda.so.1")
    for library in _VIDEO_LIBRARIES:
        with contextlib.suppress(ToolError):
            load(library)


def started_driver() -> Any:
    """The driver library, initialised. ToolError when there is no GPU that can be used."""
    driver = load("libcuda.so.1")
    count = ctypes.c_int()
    for name, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
        error = getattr(driver, name)(*arguments)
        if error:
            raise ToolError(
                f"there is no GPU that can be used: {name} returns {error_name(driver, error)}{visible_gpus()}"
            )
    if not count.value:
        raise ToolError(f"the driver lists no GPU{visible_gpus()}")
    return driver


def visible_gpus() -> str:
    """What the environment says of the GPUs that this process may see, for the end of an error; empty where it says
    nothing."""
    named = os.environ.get(_VISIBLE)
    return "" if named is None else f"; {_VISIBLE} is {named!r}, and the process sees no other GPUs"


def use_primary_context(driver: Any, device: int = 0) -> None:
    """Make the primary context, the one that torch uses, current in the calling thread for good."""
    check(driver.cuCtxSetCurrent(_primary_context(driver, device)), "cuCtxSetCurrent")


@contextlib.contextmanager
def primary_context(driver: Any, device: int) -> Iterator[None]:
    """Have the primary context, the one that torch uses, current in the calling thread.

    A thread that torch has not used yet has none, and libavcodec takes the current one.
    """
    check(driver.cuCtxPushCurrent_v2(_primary_context(driver, device)), "cuCtxPushCurrent")
    try:
        yield
    finally:
        check(driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())), "cuCtxPopCurrent")


_contexts: dict[int, Any] = {}


def _primary_context(driver: Any, device: int) -> Any:
    """The primary context of a device. It is retained once and never released, as torch's own."""
    with _lock:
        if device not in _contexts:
            handle, context = _device(driver, device), ctypes.c_void_p()
            check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), "cuDevicePrimaryCtxRetain")
            _contexts[device] = context
        return _contexts[device]


def devices_in_use(driver: Any) -> list[int]:
    """The devices that have a primary context, which is one of torch's: no other one has work of this process."""
    count, flags, is_active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    check(driver.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    found = []
    for number in range(count.value):
        handle = _device(driver, number)
        state = driver.cuDevicePrimaryCtxGetState(handle, ctypes.byref(flags), ctypes.byref(is_active))
        check(state, "cuDevicePrimaryCtxGetState")
        if is_active.value:
            found.append(number)
    return found


def _device(driver: Any, number: int) -> ctypes.c_int:
    handle = ctypes.c_int()
    check(driver.cuDeviceGet(ctypes.byref(handle), number), f"cuDeviceGet({number})")
    return handle


def driver_version(driver: Any) -> str:
    """The highest version of CUDA that the driver offers."""
    version = ctypes.c_int()
    check(driver.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def check(error: int, call: str) -> None:
    """ToolError for an error of the driver, with its name where libcuda can be asked."""
    if error:
        driver = None
        with contextlib.suppress(ToolError):
            driver = load("libcuda.so.1")
        raise ToolError(f"{call} of NVIDIA's driver returns {error_name(driver, error)}")


def error_name(driver: Any, error: int) -> str:
    """Such as CUDA_ERROR_OUT_OF_MEMORY (2), and what to do after one that lasts. `driver` is libcuda, or None where it
    cannot be loaded."""
    name = ctypes.c_char_p()
    if driver is not None:
        driver.cuGetErrorName(error, ctypes.byref(name))
    text = f"{name.value.decode()} ({error})" if name.value else f"error {error}"
    return f"{text}, after which this process cannot use CUDA any more: start it again" if error in _LASTING else text


def lasting_error() -> str:
    """The error that the GPU gives for every call from now on; empty where there is none.

    It may be one of work that was launched long before, by whatever part of the process. Nothing waits for the GPU.
    """
    try:
        driver = load("libcuda.so.1")
    except ToolError:
        return ""
    # A call that needs the context and does nothing in it.
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    error = driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return error_name(driver, error) if error in _LASTING else ""
