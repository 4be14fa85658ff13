"""The conversion of surfaces: the Triton kernel on the GPU, plain torch on the GPU, and plain torch on the CPU."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from busy_gpu import long_kernel
from check_record import Record, Skipped, in_time
from differences import EQUAL, difference
from gpu_decoding import ready

from shortgop.readers.frame_format import Geometry, PixelFormat
from shortgop.readers.gpu.surface_conversion import conversion_way
from shortgop.readers.gpu.surfaces import Surface
from shortgop.readers.gpu.torch_conversion import write_surface
from shortgop.readers.gpu.triton_conversion import launch

_SEED = 0
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# Each takes a second to compile.
PIXELS = (
    PixelFormat(),
    PixelFormat(torch.float16, _IMAGENET),
    PixelFormat(torch.bfloat16),
    PixelFormat(torch.float32, _IMAGENET),
    PixelFormat(interpolation="bicubic"),
    PixelFormat(interpolation="nearest"),
    PixelFormat(color="ycbcr"),
    PixelFormat(color="grey"),
    PixelFormat(color="yuv420"),
)
# What the CPU computes for comparison takes most of the check's time.
_FRAMES = 4
# Frames are up to this high and up to twice as wide, those of the first format and those of the others.
LARGEST, LARGEST_OF_OTHERS = 720, 256
_BUSY_ROUNDS = 20
# Height, width, and the size that they are brought to. The largest comes first.
_SPEED_SIZES = (
    (1080, 1920, (1080, 1920)),
    (1080, 1920, (224, 398)),
    (720, 1280, (224, 398)),
    (256, 456, (224, 224)),
    (256, 456, (256, 456)),
)
_SPEED_FRAMES = 16
# Of frames that differ, so many are described.
_FEW = 8


class Case(NamedTuple):
    """Frames that one call converts. `packed` says that slots have the channels of a pixel beside each other."""

    surfaces: list[Surface]
    geometries: list[Geometry]
    pixels: PixelFormat
    packed: bool


Fill = Callable[[Sequence[Surface], Sequence[Geometry], Sequence[torch.Tensor], PixelFormat], Any]


def by_torch(
    surfaces: Sequence[Surface], geometries: Sequence[Geometry], slots: Sequence[torch.Tensor], pixels: PixelFormat
) -> None:
    for surface, geometry, slot in zip(surfaces, geometries, slots, strict=True):
        write_surface(surface, geometry, slot, pixels)


def random_surface(height: int, width: int, bit_depth: int, seed: int) -> Surface:
    """Noise on the CPU, in lines of a multiple of 256 bytes, as drivers give them."""
    noise = torch.Generator().manual_seed(seed)
    lines, pitch = height + height % 2, -(-(width + width % 2) // 256) * 256
    memory = torch.randint(0, 1 << bit_depth, (lines + lines // 2, pitch), generator=noise, dtype=torch.int32)
    if bit_depth > 8:
        memory <<= 16 - bit_depth
    memory = memory.to(torch.uint8 if bit_depth == 8 else torch.uint16)
    uv = memory[lines : lines + -(-height // 2), : width + width % 2].view(-(-height // 2), -1, 2)
    return Surface(memory[:height, :width], uv, bit_depth, (1, 2, 9, 7)[seed % 4], full_range=seed % 3 == 0)


def cases(pixels: PixelFormat, *, largest: int = LARGEST) -> Iterator[Case]:
    """Whole frames, and parts of all kinds at random places, of 8 and of 10 bits."""
    rng = random.Random(_SEED)  # noqa: S311  # no secrets
    for bit_depth in (8, 10):
        for kind in ("whole", "crops", "resized crops"):
            surfaces, geometries = [], []
            for number in range(_FRAMES):
                height, width = rng.randrange(48, largest // 2 + 1) * 2, rng.randrange(48, largest) * 2
                surfaces.append(random_surface(height, width, bit_depth, number))
                geometries.append(_geometry(rng, kind, height, width, even=pixels.color == "yuv420"))
            yield Case(surfaces, geometries, pixels, packed=rng.random() < 0.5)


def _geometry(rng: random.Random, kind: str, height: int, width: int, *, even: bool) -> Geometry:
    if kind == "whole":
        return Geometry(0, 0, height, width, (height, width))
    sides = [rng.randrange(16, full + 1) // (2 if even else 1) * (2 if even else 1) for full in (height, width)]
    places = [rng.randrange(full - side + 1) // 2 * 2 for full, side in zip((height, width), sides, strict=True)]
    size = (sides[0], sides[1]) if kind == "crops" else (224, 2 * rng.randrange(16, 200))
    return Geometry(places[0], places[1], sides[0], sides[1], size, flip=rng.random() < 0.5)


def on_device(surface: Surface, device: torch.device) -> Surface:
    """The same surface elsewhere, with its gaps."""
    planes = []
    for plane in (surface.y, surface.uv):
        count = (plane.shape[0] - 1) * plane.stride(0) + plane[0].numel()
        memory = plane.as_strided((count,), (1,)).to(device)
        planes.append(memory.as_strided(plane.shape, plane.stride()))
    return Surface(planes[0], planes[1], surface.bit_depth, surface.matrix, surface.full_range)


def filled(case: Case, device: torch.device, fill: Fill) -> list[torch.Tensor]:
    """New slots on the device, which `fill` has written."""
    slots = empty_slots(case, device)
    fill([on_device(surface, device) for surface in case.surfaces], case.geometries, slots, case.pixels)
    return slots


def empty_slots(case: Case, device: torch.device) -> list[torch.Tensor]:
    slots = []
    for geometry in case.geometries:
        channels, height, width = case.pixels.shape(*geometry.size)
        if case.packed and case.pixels.color != "yuv420":
            slot = torch.zeros((height, width, channels), dtype=case.pixels.dtype, device=device).permute(2, 0, 1)
        else:
            slot = torch.zeros((channels, height, width), dtype=case.pixels.dtype, device=device)
        slots.append(slot)
    return slots


def wrong_frames(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> int:
    """How many frames differ in any bit."""
    return sum(not torch.equal(one.cpu(), other.cpu()) for one, other in zip(found, expected, strict=True))


def first_wrong(name: str, case: Case, found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str:
    """The first frame of a case that differs, and how."""
    numbers = (number for number in range(len(found)) if difference(found[number], expected[number]) != EQUAL)
    number = next(numbers)
    surface, geometry = case.surfaces[number], case.geometries[number]
    return (
        f"{name}: {surface.width}x{surface.height} of {surface.bit_depth} bits, {geometry}, {case.pixels}: "
        f"{difference(found[number], expected[number])}"
    )


def equal(record: Record) -> None:
    """Triton and torch on the GPU give what torch gives on the CPU, which tests compare with the CPU reader."""
    ready()
    device = torch.device("cuda", 0)
    way = conversion_way(device)
    record.figure("what converts", way._asdict())
    ways: dict[str, Fill] = {"torch": by_torch}
    if way.name == "triton":
        ways["triton"] = launch
    count, wrong, first = 0, dict.fromkeys(ways, 0), list[str]()
    for pixels in PIXELS:
        for case in cases(pixels, largest=LARGEST if pixels == PIXELS[0] else LARGEST_OF_OTHERS):
            expected = filled(case, torch.device("cpu"), by_torch)
            count += len(expected)
            for name, fill in ways.items():
                found = filled(case, device, fill)
                differing = wrong_frames(found, expected)
                wrong[name] += differing
                if differing:
                    first.append(first_wrong(name, case, found, expected))
                    record.figure("first wrong ones", first[:_FEW])
            record.figure("frames compared", count)
            record.figure("wrong ones", wrong)
    if any(wrong.values()):
        raise RuntimeError(f"of {count} frames these differ: {wrong}")
    if way.name != "triton":
        raise Skipped(way.reason)
    record.figure("wrong ones behind a busy stream", behind_a_busy_stream(device))


def behind_a_busy_stream(device: torch.device) -> int:
    """Many launches wait behind a long kernel on another stream, with filters that the device does not have yet.

    RuntimeError where frames are wrong.
    """
    cuda: Any = torch.cuda
    case = next(each for each in cases(PixelFormat(), largest=700) if each.geometries[0].scales)
    expected = filled(case, torch.device("cpu"), by_torch)
    surfaces = [on_device(surface, device) for surface in case.surfaces]
    stream = cuda.Stream(device)
    stream.wait_stream(cuda.current_stream(device))
    results = []
    with cuda.stream(stream):
        long_kernel(100)
        started = time.perf_counter()
        for _ in range(_BUSY_ROUNDS):
            results.append(empty_slots(case, device))
            launch(surfaces, case.geometries, results[-1], case.pixels)
        seconds = time.perf_counter() - started
    stream.synchronize()
    wrong = sum(wrong_frames(found, expected) for found in results)
    if wrong:
        raise RuntimeError(f"{wrong} frames differ behind a busy stream, launched within {seconds:.3f} s")
    return wrong


def speed(record: Record) -> None:
    """Frames/s of the kernel and of plain torch, and what a launch costs the calling thread. Frames of 8 bits."""
    ready()
    device = torch.device("cuda", 0)
    way = conversion_way(device)
    record.figure("what converts", way._asdict())
    if way.name != "triton":
        raise Skipped(way.reason)
    todo = {
        f"{width}x{height} to {size[1]}x{size[0]}, {str(pixels.dtype).removeprefix('torch.')}": (
            Geometry(0, 0, height, width, size),
            pixels,
        )
        for height, width, size in _SPEED_SIZES
        for pixels in (PixelFormat(), PixelFormat(torch.float16, _IMAGENET))
    }
    for name, (geometry, pixels) in in_time(record, todo.items()):
        sides = geometry.height, geometry.width
        surfaces = [on_device(random_surface(*sides, 8, seed), device) for seed in range(_SPEED_FRAMES)]
        geometries = [geometry] * _SPEED_FRAMES
        slots = list(torch.zeros((_SPEED_FRAMES, 3, *geometry.size), dtype=pixels.dtype, device=device))
        for way_name, fill, rounds in (("triton", launch, 20), ("torch", by_torch, 3)):
            gpu, host = _seconds(partial(fill, surfaces, geometries, slots, pixels), rounds)
            record.figure(f"{name}, frames/s, {way_name}", round(_SPEED_FRAMES / gpu))
            record.figure(
                f"{name}, us of the calling thread for a frame, {way_name}", round(host * 1e6 / _SPEED_FRAMES, 1)
            )


def _seconds(call: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Medians of what a call takes until the GPU is done, and until it returns. The first calls do not count."""
    done, returned = [], []
    for _ in range(rounds + 2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        returned.append(time.perf_counter() - started)
        torch.cuda.synchronize()
        done.append(time.perf_counter() - started)
    return median(done[2:]), median(returned[2:])
