"""NVDEC through libnvcuvid, against a library that records its calls: what is sent, mapped and unmapped, and when.

That library is made here from nvcuvid_stub.c. It decodes nothing: the samples of a picture say which frame it is.
"""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bare_gops import HEIGHT, WIDTH, asking, gops, pictures_of, pictures_of_stream
from fake_gpu import OneStream
from nvcuvid_stub import STREAM, Stub, found_in, shows, source_for
from shortgop.errors import ToolError, UsageError
from shortgop.manifests.records import CodecConfig
from shortgop.readers.decoders.base import Target
from shortgop.readers.decoders.choose import nvdec_way
from shortgop.readers.decoders.device import DeviceDecoder
from shortgop.readers.decoders.nvcuvid_source import OUTPUT_SURFACES, DecoderKind, NvcuvidSource
from shortgop.readers.frame_format import Geometry, PixelFormat
from shortgop.readers.gpu.decoder_pool import DecoderPool
from shortgop.readers.gpu.dlpack import tensor_at
from shortgop.readers.gpu.nvcuvid import Nvcuvid
from shortgop.readers.gpu.surface_conversion import convert


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("num_surfaces", [0, 1, 4])
@pytest.mark.parametrize("frames", [range(8), [0], [7], [2, 5], [1, 2, 3, 6, 7]], ids=str)
def test_wanted_pictures_come_out(stub: Stub, codec: str, frames: Any, num_surfaces: int) -> None:
    """However few surfaces the parser goes round in: a picture is mapped before another one is decoded over it."""
    first = gops(codec)[0]
    source = source_for(stub, first.config)
    stub.stream_is(first.config, surfaces=num_surfaces)
    for gop in gops(codec):
        found = found_in(stub, source, asking(gop, frames))
        assert sorted(found) == list(frames)
        assert all(shows(surface, frame) for frame, surface in found.items())


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("frames", [range(8), [3]], ids=str)
def test_the_parser_gets_what_the_frames_need(stub: Stub, codec: str, frames: Any) -> None:
    """As a stream of its own for each GOP. libavcodec decodes the right pictures from it."""
    source = source_for(stub, gops(codec)[0].config)
    for gop in gops(codec):
        request = asking(gop, frames)
        packets = source.decode(request, lambda pictures: None)
        pictures = pictures_of_stream(codec, stub.sent)
        assert packets == len(pictures) == len(stub.of_kind("parse"))
        for expected in pictures_of(request).values():
            assert any(np.array_equal(expected, picture) for picture in pictures)
        assert stub.log[-1] == "end of stream"
        stub.library.forget()


def test_only_wanted_pictures_are_mapped_on_the_callers_stream(stub: Stub) -> None:
    gop = gops("h264")[0]
    found_in(stub, source_for(stub, gop.config), asking(gop, [2, 5]))
    assert sorted(stub.of_kind("map")) == [f"map 2 on {STREAM}", f"map 5 on {STREAM}"]
    assert len(stub.of_kind("decode")) > 2


def test_two_pictures_are_in_the_queue_where_one_is_mapped(stub: Stub) -> None:
    """So that the engine has work while the host waits for a picture."""
    gop = gops("h264", b_frames=0)[0]
    found_in(stub, source_for(stub, gop.config), gop)
    assert stub.of_kind("decode", "map")[:6] == [
        *("decode 0", "decode 1", "decode 2", f"map 0 on {STREAM}", "decode 3", f"map 1 on {STREAM}")
    ]


