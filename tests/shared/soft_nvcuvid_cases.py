"""The reader's second way to NVDEC, libnvcuvid itself, on the driver in software: `test_soft_gpu.py` runs these cases
in a child that finds it. Its parser and its decoder give real pictures; how NVIDIA's do that, they do not show."""

from __future__ import annotations

import dataclasses
import gc
import random
from pathlib import Path

import pytest
import torch

import shortgop
from bare_gops import asking, gops
from fake_gpu import opened_through
from shortgop.errors import DatasetWarning, DecodeError, ToolError
from shortgop.manifests.mp4 import sample_bounds
from shortgop.readers.decoders.base import GopRequest
from shortgop.readers.decoders.nvcuvid_source import NvcuvidSource
from shortgop.readers.decoders.surface_source import Pictures
from shortgop.readers.gpu.cuda_driver import primary_context
from shortgop.readers.gpu.nvcuvid import load_nvcuvid
from shortgop.readers.gpu.surfaces import Surface
from soft_driver import INVALID_VALUE, OUT_OF_MEMORY, Driver, HostMemory, soft_nvcuvid_decoder
from soft_reader_cases import TEN_BITS, equal, on_cpu
from synthetic import read_number

FRAMES = 30

pytest_plugins = ["soft_fixtures"]


def test_every_frame_shows_its_number_and_equals_the_cpus(driver: Driver, folder: Path) -> None:
    dataset = opened_through(soft_nvcuvid_decoder(), folder, threads=4)
    for number, (video, expected) in enumerate(zip(dataset, shortgop.open(folder), strict=True)):
        frames = video.get_frames_at(range(FRAMES)).data
        assert [read_number(frame) for frame in frames] == list(range(1000 * number, 1000 * number + FRAMES))
        assert torch.equal(frames, expected.get_frames_at(range(FRAMES)).data)


def test_random_clips_of_all_videos_at_once(driver: Driver, folder: Path) -> None:
    """Decoders are reconfigured from one video's size to another's, and are as many as there are kinds and threads."""
    rng = random.Random(0)
    requests = [(rng.randrange(5), [rng.randrange(FRAMES) for _ in range(5)]) for _ in range(12)]
    dataset = opened_through(soft_nvcuvid_decoder(), folder, threads=2, size=(96, 96))
    expected = shortgop.open(folder, size=(96, 96)).get_clips(requests).data
    assert torch.equal(dataset.get_clips(requests).data, expected)
    assert driver.counted("cuvidReconfigureDecoder") > 0
    assert driver.counted("open decoders") <= 4


def test_a_decoder_that_cannot_be_reconfigured_makes_way_for_a_new_one(driver: Driver, folder: Path) -> None:
    dataset = opened_through(soft_nvcuvid_decoder(), folder)
    assert read_number(dataset[0].get_frames_at([3]).data[0]) == 3
    driver.fail("cuvidReconfigureDecoder", INVALID_VALUE)
    with pytest.warns(DatasetWarning, match=r"opens a new one for it: cuvidReconfigureDecoder\(.* CUDA_ERROR_INVALID"):
        frames = dataset[4].get_frames_at([3, 29]).data
    assert [read_number(frame) for frame in frames] == [4003, 4029]
    assert driver.counted("open decoders") == 1


def test_a_second_gpu_decodes_what_is_asked_of_it(driver: Driver, folder: Path) -> None:
    with driver.of_two_gpus():
        dataset = opened_through(soft_nvcuvid_decoder(1), folder, threads=2)
        for number in range(2):
            frames = dataset[number].get_frames_at(range(FRAMES)).data
            assert [read_number(frame) for frame in frames] == list(range(1000 * number, 1000 * number + FRAMES))
        assert driver.counted("decoders of device 0") == 0
        del dataset
        gc.collect()


def test_ten_bits(driver: Driver) -> None:
    streams = gops("hevc", more=TEN_BITS)
    with primary_context(driver.library, 0):
        source = NvcuvidSource(streams[0].config, load_nvcuvid(), HostMemory())
        for gop in streams:
            request = asking(gop, [0, 3, 7])
            assert equal(copied(source, request), on_cpu(request))
    assert driver.counted("cuvidCreateDecoder") == 1


def test_a_damaged_picture_is_an_error_of_the_data(driver: Driver) -> None:
    """The driver conceals damage, and says so where it is asked."""
    good, gop = gops("h264")[:2]
    data, (first, last) = bytearray(gop.data), sample_bounds(gop.data)[:2]
    data[first + 6 : last] = bytes(last - first - 6)
    with primary_context(driver.library, 0):
        source = NvcuvidSource(gop.config, load_nvcuvid(), HostMemory())
        assert equal(copied(source, good), on_cpu(good))
        with pytest.raises(DecodeError):
            copied(source, dataclasses.replace(gop, data=bytes(data)))


def test_a_gpu_without_memory_is_no_error_of_the_data(driver: Driver, folder: Path) -> None:
    dataset = opened_through(soft_nvcuvid_decoder(), folder)
    driver.fail("cuvidCreateDecoder", OUT_OF_MEMORY)
    with pytest.raises(ToolError, match=r"cuvidCreateDecoder\(.* returns CUDA_ERROR_OUT_OF_MEMORY"):
        dataset[0].get_frames_at([3])
    driver.forget()
    assert read_number(dataset[0].get_frames_at([3]).data[0]) == 3


def copied(source: NvcuvidSource, request: GopRequest) -> list[Surface]:
    """The wanted pictures of a GOP in the order of their slots, copied as a conversion would."""
    found: dict[int, Surface] = {}

    def copy(pictures: Pictures) -> None:
        for surface, places in pictures:
            found[places[0].slot] = dataclasses.replace(surface, y=surface.y.clone(), uv=surface.uv.clone())

    source.decode(request, copy)
    return [found[slot] for slot in range(len(request.frames))]
