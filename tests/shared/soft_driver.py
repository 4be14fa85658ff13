"""A driver in software: libcuda, libnvcuvid and libnvidia-encode of soft_*.c, for FFmpeg's real CUDA code on a machine
without a GPU.

The libraries are loaded by their names, so they have to be on LD_LIBRARY_PATH when a process starts: tests run a child.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import av
import pytest
import torch
from av.codec.hwaccel import hwdevices_available
from torch.utils.dlpack import from_dlpack

from fake_gpu import OneStream
from shortgop.manifests.records import CodecConfig
from shortgop.readers.decoders import pyav_cuda
from shortgop.readers.decoders.device import DeviceDecoder
from shortgop.readers.decoders.nvcuvid_source import DecoderKind, NvcuvidSource
from shortgop.readers.decoders.pyav_cuda import PyavCudaContext
from shortgop.readers.gpu.cuda_driver import load, primary_context, started_driver
from shortgop.readers.gpu.dlpack import tensor_at
from shortgop.readers.gpu.nvcuvid import load_nvcuvid
from shortgop.readers.gpu.surface_conversion import convert

_SHARED = Path(__file__).parent
_LIBRARIES = {
    "libcuda.so.1": ("soft_cuda.c", "soft_counts.c", "soft_scale.c"),
    "libnvcuvid.so.1": ("soft_nvcuvid.c", "soft_sets.c", "soft_parser.c"),
    # In a folder of its own: a GPU like an H200 is one whose libraries are found without it.
    "nvenc/libnvidia-encode.so.1": ("soft_nvenc.c", "soft_surfaces.c", "soft_chip.c", "soft_coder.c"),
}
# They stay loaded: FFmpeg closes them with each device, and what they count would be lost.
_OPTIONS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-pthread", "-Wl,-z,nodelete")
INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE, ECC_UNCORRECTABLE, ILLEGAL_ADDRESS, UNKNOWN = 1, 2, 100, 214, 700, 999


# The libraries of PyAV's wheel.
_LIBAV = Path(av.__file__).parent.parent / "av.libs"


def compiled(folder: Path) -> Path:
    """Make the libraries in this folder. Tests are skipped where that cannot be, or PyAV would not use them."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    if not _LIBAV.exists() or "cuda" not in hwdevices_available():
        pytest.skip("this PyAV has no CUDA, or is not from its wheel")
    for name, sources in _LIBRARIES.items():
        made = folder / name
        made.parent.mkdir(exist_ok=True)
        files = [str(_SHARED / source) for source in sources]
        links = [f"-L{folder}", "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN:$ORIGIN/.."] if name != "libcuda.so.1" else []
        command = [compiler, *_OPTIONS, f"-Wl,-soname,{made.name}", *files, *links, "-o", str(made)]
        subprocess.run(command, check=True)
    return folder


def environment(*libraries: Path, **more: str) -> dict[str, str]:
    """The environment of a process that finds the libraries in these folders."""
    before = os.environ.get("LD_LIBRARY_PATH")
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join([*map(str, libraries), *([before] if before else [])]),
        "SOFT_GPU_LIBAV": str(_LIBAV),
        **more,
    }


