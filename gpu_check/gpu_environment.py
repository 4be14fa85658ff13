"""What this machine has: GPU, driver, its libraries, devices, and what torch, PyAV and ffmpeg make of them."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from check_record import Record
from gpu_driver import FOLDERS, driver_version, require_gpu

LIBRARIES = ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-ml.so.1")
PACKAGES = (
    *("torch", "triton", "numpy", "zarr", "numcodecs", "google-crc32c", "av", "torchcodec", "imageio-ffmpeg"),
    *("PyNvVideoCodec", "nvidia-cuda-runtime", "nvidia-npp"),
)
CODERS = ("h264_cuvid", "hevc_cuvid", "av1_cuvid", "vp9_cuvid", "h264_nvenc", "hevc_nvenc", "av1_nvenc")
# Every nvidia-smi has these. One that it does not know would make it print nothing.
_QUERY = ("name", "driver_version", "memory.total")


def report(record: Record) -> None:
    """Record all of it, also where parts are missing. Then raise Skipped if no GPU can be used."""
    record.figure("python", f"{platform.python_version()} at {sys.executable}")
    record.figure("system", f"{platform.platform()}, {os.cpu_count()} CPUs")
    record.figure("libraries", {name: found for name in PACKAGES if (found := _version(name))})
    record.figure("environment", {name: value for name, value in os.environ.items() if _matters(name)})
    _devices_and_files(record)
    _commands(record)
    _pyav(record)
    driver = require_gpu()
    record.figure("cuda_of_driver", driver_version(driver))
    record.figure("driver_libraries", {name: _loads(name) for name in LIBRARIES})
    _torch(record)


def gpus_of(output: str) -> list[dict[str, str]]:
    """The GPUs that `nvidia-smi --query-gpu=... --format=csv,noheader` printed."""
    rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.strip()]
    return [dict(zip(_QUERY, row, strict=True)) for row in rows if len(row) == len(_QUERY)]


def libraries_of(output: str) -> dict[str, str]:
    """NVIDIA's libraries that `ldconfig -p` printed, with their paths."""
    found = re.findall(r"^\s*(lib(?:cuda|nvcuvid|nvidia-encode|nvidia-ml)\.so\S*) .*=> (\S+)$", output, re.MULTILINE)
    return dict(reversed(found))


def names_in(listing: str, wanted: Sequence[str]) -> list[str]:
    """Which of the wanted names stand as words in what ffmpeg listed."""
    words = set(listing.split())
    return [name for name in wanted if name in words]


def _matters(variable: str) -> bool:
    return variable.startswith(("NVIDIA_", "CUDA_", "PYTORCH_", "TRITON_")) or variable in ("LD_LIBRARY_PATH", "CC")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices_and_files(record: Record) -> None:
    record.figure("devices", sorted(str(path) for path in Path("/dev").glob("nvidia*")))
    # Triton compiles a small module when it starts.
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    record.figure("Python.h", header.exists())
    kernel = Path("/proc/driver/nvidia/version")
    record.figure("kernel_driver", kernel.read_text().strip() if kernel.exists() else None)
    files = [
        str(path.resolve())
        for folder in FOLDERS
        for pattern in ("libcuda.so*", "libnvcuvid.so*", "libnvidia-encode.so*")
        for path in Path(folder).glob(pattern)
    ]
    record.figure("files_of_driver", sorted(set(files)))


def _commands(record: Record) -> None:
    query = f"--query-gpu={','.join(_QUERY)}"
    gpus = gpus_of(_output(["nvidia-smi", query, "--format=csv,noheader"]))
    record.figure("gpus", gpus)
    record.figure("nvidia_smi", _output(["nvidia-smi"]).splitlines()[:40])
    if gpus:
        record.figure("gpu", gpus[0]["name"])
        record.figure("driver", gpus[0]["driver_version"])
    record.figure("ldconfig", libraries_of(_output(["ldconfig", "-p"])))
    record.figure("compilers", [name for name in ("gcc", "cc", "clang", "nvcc") if shutil.which(name)])


def _pyav(record: Record) -> None:
    try:
        import av
        from av.codec.hwaccel import hwdevices_available
    except ImportError as error:
        record.figure("pyav", f"cannot be imported: {error}")
        return
    record.figure("ffmpeg_of_pyav", {name: ".".join(map(str, number)) for name, number in av.library_versions.items()})
    record.figure("hwaccels_of_pyav", hwdevices_available())
    record.figure("coders_of_pyav", [name for name in CODERS if name in av.codecs_available])


def _torch(record: Record) -> None:
    import torch

    record.figure("torch_cuda", torch.version.cuda)
    record.figure("torch_sees_gpu", torch.cuda.is_available())
    if torch.cuda.is_available():
        properties: Any = torch.cuda.get_device_properties(0)
        record.figure("gpu", properties.name)
        record.figure("gpu_memory_bytes", properties.total_memory)
        record.figure("compute_capability", f"{properties.major}.{properties.minor}")
        record.figure("sum_on_gpu", int(torch.arange(1000, device="cuda").sum()))


def _loads(library: str) -> str:
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return str(error)
    mapped = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/lib" in line]
    stem = library.removesuffix(".1")
    return next((path for path in mapped if Path(path).name.startswith(stem)), "loaded")


def _output(argv: Sequence[str]) -> str:
    program = shutil.which(argv[0]) or shutil.which(argv[0], path="/usr/sbin:/sbin:/usr/local/nvidia/bin")
    if program is None:
        return ""
    try:
        return subprocess.run([program, *argv[1:]], capture_output=True, text=True, timeout=15, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
