"""The check that writes down what libnvcuvid's parser calls, against the library of nvcuvid_stub.c."""

from __future__ import annotations

import pytest
from gpu_parser import Heard, heard_of, unexpected

from bare_gops import HEIGHT, WIDTH, gops
from nvcuvid_stub import Stub
from shortgop.readers.gpu.nvcuvid import Nvcuvid

UNKNOWN = 999


def heard(stub: Stub, codec: str) -> list[list[Heard]]:
    config = gops(codec)[0].config
    stub.stream_is(config)
    return heard_of(Nvcuvid(stub.library, stub.library), config, gops(codec)[:2])


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_each_call_is_written_down_by_the_packet_that_it_comes_in(stub: Stub, codec: str) -> None:
    first, second = heard(stub, codec)
    sequence = f"sequence {WIDTH}x{HEIGHT} shows 0,0 to {WIDTH},{HEIGHT} of 4 surfaces, matrix 0, limited range, 8 bits"
    for gop in (first, second):
        assert str(gop[0]) == f"frame 0: {sequence}, decode into 0, display 0 of frame 0"
        assert str(gop[1]) == f"frame {gop[1].frame}: decode into 1, display 1 of frame {gop[1].frame}"
        assert str(gop[-1]) == "end of stream: nothing"
        assert len(gop) == 9
        assert unexpected(gop) == []
    assert len(stub.of_kind("end of stream")) == 2


def test_pictures_that_come_with_a_later_packet_are_told(stub: Stub) -> None:
    stub.library.misbehave(-1, 1, 0, 0)
    first, _ = heard(stub, "h264")
    assert unexpected(first)[0].startswith("frame 0: sequence ")


def test_an_error_is_told_in_its_place(stub: Stub) -> None:
    stub.library.fail(b"cuvidParseVideoData", 3, UNKNOWN)
    first, _ = heard(stub, "h264")
    assert unexpected(first[:3]) == []
    assert "flags 10) of NVIDIA's driver returns CUDA_ERROR_UNKNOWN" in unexpected(first)[0]