def test_a_surface_is_unmapped_once_its_conversion_has_passed(stub: Stub) -> None:
    source = source_for(stub, gops("h264")[0].config)
    for gop in gops("h264") * 3:
        found_in(stub, source, gop)
    # Of what is mapped, the oldest first: the event behind its conversion.
    events: list[int | None] = []
    passed = 0
    for line in stub.of_kind("map", "unmap", "record", "passed"):
        match line.split():
            case ["map", *_]:
                events.append(None)
            case ["record", number]:
                events = [int(number) if event is None else event for event in events]
            case ["passed", number]:
                passed = int(number)
            case _:
                event = events.pop(0)
                assert event is not None, "it has not been converted"
                assert event <= passed, "it may still be read"
        assert len(events) <= OUTPUT_SURFACES
    mapped, unmapped = ([line.split()[1] for line in stub.of_kind(kind)] for kind in ("map", "unmap"))
    assert len(mapped) == 72
    assert len(unmapped) >= 72 - OUTPUT_SURFACES
    assert unmapped == mapped[: len(unmapped)]


def test_what_is_shown_is_a_view_of_what_is_coded(stub: Stub) -> None:
    """Chroma begins after the coded lines; lines have gaps."""
    gop = gops("h264")[0]
    source = source_for(stub, gop.config)
    stub.stream_is(gop.config, coded=(WIDTH + 16, HEIGHT + 16))
    for frame, surface in found_in(stub, source, gop).items():
        assert (surface.height, surface.width) == (HEIGHT, WIDTH)
        assert shows(surface, frame)


def test_ten_bits_are_in_the_upper_bits_of_sixteen(stub: Stub) -> None:
    gop = gops("hevc")[0]
    box = bytearray(gop.config.extradata)
    # ISO/IEC 14496-15, 8.3.3.1.2: the last bits of bytes 17 and 18 say how many bits luma and chroma have above 8.
    box[17] = box[18] = 0xFA
    config = dataclasses.replace(gop.config, extradata=bytes(box))
    source = source_for(stub, config)
    stub.stream_is(config, bits=10)
    found = found_in(stub, source, dataclasses.replace(gop, config=config))
    assert len(found) == 8
    for frame, surface in found.items():
        assert (surface.bit_depth, surface.y.dtype) == (10, torch.uint16)
        assert shows(surface, frame)


@pytest.mark.parametrize(
    ("said", "expected"), [((9, 1), (9, True)), ((2, 0), (6, False)), ((0, 0), (6, False)), ((1, 0), (1, False))]
)
def test_colours_are_the_streams_or_else_the_manifests(
    stub: Stub, said: tuple[int, int], expected: tuple[int, bool]
) -> None:
    gop = gops("h264")[0]
    config = dataclasses.replace(gop.config, matrix=6)
    source = source_for(stub, config)
    stub.library.set_colours(*said)
    surface = found_in(stub, source, dataclasses.replace(gop, config=config))[0]
    assert (surface.matrix, surface.full_range) == expected


def test_a_decoder_is_reconfigured_for_another_size(stub: Stub) -> None:
    """What is mapped is unmapped before, and the parser is another one: it has read other parameter sets."""
    gop = gops("h264")[0]
    source = source_for(stub, gop.config)
    for width in (WIDTH, WIDTH + 32, WIDTH):
        config = dataclasses.replace(gop.config, width=width)
        stub.stream_is(config)
        found = found_in(stub, source, dataclasses.replace(gop, config=config))
        assert {surface.width for surface in found.values()} == {width}
        assert all(shows(surface, frame) for frame, surface in found.items())
    assert stub.of_kind("create decoder") == ["create decoder 96x64 of up to 256x256, 6 surfaces"]
    assert stub.of_kind("reconfigure") == ["reconfigure 128x64, 6 surfaces", "reconfigure 96x64, 6 surfaces"]
    assert len(stub.of_kind("create parser")) == 3


def test_a_decoder_never_gets_fewer_surfaces_than_it_has(stub: Stub) -> None:
    gop = gops("h264")[0]
    source = source_for(stub, gop.config)
    for width, surfaces in ((WIDTH, 8), (WIDTH + 32, 4), (WIDTH, 12), (WIDTH, 4)):
        config = dataclasses.replace(gop.config, width=width)
        stub.stream_is(config, surfaces=surfaces)
        assert len(found_in(stub, source, dataclasses.replace(gop, config=config))) == 8
    assert stub.of_kind("create decoder") == ["create decoder 96x64 of up to 256x256, 10 surfaces"]
    assert stub.of_kind("reconfigure") == ["reconfigure 128x64, 10 surfaces", "reconfigure 96x64, 14 surfaces"]


