"""What prep makes of ffmpeg's words about a GPU."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prep_errors import told

from film_grain import add_film_grain
from odd_pictures import X264, encode_pictures, numbered
from shortgop.prep.running.attempts import (
    FfmpegFailedError,
    raise_if_changed,
    raise_if_failed,
    raise_if_grain,
    raise_if_picture_lost,
)
from shortgop.prep.running.ffmpeg import RunningFfmpeg, find_ffmpeg, running
from shortgop.prep.running.gpu_errors import cause_of, lost_picture, tells_of_grain
from shortgop.prep.tools.gpu_filters import GRAIN_SHOWN, TELLING_OF_GRAIN

# As libavutil's cuda_check.h has them: the call, and the name of the error.
LOST = [
    "decoder->cvdl->cuvidDecodePicture(decoder->decoder, &ctx->pic_params) failed -> CUDA_ERROR_LAUNCH_FAILED",
    "decoder->cvdl->cuvidMapVideoFrame(decoder->decoder, cf->idx, &devptr, &pitch, &vpp) failed -> CUDA_ERROR_UNKNOWN",
    "cu->cuMemcpy2DAsync(&cpy, hwctx->stream) failed -> CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access",
    "cu->cuStreamSynchronize(hwctx->stream) failed -> CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access",
    "No decoder surfaces left",
]
HARMLESS = [
    "hardware accelerator failed to decode picture",
    "co located POCs unavailable",
    "cu->cuCtxPopCurrent(&dummy) failed -> CUDA_ERROR_DEINITIALIZED",
]


@pytest.mark.parametrize("line", LOST)
def test_lines_that_tell_of_a_lost_picture_are_known(line: str) -> None:
    text = f"[h264 @ 0x55] co located POCs unavailable\n[h264 @ 0x55] {line}\n"
    assert lost_picture(text)
    assert line.endswith(lost_picture(text))


@pytest.mark.parametrize("line", HARMLESS)
def test_other_lines_are_none(line: str) -> None:
    assert lost_picture(f"[h264 @ 0x55] {line}") == ""


def test_grain_is_told_by_the_filter_alone() -> None:
    assert tells_of_grain(b"[Parsed_showinfo_0 @ 0x55]   side data - Film grain parameters: type h274; seed=62;")
    assert tells_of_grain(b"[Parsed_showinfo_0 @ 0x55]   side data - film grain parameters: type av1; seed=62;")
    assert not tells_of_grain(b"Input #0, matroska, from 'film grain parameters.mkv':")
    assert not tells_of_grain(b"[Parsed_showinfo_0 @ 0x55] n:   0 pts:      0")


def test_of_each_picture_the_log_has_its_grain_and_not_its_user_data(tmp_path: Path) -> None:
    """x264 writes its options as user data, and showinfo each byte of that by a call of its own."""
    plain = encode_pictures(tmp_path / "plain.mp4", numbered(range(3)), *X264, "-pix_fmt", "yuv420p")
    add_film_grain(plain, tmp_path / "grain.mp4", "h264", first=2)
    for name, filters, expected in (
        ("plain", GRAIN_SHOWN, {"grain": False, "user data": False}),
        ("grain", GRAIN_SHOWN, {"grain": True, "user data": False}),
        ("grain", "showinfo=checksum=0", {"grain": True, "user data": True}),
    ):
        argv = ["-v", "info", *TELLING_OF_GRAIN, "-i", str(tmp_path / f"{name}.mp4"), "-vf", filters, "-f", "null", "-"]
        with running(find_ffmpeg().path, argv, "<stats>") as run:
            run.stdout.read()
        assert {"grain": run.has_grain, "user data": "User Data=" in run.stderr} == expected


def test_a_line_that_was_repeated_is_the_cause() -> None:
    """A warning is none, and ffmpeg repeats it without its level."""
    said = "[h264 @ 0x55] [warning] a warning\n    Last message repeated 7 times\n[h264 @ 0x55] [error] it fails\n"
    assert cause_of(said) == "it fails"


SAID = "[h264 @ 0x55] the first line\n[h264 @ 0x55] the second line\n[h264 @ 0x55] cuvidDecodePicture(a) failed -> E\n"


@pytest.mark.parametrize(
    ("raising", "found", "cause"),
    [
        (raise_if_failed, {"returncode": 1}, "the first line"),
        (raise_if_picture_lost, {"lost": "cuvidDecodePicture(a) failed -> E"}, "cuvidDecodePicture(a) failed -> E"),
        (raise_if_changed, {"changes": ["pc"]}, "scale_cuda does not convert pictures that change: pc"),
        (raise_if_grain, {"has_grain": True}, "its pictures have film grain, which NVDEC leaves out"),
    ],
)
def test_an_error_has_its_cause_and_all_that_ffmpeg_said(
    raising: Callable[[RunningFfmpeg, str], None], found: dict[str, Any], cause: str
) -> None:
    with pytest.raises(FfmpegFailedError) as caught:
        raising(RunningFfmpeg(io.BytesIO(), stderr=SAID, **found), "a.mp4")
    assert caught.value.stderr == SAID
    assert caught.value.cause == cause
    report = told(caught.value)
    assert report.count(cause) == 1
    assert "the second line" in report


def test_an_error_whose_line_is_all_that_ffmpeg_said_is_told_once() -> None:
    with pytest.raises(FfmpegFailedError) as caught:
        raise_if_failed(RunningFfmpeg(io.BytesIO(), stderr="[h264 @ 0x55] it fails\n", returncode=1), "a.mp4")
    assert told(caught.value) == str(caught.value)
