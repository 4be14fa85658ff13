"""The reader through PyAV's and FFmpeg's real CUDA code, on the driver in software: `test_soft_gpu.py` runs these cases
in a child that finds it.

What is not real: NVDEC, the driver, and that conversions run in torch on the CPU.
"""

from __future__ import annotations

import ctypes
import gc
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import shortgop
from bare_gops import asking, gops
from dataset_paths import shard_path
from datasets import current_manifest
from fake_gpu import opened_through
from shortgop.errors import CorruptDataError, ToolError
from shortgop.readers.decoders import device
from shortgop.readers.decoders.base import GopRequest
from shortgop.readers.decoders.choose import caps_of, chosen
from shortgop.readers.decoders.pyav_cuda import CURRENT_CONTEXT, PyavCudaContext, open_cuda_context
from shortgop.readers.decoders.pyav_upload import PyavUpload
from shortgop.readers.decoders.surface_source import Pictures
from shortgop.readers.gpu.cuda_driver import devices_in_use, primary_context
from shortgop.readers.gpu.surfaces import Surface
from soft_driver import (
    UNKNOWN,
    Driver,
    folders_of,
    soft_device_decoder,
)
from synthetic import read_number

CUDA = torch.device("cuda", 0)
FRAMES = 30
# NVDEC takes HEVC from 144x144 on.
HEVC_SIZE = ("-s", "160x150")
TEN_BITS = ("-s", "160x162", "-pix_fmt", "yuv420p10le")

pytest_plugins = ["soft_fixtures"]


def surfaces_of(source: PyavCudaContext | PyavUpload, request: GopRequest) -> list[Surface]:
    """The wanted pictures of a GOP in the order of their slots, not copied."""
    found: dict[int, Surface] = {}

    def keep(pictures: Pictures) -> None:
        found.update({places[0].slot: surface for surface, places in pictures})

    source.decode(request, keep)
    return [found[slot] for slot in range(len(request.frames))]


def equal(found: list[Surface], expected: list[Surface]) -> bool:
    return all(
        torch.equal(one.y, other.y) and torch.equal(one.uv, other.uv) and one.bit_depth == other.bit_depth
        for one, other in zip(found, expected, strict=True)
    )


def on_cpu(request: GopRequest) -> list[Surface]:
    return surfaces_of(PyavUpload(request.config, torch.device("cpu")), request)


# Contexts: what docs/design/gpu.md calls traps.


def test_torch_s_context_is_used_and_left_as_it_was(driver: Driver) -> None:
    gop = gops("h264")[0]
    with primary_context(driver.library, 0):
        context = open_cuda_context(gop.config, 0, CURRENT_CONTEXT)
        assert context.sw_format is None
        assert driver.counted("cuvidCreateDecoder") == 0
        assert equal(surfaces_of(PyavCudaContext(gop.config, CUDA), gop), on_cpu(gop))
        assert driver.depth == 1
    assert driver.counted("cuCtxCreate") == driver.counted("cuDevicePrimaryCtxRelease") == 0


@pytest.mark.parametrize("options", [{"primary_ctx": "1"}, {"primary_ctx": "1", "current_ctx": "1"}], ids=str)
def test_the_primary_context_is_refused_since_torch_has_made_it_with_other_flags(
    driver: Driver, options: dict[str, str]
) -> None:
    with primary_context(driver.library, 0), pytest.raises(ToolError, match="libavcodec does not open NVDEC for h264"):
        open_cuda_context(gops("h264")[0].config, 0, options)


def test_without_a_current_context_there_is_no_decoder(driver: Driver) -> None:
    """Opening succeeds, and the first packet fails. The reader's threads always have a context."""
    gop = gops("h264")[0]
    with pytest.raises(ToolError, match="NVDEC fails at a GOP that the CPU decodes"):
        surfaces_of(PyavCudaContext(gop.config, CUDA), gop)


def test_another_context_of_the_thread_stays_current(driver: Driver, folder: Path) -> None:
    """Of a library that has contexts of its own, such as a renderer. The reader takes torch's, and puts it away."""
    dataset, other, found = opened_through(soft_device_decoder(), folder), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.library.cuCtxCreate_v2(ctypes.byref(other), 0, 0) == 0
    try:
        assert [read_number(frame) for frame in dataset[0][:]] == list(range(FRAMES))
        driver.library.cuCtxGetCurrent(ctypes.byref(found))
        assert found.value == other.value
        assert driver.depth == 1
    finally:
        driver.library.cuCtxDestroy_v2(other)


