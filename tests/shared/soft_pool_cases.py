"""Videos of a hundred sizes through the pool of decoders, and slices of a GPU, on the driver in software:
`test_soft_gpu.py` runs these cases in a child that finds it."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bare_gops import asking, requests_of
from encodes import encode_in_sizes
from shortgop.errors import ToolError
from shortgop.readers.decoders.base import Decoder, GopRequest, Target
from shortgop.readers.decoders.choose import caps_of, chosen
from shortgop.readers.decoders.device import _MAX_IDLE_DECODERS, DeviceDecoder
from shortgop.readers.decoders.pyav import PyavDecoder
from shortgop.readers.frame_format import PixelFormat
from shortgop.readers.gpu.cuda_driver import started_driver
from soft_driver import NO_DEVICE, Driver, soft_device_decoder, soft_nvcuvid_decoder

CUDA = torch.device("cuda", 0)
# Of each width there are heights of one coded height and several crops.
SIZES = [(width, height) for width in range(48, 148, 10) for height in range(34, 74, 4)]
FRAMES, GOP, THREADS = 8, 4, 4

pytest_plugins = ["soft_fixtures"]


@pytest.fixture(scope="module")
def gops(tmp_path_factory: pytest.TempPathFactory) -> list[GopRequest]:
    """Two GOPs of a video of each size."""
    made = encode_in_sizes(SIZES, tmp_path_factory.mktemp("sizes"), frames=FRAMES, gop=GOP)
    found = [gop for init, fragments in made for gop in requests_of(init, fragments)]
    assert len(found) == 2 * len(SIZES) == 200
    return found


def frames_of(decoder: Decoder, gop: GopRequest) -> torch.Tensor:
    height, width = gop.config.height, gop.config.width
    slots = torch.zeros((1, len(gop.frames), 3, height, width), dtype=torch.uint8)
    decoder.decode(gop, [Target(PixelFormat(), slots)])
    return slots


@pytest.mark.parametrize("make", [soft_device_decoder, soft_nvcuvid_decoder], ids=["libavcodec", "libnvcuvid"])
def test_a_hundred_sizes_give_right_frames_with_a_bounded_number_of_decoders(
    driver: Driver, gops: list[GopRequest], make: Callable[[], DeviceDecoder]
) -> None:
    """In a random order, on several threads, three times: no decoder is left open, and no memory grows."""
    decoder, on_cpu = make(), PyavDecoder()
    expected = [frames_of(on_cpu, gop) for gop in gops]
    used = []
    for turn in range(3):
        order = random.Random(turn).sample(range(len(gops)), len(gops))
        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(lambda number: frames_of(decoder, gops[number]), order))
        assert all(torch.equal(one, expected[number]) for one, number in zip(found, order, strict=True))
        assert driver.counted("open decoders") <= _MAX_IDLE_DECODERS
        used.append(driver.bytes_allocated)
    # Which sizes are open differs. What is left at the end, `driver` looks at.
    assert max(used) < 2 * min(used)
    last = order[-1]
    assert torch.equal(frames_of(decoder, asking(gops[last], [1])), expected[last][:, 1:2])


# Slices of a GPU (MIG). What NVIDIA's driver says of one is not known; these are the ways in which it may answer.


@pytest.mark.parametrize(
    ("fault", "engines", "threads"), [("a slice with one engine", 1, 2), ("a slice without engines", 0, 1)]
)
def test_a_slice_has_the_engines_that_the_driver_says(
    driver: Driver, gops: list[GopRequest], monkeypatch: pytest.MonkeyPatch, fault: str, engines: int, threads: int
) -> None:
    """Nobody else is asked, such as NVML, which knows the whole GPU. The only slice that a process sees is device 0."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1d3f5a6b-0000-5c1c-9f5e-2b3c4d5e6f70")
    with driver.playing(fault):
        caps = caps_of(CUDA)
    choice, reasons = chosen(CUDA, caps, [gops[0].config], fallback=False)
    assert (choice.engines, choice.threads(None), reasons) == (engines, threads, {})
    assert torch.equal(frames_of(soft_device_decoder(), gops[0]), frames_of(PyavDecoder(), gops[0]))


def test_a_slice_that_is_gone_is_named(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices get other names when somebody divides the GPU anew."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-gone")
    driver.fail("cuInit", NO_DEVICE)
    with pytest.raises(ToolError, match=r"CUDA_ERROR_NO_DEVICE \(100\); CUDA_VISIBLE_DEVICES is 'MIG-gone'"):
        started_driver()
