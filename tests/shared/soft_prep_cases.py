"""Prep by the ffmpeg program's real CUDA code, on the driver in software: `test_soft_gpu.py` runs these cases in a
child that finds it.

It is a GPU like an H200: NVDEC and scale_cuda, and no NVENC. ffmpeg's decoder, filters and download are real; what
NVDEC decodes and scale_cuda's kernels compute is this driver's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import gpu_prep
import pytest
import torch

from datasets import rows_of
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep import gpu_attempts
from shortgop.prep.profile import Profile, Size
from shortgop.prep.running import driver_folder
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.prep.running.gpu_errors import NO_GPU
from shortgop.prep.tools import capability_trials
from shortgop.prep.tools.capability_trials import SOURCE_KINDS, capabilities_of
from shortgop.storage.disk import DiskStorage
from soft_prep import FRAMES, RATE, TICKS, Reports, checked, numbers_of, pipelines_of, prepared, reported, video
from synthetic import constant_rate_pts, variable_rate_pts


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reports]:
    with reported(tmp_path / "reports", monkeypatch) as counted:
        yield counted


def test_the_trials_find_what_an_h200_has() -> None:
    found = capabilities_of(find_ffmpeg().path, Profile(), kinds=SOURCE_KINDS)
    works = {trial.name for trial in found.trials if trial.works}
    assert works == {"nvdec h264", "nvdec hevc", "nvdec hevc 10 bits", "nvdec vp9", "scale_cuda", "libx264"}
    assert found.detail("h264_nvenc").startswith("the driver's libnvidia-encode is missing")
    assert all(trial.seconds > 0 for trial in found.trials)


def test_ffmpeg_finds_libraries_that_have_their_whole_names_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a machine's driver was mounted and nobody made the links."""
    search = os.environ["LD_LIBRARY_PATH"].split(":")
    (libraries,) = [folder for folder in search if Path(folder, "libnvcuvid.so.1").exists()]
    for name in ("libcuda", "libnvcuvid"):
        shutil.copy(Path(libraries, f"{name}.so.1"), tmp_path / f"{name}.so.580.95.05")
    monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(folder for folder in search if folder != libraries))
    trial = capability_trials._one_trial
    sample = capability_trials._sample(find_ffmpeg().path, "h264")
    assert isinstance(sample, bytes)
    argv = [find_ffmpeg().path, *capability_trials._ON_GPU, *capability_trials._from_pipe("h264")]
    argv += ["-vf", "hwdownload,format=nv12", "-f", "null", "-"]
    assert trial("nvdec h264", argv, sample).detail == NO_GPU
    monkeypatch.setattr(driver_folder, "SYSTEM_FOLDERS", (str(tmp_path),))
    assert trial("nvdec h264", argv, sample).works


GPU, HALF, CPU = ("nvdec", "scale_cuda"), ("nvdec", "software"), ("software", "software")
# By the names of sources: how they are made, what decodes and scales them, and why not more of it is the GPU.
SOURCES: dict[str, tuple[dict[str, Any], tuple[str, str], str]] = {
    "constant": ({"b_frames": 3}, GPU, ""),
    "variable": ({"pts": variable_rate_pts(1, FRAMES, TICKS), "timebase": TICKS}, GPU, ""),
    "lines that are not shown": ({"size": (322, 182)}, GPU, ""),
    "wide pixels": ({"sample_aspect_ratio": Fraction(4, 3)}, GPU, ""),
    "hevc": ({"codec": "libx265"}, GPU, ""),
    "turned": ({"rotation": 90}, HALF, "scaling: rotated"),
    "full range": ({"color_range": 2, "colorspace": 5}, HALF, "scaling: full range"),
    "narrowed": ({"size": (192, 96), "sample_aspect_ratio": Fraction(2, 3)}, HALF, "scaling: one side alone shrinks"),
    "hevc of 10 bits": ({"codec": "libx265", "pix_fmt": "yuv420p10le"}, HALF, "scaling: 10 bits"),
    "4-2-2": ({"pix_fmt": "yuv422p"}, CPU, "decoding: 8 bits of 4:2:2 in h264"),
    "h264 of 10 bits": ({"pix_fmt": "yuv420p10le"}, CPU, "decoding: 10 bits of 4:2:0 in h264"),
    "cropped at the left": ({"cropped": "crop_left=8:crop_top=4"}, CPU, "the GPU failed: NVDEC's pictures had another"),
    "film grain": ({"grain": "h264"}, CPU, "decoding: film grain"),
    "film grain of hevc": ({"grain": "hevc", "codec": "libx265"}, CPU, "decoding: film grain"),
    "late film grain": ({"grain": "h264", "grain_from": 6}, CPU, "the GPU failed: its pictures have film grain"),
    "late film grain of hevc": (
        {"grain": "hevc", "grain_from": 6, "codec": "libx265"}, CPU, "the GPU failed: its pictures have film grain",
    ),
    "hevc below NVDEC's sizes": ({"codec": "libx265", "size": (160, 128)}, CPU, "decoding: hevc of 160x128"),
}  # fmt: skip