def test_a_context_that_cannot_be_made_current_is_named_and_leaves_none(driver: Driver, folder: Path) -> None:
    dataset = opened_through(soft_device_decoder(), folder)
    driver.fail("cuCtxPushCurrent", UNKNOWN)
    with pytest.raises(ToolError, match=r"cuCtxPushCurrent of NVIDIA's driver returns CUDA_ERROR_UNKNOWN \(999\)"):
        dataset[0].get_frames_at([0])
    driver.forget()
    assert [read_number(frame) for frame in dataset[0][:]] == list(range(FRAMES))


# Pictures.


@pytest.mark.parametrize(
    "stream", [("h264", ()), ("hevc", HEVC_SIZE), ("hevc", TEN_BITS)], ids=["h264", "hevc", "hevc 10 bits"]
)
@pytest.mark.parametrize("frames", [range(8), [7], [1, 2, 6]], ids=str)
def test_surfaces_equal_the_cpus(driver: Driver, stream: tuple[str, tuple[str, ...]], frames: Any) -> None:
    with primary_context(driver.library, 0):
        source = PyavCudaContext(gops(stream[0], more=stream[1])[0].config, CUDA)
        for gop in gops(stream[0], more=stream[1]):
            request = asking(gop, frames)
            assert equal(surfaces_of(source, request), on_cpu(request))
    assert driver.counted("cuvidCreateDecoder") == 1


def test_surfaces_that_are_kept_stay_as_they_are(driver: Driver) -> None:
    """They are copies, so a decoder does not run out of surfaces either."""
    with primary_context(driver.library, 0):
        source = PyavCudaContext(gops("h264")[0].config, CUDA)
        kept = [surfaces_of(source, gop) for gop in gops("h264") * 8]
        assert all(equal(found, on_cpu(gop)) for found, gop in zip(kept, gops("h264") * 8, strict=True))
        del source
        # Their memory outlives the decoder.
        gc.collect()
        assert driver.counted("open decoders") == 0
        assert equal(kept[3], on_cpu(gops("h264")[0]))


# The reader.


def test_every_frame_shows_its_number_and_equals_the_cpus(driver: Driver, folder: Path) -> None:
    dataset = opened_through(soft_device_decoder(), folder, threads=4)
    for number, (video, expected) in enumerate(zip(dataset, shortgop.open(folder), strict=True)):
        frames = video.get_frames_at(range(FRAMES)).data
        assert [read_number(frame) for frame in frames] == list(range(1000 * number, 1000 * number + FRAMES))
        assert torch.equal(frames, expected.get_frames_at(range(FRAMES)).data)
    # One for each configuration and thread at the most.
    assert len(dataset) <= driver.counted("open decoders") <= len(dataset) * 4


@pytest.mark.parametrize("options", [{"size": (96, 96)}, {"size": (64, 80), "color": "yuv420"}], ids=str)
def test_random_clips_of_all_videos_at_once(driver: Driver, folder: Path, options: dict[str, Any]) -> None:
    rng = random.Random(str(options))
    requests = [(rng.randrange(5), [rng.randrange(FRAMES) for _ in range(5)]) for _ in range(8)]
    dataset = opened_through(soft_device_decoder(), folder, threads=4, **options)
    expected = shortgop.open(folder, **options).get_clips(requests).data
    assert torch.equal(dataset.get_clips(requests).data, expected)


def test_a_decoder_is_kept_from_one_gop_to_the_next(driver: Driver, folder: Path) -> None:
    dataset = opened_through(soft_device_decoder(), folder)
    for frame in (0, 9, 17, 29):
        dataset[0].get_frames_at([frame])
        dataset[1].get_frames_at([frame])
    assert driver.counted("cuvidCreateDecoder") == 2
    assert driver.counted("cuvidDestroyDecoder") == 0


