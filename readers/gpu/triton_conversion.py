"""Many surfaces into their slots by the Triton kernel: one launch for all frames that are converted in one way."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch

from ...manifests.ragged import Array
from ..frame_format import Geometry, PixelFormat
from .conversion_plan import ConversionPlan, PlaneFilters
from .cuda_driver import loaded_file
from .filter_taps import Taps
from .host_numbers import tensor_on
from .surfaces import Surface
from .torch_conversion import checked_plan, float_factors, surface_colors

# Pixels of a tile.
_LINES, _COLUMNS = 4, 64
# Filters that are kept on a device, one set for each pair of sizes: some 50 kB for 224x224.
_MAX_FILTERS = 1024


# What Triton takes for a yes in the environment, in any case of letters.
_TRUE = ("1", "true", "yes", "on", "y")

# Triton compiles a kernel in each thread that launches it before it is there, which takes seconds for a dozen threads.
_compiling, _trying = Lock(), Lock()
_launched: set[tuple[Any, ...]] = set()


def why_not_triton(device: torch.device) -> str:
    """Why the kernel cannot run on this device; empty where it can.

    A tiny surface is converted to find out, since an installed Triton may not work: it needs a C compiler and a cache
    folder that can be written. torch.OutOfMemoryError where there is no memory for that.
    """
    with _trying:
        return _tried(device)


@cache
def _tried(device: torch.device) -> str:
    is_interpreted = os.environ.get("TRITON_INTERPRET", "").lower() in _TRUE
    if is_interpreted and device.type == "cuda":
        # The interpreter would read a GPU's addresses on the CPU, and the process would end.
        return "TRITON_INTERPRET is set, and Triton's interpreter runs on the CPU"
    if not is_interpreted and device.type != "cuda":
        return f"Triton does not run on {device}"
    _show_libcuda()
    try:
        from . import triton_kernel  # noqa: F401
    except ImportError as error:
        return f"Triton cannot be imported: {error}"
    y = torch.full((2, 2), 128, dtype=torch.uint8, device=device)
    uv = torch.full((1, 1, 2), 128, dtype=torch.uint8, device=device)
    slot = torch.zeros((3, 2, 2), dtype=torch.uint8, device=device)
    try:
        launch([Surface(y, uv, 8, 1, full_range=True)], [Geometry(0, 0, 2, 2, (2, 2))], [slot], PixelFormat())
        found = sorted(set(slot.flatten().tolist()))
    except torch.OutOfMemoryError:
        # A lack of memory is no fault of Triton.
        raise
    except Exception as error:  # noqa: BLE001  # compilers and drivers fail in many ways, and torch does the same work
        return f"Triton does not compile or run a kernel on {device}: {type(error).__name__}: {error}"
    return "" if found == [128] else f"Triton gives wrong pixels on {device}: {found} for 128"


def _show_libcuda() -> None:
    """Tell Triton where this process found the driver's library. Triton looks in fewer places than `cuda_driver`."""
    file = loaded_file("libcuda.so")
    # Triton looks only there then, for this name: without it, what Triton finds by itself is better.
    if file is not None and (file.parent / "libcuda.so.1").exists():
        os.environ.setdefault("TRITON_LIBCUDA_PATH", str(file.parent))


def launch(
    surfaces: Sequence[Surface], geometries: Sequence[Geometry], slots: Sequence[torch.Tensor], pixels: PixelFormat
) -> int:
    """Write a part of each surface into its slot, and return the number of launches.

    There is one for all frames of the same formula and depth, which is one for frames of one codec configuration and
    output. Errors as of `write_surface`.
    """
    groups: dict[tuple[str, int], list[_Job]] = {}
    for surface, geometry, slot in zip(surfaces, geometries, slots, strict=True):
        plan = checked_plan(surface, geometry, slot, pixels)
        groups.setdefault((plan.formula, surface.bit_depth), []).append(_Job(surface, plan, geometry.flip, slot))
    for jobs in groups.values():
        _launch(jobs, pixels)
    return len(groups)


class _Job(NamedTuple):
    surface: Surface
    plan: ConversionPlan
    flip: bool
    slot: torch.Tensor


