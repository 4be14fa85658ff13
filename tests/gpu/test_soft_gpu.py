"""FFmpeg's and PyAV's real CUDA code, on the CPU, against a driver in software. No test here shows what a GPU does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import imageio_ffmpeg
import pytest

from datasets import make_dataset
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, filter_has
from soft_driver import compiled, environment, run_cases
from sweep import sample
from synthetic import constant_rate_pts, make_video

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

# Of each of the two pairs the coded sizes are equal, and their crops are not. NVDEC takes HEVC from 144x144 on, as
# which 138x142 are coded.
SIZES = {
    "h264": ((96, 66), (96, 70), (64, 530), (64, 532), (128, 98)),
    "hevc": ((160, 146), (160, 150), (144, 530), (144, 532), (138, 142)),
}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset for each codec, of five videos. Video v shows the numbers from 1000 * v on."""
    root = tmp_path_factory.mktemp("datasets")
    for codec, sizes in SIZES.items():
        sources = [root / f"{codec} sources" / f"{letter}.mp4" for letter in "abcde"]
        sources[0].parent.mkdir()
        for number, (path, size) in enumerate(zip(sources, sizes, strict=True)):
            pts = constant_rate_pts(Fraction(10), 30)
            make_video(path, pts=pts, timebase=Fraction(1, 10), size=size, first_number=1000 * number)
        assert make_dataset(sources, root / codec, gop_frames=10, codec=codec).failures == ()
    return root


def test_the_reader_and_the_checks_for_gpus(libraries: Path, datasets: Path) -> None:
    """In one child: each takes seconds to start."""
    kinds = ("reader", "error", "nvcuvid", "pool", "check")
    names = [f"soft_{kind}_cases.py" for kind in kinds]
    run_cases(names, libraries, SOFT_GPU_DATASETS=str(datasets))


def test_the_checks_that_need_a_torch_with_cuda(libraries: Path) -> None:
    run_cases(["soft_torch_cases.py"], libraries)


def test_what_checks_import_ahead_leaves_the_driver_alone(libraries: Path) -> None:
    """It is imported while another check measures, on a GPU that may let in one process alone."""
    folders = [str(ROOT / name) for name in ("gpu_check", "tests/shared", "benchmarks")]
    env = environment(libraries, PYTHONPATH=os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run([sys.executable, "-c", LOOK], env=env, capture_output=True, text=True, check=True)
    counted, maps = done.stdout.split("\n", 1)
    # The driver counts, so it would have counted that. A torch with CUDA loads libcuda, and asks it nothing yet.
    assert counted == "0 1"
    assert "libtorch" in maps
    assert not re.search("libnvcuvid|libnvidia-", maps)


# How often the driver was started by the imports, and then by this; and the process's libraries.
LOOK = """
import ctypes, pathlib, most_imports
driver = ctypes.CDLL("libcuda.so.1")
imports = driver.soft_counted(b"cuInit")
driver.cuInit(0)
print(imports, driver.soft_counted(b"cuInit"))
print(pathlib.Path("/proc/self/maps").read_text())
"""


def test_prep_through_ffmpegs_nvenc(libraries: Path) -> None:
    """By imageio-ffmpeg's and PyAV's nvenc.c, which want different drivers."""
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    if not filter_has(ffmpeg, "scale_cuda", "use_filters"):
        pytest.skip("this ffmpeg has no scale_cuda")
    names = sample(["soft_nvenc_cases.py"], more=["soft_nvenc_long_cases.py"])
    run_cases(names, libraries / "nvenc", libraries, **{ENVIRONMENT_VARIABLE: ffmpeg})


def test_prep_through_ffmpegs_nvdec_and_scale_cuda(libraries: Path) -> None:
    """By imageio-ffmpeg's: another one may have an earlier scale_cuda, or none."""
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    if not filter_has(ffmpeg, "scale_cuda", "use_filters"):
        pytest.skip("this ffmpeg has no scale_cuda")
    run_cases(["soft_prep_cases.py"], libraries, **{ENVIRONMENT_VARIABLE: ffmpeg})