def test_each_source_shows_the_cpus_frames_whatever_the_gpu_does_for_it(tmp_path: Path, reports: Reports) -> None:
    (tmp_path / "sources").mkdir()
    for name, (made, _, _) in SOURCES.items():
        video(tmp_path / "sources" / f"{name}.mp4", **made)
    found = prepared(tmp_path / "sources", tmp_path / "gpu")
    assert reports()["cuLaunchKernel"] > 0
    expected = prepared(tmp_path / "sources", tmp_path / "cpu", streams_per_gpu=0)
    pipelines = dict(zip(found.ids, pipelines_of(tmp_path / "gpu"), strict=True))
    for name, (_, steps, why) in SOURCES.items():
        one, other = (each[f"{name}.mp4"] for each in (found, expected))
        pipeline = pipelines[f"{name}.mp4"]
        assert (pipeline["decoding"], pipeline["scaling"]) == steps, name
        assert why in pipeline["why"]
        assert numbers_of(one) == numbers_of(other)
        assert one.source_seconds(range(len(one))).tolist() == other.source_seconds(range(len(other))).tolist()
        if steps != GPU and name != "hevc of 10 bits":
            # What NVDEC decodes is what the CPU decodes, to the last bit, and so is what x264 gets.
            assert torch.equal(one[:], other[:])


PROFILES: dict[str, dict[str, Any]] = {
    "repeated frames": {"fps": 50, "size": 200, "upscale": True},
    "dropped frames": {"fps": 10, "codec": "hevc", "size": 160},
    "the same size": {"size": 180},
}


@pytest.mark.parametrize("name", PROFILES)
def test_each_profile_gives_the_cpus_frames(name: str, tmp_path: Path) -> None:
    source = video(tmp_path / "a.mp4", pts=variable_rate_pts(1, FRAMES, TICKS), timebase=TICKS)
    (found,) = prepared(source, tmp_path / "gpu", **PROFILES[name])
    (expected,) = prepared(source, tmp_path / "cpu", streams_per_gpu=0, **PROFILES[name])
    (pipeline,) = pipelines_of(tmp_path / "gpu")
    assert (pipeline["decoding"], pipeline["scaling"]) == GPU
    assert numbers_of(found) == numbers_of(expected)


def forget(reports: Path) -> None:
    """The driver complains where libavcodec shows a picture that it refused, and decodes others by it."""
    for report in reports.iterdir():
        report.unlink()