def _launch(jobs: Sequence[_Job], pixels: PixelFormat) -> None:
    from . import triton_kernel

    device = jobs[0].slot.device
    filters = {job.plan.filters: _filters_on(device, job.plan.filters) for job in jobs}
    numbers = [_row(job, filters[job.plan.filters], pixels) for job in jobs]
    rows = tensor_on(device, np.array(numbers, dtype=np.int64))
    height, width = (max(job.plan.size[axis] for job in jobs) for axis in range(2))
    (scale, offset), blank = float_factors(pixels), (0.0,) * (3 - pixels.channels)
    plan, bit_depth = jobs[0].plan, jobs[0].surface.bit_depth
    form = (device, pixels.color, pixels.dtype, pixels.normalize is None, plan.formula, bit_depth)
    first = contextlib.nullcontext() if form in _launched else _compiling
    # Triton launches on the current device.
    with first, torch.cuda.device(device if device.type == "cuda" else -1):
        triton_kernel.convert_surfaces[-(-width // _COLUMNS), -(-height // _LINES), len(jobs)](
            rows,
            *scale,
            *blank,
            *offset,
            *blank,
            COLOR=pixels.color,
            FORMULA=plan.formula,
            RANGE=pixels.color in ("ycbcr", "grey"),
            TARGET=triton_kernel.TYPES[pixels.dtype],
            BIT_DEPTH=bit_depth,
            FLOATS=pixels.dtype != torch.uint8,
            NORMALIZE=pixels.normalize is not None,
            LINES=_LINES,
            COLUMNS=_COLUMNS,
            # A product and a sum in one step are rounded once, and the CPU reader rounds twice.
            enable_fp_fusion=False,
        )
    _launched.add(form)


def _row(job: _Job, filters: _DeviceFilters, pixels: PixelFormat) -> list[int]:
    """A row as `triton_kernel` describes it."""
    surface, plan, flip, slot = job
    y, uv = surface.y, surface.uv
    colors = surface_colors(plan.formula, pixels, surface.matrix, full_range=surface.full_range)
    bytes_of_sample = y.element_size()
    return [
        y.data_ptr() + bytes_of_sample * (plan.top * y.stride(0) + plan.left),
        y.stride(0),
        *filters.luma,
        *colors.luma_range,
        uv.data_ptr() + bytes_of_sample * (plan.top // 2 * uv.stride(0) + plan.left // 2 * 2),
        uv.stride(0),
        *filters.chroma,
        *colors.chroma_range,
        slot.data_ptr(),
        *slot.stride(),
        *plan.size,
        int(flip),
        *colors.factors,
    ]


class _DeviceFilters(NamedTuple):
    """Filters on a device, and for luma and chroma the address and number of taps of those for lines and columns."""

    memory: torch.Tensor
    luma: tuple[int, ...]
    chroma: tuple[int, ...]


_known: OrderedDict[tuple[torch.device, PlaneFilters], _DeviceFilters] = OrderedDict()
_lock = Lock()


def _filters_on(device: torch.device, filters: PlaneFilters) -> _DeviceFilters:
    """The filters on this device, for use on the current stream."""
    key = (device, filters)
    with _lock:
        found = _known.get(key)
        if found is None:
            found = _known[key] = _copied(device, filters)
            if len(_known) > _MAX_FILTERS:
                _known.popitem(last=False)
        else:
            _known.move_to_end(key)
    if device.type == "cuda":
        # Another thread may drop them before the kernel has run.
        found.memory.record_stream(torch.cuda.current_stream(device))
    return found


def _copied(device: torch.device, filters: PlaneFilters) -> _DeviceFilters:
    parts = [_flat(each) for each in (filters.lines, filters.columns, filters.chroma_lines, filters.chroma_columns)]
    together = torch.from_numpy(np.concatenate([part for part, _ in parts]))
    # On a stream of its own, so that only the copy is waited for. Then any stream may use it.
    with torch.cuda.stream(_copy_stream(device)):
        memory = together.to(device)
    fields, address = list[int](), memory.data_ptr()
    for part, taps in parts:
        fields += [address, taps]
        address += part.nbytes
    return _DeviceFilters(memory, tuple(fields[:4]), tuple(fields[4:]))


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A stream for copies of filters; None on the CPU."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def _flat(taps: Taps) -> tuple[Array, int]:
    """First indices and then weights, tap by tap; and the number of taps."""
    return np.concatenate([taps.first, taps.weights.T.reshape(-1)]), taps.weights.shape[1]
