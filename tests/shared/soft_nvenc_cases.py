"""Prep with NVENC, by FFmpeg's real nvenc.c, on the driver in software: `test_soft_gpu.py` runs these cases in a child
that finds it. The encoder behind this NVENC is x264 or x265, which makes each picture of the type that NVENC decides.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpu_ffmpeg
import gpu_prep
import pytest

from datasets import current_manifest
from shortgop.prep import gpu_attempts
from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import find_ffmpeg
from shortgop.prep.tools import capability_trials
from shortgop.prep.tools.capabilities import Capabilities
from shortgop.prep.tools.capability_trials import capabilities_of
from shortgop.prep.tools.doctor import choice_of
from soft_nvenc import ENCODERS, SIZE, Asked, asked_of_nvenc, figures_of
from soft_prep import FRAMES, TICKS, Reports, checked, numbers_of, pipelines_of, prepared, reported, video
from sweep import SWEEP, sample
from synthetic import variable_rate_pts

Machine = Callable[..., None]


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reports]:
    for module in (gpu_attempts, capability_trials):
        monkeypatch.setattr(module, "_PAUSES_SECONDS", (0.0, 0.0))
    with reported(tmp_path / "reports", monkeypatch) as counted:
        yield counted


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return asked_of_nvenc(tmp_path / "asked", monkeypatch)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Give the machine another chip or driver (`SOFT_NVENC_...`): all is tried anew."""
    before = dict(capability_trials._known)

    def use(**variables: str) -> None:
        capability_trials._known.clear()
        for name, value in variables.items():
            monkeypatch.setenv(f"SOFT_NVENC_{name}", value)

    yield use
    capability_trials._known.clear()
    capability_trials._known.update(before)


def found_for(codec: str = "h264") -> Capabilities:
    return capabilities_of(find_ffmpeg().path, Profile(codec=codec))


def source_of(tmp_path: Path, **made: Any) -> Path:
    return video(tmp_path / "a.mp4", **{"size": (320, 240), **made})


@pytest.mark.parametrize("codec", ENCODERS)
def test_the_trials_find_what_an_l4_has(codec: str) -> None:
    nvenc, software = ENCODERS[codec]
    works = {trial.name for trial in found_for(codec).trials if trial.works}
    assert works == {"nvdec h264", "scale_cuda", nvenc, f"scale_cuda to {nvenc}", software}


SOURCES: dict[str, dict[str, Any]] = {
    "bt709": {"colorspace": 1, "color_primaries": 1, "color_trc": 1},
    "variable": {"pts": variable_rate_pts(1, FRAMES, TICKS), "timebase": TICKS},
    "turned": {"rotation": 90},
    **({"10 bits": {"codec": "libx265", "pix_fmt": "yuv420p10le"}} if SWEEP else {}),
}


@pytest.mark.parametrize("codec", sample(["h264"], more=["hevc"]))
def test_each_source_shows_the_cpus_frames(codec: str, tmp_path: Path, asked: Asked) -> None:
    (tmp_path / "sources").mkdir()
    for name, made in SOURCES.items():
        video(tmp_path / "sources" / f"{name}.mp4", size=(320, 240), **made)
    found = prepared(tmp_path / "sources", tmp_path / "gpu", size=SIZE, codec=codec)
    expected = prepared(tmp_path / "sources", tmp_path / "cpu", size=SIZE, codec=codec, streams_per_gpu=0)
    for one, other in zip(found, expected, strict=True):
        assert numbers_of(one) == numbers_of(other)
        assert one.source_seconds(range(len(one))).tolist() == other.source_seconds(range(len(other))).tolist()
    encoders = [each["encoder"] for each in pipelines_of(tmp_path / "gpu")]
    assert encoders == [ENCODERS[codec][0]] * len(SOURCES)
    # Constant quality, GOPs of 8 with a keyframe forced where each starts, B-frames that no frame refers to, and
    # nothing that looks ahead.
    wanted = {
        "codec": codec, "gop_length": 8, "idr_period": 8, "interval_p": 4, "rate_control": 1, "quality": 23,
        "average_rate": 0, "most_rate": 0, "b_references": 0, "looks_ahead": 0, "strict_gop": 1,
    }  # fmt: skip
    sessions = asked()
    assert len(sessions) == len(SOURCES)
    for session in sessions:
        assert wanted.items() <= session.items()
        assert session["types"][:FRAMES] == "KBBBPBBPKBBBPBBP"
        assert session["forced"][:FRAMES] == "K.......K......."
    # Not known is 2.
    assert [1, 0, 1, 1, 1] in [session["colours"] for session in sessions]
    assert {session["entropy"] for session in sessions} == {2 if codec == "h264" else 0}
    patterns = [current_manifest(tmp_path / "gpu").pattern(0)]
    assert all(pattern.referenced == (True, True, False, False, False, True, False, False) for pattern in patterns)