@pytest.mark.parametrize("least", [30, 31])
def test_a_decoder_has_no_more_surfaces_than_the_driver_allows(stub: Stub, least: int) -> None:
    gop = gops("h264")[0]
    source = source_for(stub, gop.config)
    stub.stream_is(gop.config, surfaces=least)
    assert len(found_in(stub, source, gop)) == 8
    assert stub.of_kind("create decoder")[0].endswith(", 31 surfaces")


def test_a_stream_that_does_not_say_what_it_needs_gets_as_many_as_any_may_need(stub: Stub) -> None:
    """With the queue's two alone its references would be decoded over."""
    gop = gops("h264")[0]
    source = source_for(stub, gop.config)
    stub.stream_is(gop.config, surfaces=0)
    assert len(found_in(stub, source, gop)) == 8
    assert stub.of_kind("create decoder")[0].endswith(", 22 surfaces")


def test_a_stream_that_needs_more_surfaces_is_refused(stub: Stub) -> None:
    gop = gops("h264")[0]
    source = source_for(stub, gop.config)
    stub.stream_is(gop.config, surfaces=32)
    with pytest.raises(ToolError, match="needs 32 surfaces, and NVDEC has 31 at the most"):
        found_in(stub, source, gop)


def test_videos_of_one_coded_size_keep_their_crops(stub: Stub) -> None:
    gop = gops("h264")[0]
    source = source_for(stub, gop.config)
    for height in (HEIGHT, HEIGHT - 6, HEIGHT - 2):
        config = dataclasses.replace(gop.config, height=height)
        stub.stream_is(config, coded=(WIDTH, HEIGHT))
        found = found_in(stub, source, dataclasses.replace(gop, config=config))
        assert {surface.height for surface in found.values()} == {height}
    assert stub.of_kind("reconfigure") == []


def test_a_pool_gives_a_decoder_to_all_that_it_can_be_reconfigured_for() -> None:
    def config(width: int, height: int = 720, extradata: bytes = gops("h264")[0].config.extradata) -> CodecConfig:
        return CodecConfig("h264", extradata, width, height, 2, 2, 2, False)

    opened: list[CodecConfig] = []
    pool = DecoderPool[CodecConfig](
        lambda wanted: opened.append(wanted) or wanted,  # type: ignore[func-returns-value]
        max_idle=8,
        max_idle_pixels=10**9,
        kind=DecoderKind.of,
    )
    for wanted in (config(1280), config(1200), config(1088, 640), config(720, 1280), config(1280)):
        with pool.taken(wanted):
            pass
    assert opened == [config(1280), config(720, 1280)]


def test_a_source_that_nobody_has_is_closed_at_once(stub: Stub) -> None:
    """Without the help of the garbage collector: a decoder holds hundreds of megabytes of a GPU."""
    gc.disable()
    try:
        source = source_for(stub, gops("h264")[0].config)
        found_in(stub, source, gops("h264")[0])
        assert stub.open_handles == (1, 1, 8)
        del source
        assert stub.open_handles == (0, 0, 0)
    finally:
        gc.enable()


def _closing(source: NvcuvidSource, stub: Stub, said: Any) -> None:
    source._close()
    said.put(stub.open_handles)


def test_a_forked_process_does_not_close_what_its_parent_has_open(stub: Stub) -> None:
    source = source_for(stub, gops("h264")[0].config)
    found_in(stub, source, gops("h264")[0])
    fork = multiprocessing.get_context("fork")
    said = fork.Queue()
    child = fork.Process(target=_closing, args=(source, stub, said))
    child.start()
    assert said.get(timeout=30) == stub.open_handles == (1, 1, 8)
    child.join()


