"""What NVDEC can decode: from a driver's answers, and from what a stream says of itself."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import io
import os
from typing import Any

import av
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shortgop
from kept_priority import kept_priority
from shortgop.errors import CorruptDataError, UsageError, WrongTypeError
from shortgop.manifests.mp4 import parse_init
from shortgop.manifests.records import CodecConfig
from shortgop.prep.tools.nvdec_sizes import why_not_nvdec
from shortgop.readers.decoders.choose import ON_CPU, DeviceChoice, chosen, device_of
from shortgop.readers.gpu.nvdec_caps import CodecCaps, DecodeCapsStruct, NvdecCaps, ask_all, ask_codec, why_not
from shortgop.readers.gpu.stream_format import StreamFormat, stream_format

CUDA = torch.device("cuda", 0)
# As NVIDIA's documents give them for Hopper (Video Codec SDK 13.0, NVDEC application note): H.264 of 8 bits, HEVC of
# up to 12 bits.
HOPPER = NvdecCaps(
    {
        ("h264", 8): CodecCaps(True, 7, ("nv12",), (48, 16), (4096, 4096), 65536),
        ("h264", 10): CodecCaps(False),
        ("hevc", 8): CodecCaps(True, 7, ("nv12", "p016"), (144, 144), (8192, 8192), 262144),
        ("hevc", 10): CodecCaps(True, 7, ("nv12", "p016"), (144, 144), (8192, 8192), 262144),
        ("av1", 8): CodecCaps(False),
        ("av1", 10): CodecCaps(False),
    }
)
NO_LIBRARY = NvdecCaps({}, missing="libnvcuvid.so.1 cannot be loaded (not found)")


def encoded(codec: str, pixel_format: str, width: int = 160, height: int = 160) -> CodecConfig:
    """The codec configuration of a real stream."""
    file = io.BytesIO()
    library = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1"}[codec]
    options = {
        "h264": {"preset": "ultrafast"},
        "hevc": {"preset": "ultrafast", "x265-params": "log-level=none:pools=none"},
        "av1": {"preset": "12"},
    }[codec]
    options_of_file = {"movflags": "frag_keyframe+empty_moov"}
    with kept_priority(), av.open(file, "w", format="mp4", options=options_of_file) as container:
        stream: Any = container.add_stream(library, rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, pixel_format
        frame = av.VideoFrame.from_ndarray(np.full((height, width, 3), 90, dtype=np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            packet.pts = packet.dts = 0
            container.mux(packet)
    init = parse_init(file.getvalue()[: file.getvalue().index(b"moof") - 4])
    return CodecConfig(codec, init.extradata, init.width, init.height, 2, 2, 2, False)


def test_encoding_av1_leaves_the_priority_of_the_thread() -> None:
    """All tests of this process would run above everything else of the machine, and wait for threads that are not."""
    encoded("av1", "yuv420p")
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize(
    ("pixel_format", "form"),
    [
        ("yuv420p", StreamFormat(8, "4:2:0")),
        ("yuvj420p", StreamFormat(8, "4:2:0")),
        ("yuv420p10le", StreamFormat(10, "4:2:0")),
        ("yuv422p", StreamFormat(8, "4:2:2")),
        ("yuv444p", StreamFormat(8, "4:4:4")),
        ("yuv444p10le", StreamFormat(10, "4:4:4")),
    ],
)
def test_a_stream_says_its_bits_and_chroma(codec: str, pixel_format: str, form: StreamFormat) -> None:
    assert stream_format(encoded(codec, pixel_format)) == form


@pytest.mark.parametrize(
    ("third_byte", "form"),
    [
        (0b0000_1100, StreamFormat(8, "4:2:0")),
        (0b0100_1100, StreamFormat(10, "4:2:0")),
        (0b0110_1000, StreamFormat(12, "4:2:2")),
        (0b0000_0000, StreamFormat(8, "4:4:4")),
        (0b0001_1100, StreamFormat(8, "4:0:0")),
    ],
)
def test_the_av1c_box_says_bits_and_chroma(third_byte: int, form: StreamFormat) -> None:
    """AV1 Codec ISO Media File Format Binding, 2.3.3."""
    assert stream_format(CodecConfig("av1", bytes([0x81, 0, third_byte, 0]), 64, 64, 2, 2, 2, False)) == form


@pytest.mark.parametrize("bits", [8, 10])
def test_a_stream_of_av1_says_its_bits(bits: int) -> None:
    assert stream_format(encoded("av1", {8: "yuv420p", 10: "yuv420p10le"}[bits])) == StreamFormat(bits, "4:2:0")


@given(codec=st.sampled_from(["h264", "hevc", "av1"]), extradata=st.binary(max_size=24))
def test_any_extradata_is_read_or_refused(codec: str, extradata: bytes) -> None:
    with contextlib.suppress(CorruptDataError):
        assert stream_format(CodecConfig(codec, extradata, 64, 64, 2, 2, 2, False)).bit_depth >= 8


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_ordinary_streams_are_decoded(codec: str) -> None:
    assert why_not(encoded(codec, "yuv420p"), HOPPER) is None


@pytest.mark.parametrize(
    ("codec", "pixel_format", "size", "why"),
    [
        ("h264", "yuv420p10le", (160, 160), "does not decode h264 of 10 bits"),
        ("av1", "yuv420p", (160, 160), "does not decode av1 of 8 bits"),
        ("hevc", "yuv444p", (160, 160), "4:4:4"),
        ("h264", "yuv420p", (32, 160), "32x160 is below the 48x16"),
        ("hevc", "yuv420p", (160, 128), "160x128 is below the 144x144"),
        ("hevc", "yuv420p", (160, 136), "160x136 is below the 144x144"),
    ],
)
def test_what_it_cannot_decode_is_said(codec: str, pixel_format: str, size: tuple[int, int], why: str) -> None:
    assert why in str(why_not(encoded(codec, pixel_format, *size), HOPPER))


@pytest.mark.parametrize(("codec", "size"), [("h264", (34, 2)), ("hevc", (138, 142))])
def test_its_least_size_is_that_of_coded_pictures(codec: str, size: tuple[int, int]) -> None:
    """Of 34x2 pixels H.264 codes three macroblocks, and of 138x142 HEVC codes 144x144."""
    assert why_not(encoded(codec, "yuv420p", *size), HOPPER) is None
    assert why_not_nvdec(codec, *size) is None


def test_sizes_above_its_limits_are_said() -> None:
    ordinary = encoded("h264", "yuv420p")
    assert "4112x160 is above the 4096x4096" in str(why_not(dataclasses.replace(ordinary, width=4112), HOPPER))
    few = NvdecCaps({("h264", 8): CodecCaps(True, 1, ("nv12",), (48, 16), (4096, 4096), 99)})
    assert "100 macroblocks, and NVDEC takes up to 99" in str(why_not(ordinary, few))


def test_a_missing_library_is_the_reason_for_every_stream() -> None:
    assert why_not(encoded("h264", "yuv420p"), NO_LIBRARY) == NO_LIBRARY.missing


def test_the_driver_is_asked_and_its_answer_is_read() -> None:
    """A library with this one function, which fills the structure as the driver does."""

    class Library:
        @staticmethod
        def cuvidGetDecoderCaps(answer: Any) -> int:  # noqa: N802  # the driver's name
            caps = answer._obj
            assert (caps.codec, caps.chroma, caps.bit_depth_minus_8) == (8, 1, 2)
            caps.is_supported, caps.num_engines, caps.output_format_mask = 1, 7, 0b11
            caps.min_width, caps.min_height, caps.max_width, caps.max_height = 144, 144, 8192, 8192
            caps.max_macroblocks = 262144
            return 0

    assert ask_codec(Library, "hevc", 10) == HOPPER.codecs["hevc", 10]


@pytest.mark.parametrize(
    "refused",
    [{("h264", 10)}, {(codec, bits) for codec in ("h264", "hevc", "av1") for bits in (8, 10)}],
    ids=["one", "all"],
)
def test_a_question_that_the_driver_refuses_is_one_about_that_codec(refused: set[tuple[str, int]]) -> None:
    """All of NVDEC would be missing where a driver answers for a codec that the chip lacks with an error."""
    numbers = {4: "h264", 8: "hevc", 11: "av1"}

    class Library:
        @staticmethod
        def cuvidGetDecoderCaps(answer: Any) -> int:  # noqa: N802  # the driver's name
            caps = answer._obj
            caps.is_supported, caps.num_engines, caps.output_format_mask = 1, 7, 0b11
            caps.max_width, caps.max_height, caps.max_macroblocks = 8192, 8192, 262144
            return 801 if (numbers[caps.codec], caps.bit_depth_minus_8 + 8) in refused else 0

    caps, config = ask_all(Library), encoded("hevc", "yuv420p")
    error = "of NVIDIA's driver returns error 801"
    if len(refused) == 1:
        assert (caps.missing, caps.engines, why_not(config, caps)) == (None, 7, None)
        assert error in str(caps.codecs["h264", 10])
        assert error in str(why_not(encoded("h264", "yuv420p10le"), caps))
    else:
        assert caps.codecs == {}
        assert error in str(why_not(config, caps))


def test_the_driver_s_structure_has_the_layout_of_its_header() -> None:
    # CUVIDDECODECAPS of nv-codec-headers n13.0.19.0, on x86-64.
    assert ctypes.sizeof(DecodeCapsStruct) == 88
    offsets = {name: getattr(DecodeCapsStruct, name).offset for name, *_ in DecodeCapsStruct._fields_}
    assert (offsets["bit_depth_minus_8"], offsets["is_supported"], offsets["num_engines"]) == (8, 24, 25)
    assert (offsets["output_format_mask"], offsets["max_width"], offsets["max_macroblocks"]) == (26, 28, 36)
    assert (offsets["min_width"], offsets["min_height"], offsets["max_histogram_bins"]) == (40, 42, 46)


def test_a_capability_says_engines_sizes_and_surfaces() -> None:
    caps = DecodeCapsStruct(is_supported=1, num_engines=7, output_format_mask=0b11, min_width=48, min_height=16)
    caps.max_width, caps.max_height, caps.max_macroblocks = 4096, 4080, 65536
    assert str(CodecCaps.of(caps)) == "7 engines, 48x16 to 4096x4080, 65536 macroblocks, to nv12, p016"
    assert str(CodecCaps.of(DecodeCapsStruct(num_engines=7))) == "no"


def test_everything_is_decoded_on_the_gpu_where_it_can_be() -> None:
    configs = [encoded("h264", "yuv420p"), encoded("hevc", "yuv420p")]
    choice, reasons = chosen(CUDA, HOPPER, configs, fallback=True)
    assert (choice, reasons) == (DeviceChoice(CUDA, engines=7), {})
    assert choice.threads(None) == 14
    assert choice.threads(3) == 3


@pytest.mark.parametrize("fallback", [True, False])
def test_only_what_it_cannot_decode_falls_back_and_only_if_asked(fallback: bool) -> None:
    configs = [encoded("h264", "yuv420p"), encoded("h264", "yuv420p", width=32)]
    choice, reasons = chosen(CUDA, HOPPER, configs, fallback=fallback)
    assert list(reasons) == [1]
    assert choice.on_cpu == (frozenset({1}) if fallback else frozenset())


def test_without_nvdec_all_of_it_falls_back() -> None:
    choice, reasons = chosen(CUDA, NO_LIBRARY, [encoded("h264", "yuv420p")], fallback=True)
    assert choice == DeviceChoice(CUDA, engines=0, on_cpu=frozenset({0}))
    assert reasons == {0: NO_LIBRARY.missing}
    assert choice.threads(None) == 1


def test_the_cpu_is_the_default() -> None:
    assert device_of(None) == device_of("cpu") == device_of(torch.device("cpu")) == ON_CPU.device


@pytest.mark.parametrize("device", ["gpu", 1.5, object(), -1, True])
def test_no_device(device: Any) -> None:
    with pytest.raises(WrongTypeError, match='such as "cpu", "cuda"'):
        device_of(device)


def test_other_devices_are_refused() -> None:
    with pytest.raises(UsageError, match=r'device is \'meta\'; it has to be "cpu" or a CUDA device'):
        device_of("meta")


def test_a_number_is_that_of_a_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"device is 'cuda:1', and this torch .* finds no CUDA device here"):
        device_of(1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of(1) == torch.device("cuda", 1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
@pytest.mark.parametrize(
    ("visible", "said"),
    [(None, "here$"), ("", r"here; CUDA_VISIBLE_DEVICES is '', and the process sees no other GPUs")],
)
def test_without_cuda_open_says_so(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, visible: str | None, said: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(UsageError, match=f"finds no CUDA device {said}"):
        shortgop.open(tmp_path, device="cuda")
