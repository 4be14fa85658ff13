"""The Triton kernel gives what plain torch gives. Without a GPU it runs in Triton's interpreter, on the CPU.

Triton comes with a torch that has CUDA. Beside another one, `pip install -e '.[gpu]'` brings it: 1 GB.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import get_args

import pytest
import torch

from gpu_surfaces import empty_slot, noise_frame, surface_of
from shortgop.errors import DecodeError
from shortgop.readers.frame_format import Geometry, Interpolation, Normalize, PixelFormat
from shortgop.readers.gpu import triton_conversion
from shortgop.readers.gpu.surface_conversion import conversion_way, convert
from shortgop.readers.gpu.surfaces import Surface
from shortgop.readers.gpu.torch_conversion import write_surface
from shortgop.readers.gpu.triton_conversion import launch

importlib.import_module("shortgop.readers.gpu.triton_kernel")

CPU = torch.device("cpu")
IMAGENET: Normalize = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# A whole frame, odd and even parts, enlarged and reduced ones, of frames of 30x70; even ones first.
GEOMETRIES = [
    Geometry(0, 0, 30, 70, (30, 70)),
    Geometry(4, 6, 24, 60, (8, 66)),
    Geometry(2, 10, 12, 36, (18, 40), flip=True),
    Geometry(8, 4, 13, 33, (13, 33), flip=True),
    Geometry(6, 0, 11, 35, (7, 20)),
]


@pytest.fixture(autouse=True)
def interpreter(one_torch_thread: None) -> Iterator[None]:
    """Triton is tried anew in each test."""
    triton_conversion._tried.cache_clear()
    yield
    triton_conversion._tried.cache_clear()


def surfaces_of(count: int, bit_depth: int = 8) -> list[Surface]:
    """Surfaces of several matrices, of both ranges."""
    matrices = (1, 2, 9, 7, 4)
    return [
        surface_of(
            noise_frame(30, 70, matrix=matrices[seed], full_range=seed % 2 == 1, bit_depth=bit_depth, seed=seed),
            gap=2 * seed,
        )
        for seed in range(count)
    ]


def filled(
    geometries: list[Geometry], pixels: PixelFormat, *, bit_depth: int = 8, order: str = "NCHW"
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The slots that the kernel fills, and those that plain torch fills."""
    surfaces = surfaces_of(len(geometries), bit_depth)
    slots = [[empty_slot(geometry, pixels, order) for geometry in geometries] for _ in range(2)]
    launch(surfaces, geometries, slots[0], pixels)
    for surface, geometry, slot in zip(surfaces, geometries, slots[1], strict=True):
        write_surface(surface, geometry, slot, pixels)
    return list(zip(*slots, strict=True))


@pytest.mark.parametrize("bit_depth", [8, 10])
@pytest.mark.parametrize("color", ["rgb", "ycbcr", "grey", "yuv420"])
def test_every_colour_equals_plain_torch_s(color: str, bit_depth: int) -> None:
    geometries = GEOMETRIES[:3] if color == "yuv420" else GEOMETRIES
    for interpolation in get_args(Interpolation):
        pixels = PixelFormat(color=color, interpolation=interpolation)  # type: ignore[arg-type]
        for found, expected in filled(geometries, pixels, bit_depth=bit_depth):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16])
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_every_dtype_and_order_equals_plain_torch_s(dtype: torch.dtype, order: str) -> None:
    normalize = None if dtype == torch.uint8 else IMAGENET
    for found, expected in filled(GEOMETRIES[1:4], PixelFormat(dtype, normalize), order=order):
        assert torch.equal(found, expected)


def test_bfloat16_differs_by_the_interpreter_s_rounding_alone() -> None:
    """It cuts what a GPU rounds: see the test of the compiled kernel."""
    for found, expected in filled(GEOMETRIES[1:2], PixelFormat(torch.bfloat16)):
        assert ((found.view(torch.int16) - expected.view(torch.int16)).abs() <= 1).all()


def test_frames_of_one_kind_take_one_launch_and_nothing_else_is_written() -> None:
    pixels, geometries = PixelFormat(), [Geometry(2 * n, 0, 16 + 2 * n, 30, (10, 12), flip=n == 2) for n in range(4)]
    batch = torch.full((2, 3, 3, 10, 12), 77, dtype=torch.uint8)
    slots = [batch[number // 2, number % 2] for number in range(4)]
    surfaces = surfaces_of(4)
    assert launch(surfaces, geometries, slots, pixels) == 1
    expected = empty_slot(geometries[3], pixels)
    write_surface(surfaces[3], geometries[3], expected, pixels)
    assert torch.equal(slots[3], expected)
    assert (batch[:, 2] == 77).all()


def test_where_triton_runs_it_converts() -> None:
    assert conversion_way(CPU) == ("triton", "")
    geometry, pixels = Geometry(0, 0, 30, 70, (30, 70)), PixelFormat()
    found, expected = (empty_slot(geometry, pixels) for _ in range(2))
    convert(surfaces_of(1), [geometry], [found], pixels)
    write_surface(surfaces_of(1)[0], geometry, expected, pixels)
    assert torch.equal(found, expected)


def test_where_triton_does_not_run_the_reason_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    triton_conversion._tried.cache_clear()
    assert conversion_way(CPU) == ("torch", "Triton does not run on cpu")


def test_a_slot_that_does_not_fit_is_an_error_before_anything_is_launched() -> None:
    with pytest.raises(DecodeError, match="for a slot of shape"):
        launch(surfaces_of(1), [GEOMETRIES[0]], [torch.zeros((3, 30, 71), dtype=torch.uint8)], PixelFormat())


# What a GPU would run, compiled without one: every colour and formula for Turing, Ampere and Hopper.
COMPILE = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from shortgop.readers.gpu.triton_kernel import convert_surfaces

names = [parameter.name for parameter in convert_surfaces.params]
numbers = {name: "fp32" for name in names if name.islower()} | {"rows": "*i64"}
for capability, color, formula, bit_depth, target in (
    (75, "rgb", "replicated", 8, tl.uint8),
    (80, "rgb", "full chroma", 8, tl.float16),
    (90, "rgb", "tables", 10, tl.bfloat16),
    (90, "rgb", "full chroma", 10, tl.float32),
    (90, "ycbcr", "planes", 8, tl.uint8),
    (90, "grey", "planes", 8, tl.float32),
    (90, "yuv420", "planes", 8, tl.uint8),
):
    floats = target != tl.uint8
    constants = dict(COLOR=color, FORMULA=formula, RANGE=color in ("ycbcr", "grey"), BIT_DEPTH=bit_depth,
                     TARGET=target, FLOATS=floats, NORMALIZE=floats, LINES=4, COLUMNS=64)
    source = ASTSource(
        fn=convert_surfaces,
        signature={name: numbers.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"enable_fp_fusion": False})
    code = compiled.asm["ptx"]
    # A product and a sum in one step would be rounded once, and the CPU reader rounds twice.
    assert "fma.rn.f32" not in code
    # To the nearest, as torch does.
    assert target != tl.bfloat16 or "cvt.rn.bf16" in code
    print(color, formula, len(compiled.asm["cubin"]))
"""


def test_the_kernel_compiles_for_gpus(tmp_path: object) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env={**environment, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 7