def test_a_device_s_decoder_writes_its_pictures_into_their_slots(stub: Stub) -> None:
    """Two videos of different sizes in turn, with one open decoder for both."""
    decoder = DeviceDecoder(
        torch.device("cpu"),
        gpu=OneStream,
        open_source=lambda config: NvcuvidSource(config, Nvcuvid(stub.library, stub.library), stub),
        convert=convert,
        kind=DecoderKind.of,
    )
    pixels = PixelFormat(color="yuv420")
    for number, (frames, width) in enumerate([(range(8), 96), ([1, 6], 128), ([0, 3, 7], 96)]):
        gop = asking(gops("h264")[0], frames)
        gop = dataclasses.replace(gop, config=dataclasses.replace(gop.config, width=width))
        gop = dataclasses.replace(gop, geometries=[Geometry(0, 0, HEIGHT, width, (HEIGHT, width))])
        stub.stream_is(gop.config)
        slots = torch.zeros(1, len(gop.frames), *pixels.shape(HEIGHT, width), dtype=torch.uint8)
        with decoder.request():
            cost = decoder.decode(gop, [Target(pixels, slots)])
        assert cost.warm == (number > 0)
        assert [set(slot[0, :HEIGHT].unique().tolist()) for slot in slots[0]] == [{frame} for frame in frames]
        assert np.unique(slots[0, :, 0, HEIGHT:]).tolist() == [v + frame for v in (100, 200) for frame in frames]


def test_a_thousand_gops_leave_nothing_behind(stub: Stub) -> None:
    source = source_for(stub, gops("h264")[0].config)
    objects = []
    for number in range(1000):
        source.decode(gops("h264")[number % 3], lambda pictures: None)
        stub.library.forget()
        if number in (99, 999):
            gc.collect()
            objects.append(len(gc.get_objects()))
    assert stub.open_handles == (1, 1, OUTPUT_SURFACES)
    assert objects[1] <= objects[0] + 50


def test_a_tensor_lies_in_memory_that_is_there_already() -> None:
    """The middle of a picture of 16 bits: lines of 12 bytes, of which the first and the last sample are left out."""
    samples = np.arange(24, dtype=np.uint16).reshape(4, 6)
    tensor = tensor_at(torch.device("cpu"), samples.ctypes.data + 2, (4, 4), (12, 2), torch.uint16)
    samples[2, 1] = 1000
    assert (tensor.stride(), tensor.dtype) == ((6, 1), torch.uint16)
    assert np.array_equal(tensor.numpy(), samples[:, 1:5])


@pytest.mark.skipif(torch.cuda.is_available(), reason="the address of this test is not one of this GPU")
def test_a_tensor_says_on_which_device_it_is_and_nothing_asks_about_its_address() -> None:
    with pytest.raises((RuntimeError, AssertionError), match="CUDA|NVIDIA driver"):
        tensor_at(torch.device("cuda", 1), 4096, (2, 2), (2, 1), torch.uint8)


def test_tensors_of_surfaces_leave_no_memory_behind() -> None:
    samples, before = np.zeros(64, np.uint8), 0
    for number in range(60_000):
        tensor_at(torch.device("cpu"), samples.ctypes.data, (4, 4, 2), (16, 2, 1), torch.uint8)
        if number == 10_000:
            before = resident_bytes()
    assert resident_bytes() < before + (2 << 20), "what describes 50,000 tensors takes 6 MB"


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_way_to_nvdec_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHORTGOP_NVDEC", raising=False)
    assert nvdec_way() == "pyav"
    monkeypatch.setenv("SHORTGOP_NVDEC", "nvcuvid")
    assert nvdec_way() == "nvcuvid"
    monkeypatch.setenv("SHORTGOP_NVDEC", "cuvid")
    with pytest.raises(UsageError, match="SHORTGOP_NVDEC is 'cuvid'; it has to be one of pyav, nvcuvid"):
        nvdec_way()