def test_decoders_of_which_there_are_too_many_are_closed(
    driver: Driver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_MAX_IDLE_PIXELS", 70_000)
    dataset = opened_through(soft_device_decoder(), folder)
    for number, video in enumerate(dataset):
        assert read_number(video.get_frames_at([9]).data[0]) == 1000 * number + 9
    assert driver.counted("open decoders") < len(dataset)
    assert driver.counted("cuvidDestroyDecoder") > 0
    assert read_number(dataset[0].get_frames_at([3]).data[0]) == 3


def test_the_driver_says_which_videos_it_decodes(driver: Driver) -> None:
    """The 96x64 of the test pattern are too small for NVDEC's HEVC."""
    caps = caps_of(CUDA)
    assert (caps.missing, caps.engines) == (None, 7)
    configs = [gops("h264")[0].config, gops("hevc")[0].config, gops("hevc", more=TEN_BITS)[0].config]
    choice, reasons = chosen(CUDA, caps, configs, fallback=True)
    assert (choice.engines, choice.on_cpu) == (7, frozenset({1}))
    assert reasons == {1: "96x64 is below the 144x144 that NVDEC takes of hevc of 8 bits"}
    assert driver.depth == 0


def test_a_second_gpu_decodes_what_is_asked_of_it(driver: Driver, folder: Path) -> None:
    """Also in a process that uses the first one too: each has decoders, contexts and planes of its own."""
    with driver.of_two_gpus():
        assert caps_of(torch.device("cuda", 1)).engines == 7
        second, first = (opened_through(soft_device_decoder(device), folder, threads=2) for device in (1, 0))
        for number in range(2):
            frames = second[number].get_frames_at(range(FRAMES)).data
            assert [read_number(frame) for frame in frames] == list(range(1000 * number, 1000 * number + FRAMES))
        assert (driver.counted("decoders of device 0"), driver.counted("decoders of device 1") >= 2) == (0, True)
        assert read_number(first[0].get_frames_at([3]).data[0]) == 3
        assert driver.counted("decoders of device 0") == 1
        del second, first
        gc.collect()


def test_a_gpu_is_in_use_once_something_has_its_primary_context(driver: Driver) -> None:
    """Asking makes no context: on a GPU of others that takes hundreds of megabytes. Contexts stay, so those that
    earlier cases have made are in use."""
    with driver.of_two_gpus():
        before = devices_in_use(driver.library)
        made = driver.counted("cuDevicePrimaryCtxRetain")
        assert devices_in_use(driver.library) == before
        assert driver.counted("cuDevicePrimaryCtxRetain") == made
        with primary_context(driver.library, 1):
            assert devices_in_use(driver.library) == [0, 1]
        assert devices_in_use(driver.library) == [0, 1]
    assert devices_in_use(driver.library) == [0]


def damaged(folder: Path, copy: Path, damage: Callable[[bytearray], None]) -> Path:
    """A copy of a dataset whose first GOP is damaged."""
    shutil.copytree(folder, copy)
    manifest = current_manifest(copy)
    first, length = int(manifest.gops.offset[0]), int(manifest.gops.length[0])
    with shard_path(copy, manifest.shards.name.text(0)).open("r+b") as file:
        file.seek(first)
        data = bytearray(file.read(length))
        damage(data)
        file.seek(first)
        file.write(data)
    return copy


def test_a_damaged_gop_is_an_error_and_the_next_ones_decode(driver: Driver, folder: Path, tmp_path: Path) -> None:
    def zeros(data: bytearray) -> None:
        data[len(data) // 2 : len(data) // 2 + 200] = bytes(200)

    dataset = opened_through(soft_device_decoder(), damaged(folder, tmp_path / "copy", zeros), threads=2)
    with pytest.raises(CorruptDataError, match=r"frames 0 to 9 of video 'a\.mp4'"):
        dataset.get_clips([(0, [0, 12]), (0, [4, 20])])
    assert [read_number(frame) for frame in dataset[0].get_frames_at([12, 20]).data] == [12, 20]


# What is left.


def test_three_hundred_gops_leave_nothing_behind(driver: Driver) -> None:
    dataset = opened_through(soft_device_decoder(), folders_of() / "h264", threads=2)
    rng = random.Random(0)
    looks = []
    for number in range(300):
        dataset[rng.randrange(2)].get_frames_at([rng.randrange(FRAMES)])
        if number in (99, 299):
            looks.append((driver.bytes_allocated, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
    (device_before, host_before), (device_after, host_after) = looks
    assert device_after <= device_before
    # Kilobytes.
    assert host_after - host_before < 10_000
