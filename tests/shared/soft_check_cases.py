"""The checks of `make gpu-check` that need libavcodec's CUDA code and no torch with CUDA, on the driver in software:
`test_soft_gpu.py` runs these cases in a child that finds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpu_capabilities
import gpu_decoding
import gpu_engines
import gpu_parser
import pytest
import torch
from check_record import Record
from gpu_driver import use_primary_context
from gpu_samples import MADE
from sample_gops import gops_of

from soft_driver import UNKNOWN, Driver, folders_of, planes_on_host

TOTAL = 1 << 33


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    loaded = Driver()
    (folders_of() / MADE).touch()
    with planes_on_host(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(gpu_decoding, "ready", lambda: use_primary_context(loaded.library))
        patched.setattr(torch.cuda, "synchronize", lambda: None)
        patched.setattr(torch.cuda, "mem_get_info", lambda: (TOTAL - loaded.bytes_allocated, TOTAL))
        yield loaded


def figures_of(check: Any, folder: Path) -> dict[str, Any]:
    """What a check reports when it passes."""
    check(Record(folder / "report", folders_of()))
    lines = map(json.loads, (folder / "report").read_text().splitlines())
    return {line["figure"]: line["value"] for line in lines}


def test_caps_are_those_of_an_h200(driver: Driver, tmp_path: Path) -> None:
    found = figures_of(gpu_capabilities.nvdec, tmp_path)
    assert found["h264 8 bits"].startswith("7 engines, 48x16 to 4096x4096")
    assert found["h264 10 bits"] == "no"


def test_parser(driver: Driver, tmp_path: Path) -> None:
    """Parameter sets are read again behind the end of a stream."""
    found = figures_of(gpu_parser.callbacks, tmp_path)
    assert list(found) == [f"{codec}, GOP {number}" for codec in ("h264", "hevc") for number in range(2)]
    assert all(calls[0].startswith("frame 0: sequence ") for calls in found.values())
    assert driver.counted("open parsers") == 0


def test_contexts(driver: Driver, tmp_path: Path) -> None:
    found = figures_of(gpu_decoding.torch_context, tmp_path)
    assert all(found[codec].startswith("right; ") for codec in ("h264", "hevc"))


@pytest.mark.parametrize("call", ["cuvidCreateDecoder", "cuvidMapVideoFrame", "cuMemAlloc", "cuCtxPushCurrent"])
def test_what_fails_is_reported_with_all_that_libavcodec_logs(driver: Driver, tmp_path: Path, call: str) -> None:
    """The machine may be gone when somebody reads it: which call, and which functions there were before."""
    driver.fail(call, UNKNOWN)
    with pytest.raises(RuntimeError, match=call):
        figures_of(gpu_decoding.torch_context, tmp_path)
    driver.forget()
    lines = map(json.loads, (tmp_path / "report").read_text().splitlines())
    found = {line["figure"]: "\n".join(line["value"]) for line in lines}
    assert list(found) == [f"{codec}, all that libavcodec logs" for codec in ("h264", "hevc")]
    for text in found.values():
        assert "Loaded lib: libcuda.so.1" in text
        assert call in text
        assert "-> CUDA_ERROR_UNKNOWN" in text


def test_other_contexts(driver: Driver, tmp_path: Path) -> None:
    """The primary context is refused, and one of libavcodec's own works. Why is in the log."""
    refused, own = figures_of(gpu_decoding.other_contexts, tmp_path).values()
    assert refused.startswith("RuntimeError: ToolError: libavcodec does not open NVDEC")
    assert "Primary context already active with incompatible flags" in refused
    assert own.startswith("right; ")


def test_all_pictures(driver: Driver, tmp_path: Path) -> None:
    assert len(figures_of(gpu_decoding.all_pictures, tmp_path)) == 2


def test_fresh_threads(driver: Driver, tmp_path: Path) -> None:
    assert figures_of(gpu_decoding.fresh_threads, tmp_path) == {"pictures equal to the CPU's, 8 threads": 8 * 150}


def test_no_context(driver: Driver, tmp_path: Path) -> None:
    (found,) = figures_of(gpu_decoding.no_context, tmp_path).values()
    assert found.startswith("InvalidDataError")


def test_held_frames(driver: Driver, tmp_path: Path) -> None:
    assert figures_of(gpu_decoding.held_frames, tmp_path) == {"frames kept": 150}


def test_damaged_gop(driver: Driver, tmp_path: Path) -> None:
    """Damage inside of slices is concealed, and nobody says so: the pictures are others."""
    (found,) = figures_of(gpu_decoding.damaged_gop, tmp_path).values()
    assert found.startswith("RuntimeError: a.mp4: frame 1")


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_gops_as_one_stream(driver: Driver, codec: str) -> None:
    """As `reader-engines` has it, on threads that each have contexts of their own."""
    gops = [gop for gop in gops_of(folders_of() / codec) if gop.video == "a.mp4"]

    def decode_twice() -> tuple[int, int]:
        use_primary_context(driver.library)
        contexts = gpu_decoding.cuda_contexts()
        return gpu_engines.decode_as_stream(contexts, gops), gpu_engines.decode_as_stream(contexts, gops)

    with ThreadPoolExecutor(2) as pool:
        assert [each.result() for each in [pool.submit(decode_twice) for _ in range(2)]] == [(30, 30)] * 2