FAILING = {
    "no memory": ({"SOFT_GPU_BYTES": "1000000"}, "the GPU was out of memory", 3),
    "no decoder": ({"SOFT_GPU_FAIL": "cuvidCreateDecoder 0 801"}, "CUDA_ERROR_NOT_SUPPORTED", 1),
    # ffmpeg takes what the memory holds and ends with success.
    "no more pictures": ({"SOFT_GPU_FAIL": "cuvidDecodePicture 10 999"}, "cuvidDecodePicture", 1),
    "no copy": ({"SOFT_GPU_FAIL": "cuMemcpy2DAsync 40 700"}, "cuMemcpy2DAsync", 1),
    "an error behind the last picture": ({"SOFT_GPU_FAIL": "cuStreamSynchronize 15 700"}, "cuStreamSynchronize", 1),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_gpu_that_fails_leaves_the_source_to_the_cpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the real ffmpeg says then."""
    variables, why, attempts = FAILING[name]
    source = video(tmp_path / "a.mp4")
    capabilities_of(find_ffmpeg().path, Profile())
    forget(tmp_path / "reports")
    monkeypatch.setattr(gpu_attempts, "_PAUSES_SECONDS", (0.0, 0.0))
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    (found,) = prepared(source, tmp_path / "gpu")
    assert numbers_of(found) == list(range(FRAMES))
    (recorded,) = pipelines_of(tmp_path / "gpu")
    assert recorded["decoding"] == "software"
    assert recorded["why"].startswith("the GPU failed: ")
    assert why in recorded["why"]
    assert len(list((tmp_path / "reports").iterdir())) == attempts


@pytest.mark.parametrize(("codec", "first"), [("libx264", 1), ("libx265", 10)])
def test_a_picture_that_nvdec_did_not_decode_is_the_cpus(
    codec: str, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libavcodec shows it at its time, also where NVDEC has refused it, so ffmpeg's report is as planned."""
    source = video(tmp_path / "a.mp4", codec=codec, b_frames=3)
    capabilities_of(find_ffmpeg().path, Profile(), kinds=SOURCE_KINDS)
    monkeypatch.setenv("SOFT_GPU_FAIL", f"cuvidDecodePicture {first} 999 1")
    (found,) = prepared(source, tmp_path / "gpu")
    assert numbers_of(found) == list(range(FRAMES))
    (recorded,) = pipelines_of(tmp_path / "gpu")
    assert (recorded["decoding"], recorded["encoder"]) == ("software", "libx264")
    assert recorded["why"].startswith("the GPU failed: cuvidDecodePicture(")
    forget(tmp_path / "reports")


def test_a_trial_whose_picture_nvdec_did_not_decode_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability_trials, "_known", {})
    monkeypatch.setenv("SOFT_GPU_FAIL", "cuvidDecodePicture 1 999 1")
    trial = capability_trials.try_nvdec(find_ffmpeg().path, "hevc")
    assert not trial.works
    assert "cuvidDecodePicture" in trial.detail
    assert "hardware accelerator failed to decode picture" in trial.said
    forget(tmp_path / "reports")


