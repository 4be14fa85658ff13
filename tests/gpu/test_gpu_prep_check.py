"""What `make gpu-check` measures of prep, without a GPU: right datasets pass, and wrong ones are noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gpu_ffmpeg
import gpu_prep
import pytest
from check_record import Record, Skipped
from gpu_prep import at_bytes, beside, check_numbers, most_of, numbered_sources, pipelines_of, same_bytes, use_of

from cuda_ffmpeg import Installed, install
from shortgop.prep.profile import Profile, Size
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


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="this machine may have a GPU")
def test_where_no_step_runs_on_the_gpu_prep_was_not_checked_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a GPU whose libraries for video ffmpeg does not find. The CPU's pipeline passes, which says nothing of
    the GPU."""
    monkeypatch.setattr(gpu_prep, "FRAMES", 12)
    monkeypatch.setattr(gpu_prep, "CODECS", ("h264",))
    for module in (gpu_prep, gpu_ffmpeg):
        monkeypatch.setattr(module, "require_gpu", lambda: None)
    record = Record(tmp_path / "report", tmp_path)
    with pytest.raises(Skipped, match="only the CPU's pipeline was checked"):
        gpu_prep.pipelines(record)
    assert '"h264: cpu", "value": "right; right"' in (tmp_path / "report").read_text()


@pytest.mark.long
def test_a_pipeline_that_fails_is_reported_and_not_replaced_by_the_cpu(source: Path, tmp_path: Path) -> None:
    skipping = install(tmp_path / "skipping", skips=True)
    gpu = Pipeline("nvdec", "scale_cuda", "libx264", downloads=True)
    assert check_numbers(source, gpu, PROFILE, skipping.path).endswith("ffmpeg showed other frames than planned")
    refusing = install(tmp_path / "refusing", refuse="no such thing", refusals=1)
    assert "no such thing" in check_numbers(source, gpu, PROFILE, refusing.path)


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


def test_frames_per_second_of_several_at_once(source: Path) -> None:
    assert gpu_prep.frames_per_second(source, Pipeline(preset="ultrafast"), PROFILE, find_ffmpeg().path, 2) > 0
