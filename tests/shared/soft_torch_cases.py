"""The checks of `make gpu-check` that need a torch with CUDA, on the driver in software and a torch.cuda in software:
`test_soft_gpu.py` runs these cases in a child that finds the driver.

They show wrong names, arguments and devices, and that checks come to their end. Nothing of them shows what torch, a GPU
or another library does.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import bench_footage
import gpu_engines
import gpu_loading
import gpu_nvcuvid
import gpu_reader
import gpu_samples
import pytest
import torch
from bench_readers import random_clips
from check_record import OutOfTime, Record, Skipped
from check_report import Check
from checks import CHECKS
from gpu_decoding import clips_of

from soft_torch import pretend

# HEVC is decoded from 144x144 on.
VIDEOS = {"a.mp4": (160, 144, 100), "b.mp4": (160, 146, 40), "c.mp4": (160, 150, 40), "d.mp4": (176, 144, 100)}
TESTED_ELSEWHERE = ("environment", "nvdec-", "pyav-", "nvcuvid-p", "nvenc-", "ffmpeg-", "prep-")
REHEARSED = [check for check in CHECKS if not check.name.startswith(TESTED_ELSEWHERE)]
# What a check says where it needs what is not here: Triton, another library, or another library with CUDA.
LACKING = {
    "convert-equal": "Triton",
    "convert-speed": "Triton",
    "sanitizer": "compute-sanitizer|Triton",
    "torchcodec": "Unsupported device: cuda|TorchCodec cannot be used",
}
# A slow GPU has no time for all that these measure.
MAY_LACK_TIME = ("bench-long-videos", "bench-random-frames", "bench-scenarios", "reader-engines")
SECONDS, SECONDS_OF_OTHERS = 12.0, 60.0
# As few as a look at memory needs.
SOAK_BATCHES = 100


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Small samples and footage, a pretended GPU, and checks that ask for less than on a real one."""
    folder = tmp_path_factory.mktemp("samples")
    gpu_samples.make_samples(folder, VIDEOS)
    kinds = {name: replace(kind, size=(160, 144)) for name, kind in bench_footage.KINDS.items()}
    bench_footage.make_benchmark_footage(folder / bench_footage.FOLDER, kinds)
    torch.set_num_threads(1)
    pretend()
    order_of, random_requests = gpu_loading.order_of, gpu_reader.random_requests

    def fewer_batches(num_clips: int, batches: int) -> list[int]:
        return order_of(num_clips, batches if batches == SOAK_BATCHES else min(batches, 4))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gpu_loading, "SIZE", (64, 64))
        patched.setattr(gpu_engines, "_WAYS", ((1, 1), (2, 1)))
        patched.setattr(gpu_engines, "use_of_engines", partial(gpu_engines.use_of_engines, seconds=0.02, rounds=2))
        patched.setattr(gpu_engines, "random_clips", lambda rng, **asked: random_clips(rng, **{**asked, "count": 2}))
        patched.setattr(gpu_nvcuvid, "clips_of", lambda gops, count: clips_of(gops, 1))
        patched.setattr(gpu_reader, "random_requests", lambda *given, **_: random_requests(*given, clips=1, frames=2))
        patched.setattr(gpu_loading, "_SOAK_BATCHES", SOAK_BATCHES)
        for module in (gpu_loading, gpu_reader):
            patched.setattr(module, "order_of", fewer_batches)
        yield folder


@pytest.mark.filterwarnings("ignore::shortgop.DatasetWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("check", REHEARSED, ids=lambda check: check.name)
def test_a_check_comes_to_its_end(samples: Path, tmp_path: Path, check: Check) -> None:
    """It passes, or names what is not here, or had no time for all, and ends before it would be killed."""
    module, _, name = check.function.partition(":")
    record = Record(tmp_path / "report", samples, SECONDS if check.name in MAY_LACK_TIME else SECONDS_OF_OTHERS)
    try:
        getattr(importlib.import_module(module), name)(record)
    except OutOfTime:
        if check.name not in MAY_LACK_TIME:
            raise
    except (Skipped, RuntimeError) as error:
        if not re.search(LACKING.get(check.name, "(?!)"), str(error)):
            raise
    assert time.perf_counter() < record.deadline, "it would be killed, and taken for one that hangs"
