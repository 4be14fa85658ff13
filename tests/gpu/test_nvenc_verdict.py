"""What `make gpu-check` makes of the errors of NVENC's encoders."""

from __future__ import annotations

import pytest
from check_record import Skipped
from gpu_ffmpeg import NO_NVENC, WORKS, verdict

from shortgop.prep.running.gpu_errors import cause_of


def test_nvenc_is_told_from_a_gpu_without_it_and_from_errors() -> None:
    no_engine = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"
    old_driver = "Driver does not support the required nvenc API version. Required: 13.1 Found: 13.0"
    assert verdict({"h264_nvenc": WORKS, "av1_nvenc": no_engine}) == "h264_nvenc encode"
    no_codec = "Codec not supported; No capable devices found"
    assert verdict({"h264_nvenc": no_engine, "hevc_nvenc": no_codec}) == "this GPU has no NVENC"
    # What prep's trials make of these.
    assert verdict({"h264_nvenc": cause_of(no_engine)}) == "this GPU has no NVENC"
    with pytest.raises(RuntimeError, match="h264_nvenc: Driver does not support"):
        verdict({"h264_nvenc": old_driver, "hevc_nvenc": no_engine})
    # FFmpeg ends with the same words after any error.
    other = "OpenEncodeSessionEx failed: generic error (20): (no details)\nNo capable devices found"
    for said in (other, cause_of(other)):
        with pytest.raises(RuntimeError, match="generic error"):
            verdict({"h264_nvenc": said})


@pytest.mark.parametrize(
    "said",
    [
        "Cannot load libnvidia-encode.so.1",
        "Driver does not support the required nvenc API version. Required: 13.1 Found: 13.0",
        "OpenEncodeSessionEx failed: unsupported device (2): (no details)",
    ],
)
def test_whatever_keeps_nvenc_from_a_chip_that_has_none_is_no_failure(said: str) -> None:
    """As on an H200 whose container lacks the library, also where a GPU is required."""
    answers = {"h264_nvenc": said, "hevc_nvenc": cause_of(said)}
    assert verdict(answers, lacks_nvenc=True) == NO_NVENC


def test_without_the_library_it_is_not_known_whether_there_is_nvenc() -> None:
    said = "Cannot load libnvidia-encode.so.1"
    with pytest.raises(Skipped, match=r"libnvidia-encode\.so\.1 is missing"):
        verdict({"h264_nvenc": said, "hevc_nvenc": cause_of(said)})
    # An ffmpeg that was built without one of the encoders says that of it.
    with pytest.raises(Skipped, match=r"is missing: Cannot load libnvidia-encode"):
        verdict({"av1_nvenc": "Unknown encoder 'av1_nvenc'", "h264_nvenc": said})