@pytest.mark.parametrize("gop", sample([1, 4], more=[2, 3, 5]))
def test_short_gops(gop: int, tmp_path: Path, asked: Asked) -> None:
    """NVENC refuses GOPs that are no longer than the B-frames in a row and one more."""
    (found,) = prepared(source_of(tmp_path), tmp_path / "gpu", size=SIZE, gop=gop)
    assert pipelines_of(tmp_path / "gpu")[0]["encoder"] == "h264_nvenc"
    assert numbers_of(found) == list(range(FRAMES))
    (session,) = asked()
    assert (session["gop_length"], session["idr_period"]) == (gop, gop)
    starts = [frame for frame, kind in enumerate(session["types"]) if kind == "K"]
    assert starts == list(range(0, FRAMES, gop))


OTHERS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "a preset that looks ahead": ({}, {"preset": "p7"}),
    "P in place of B before a keyframe": ({"TAIL": "P"}, {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_gops_are_as_planned_with(name: str, tmp_path: Path, asked: Asked, machine: Machine) -> None:
    variables, options = OTHERS[name]
    machine(**variables)
    (found,) = prepared(source_of(tmp_path), tmp_path / "gpu", size=SIZE, gop=6, **options)
    assert pipelines_of(tmp_path / "gpu")[0]["encoder"] == "h264_nvenc"
    assert numbers_of(found) == list(range(FRAMES))
    (session,) = asked()
    assert session["types"] == ("KBBBPPKBBBPPKBBP" if not variables else "KBBBPPKBBBPPKPPP")
    assert session["looks_ahead"] == bool(options)


def test_a_chip_without_b_frames_in_hevc_makes_a_dataset_without(
    tmp_path: Path, asked: Asked, machine: Machine
) -> None:
    machine(CHIP="GTX 1650")
    found = found_for("hevc")
    assert found.detail("hevc_nvenc") == "this GPU's encoder takes 0 B-frames at most"
    assert "; without B-frames (this GPU's encoder takes 0" in choice_of(found)
    (made,) = prepared(source_of(tmp_path), tmp_path / "gpu", size=SIZE, codec="hevc")
    assert pipelines_of(tmp_path / "gpu")[0]["encoder"] == "hevc_nvenc"
    assert numbers_of(made) == list(range(FRAMES))
    (session,) = asked()
    assert session["types"] == "KPPPPPPPKPPPPPPP"


def test_an_old_driver_is_too_old_for_the_program_and_new_enough_for_pyav(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    machine(API="13.0")
    assert found_for().detail("h264_nvenc") == "NVENC of this ffmpeg needs driver 610.00 or newer"
    assert figures_of(gpu_ffmpeg.pyav_nvenc, tmp_path, monkeypatch)["NVENC"] == "h264_nvenc, hevc_nvenc encode"


def test_the_checks_say_whether_there_is_nvenc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    assert figures_of(gpu_ffmpeg.ffmpeg_nvenc, tmp_path, monkeypatch)["NVENC"] == "h264_nvenc, hevc_nvenc encode"
    machine(CHIP="H100")
    for check in (gpu_ffmpeg.ffmpeg_nvenc, gpu_ffmpeg.pyav_nvenc):
        assert figures_of(check, tmp_path, monkeypatch)["NVENC"] == "this GPU has no NVENC"


def test_that_a_chip_has_no_nvenc_is_known_where_the_driver_is_too_old_for_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    """The encoders name the driver alone. The driver in software states the compute capability of an H100."""
    machine(CHIP="H100", API="13.0")
    figures = figures_of(gpu_ffmpeg.ffmpeg_nvenc, tmp_path, monkeypatch)
    assert figures["h264_nvenc"] == "NVENC of this ffmpeg needs driver 610.00 or newer"
    assert figures["NVENC"] == "this GPU has no NVENC"


SESSION, MEMORY = "NVENC refused a session, as too many were open", "the GPU was out of memory"
# What fails from which call on and with what, why that is, and how often prep tries.
FAILING = {
    "no session on a GeForce": ("nvEncOpenEncodeSessionEx 0 21", SESSION, 3),
    "no memory in mid-encode": ("nvEncEncodePicture 9 10", MEMORY, 3),
    "no session": ("nvEncOpenEncodeSessionEx 0 10", SESSION, 3),
    "no memory for a session": ("nvEncInitializeEncoder 0 10", MEMORY, 3),
    "no memory for packets": ("nvEncCreateBitstreamBuffer 3 10", MEMORY, 3),
    "an error in mid-encode": ("nvEncEncodePicture 9 20", "EncodePicture failed!: generic error", 1),
    "no packet": ("nvEncLockBitstream 3 20", "Failed locking bitstream buffer: generic error", 1),
    "an error at the last packet": ("nvEncLockBitstream 15 20", "Failed locking bitstream buffer: generic error", 1),
    "a picture that is not taken": ("nvEncMapInputResource 2 16", "Error mapping an input resource: map failed", 1),
}


@pytest.mark.parametrize("name", sample(list(FAILING)[:2], more=list(FAILING)[2:]))
def test_nvenc_that_fails_leaves_the_source_to_the_cpu(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails, why, attempts = FAILING[name]
    source = source_of(tmp_path)
    found_for()
    for report in (tmp_path / "reports").iterdir():
        report.unlink()
    monkeypatch.setenv("SOFT_GPU_FAIL", fails)
    (found,) = prepared(source, tmp_path / "gpu", size=SIZE)
    monkeypatch.delenv("SOFT_GPU_FAIL")
    assert numbers_of(found) == list(range(FRAMES))
    (recorded,) = pipelines_of(tmp_path / "gpu")
    assert (recorded["decoding"], recorded["encoder"]) == ("software", "libx264")
    assert recorded["why"].startswith(f"the GPU failed: {why}")
    assert len(list((tmp_path / "reports").iterdir())) == attempts


def test_sessions_that_others_have_are_no_verdict_on_the_chip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    """A trial that is refused a session is made again with the next source."""
    monkeypatch.setattr(capability_trials, "_PAUSES_SECONDS", ())
    (tmp_path / "sessions").mkdir()
    source = source_of(tmp_path)
    machine(SESSIONS=f"1 {tmp_path / 'sessions'}")
    with (tmp_path / "sessions" / "session 0").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        prepared(source, tmp_path / "refused", size=SIZE)
        (recorded,) = pipelines_of(tmp_path / "refused")
        assert (recorded["decoding"], recorded["encoder"]) == ("nvdec", "libx264")
        assert recorded["why"] == f"h264_nvenc: {SESSION}"
    prepared(source, tmp_path / "taken", size=SIZE)
    assert pipelines_of(tmp_path / "taken")[0]["encoder"] == "h264_nvenc"


def test_the_checks_of_prep_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(gpu_prep.pipelines, tmp_path, monkeypatch)
    assert found["h264: nvdec, scale_cuda, h264_nvenc, without a download"] == "right; right"
    rates = checked(gpu_prep.speed, tmp_path, monkeypatch)
    assert rates["nvdec, scale_cuda, h264_nvenc, without a download, 2 at once: frames/s"] > 0
    quality = checked(gpu_prep.quality, tmp_path, monkeypatch)
    names = ["cpu", "nvdec, software, h264_nvenc", "nvdec, scale_cuda, libx264"]
    names.append("nvdec, scale_cuda, h264_nvenc, without a download")
    assert list(quality["h264: beside the CPU at equal bytes"]) == names
    assert [each["raised"] for each in (found, rates, quality)] == [""] * 3


def test_sessions_that_others_have_fail_a_check_of_prep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    """All that needs none is measured."""
    found_for()
    (tmp_path / "sessions").mkdir()
    monkeypatch.setenv("SOFT_NVENC_SESSIONS", f"1 {tmp_path / 'sessions'}")
    with (tmp_path / "sessions" / "session 0").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        found = checked(gpu_prep.speed, tmp_path, monkeypatch)
    assert "nvdec, scale_cuda, h264_nvenc, 1 at once: " in found["raised"]
    assert "OpenEncodeSessionEx failed: out of memory" in found["raised"]
    assert found["nvdec, scale_cuda, libx264, 2 at once: frames/s"] > 0