def run_cases(names: Sequence[str], *libraries: Path, **more: str) -> None:
    """Run files of tests in a child that finds the libraries in these folders."""
    # With a folder of its own, it does not clear up old ones of all runs on this machine while others do.
    options = ("-q", "--noconftest", "-p", "no:cacheprovider", f"--basetemp={libraries[-1] / 'cases'}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(str(_SHARED / name) for name in names)],
        env=environment(*libraries, **more),
        cwd=_SHARED.parents[1],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout, done.stdout


class Driver:
    """The driver in software that this process has loaded."""

    def __init__(self) -> None:
        # As torch does it at its first use of a GPU.
        self._library = started_driver()
        with primary_context(self._library, 0):
            load("libnvcuvid.so.1")
        self._library.soft_counted.restype = self._library.soft_bytes.restype = ctypes.c_longlong
        self._library.soft_complaints.restype = ctypes.c_char_p

    @property
    def library(self) -> Any:
        return self._library

    def counted(self, call: str) -> int:
        """How often a call was made, or how many "open decoders" and "mapped surfaces" there are."""
        return int(self._library.soft_counted(call.encode()))

    @property
    def complaints(self) -> str:
        return bytes(self._library.soft_complaints()).decode()

    @property
    def bytes_allocated(self) -> int:
        return int(self._library.soft_bytes())

    @property
    def depth(self) -> int:
        """How many contexts this thread has pushed."""
        return int(self._library.soft_depth())

    def fail(self, call: str, result: int, after: int = 0) -> None:
        """Let a call return this error, from the one after `after` others on."""
        self._library.soft_fail(call.encode(), after, result)

    def break_context(self, result: int) -> None:
        """Let every call in a context return this error, as after one that lasts."""
        self._library.soft_break(result)

    def limit(self, num_bytes: int) -> None:
        """No more memory of the device than this."""
        self._library.soft_limit(ctypes.c_longlong(num_bytes))

    @contextlib.contextmanager
    def of_two_gpus(self) -> Iterator[None]:
        """There are two GPUs, and one before and afterwards."""
        self._library.soft_devices(2)
        try:
            yield
        finally:
            self._library.soft_devices(1)

    @contextlib.contextmanager
    def playing(self, fault: str) -> Iterator[None]:
        """NVDEC has this fault: see soft_nvcuvid.c."""
        self._library.soft_play(fault.encode())
        try:
            yield
        finally:
            self._library.soft_play(b"")

    def forget(self) -> None:
        self._library.soft_forget()


@contextlib.contextmanager
def watched(driver: Driver) -> Iterator[Driver]:
    """The driver, which has nothing to complain of at the end, and of which nothing is open or in use."""
    driver.forget()
    yield driver
    gc.collect()
    complaints = driver.complaints
    left = [driver.counted(what) for what in ("open parsers", "open decoders", "mapped surfaces")]
    # What it was told to fail at is not for the next one, who may open the driver anew.
    driver.forget()
    assert complaints == ""
    assert [*left, driver.bytes_allocated, driver.depth] == [0] * 5


class HostStreams(OneStream):
    """A thread that works has the primary context, as with `TorchGpu`."""

    def __init__(self, device: int = 0) -> None:
        self._driver, self._device = started_driver(), device

    @contextlib.contextmanager
    def launching_on(self, stream: str) -> Iterator[None]:
        with super().launching_on(stream), primary_context(self._driver, self._device):
            yield


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_int))


class _Tensor(ctypes.Structure):
    """The first fields of DLTensor and of DLManagedTensor."""

    _fields_ = (("data", ctypes.c_void_p), ("device", _Device))


_DLPACK_CPU, _DLPACK_CUDA = 1, 2


def from_dlpack_on_host(capsule: Any) -> torch.Tensor:
    """torch's from_dlpack for a CUDA tensor that lies in the CPU's memory, which only this driver makes."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
    device = ctypes.c_int()
    assert load("libcuda.so.1").cuCtxGetDevice(ctypes.byref(device)) == 0
    assert (tensor.device.kind, tensor.device.number) == (_DLPACK_CUDA, device.value)
    tensor.device = _Device(_DLPACK_CPU, 0)
    found: torch.Tensor = from_dlpack(capsule)
    return found


@contextlib.contextmanager
def planes_on_host() -> Iterator[None]:
    """PyavCudaContext takes planes of this driver: all else of it is as on a GPU."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pyav_cuda, "from_dlpack", from_dlpack_on_host)
        yield


def soft_device_decoder(device: int = 0) -> DeviceDecoder:
    """All of a device's decoder but torch's streams: NVDEC is this driver's, and torch converts on the CPU."""

    def open_source(config: CodecConfig) -> PyavCudaContext:
        return PyavCudaContext(config, torch.device("cuda", device))

    return DeviceDecoder(
        torch.device("cpu"), gpu=partial(HostStreams, device), open_source=open_source, convert=convert
    )


class HostMemory:
    """See `SurfaceMemory`: surfaces of this driver, whose work has run when it is given."""

    def __init__(self, device: int = 0) -> None:
        self._driver, self._device = started_driver(), device

    def stream(self) -> int:
        return 0

    def record(self) -> HostMemory:
        return self

    def synchronize(self) -> None:
        """All work has run."""

    def tensor_at(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> torch.Tensor:
        return tensor_at(torch.device("cpu"), address, shape, strides, dtype)

    def context(self) -> contextlib.AbstractContextManager[None]:
        return primary_context(self._driver, self._device)


def soft_nvcuvid_decoder(device: int = 0) -> DeviceDecoder:
    """As `soft_device_decoder`, through libnvcuvid itself."""

    def open_source(config: CodecConfig) -> NvcuvidSource:
        return NvcuvidSource(config, load_nvcuvid(), HostMemory(device))

    return DeviceDecoder(
        torch.device("cpu"),
        gpu=partial(HostStreams, device),
        open_source=open_source,
        convert=convert,
        kind=DecoderKind.of,
    )


def folders_of(variables: Mapping[str, str] = os.environ) -> Path:
    """Where the outer test has put the datasets."""
    return Path(variables["SOFT_GPU_DATASETS"])