@pytest.mark.parametrize("lines", [0, 1000])
def test_a_lost_picture_is_found_behind_much_else_that_ffmpeg_says(
    lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than prep keeps of ffmpeg's standard error."""
    source, program = video(tmp_path / "a.mp4", codec="libx265", b_frames=3), tmp_path / "ffmpeg"
    said = f"yes '[hevc @ 0x55] Skipping NAL unit 62' | head -n {lines} >&2"
    program.write_text(f'#!/bin/sh\ncase " $* " in *" -copyts "*) {said};; esac\nexec "{find_ffmpeg().path}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(program))
    find_ffmpeg.cache_clear()
    capabilities_of(str(program), Profile(), kinds=SOURCE_KINDS)
    monkeypatch.setenv("SOFT_GPU_FAIL", "cuvidDecodePicture 10 999 1")
    (found,) = prepared(source, tmp_path / "gpu")
    find_ffmpeg.cache_clear()
    assert numbers_of(found) == list(range(FRAMES))
    assert pipelines_of(tmp_path / "gpu")[0]["why"].startswith("the GPU failed: cuvidDecodePicture(")
    forget(tmp_path / "reports")


@pytest.mark.parametrize(
    ("degrees", "decoding", "why"),
    [
        # scale_cuda converts no range.
        (0, "software", "the GPU failed: scale_cuda does not convert pictures that change: "),
        (90, "nvdec", ""),
    ],
)
def test_a_source_whose_range_changes_is_scaled_on_the_cpu(
    degrees: int, decoding: str, why: str, tmp_path: Path
) -> None:
    """Its decoder on the GPU goes on."""
    pixels: dict[str, Any] = {"color_range": 1, "b_frames": 0}
    parts = [video(tmp_path / "limited.mp4", **pixels), video(tmp_path / "full.mp4", **pixels, first_number=FRAMES)]
    ffmpeg = [find_ffmpeg().path, "-v", "error"]
    whole = b""
    for part, flag in zip(parts, (0, 1), strict=True):
        told = f"h264_mp4toannexb,h264_metadata=video_full_range_flag={flag}"
        argv = [*ffmpeg, "-i", str(part), "-c", "copy", "-bsf:v", told, "-f", "h264", "pipe:1"]
        whole += subprocess.run(argv, check=True, capture_output=True).stdout
    source = tmp_path / "both.mp4"
    turned = ["-display_rotation", str(degrees)]
    argv = [*ffmpeg, *turned, "-r", "30", "-f", "h264", "-i", "pipe:0", "-c", "copy", str(source)]
    subprocess.run(argv, check=True, input=whole)
    (found,) = prepared(source, tmp_path / "gpu")
    (expected,) = prepared(source, tmp_path / "cpu", streams_per_gpu=0)
    assert len(found) == 2 * FRAMES
    assert torch.equal(found[:], expected[:])
    (recorded,) = pipelines_of(tmp_path / "gpu")
    assert recorded["decoding"] == decoding
    assert why in recorded["why"]


@pytest.mark.parametrize("grain", [{}, {"grain": "h264", "grain_from": 1}], ids=["plain", "late grain"])
def test_sections_are_those_of_the_cpu_byte_for_byte(grain: dict[str, Any], tmp_path: Path, reports: Reports) -> None:
    made: dict[str, Any] = {"size": (320, 256), "pts": constant_rate_pts(RATE, 200), "gop": 30, "b_frames": 0}
    source = video(tmp_path / "long.mp4", options={"qp": "10", "preset": "ultrafast"}, **made, **grain)
    profile = Profile(size=Size(short_side=98), segment_seconds=Fraction(1, 2))
    for name, where in (("gpu", Where("inline")), ("cpu", Where("inline", streams_per_gpu=0))):
        prepare([str(source)], DiskStorage(tmp_path / name), profile, where=where, section_seconds=0.01)
        # A run that prep ends, where film grain begins, reports nothing.
        if name == "gpu" and not grain:
            assert reports()["cuvidCreateDecoder"] > 1
            assert reports()["cuvidDecodePicture"] >= 200
    assert rows_of(tmp_path / "gpu") == rows_of(tmp_path / "cpu")


def test_the_checks_of_prep_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `make gpu-check`: each pipeline by itself, and NVDEC's with the CPU's bytes."""
    found = checked(gpu_prep.pipelines, tmp_path, monkeypatch)
    assert found["h264: nvdec, software, libx264"] == "right; right; equal; equal"
    assert found["h264: nvdec, scale_cuda, libx264"] == "right; right"
    rates = checked(gpu_prep.speed, tmp_path, monkeypatch)
    assert rates["nvdec, scale_cuda, libx264, 2 at once: frames/s"] > 0
    quality = checked(gpu_prep.quality, tmp_path, monkeypatch)
    assert list(quality["h264: beside the CPU at equal bytes"]) == ["cpu", "nvdec, scale_cuda, libx264"]
    assert [each["raised"] for each in (found, rates, quality)] == [""] * 3


def test_a_gpu_that_fails_fails_the_checks_of_prep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the driver's words, and the CPU's figures are there."""
    capabilities_of(find_ffmpeg().path, Profile())
    monkeypatch.setenv("SOFT_GPU_FAIL", "cuLaunchKernel 5 700")
    for check, figure in ((gpu_prep.speed, "cpu, 2 at once: frames/s"), (gpu_prep.quality, "h264: cpu")):
        found = checked(check, tmp_path, monkeypatch)
        assert "nvdec, scale_cuda, libx264" in found["raised"]
        assert "cuLaunchKernel" in found["raised"]
        assert figure in found
