"""What `make gpu-check` measures of prep, without a GPU: right datasets pass, and wrong ones are noticed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu_environment
import gpu_ffmpeg
import gpu_prep
import gpu_use
import pytest
from check_record import FailedOutOfTimeError, OutOfTime, Record, Skipped
from gpu_prep import at_bytes, beside, check_numbers, numbered_sources, pipelines_of, same_bytes
from gpu_use import most_of, use_of
from prep_errors import written

from cuda_ffmpeg import GREY, NO_ENGINE, NO_SESSION, SKIPS, Installed, install
from shortgop.prep.encode import plan_video
from shortgop.prep.options import Options
from shortgop.prep.probing.probe import probe
from shortgop.prep.profile import NVENC_ENCODERS, SOFTWARE_ENCODERS, Profile, Size
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.prep.tools.capabilities import Capabilities, Trial
from shortgop.prep.tools.capability_trials import capabilities_of
from shortgop.prep.tools.pipelines import Pipeline
from synthetic import constant_rate_pts, make_video

PROFILE = Profile(size=Size(short_side=160), gop_frames=8)


@pytest.fixture(scope="module")
def l4(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("bin"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "clip.mp4"
    make_video(path, pts=constant_rate_pts(gpu_prep.RATE, 20), timebase=1 / gpu_prep.RATE, size=(480, 320))
    return path


@pytest.fixture
def found_by_prep(l4: Installed, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, l4.path)
    find_ffmpeg.cache_clear()
    yield l4.path
    find_ffmpeg.cache_clear()


def test_every_pipeline_of_a_gpu_is_tried_and_makes_a_right_dataset(source: Path, found_by_prep: str) -> None:
    pipelines = pipelines_of(capabilities_of(found_by_prep, PROFILE), PROFILE)
    assert list(pipelines) == [
        "cpu",
        "software, software, h264_nvenc",
        "nvdec, software, libx264",
        "nvdec, software, h264_nvenc",
        "nvdec, scale_cuda, libx264",
        "nvdec, scale_cuda, h264_nvenc",
        "nvdec, scale_cuda, h264_nvenc, without a download",
    ]
    assert {
        name: check_numbers(source, each, PROFILE, found_by_prep) for name, each in pipelines.items()
    } == dict.fromkeys(pipelines, "right")


def test_what_nvdec_alone_changes_is_nothing(source: Path, found_by_prep: str) -> None:
    pipelines = pipelines_of(capabilities_of(found_by_prep, PROFILE), PROFILE)
    cpu, nvdec, encoded = (
        pipelines[name] for name in ("cpu", "nvdec, software, libx264", "nvdec, software, h264_nvenc")
    )
    assert same_bytes(source, nvdec, cpu, PROFILE, found_by_prep) == "equal"
    assert same_bytes(source, encoded, cpu, PROFILE, found_by_prep) == f"{source.name}: not the CPU's bytes"


def test_without_a_gpu_only_the_cpu_is_left() -> None:
    none = Capabilities("/ffmpeg", "9.0", "h264", None, 3, (Trial("libx264", works=True, detail="runs"),))
    assert list(pipelines_of(none, PROFILE)) == ["cpu"]


Checked = Callable[..., dict[str, Any]]


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checked]:
    """Run a check of prep, of little footage and one codec, on a machine with a GPU: the figures, whatever it raises,
    and that under "raised"."""
    for name, value in {
        "FRAMES": 12, "CODECS": ("h264",), "CRFS": {"h264": (19, 31), "av1": (29, 45)}, "JOBS_AT_ONCE": 2,
        "FOOTAGE": "mandelbrot=size=640x360:rate=30:end_pts=400", "FOOTAGE_FRAMES": 24, "SIZE": Size(short_side=160),
    }.items():  # fmt: skip
        monkeypatch.setattr(gpu_prep, name, value)
    for module in (gpu_prep, gpu_ffmpeg):
        monkeypatch.setattr(module, "require_gpu", lambda: None)

    def check(function: Any, seconds: float = 300, **has: Any) -> dict[str, Any]:
        folder = tmp_path / f"gpu{len(list(tmp_path.iterdir()))}"
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, install(folder, **has).path)
        find_ffmpeg.cache_clear()
        report, raised = folder / "report", ""
        try:
            function(Record(report, folder, seconds))
        except (RuntimeError, Skipped) as error:
            raised = f"{type(error).__name__}: {error}"
        lines = map(json.loads, report.read_text().splitlines())
        return {line["figure"]: line["value"] for line in lines} | {"raised": raised}

    yield check
    find_ffmpeg.cache_clear()


NO_GPU = {"nvdec": "Cannot load libnvcuvid.so.1", "nvenc": NO_ENGINE}


def test_where_no_step_runs_on_the_gpu_prep_was_not_checked_on_one(checked: Checked) -> None:
    """As with a GPU whose libraries for video ffmpeg does not find. The CPU's pipeline passes, which says nothing of
    the GPU."""
    found = checked(gpu_prep.pipelines, **NO_GPU)
    assert found["raised"].endswith("only the CPU's pipeline was checked")
    assert found["h264: cpu"] == "right; right"


@pytest.mark.long
def test_frames_per_second_are_told_of_each_pipeline(checked: Checked) -> None:
    found = checked(gpu_prep.speed, nvenc=NO_ENGINE)
    assert found["raised"] == ""
    rates = {name.removesuffix(": frames/s"): rate for name, rate in found.items() if name.endswith("frames/s")}
    pipelines = ("cpu", "nvdec, software, libx264", "nvdec, scale_cuda, libx264")
    assert {f"{name}, {at_once} at once" for name in pipelines for at_once in (1, 2)} <= set(rates)
    assert all(rate > 0 for rate in rates.values())


@pytest.mark.long
@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_quality_is_told_of_each_scaler_and_encoder(
    codec: str, checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What else differs between pipelines changes no picture: the last is measured, which has most of it on the GPU."""
    monkeypatch.setattr(gpu_prep, "CODECS", (codec,))
    found = checked(gpu_prep.quality)
    assert found["raised"] == ""
    nvenc, software = NVENC_ENCODERS[codec], SOFTWARE_ENCODERS[codec]
    names = [
        "cpu",
        f"nvdec, software, {nvenc}",
        f"nvdec, scale_cuda, {software}",
        f"nvdec, scale_cuda, {nvenc}, without a download",
    ]
    assert list(found[f"{codec}: beside the CPU at equal bytes"]) == names
    for name in names:
        fine, coarse = found[f"{codec}: {name}"]
        assert all(fine[each] > coarse[each] for each in ("bytes", "psnr", "vmaf"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("check", "rest", "refusals"),
    [(gpu_prep.speed, "cpu, 2 at once: frames/s", 1), (gpu_prep.quality, "h264: cpu", 99)],
)
def test_a_session_that_is_refused_is_told_and_all_else_is_measured(
    check: Any, rest: str, refusals: int, checked: Checked
) -> None:
    """Nothing is replaced by the CPU."""
    found = checked(check, refuse=NO_SESSION, refusals=refusals)
    assert found["raised"].startswith("RuntimeError: ")
    assert "OpenEncodeSessionEx failed: out of memory" in found["raised"]
    assert rest in found


@pytest.mark.long
def test_quality_that_was_refused_side_by_side_is_measured_alone(checked: Checked) -> None:
    """As by a GPU that lets in one process at a time."""
    found = checked(gpu_prep.quality, refuse=NO_SESSION, refusals=3)
    assert found["raised"] == ""
    assert len(found["h264: beside the CPU at equal bytes"]) == 4


@pytest.mark.long
def test_wrong_frames_fail_each_check(checked: Checked) -> None:
    """One that is left out, and one that shows nothing."""
    for check in (gpu_prep.pipelines, gpu_prep.speed, gpu_prep.quality):
        raised = checked(check, nvenc=NO_ENGINE, faults=SKIPS)["raised"]
        assert "nvdec, scale_cuda, libx264" in raised
        assert "ffmpeg showed other frames than planned" in raised
    assert "no anchor" in checked(gpu_prep.pipelines, nvenc=NO_ENGINE, faults=GREY)["raised"]
    raised = checked(gpu_prep.quality, nvenc=NO_ENGINE, faults=GREY)["raised"]
    assert "h264, nvdec, scale_cuda, libx264: a frame is another picture" in raised


@pytest.mark.parametrize("check", [gpu_prep.pipelines, gpu_prep.speed, gpu_prep.quality])
def test_what_there_is_no_time_for_is_named(check: Any, checked: Checked) -> None:
    found = checked(check, seconds=0, **NO_GPU)
    assert found["raised"].startswith(f"{OutOfTime.__name__}: there was no time to measure ")
    assert "h264" in found["raised"] or "cpu, 1 at once; cpu, 2 at once" in found["raised"]


def test_pipelines_are_checked_until_what_took_longest_so_far_would_not_end_in_time(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a second, and 2.7 s are left behind the five of a check's end."""

    def a_second(*_: Any) -> str:
        time.sleep(1)
        return "right"

    found = {codec: Capabilities("/ffmpeg", "9.0", codec, None, 3, ()) for codec in ("h264", "hevc", "av1")}
    for name, value in {
        "CODECS": tuple(found), "numbered_sources": lambda folder: [folder],
        "capabilities_of": lambda _ffmpeg, profile, **_: found[profile.codec],
        "check_numbers": a_second,
    }.items():  # fmt: skip
        monkeypatch.setattr(gpu_prep, name, value)
    figures = checked(gpu_prep.pipelines, seconds=5 + 2.7)
    assert (figures["h264: cpu"], figures["hevc: cpu"]) == ("right", "right")
    assert figures["raised"] == "OutOfTime: there was no time to measure av1: cpu"


def test_what_had_no_time_is_named_beside_what_failed() -> None:
    with pytest.raises(FailedOutOfTimeError, match="h264: wrong frames; there was no time to measure hevc; av1"):
        gpu_prep.end(["h264: wrong frames"], ["hevc", "av1"])


@pytest.mark.long
def test_a_pipeline_that_fails_is_reported_and_not_replaced_by_the_cpu(source: Path, tmp_path: Path) -> None:
    skipping = install(tmp_path / "skipping", faults=SKIPS)
    gpu = Pipeline("nvdec", "scale_cuda", "libx264", downloads=True)
    other = "ffmpeg showed other frames than planned, from 0.100 s on"
    assert check_numbers(source, gpu, PROFILE, skipping.path).startswith(f"clip.mp4: {other}; it wrote KBBBPBBPK")
    refusing = install(tmp_path / "refusing", refuse="no such thing\nas this", refusals=2)
    assert check_numbers(source, gpu, PROFILE, refusing.path).endswith(
        "ffmpeg failed: no such thing; ffmpeg said: [h264_nvenc @ 0x55] as this"
    )
    assert "no such thing" in same_bytes(source, gpu, Pipeline(), PROFILE, refusing.path)


def test_of_gops_that_are_not_as_planned_it_is_said_what_was_written(source: Path, tmp_path: Path) -> None:
    """GOPs of 7 frames in place of 8."""
    deaf = install(tmp_path / "deaf", forced_keyframes=False)
    said = check_numbers(source, Pipeline(encoder="h264_nvenc"), PROFILE, deaf.path)
    assert "it wrote KBBBPBPKBBBPBPKBBBPP as they are shown, and 0K 4 1 2 3 6 5 7K 11 8" in said


def test_of_an_ffmpeg_that_writes_nothing_its_words_are_told(source: Path, tmp_path: Path) -> None:
    encode = plan_video(probe(str(source)), Options(PROFILE), find_ffmpeg().path).encode
    lacking = install(tmp_path / "lacking", nvenc=NO_ENGINE)
    said = written(replace(encode, pipeline=Pipeline(encoder="h264_nvenc")), lacking.path)
    assert said.startswith("nothing that can be read: ")
    assert re.search(r"and ffmpeg ended with [1-9]\d*: .*unsupported device", said)


def test_what_was_written_is_told_of_an_ffmpeg_that_runs_as_in_prep(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVT-AV1 would describe its settings on standard error."""
    monkeypatch.delenv("SVT_LOG", raising=False)
    profile = replace(PROFILE, codec="av1", crf=35, b_frames=1)
    encode = plan_video(probe(str(source)), Options(profile), find_ffmpeg().path).encode
    encode = replace(encode, pipeline=Pipeline(encoder="libsvtav1", preset="12", b_frames=1))
    assert written(encode, find_ffmpeg().path).endswith(" as they are decoded")


def test_the_checks_have_what_ffmpeg_said_of_a_step_that_fails(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_ffmpeg, "chip_lacks_nvenc", lambda: True)
    assert "Cannot load libnvcuvid.so.1" in str(checked(gpu_ffmpeg.ffmpeg_nvdec, **NO_GPU)["ffmpeg said"])
    found = checked(gpu_ffmpeg.ffmpeg_nvenc, **NO_GPU)
    assert "unsupported device (2)" in str(found["ffmpeg said of h264_nvenc"])


@pytest.mark.long
def test_the_sources_have_constant_and_variable_rates(tmp_path: Path) -> None:
    ffmpeg = find_ffmpeg().path
    for made in numbered_sources(tmp_path):
        assert check_numbers(made, Pipeline(preset="ultrafast"), PROFILE, ffmpeg) == "right"


def test_bytes_psnr_and_vmaf_of_a_dataset(source: Path) -> None:
    ffmpeg = find_ffmpeg().path
    fine, coarse = (
        gpu_prep.measured(source, Pipeline(), Profile(size=PROFILE.size, crf=crf), ffmpeg) for crf in (15, 40)
    )
    assert fine["bytes"] > coarse["bytes"]
    assert fine["psnr"] > coarse["psnr"] > 20
    assert fine["vmaf"] > coarse["vmaf"]


def test_quality_is_compared_at_equal_bytes() -> None:
    """Twice the bytes are half the way to four times the bytes."""
    assert at_bytes([(1000, 30.0), (4000, 40.0)], 2000) == pytest.approx(35)
    assert at_bytes([(4000, 40.0), (1000, 30.0)], 4001) is None
    points = {
        "cpu": [{"bytes": 4000.0, "psnr": 40.0, "vmaf": 90.0}, {"bytes": 1000.0, "psnr": 30.0, "vmaf": 70.0}],
        "nvenc": [{"bytes": 9000.0, "psnr": 41.0, "vmaf": 91.0}, {"bytes": 2000.0, "psnr": 34.0, "vmaf": 81.0}],
    }
    assert beside(points, "cpu")["nvenc"] == {"psnr": -1.0, "vmaf": 1.0}


def test_what_nvidia_smi_prints_is_read() -> None:
    use = use_of("45, 0, 98, 1234\n12, [N/A], 99, 1300\nNo devices were found\n")
    assert use[1] == {"utilization.gpu": 12, "utilization.decoder": 99, "memory.used": 1300}
    assert most_of(use) == {
        "utilization.gpu": 45, "utilization.encoder": 0, "utilization.decoder": 99, "memory.used": 1300,
    }  # fmt: skip
    assert most_of([]) == {}


def test_nvidia_smi_is_asked_also_where_it_lies_beside_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '45, 0, 98, 1234'\n")
    program.chmod(0o755)
    monkeypatch.setattr(gpu_environment, "MORE_PROGRAMS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(gpu_use, "_LOOK_SECONDS", 0.01)
    with gpu_use.engines() as use:
        deadline = time.monotonic() + 60
        while not use and time.monotonic() < deadline:
            time.sleep(0.01)
    assert use[0]["utilization.decoder"] == 98


@pytest.mark.parametrize("does", ["exit 1", "exec sleep 30"])
def test_an_nvidia_smi_that_gives_nothing_is_asked_once_and_not_waited_for(
    does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/log\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(gpu_use, "_LOOK_SECONDS", 0.01)
    started = time.monotonic()
    with gpu_use.engines() as use:
        time.sleep(0.5)
    assert time.monotonic() - started < 25
    assert (use, (tmp_path / "log").read_text()) == ([], "asked\n")


def test_frames_per_second_of_several_at_once(source: Path) -> None:
    assert gpu_prep.frames_per_second(source, Pipeline(preset="ultrafast"), PROFILE, find_ffmpeg().path, 2) > 0
