"""GOPs as NVDEC's parser reads them, decoded on the CPU from nothing but these bytes."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bare_gops import asking, gops, pictures_of, pictures_of_stream
from shortgop.errors import CorruptDataError
from shortgop.manifests.mp4 import sample_bounds
from shortgop.manifests.records import CodecConfig
from shortgop.manifests.unit_kinds import nal_length_bytes
from shortgop.readers.decoders.base import GopRequest
from shortgop.readers.gpu.annex_b import START_CODE, annex_b, parameter_sets
from shortgop.readers.plan import needed_samples

CODECS = ["h264", "hevc"]


def stream_of(request: GopRequest) -> bytes:
    """What the parser is sent for a request: parameter sets, and the samples that its frames need."""
    config, bounds = request.config, sample_bounds(request.data)
    length_bytes = nal_length_bytes(config.codec, config.extradata)
    samples = needed_samples(request.pattern, request.frames)
    units = [annex_b(request.data[bounds[each] : bounds[each + 1]], length_bytes) for each in samples]
    return parameter_sets(config) + b"".join(units)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("frames", [range(8), [0], [5], [2, 7]], ids=str)
def test_a_gop_decodes_to_the_same_pictures(codec: str, frames: range | list[int]) -> None:
    """Without the codec configuration: the parameter sets are in the stream."""
    for gop in gops(codec):
        request = asking(gop, frames)
        samples = needed_samples(request.pattern, request.frames)
        shown = sorted(request.pattern.frames[sample] for sample in samples)
        decoded = dict(zip(shown, pictures_of_stream(codec, stream_of(request)), strict=True))
        for frame, expected in pictures_of(request).items():
            assert np.array_equal(decoded[frame], expected)


@pytest.mark.parametrize("codec", CODECS)
def test_gops_follow_each_other(codec: str) -> None:
    """Each brings its parameter sets, so one parser takes all of them."""
    decoded = pictures_of_stream(codec, b"".join(map(stream_of, gops(codec))))
    expected = [picture for gop in gops(codec) for _, picture in sorted(pictures_of(gop).items())]
    assert len(decoded) == len(expected) == 24
    assert all(map(np.array_equal, decoded, expected))


# As encoders write them: three bytes that could be a start code are never in a NAL unit, nor is a zero at its end.
nal_units = st.lists(
    st.binary(min_size=1, max_size=200).filter(lambda unit: b"\0\0" not in unit and unit[-1] != 0), max_size=6
)


@given(units=nal_units, length_bytes=st.sampled_from([1, 2, 4]))
def test_nal_units_of_a_sample_come_back(units: list[bytes], length_bytes: int) -> None:
    sample = b"".join(len(unit).to_bytes(length_bytes, "big") + unit for unit in units)
    stream = annex_b(memoryview(sample), length_bytes)
    assert stream.split(START_CODE)[1:] == units
    assert stream.startswith(START_CODE) or not units


@given(sample=st.binary(max_size=40), length_bytes=st.sampled_from([1, 2, 4]))
def test_any_sample_is_rewritten_or_refused(sample: bytes, length_bytes: int) -> None:
    with contextlib.suppress(CorruptDataError):
        stream = annex_b(sample, length_bytes)
        assert len(stream) >= len(sample)


@pytest.mark.parametrize(
    "sample", [b"\0\0\0\x05abcd", b"\0\0\0\x01a\0\0", b"\0\0\0\0", b"\xff\xff\xff\xffabc"], ids=repr
)
def test_lengths_that_do_not_fit_are_refused(sample: bytes) -> None:
    with pytest.raises(CorruptDataError, match=r"a NAL unit from byte \d+ to \d+ of a sample of \d+ bytes"):
        annex_b(sample, 4)


@pytest.mark.parametrize("codec", CODECS)
def test_a_configuration_that_ends_early_is_refused(codec: str) -> None:
    """Wherever it is cut, up to the last byte that parameter sets have."""
    config = gops(codec)[0].config
    whole = parameter_sets(config)
    last = config.extradata.rindex(whole.split(START_CODE)[-1]) + len(whole.split(START_CODE)[-1])
    for cut in range(last):
        with pytest.raises(CorruptDataError, match="ends early"):
            parameter_sets(dataclasses.replace(config, extradata=config.extradata[:cut]))


@given(codec=st.sampled_from(CODECS), extradata=st.binary(max_size=60))
def test_any_configuration_is_read_or_refused(codec: str, extradata: bytes) -> None:
    with contextlib.suppress(CorruptDataError):
        parameter_sets(CodecConfig(codec, extradata, 64, 64, 2, 2, 2, False))
