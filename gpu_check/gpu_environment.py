"""What this machine has: GPU, driver, its libraries, devices, and what torch, PyAV and ffmpeg make of them."""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from check_record import Record, Skipped
from checks import TEMPORARY
from gpu_driver import driver_folders, driver_version, load, loaded_file, other_driver, require_gpu

from shortgop.machine_cpus import usable_cpus

# Where programs of the system and of the driver lie that are not on the PATH.
MORE_PROGRAMS = "/usr/sbin:/sbin:/usr/local/nvidia/bin"
LIBRARIES = ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-ml.so.1")
PACKAGES = (
    *("torch", "triton", "numpy", "zarr", "numcodecs", "google-crc32c", "av", "torchcodec", "imageio-ffmpeg"),
    *("PyNvVideoCodec", "nvidia-cuda-runtime", "nvidia-npp"),
)
CODERS = ("h264_cuvid", "hevc_cuvid", "av1_cuvid", "vp9_cuvid", "h264_nvenc", "hevc_nvenc", "av1_nvenc")
# Every nvidia-smi has these. One that it does not know would make it print nothing.
_QUERY = ("name", "driver_version", "memory.total")
# Where files of the driver's video libraries are looked for, this many folders deep.
_SEARCHED, _DEEPEST = ("/usr/local/nvidia", "/usr/lib"), 4
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  # nothing is written there
_VIDEO_FILES = ("libnvcuvid", "libnvidia-encode")


def report(record: Record) -> None:
    """Record all of it, also where parts are missing: what the other checks depend on first, and each part at once.
    Then raise Skipped if no GPU can be used, or RuntimeError if torch does not use it, or shortgop itself cannot be
    imported."""
    record.figure("python", f"{platform.python_version()} at {sys.executable}")
    record.figure("system", f"{platform.platform()}, {os.cpu_count()} CPUs, {usable_cpus()} of them for this process")
    record.figure("libraries", {name: found for name in PACKAGES if (found := _version(name))})
    _nvidia_smi(record)
    reader = no_gpu = no_torch = ""
    try:
        record.figure("cuda_of_driver", driver_version(require_gpu()))
    except Skipped as skipped:
        no_gpu = str(skipped)
    record.figure("driver_libraries", {name: _loads(name) for name in LIBRARIES})
    if others := [said for name in LIBRARIES if (said := other_driver(name))]:
        record.figure("libraries of another driver", others)
    if not no_gpu:
        reader = import_error("torch")
        if not reader:
            no_torch = _torch(record)
            reader = import_error("shortgop.readers.open_dataset")
        record.figure("import of the reader", reader or "works")
    record.figure("environment", {name: value for name, value in os.environ.items() if _matters(name)})
    _devices_and_files(record)
    _commands(record)
    _pyav(record)
    if no_gpu:
        raise Skipped(no_gpu)
    if reader:
        raise RuntimeError(f"the reader cannot be imported: {reader}")
    if no_torch:
        raise RuntimeError(no_torch)


def import_error(module: str) -> str:
    """Why a module cannot be imported; empty where it can. The log then has all of it."""
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001  # which one it is, is what is asked
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def files_below(folders: Sequence[str], starts: Sequence[str], deepest: int) -> list[str]:
    """Files whose names have one of these beginnings, so many folders below these at the most; links with their
    targets."""
    found = []
    for top in folders:
        for place, inner, names in os.walk(top):
            if len(Path(place).relative_to(top).parts) >= deepest:
                inner.clear()
            found += [Path(place, name) for name in names if name.startswith(tuple(starts))]
    return [f"{path} -> {path.readlink()}" if path.is_symlink() else str(path) for path in sorted(found)]


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
    report_room(record)
    # Triton compiles a small module when it starts.
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    record.figure("Python.h", header.exists())
    kernel = Path("/proc/driver/nvidia/version")
    record.figure("kernel_driver", kernel.read_text().strip() if kernel.exists() else None)
    files = [
        str(path.resolve())
        for folder in driver_folders()
        for pattern in ("libcuda.so*", "libnvcuvid.so*", "libnvidia-encode.so*")
        for path in folder.glob(pattern)
    ]
    record.figure("files_of_driver", sorted(set(files)))
    record.figure("files_for_video", files_below(_SEARCHED, _VIDEO_FILES, _DEEPEST))


def report_room(record: Record) -> None:
    """The room for files that checks write, and for memory that loaders' workers share."""
    temporary = os.environ.get(TEMPORARY) or tempfile.gettempdir()
    record.figure("room", {folder: _room_in(folder) for folder in (temporary, _SHARED_MEMORY)})


def _room_in(folder: str) -> str:
    try:
        free = f"{shutil.disk_usage(folder).free / 1e6:.0f} MB"
    except OSError as error:
        return str(error)
    return free if os.access(folder, os.W_OK) else "cannot be written"


def _nvidia_smi(record: Record) -> None:
    query = f"--query-gpu={','.join(_QUERY)}"
    gpus = gpus_of(output_of(["nvidia-smi", query, "--format=csv,noheader"]))
    record.figure("gpus", gpus)
    record.figure("nvidia_smi", output_of(["nvidia-smi"]).splitlines()[:40])
    if gpus:
        record.figure("gpu", gpus[0]["name"])
        record.figure("driver", gpus[0]["driver_version"])


def _commands(record: Record) -> None:
    record.figure("ldconfig", libraries_of(output_of(["ldconfig", "-p"])))
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


def why_not_torch() -> str:
    """Why torch does not use the GPU that the driver has; empty where it does. `is_available` says only that."""
    import torch

    try:
        torch.zeros(1, device="cuda")
    except (AssertionError, RuntimeError) as error:
        return f"torch {torch.__version__} does not use the GPU: {next(iter(str(error).splitlines()), error)}"
    return ""


def _torch(record: Record) -> str:
    """What torch makes of the GPU, and why nothing."""
    import torch

    record.figure("torch_cuda", torch.version.cuda)
    why = why_not_torch()
    record.figure("torch_sees_gpu", why or True)
    if not why:
        properties: Any = torch.cuda.get_device_properties(0)
        record.figure("gpu", properties.name)
        record.figure("gpu_memory_bytes", properties.total_memory)
        record.figure("compute_capability", f"{properties.major}.{properties.minor}")
        record.figure("sum_on_gpu", int(torch.arange(1000, device="cuda").sum()))
    return why


def _loads(library: str) -> str:
    """The file that a library of the driver is loaded from, or why it cannot be."""
    try:
        load(library)
    except Skipped as skipped:
        return str(skipped)
    return str(loaded_file(library.removesuffix(".1")) or "loaded")


def output_of(argv: Sequence[str]) -> str:
    """What a program of the system or of the driver prints; empty where it is not there, or takes too long."""
    program = shutil.which(argv[0]) or shutil.which(argv[0], path=MORE_PROGRAMS)
    if program is None:
        return ""
    try:
        return subprocess.run([program, *argv[1:]], capture_output=True, text=True, timeout=15, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
