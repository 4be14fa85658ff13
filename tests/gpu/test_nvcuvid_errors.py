"""What goes wrong with libnvcuvid: its calls fail, or its pictures are not what the manifest says."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from bare_gops import HEIGHT, WIDTH, asking, gops
from nvcuvid_stub import Stub, found_in, source_for
from shortgop.errors import CorruptDataError, DecodeError, ToolError
from shortgop.manifests.mp4 import sample_bounds
from shortgop.manifests.records import CodecConfig
from shortgop.readers.decoders.surface_source import Pictures

OUT_OF_MEMORY, UNKNOWN, NOT_SUPPORTED = 2, 999, 801


@pytest.mark.parametrize(
    ("call", "given", "error", "named"),
    [
        ("cuvidCreateVideoParser", "codec 4", UNKNOWN, r"CUDA_ERROR_UNKNOWN \(999\)"),
        (
            "cuvidCreateDecoder",
            "codec 4, 8 bits, 96x64 of at most 256x256 to 96x64 in format 0, 6 and 8 surfaces",
            OUT_OF_MEMORY,
            r"CUDA_ERROR_OUT_OF_MEMORY \(2\)",
        ),
        ("cuvidParseVideoData", r"\d+ bytes, flags 10\)", UNKNOWN, r"CUDA_ERROR_UNKNOWN \(999\)"),
        ("cuvidDecodePicture", "0x0 macroblocks into surface 0, ", UNKNOWN, r"CUDA_ERROR_UNKNOWN \(999\)"),
        ("cuvidMapVideoFrame64", r"surface 0\)", OUT_OF_MEMORY, r"CUDA_ERROR_OUT_OF_MEMORY \(2\)"),
        ("cuvidMapVideoFrame64", r"surface 0\)", 12345, "error 12345"),
    ],
)
@pytest.mark.parametrize("after", [0, 3])
def test_errors_name_the_call_and_what_it_was_given_and_everything_is_closed(
    stub: Stub, call: str, given: str, error: int, named: str, after: int
) -> None:
    if after and "Create" in call:
        after = 0
    stub.stream_is(gops("h264")[0].config)
    stub.library.fail(call.encode(), after, error)
    with pytest.raises(ToolError, match="NVDEC fails at a GOP that the CPU decodes") as raised:
        found_in(stub, source_for(stub, gops("h264")[0].config), gops("h264")[0])
    assert re.search(rf"\({call}\({'' if after else given}.* of NVIDIA's driver returns {named}\)", str(raised.value))
    assert "leave it more of the GPU's memory" in str(raised.value)
    assert stub.open_handles == (0, 0, 0)


def test_a_call_that_fails_at_data_that_the_cpu_does_not_decode_either_is_an_error_of_the_data(stub: Stub) -> None:
    gop = gops("h264")[0]
    stub.stream_is(gop.config)
    stub.library.fail(b"cuvidDecodePicture", 0, UNKNOWN)
    data, (_, last) = bytearray(gop.data), sample_bounds(gop.data)[:2]
    data[last - 500 : last] = bytes(500)
    with pytest.raises(DecodeError, match=r"cuvidDecodePicture\(.* and the CPU does not either"):
        found_in(stub, source_for(stub, gop.config), dataclasses.replace(gop, data=bytes(data)))


@pytest.mark.parametrize("error", [NOT_SUPPORTED, UNKNOWN])
def test_a_driver_that_does_not_say_the_status_is_believed(stub: Stub, error: int) -> None:
    gop = gops("h264")[0]
    stub.library.fail(b"cuvidGetDecodeStatus", 0, error)
    assert len(found_in(stub, source_for(stub, gop.config), gop)) == 8


Misbehaving = Callable[[Stub, CodecConfig], object]

MISBEHAVING: dict[str, tuple[Misbehaving, str]] = {
    "a damaged picture": (lambda stub, _: stub.library.misbehave(3, 0, 0, 0), "frame 3 of the GOP is damaged"),
    "late pictures": (lambda stub, _: stub.library.misbehave(-1, 1, 0, 0), "finds 0 pictures in the data of frame 0"),
    "two pictures": (lambda stub, _: stub.library.misbehave(-1, 0, 1, 0), "finds 2 pictures in the data of frame 0"),
    "another size": (
        lambda stub, config: stub.stream_is(dataclasses.replace(config, width=128)),
        "frames of 128x64, the manifest says 96x64",
    ),
    "other bits": (
        lambda stub, config: stub.stream_is(config, bits=10),
        "10 and 10 bits; the manifest says 4, 1 and 8",
    ),
    "a huge coded size": (
        lambda stub, config: stub.stream_is(config, coded=(512, 64)),
        "frames of 96x64 are coded as 512x64, which is too large",
    ),
}


@pytest.mark.parametrize("what", MISBEHAVING)
def test_what_nvdec_alone_finds_wrong_is_no_error_of_the_data(stub: Stub, what: str) -> None:
    """The CPU decodes it. A ClipDataset that skips damaged clips would skip all of them."""
    gop = gops("h264")[0]
    source = source_for(stub, gop.config)
    misbehave, text = MISBEHAVING[what]
    misbehave(stub, gop.config)
    with pytest.raises(ToolError, match=f"NVDEC fails at a GOP that the CPU decodes .*{text}"):
        found_in(stub, source, gop)
    assert stub.open_handles == (0, 0, 0)


def test_what_is_not_as_the_manifest_says_is_an_error_of_the_data(stub: Stub) -> None:
    gop = gops("h264")[0]
    lower = dataclasses.replace(gop, config=dataclasses.replace(gop.config, height=HEIGHT - 4))
    source = source_for(stub, lower.config)
    stub.stream_is(gop.config)
    with pytest.raises(DecodeError, match="the CPU does not either: frames of 96x64, the manifest says 96x60"):
        found_in(stub, source, lower)


def test_what_cannot_be_converted_is_no_error_of_nvdec(stub: Stub) -> None:
    """Such as a matrix that nobody knows. The CPU decodes the pictures, and does not convert them either."""

    def convert(_: Pictures) -> None:
        raise DecodeError("matrix 13 is not known")

    gop = gops("h264")[0]
    source = source_for(stub, gop.config)
    stub.stream_is(gop.config)
    with pytest.raises(DecodeError, match=r"^matrix 13 is not known$"):
        source.decode(gop, convert)


def test_a_stream_may_repeat_its_parameter_sets_but_not_change_them(stub: Stub) -> None:
    gop = gops("h264")[0]
    source = source_for(stub, gop.config)
    stub.library.misbehave(-1, 0, 0, 1)
    assert len(found_in(stub, source, gop)) == 8
    with pytest.raises(ToolError, match="another coded size within a GOP"):
        source.decode(gop, lambda _: stub.stream_is(gop.config, coded=(WIDTH + 16, HEIGHT)))
    assert stub.of_kind("reconfigure") == []


def test_a_damaged_picture_that_nobody_wants_is_no_error(stub: Stub) -> None:
    gop = gops("h264")[0]
    stub.library.misbehave(0, 0, 0, 0)
    assert list(found_in(stub, source_for(stub, gop.config), asking(gop, [4]))) == [4]


def test_data_of_another_pattern_is_refused(stub: Stub) -> None:
    gop = gops("h264")[0]
    shorter = dataclasses.replace(
        gop,
        pattern=dataclasses.replace(gop.pattern, frames=gop.pattern.frames[:7], referenced=gop.pattern.referenced[:7]),
    )
    with pytest.raises(CorruptDataError, match="the GOP has 8 frames, the manifest says 7"):
        found_in(stub, source_for(stub, gop.config), shorter)


def test_after_an_error_of_a_conversion_its_work_is_waited_for(stub: Stub) -> None:
    """What it launched before may still read surfaces."""
    gop = gops("h264")[0]

    def failing(_: Pictures) -> None:
        raise RuntimeError("no kernel")

    with pytest.raises(RuntimeError, match="no kernel"):
        source_for(stub, gop.config).decode(gop, failing)
    ended = stub.of_kind("record", "passed", "unmap", "destroy")
    assert [line.split()[0] for line in ended[:-2]] == ["record", "passed", *["unmap"] * 4]
    assert ended[-2:] == ["destroy parser", "destroy decoder"]
