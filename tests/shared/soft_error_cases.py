"""What the reader says where the driver refuses or fails, on the driver in software: `test_soft_gpu.py` runs these
cases in a child that finds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import soft_driver
from bare_gops import gops
from fake_gpu import opened_through
from shortgop.errors import DatasetWarning, DecodeError, ToolError
from shortgop.manifests.mp4 import sample_bounds
from shortgop.readers.dataset import Dataset
from shortgop.readers.decoders.choose import caps_of
from shortgop.readers.decoders.device import DeviceDecoder
from shortgop.readers.decoders.pyav_cuda import PyavCudaContext
from shortgop.readers.gpu.cuda_driver import primary_context
from soft_driver import (
    ECC_UNCORRECTABLE,
    ILLEGAL_ADDRESS,
    NO_DEVICE,
    OUT_OF_MEMORY,
    UNKNOWN,
    Driver,
    soft_device_decoder,
    soft_nvcuvid_decoder,
)
from soft_reader_cases import CUDA, FRAMES, HEVC_SIZE, equal, on_cpu, surfaces_of
from synthetic import read_number

pytest_plugins = ["soft_fixtures"]


@pytest.mark.parametrize(
    ("call", "error"), [("cuvidGetDecoderCaps", UNKNOWN), ("cuvidCreateDecoder", OUT_OF_MEMORY)], ids=str
)
def test_a_decoder_that_nvdec_does_not_make_is_no_error_of_the_data(
    driver: Driver, folder: Path, call: str, error: int
) -> None:
    dataset = opened_through(soft_device_decoder(), folder)
    driver.fail(call, error)
    with pytest.raises(ToolError, match="NVDEC fails at a GOP that the CPU decodes"):
        dataset[0].get_frames_at([3])
    driver.forget()
    assert read_number(dataset[0].get_frames_at([3]).data[0]) == 3


def test_a_manifest_that_is_wrong_is_an_error_of_the_data(driver: Driver) -> None:
    """The CPU is asked the same, and says the same."""
    gop = gops("h264")[0]
    lower = dataclasses.replace(gop, config=dataclasses.replace(gop.config, height=gop.config.height - 4))
    with (
        primary_context(driver.library, 0),
        pytest.raises(DecodeError, match="the CPU does not either: frames of 96x64, the manifest says 96x60"),
    ):
        surfaces_of(PyavCudaContext(lower.config, CUDA), lower)


def test_a_gpu_without_memory_is_no_error_of_the_data(driver: Driver, folder: Path) -> None:
    """Whichever memory is missing: that of a decoder, of a mapped surface, or of the pictures."""
    dataset = opened_through(soft_device_decoder(), folder)
    errors, num_bytes = list[str](), 0
    driver.limit(0)
    while error := error_of(dataset):
        errors.append(error)
        num_bytes += 100_000
        driver.limit(num_bytes)
    assert len(errors) > 3
    assert all("leave it more of the GPU's memory" in error for error in errors)


@pytest.mark.parametrize("opened", [soft_device_decoder, soft_nvcuvid_decoder])
def test_where_memory_is_short_idle_decoders_make_room(
    driver: Driver, folder: Path, opened: Callable[[], DeviceDecoder]
) -> None:
    """Decoders of two tall videos wait for their next GOPs, and there is no memory for one of another size."""
    dataset = opened_through(opened(), folder)
    for number in (2, 3):
        dataset[number].get_frames_at([0])
    driver.limit(driver.bytes_allocated + 1000)
    with pytest.warns(DatasetWarning, match="until idle decoders were closed .*: NVDEC fails at a GOP that the CPU"):
        frame = dataset[0].get_frames_at([3]).data[0]
    assert read_number(frame) == 3
    # From now on one decoder waits, also where there is memory again.
    driver.forget()
    assert read_number(dataset[2].get_frames_at([3]).data[0]) == 2003
    assert driver.counted("open decoders") == 1


def error_of(dataset: Dataset) -> str:
    """The ToolError of reading the first video; nothing where it is read."""
    try:
        frames = dataset[0].get_frames_at(range(FRAMES)).data
    except ToolError as error:
        return str(error)
    assert [read_number(frame) for frame in frames] == list(range(FRAMES))
    return ""


@pytest.mark.parametrize("call", ["cuvidDecodePicture", "cuvidMapVideoFrame", "cuMemAlloc"])
def test_a_gpu_that_fails_is_no_error_of_the_data_and_the_next_decoder_works(
    driver: Driver, folder: Path, call: str
) -> None:
    dataset = opened_through(soft_device_decoder(), folder)
    dataset[0].get_frames_at([3])
    # Within the request, but for memory, which a decoder keeps.
    driver.fail(call, UNKNOWN, after=0 if call == "cuMemAlloc" else 5)
    with pytest.raises(ToolError, match="leave it more of the GPU's memory"):
        dataset[0].get_frames_at(range(FRAMES))
    driver.forget()
    assert [read_number(frame) for frame in dataset[0].get_frames_at(range(FRAMES)).data] == list(range(FRAMES))


@pytest.mark.parametrize("error", [ECC_UNCORRECTABLE, ILLEGAL_ADDRESS], ids=str)
def test_after_an_error_that_lasts_the_process_has_to_be_started_again(
    driver: Driver, folder: Path, error: int
) -> None:
    """Whatever part of the process it came from: nobody is told to try it with fewer threads or more memory."""
    dataset = opened_through(soft_device_decoder(), folder)
    dataset[0].get_frames_at([3])
    driver.break_context(error)
    for video in dataset[:2]:
        with pytest.raises(ToolError, match=rf"\({error}\), after which this process .*: start it again") as raised:
            video.get_frames_at(range(FRAMES))
        assert "threads" not in raised.value.message


def test_so_does_it_where_torch_meets_the_error_first(
    driver: Driver, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        driver.break_context(ILLEGAL_ADDRESS)
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be ...")

    monkeypatch.setattr(soft_driver, "convert", failing)
    dataset = opened_through(soft_device_decoder(), folder)
    text = r"\(CUDA error: an illegal memory access was encountered\), as .*_ADDRESS \(700\), after which this process"
    with pytest.raises(ToolError, match=text):
        dataset[0].get_frames_at([3])


@pytest.mark.parametrize("opened", [False, True], ids=["a new decoder", "an open one"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_damage_is_an_error_of_the_data_also_in_the_first_slice_header(
    driver: Driver, codec: str, opened: bool
) -> None:
    """There NVDEC makes no decoder, and libavcodec reports invalid data where it does so for other reasons too."""
    good, gop = gops(codec, more=HEVC_SIZE if codec == "hevc" else ())[:2]
    data, (first, last) = bytearray(gop.data), sample_bounds(gop.data)[:2]
    data[first + 6 : last] = bytes(last - first - 6)
    with primary_context(driver.library, 0):
        source = PyavCudaContext(gop.config, CUDA)
        if opened:
            assert equal(surfaces_of(source, good), on_cpu(good))
        with pytest.raises(DecodeError, match="NVDEC does not decode the GOP .*, and the CPU does not either"):
            surfaces_of(source, dataclasses.replace(gop, data=bytes(data)))


def test_gpus_that_the_environment_hides_are_no_riddle(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a slice of a GPU that there was before it was divided anew."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-8f6e3c6a")
    driver.fail("cuInit", NO_DEVICE)
    assert caps_of(CUDA).missing == (
        "there is no GPU that can be used: cuInit returns CUDA_ERROR_NO_DEVICE (100); "
        "CUDA_VISIBLE_DEVICES is 'MIG-8f6e3c6a', and the process sees no other GPUs"
    )
