"""The checks of `make gpu-check` that need libavcodec's CUDA code and no torch with CUDA, on the driver in software:
`test_soft_gpu.py` runs these cases in a child that finds it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpu_capabilities
import gpu_decoding
import gpu_engines
import gpu_nvcuvid
import gpu_parser
import gpu_pictures
import pytest
import torch
from check_record import Record
from gpu_driver import use_primary_context
from gpu_samples import MADE
from sample_gops import gops_of

from soft_driver import UNKNOWN, Driver, HostMemory, HostStreams, folders_of, planes_on_host

TOTAL = 1 << 33


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    loaded = Driver()
    (folders_of() / MADE).touch()
    with planes_on_host(), pytest.MonkeyPatch.context() as patched:
        for module in (gpu_decoding, gpu_pictures, gpu_nvcuvid):
            patched.setattr(module, "ready", lambda: use_primary_context(loaded.library))
        patched.setattr(gpu_nvcuvid, "TorchMemory", lambda _: HostMemory())
        patched.setattr(gpu_nvcuvid, "new_gpu", HostStreams)
        patched.setattr(torch.cuda, "_sleep", lambda _: None)
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


WAYS = {"libavcodec": gpu_pictures.all_pictures, "libnvcuvid": gpu_nvcuvid.all_pictures}


@pytest.mark.parametrize("way", WAYS)
def test_all_pictures(driver: Driver, tmp_path: Path, way: str) -> None:
    found = figures_of(WAYS[way], tmp_path)
    assert found["pictures equal to the CPU's, h264"] == found["pictures equal to the CPU's, hevc"] > 150
    # The lines behind which chroma lies are those of the coded picture, which libavcodec's own frames do not keep.
    assert found["how pictures lie in memory, h264"]["c.mp4"].startswith("64x530, lines of 512 bytes, chroma 5")


def faulty(way: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """The error of a check, and what it reported before."""
    with pytest.raises(RuntimeError) as raised:
        figures_of(WAYS[way], folder)
    lines = map(json.loads, (folder / "report").read_text().splitlines())
    return str(raised.value), {line["figure"]: line["value"] for line in lines}


@pytest.mark.parametrize("way", WAYS)
def test_chroma_in_a_wrong_place_is_told_from_the_report_alone(driver: Driver, tmp_path: Path, way: str) -> None:
    """In all videos, by so many lines, where this many are between the planes."""
    with driver.playing("chroma 16 lines late"):
        why, found = faulty(way, tmp_path)
    assert len(re.findall(r"(\d+) of \1 of .\.mp4", why)) == 2 * 5
    assert "Y: equal. Chroma: " in why
    assert "should be at i -16" in why
    assert found["pictures equal to the CPU's, h264"] == 0


@pytest.mark.parametrize("way", WAYS)
def test_stale_pictures_are_told_from_the_report_alone(driver: Driver, tmp_path: Path, way: str) -> None:
    """Which ones, what they show instead, and what was decoded before."""
    with driver.playing("every 40th picture is the one before in its surface"):
        why, found = faulty(way, tmp_path)
    assert re.search(r"wrong are \d+ of \d+ of a.mp4, ", why)
    listed = found["wrong pictures, h264"]
    assert all(
        re.search(r"mp4 from frame \d+, (first of all|after .* of .*): frame \d+ shows ", each) for each in listed
    )


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("libavcodec", "cuvidCreateDecoder(&decoder->decoder, params) failed; h264: -> CUDA_ERROR_UNKNOWN"),
        ("libnvcuvid", "cuvidCreateDecoder(codec 4, 8 bits, 64x544 of at most 256x768 to 64x544 in format 0, 4 and 8"),
    ],
)
def test_a_decoder_that_is_refused_is_told_from_the_report_alone(
    driver: Driver, tmp_path: Path, way: str, said: str
) -> None:
    """For each video, so that one sees whether it is its size."""
    driver.fail("cuvidCreateDecoder", UNKNOWN)
    why, found = faulty(way, tmp_path)
    driver.forget()
    assert ", ".join(f"{each}.mp4" for each in "abcde") in re.sub(r"\d+ of \d+ of ", "", why)
    assert any(said in each for each in found["wrong pictures, h264"])


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
