"""Whole sources through the pipelines for GPUs, by an ffmpeg that does on the CPU what is asked of the GPU.

It is a program that prep starts as it starts the real one (`cuda_ffmpeg.py`). So all is as on a GPU but the frames'
memory, the GPU's scaler and its encoder: the trials, the choice, the command lines, the check of ffmpeg's report, the
check of each GOP, and what is done when a GPU fails.
"""

from __future__ import annotations

import json
import signal
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shortgop
from cuda_ffmpeg import (
    BITS_LOST,
    GPU_GONE,
    ILLEGAL_ADDRESS,
    LAUNCH_FAILED,
    LOST_DECODER,
    NO_DRIVER,
    NO_ENGINE,
    NO_MEMORY,
    NO_SESSION,
    OLD_DRIVER,
    SKIPS,
    GpuMachine,
    software_filters,
)
from datasets import current_manifest
from shortgop.jobs.named_options import prepare_without_warning
from shortgop.manifests.dataset_files.snapshots import open_current
from shortgop.manifests.operations.verify import verify
from shortgop.prep.profile import Profile
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.prep.tools.doctor import diagnose
from shortgop.prep.tools.gpu_filters import scaled_on_gpu
from shortgop.prep.tools.tool_choice import choose_ffmpeg
from shortgop.storage.disk import DiskStorage
from sweep import sample
from synthetic import SyntheticVideo, constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.long

RATE = Fraction(30)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SyntheticVideo:
    """Make a video in BT.709, of 100 frames at 30 per second."""
    path = tmp_path_factory.mktemp("source") / "clip.mp4"
    return make_video(
        path, pts=constant_rate_pts(RATE, 100), timebase=1 / RATE, size=(480, 320),
        colorspace=1, color_primaries=1, color_trc=1,
    )  # fmt: skip


def prepared(source: Path | str, out: Path, **options: Any) -> shortgop.Dataset:
    report = shortgop.prepare(str(source), out, runner="inline", **{"size": 160, "gop": 8, **options})
    assert report.failures == ()
    return shortgop.open(out)


def numbers(video: shortgop.Video) -> list[int]:
    # Borders, where there are any, are 40 pixels wide.
    border = 40 if video.metadata.width == 320 else 0
    return [read_number(frame[:, :, border : frame.shape[2] - border]) for frame in video[:]]


def pipelines(dataset: Path) -> list[dict[str, str]]:
    manifest = current_manifest(dataset)
    return [manifest.pipeline(int(config)) for config in manifest.videos.config]


# What each kind of GPU does


@pytest.mark.parametrize(
    ("has", "decoding", "scaling", "encoder"),
    [
        ({}, "nvdec", "scale_cuda", "h264_nvenc"),
        ({"nvenc": NO_ENGINE}, "nvdec", "scale_cuda", "libx264"),
        ({"scale_cuda": False}, "nvdec", "software", "h264_nvenc"),
        ({"nvdec": NO_DRIVER, "nvenc": NO_DRIVER}, "software", "software", "libx264"),
        ({"nvdec": "Cannot load libnvcuvid.so.1"}, "software", "software", "h264_nvenc"),
    ],
    ids=["L4", "H100", "earlier-ffmpeg", "cpu", "no-nvcuvid"],
)
def test_every_frame_is_right_whatever_the_gpu_has(
    has: dict[str, Any], decoding: str, scaling: str, encoder: str,
    gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path,
) -> None:  # fmt: skip
    gpu = gpu_machine(**has)
    (video,) = prepared(source.path, tmp_path / "dataset")
    assert numbers(video) == list(range(100))
    assert (video.metadata.width, video.metadata.height) == (240, 160)
    (recorded,) = pipelines(tmp_path / "dataset")
    assert (recorded["decoding"], recorded["scaling"], recorded["encoder"]) == (decoding, scaling, encoder)
    # One run, and its report of frames was as planned.
    (run,) = gpu.runs()
    assert ("-hwaccel" in run["argv"]) == (decoding == "nvdec")


@pytest.mark.parametrize(
    ("has", "options"),
    sample(
        [
            ({}, {"fps": 10}),
            ({}, {"fps": 50, "codec": "hevc"}),
            ({"nvenc": NO_ENGINE}, {"size": (320, 160), "fit": "pad", "b_frames": 0}),
        ],
        more=[({"nvenc": NO_ENGINE}, {"fps": 50})],
    ),
    ids=sample(["L4-10fps", "L4-50fps-hevc", "H100-pad"], more=["H100-50fps"]),
)
def test_the_grid_is_that_of_the_cpu(
    has: dict[str, Any],
    options: dict[str, Any],
    gpu_machine: GpuMachine,
    variable_video: SyntheticVideo,
    tmp_path: Path,
) -> None:
    """Variable rates, repeated and dropped frames: each tick shows the same frame of the source."""
    gpu_machine(**has)
    options = {"size": 160, **options}
    (video,) = prepared(variable_video.path, tmp_path / "gpu", upscale=True, **options)
    assert pipelines(tmp_path / "gpu")[0]["scaling"] == "scale_cuda"
    gpu_machine(nvdec=NO_DRIVER, nvenc=NO_DRIVER)
    (plain,) = prepared(variable_video.path, tmp_path / "cpu", upscale=True, **options)
    assert numbers(video) == numbers(plain)
    assert video.source_seconds(range(len(video))).tolist() == plain.source_seconds(range(len(plain))).tolist()


def test_stretches_of_a_file_are_cut_on_the_gpu_too(
    gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    gpu_machine()
    (tmp_path / "list.csv").write_text(f"path,start,end\n{source.path},0.5,1\n{source.path},2,2.4\n")
    first, second = prepared(tmp_path / "list.csv", tmp_path / "dataset", cuts="start,end")
    assert (numbers(first), numbers(second)) == (list(range(15, 30)), list(range(60, 72)))
    assert {each["encoder"] for each in pipelines(tmp_path / "dataset")} == {"h264_nvenc"}


@pytest.mark.parametrize("has", [{}, {"scale_cuda": False}], ids=["L4", "earlier-ffmpeg"])
def test_colours_are_those_of_the_cpu(
    has: dict[str, Any], gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    """The tags are equal; values differ by what two encoders and two ways to round differ by."""
    datasets = {}
    for name, gpu in {"gpu": has, "cpu": {"nvdec": NO_DRIVER, "nvenc": NO_DRIVER}}.items():
        gpu_machine(**gpu)
        datasets[name] = prepared(source.path, tmp_path / name, crf=10)
    configs = [current_manifest(tmp_path / name).config(0) for name in datasets]
    tags = [(config.primaries, config.transfer, config.matrix, config.full_range) for config in configs]
    assert tags[0] == tags[1] == (1, 1, 1, False)
    one, other = (np.asarray(dataset[0][::10], dtype=np.int16) for dataset in datasets.values())
    # A wrong matrix or range is off by 6 levels and more (tests/footage/test_colours.py).
    assert abs(one.mean() - other.mean()) < 0.5
    assert np.abs(one - other).mean() < 3


# What a source needs


def test_what_the_gpu_cannot_do_for_one_source_it_still_does_for_the_others(
    gpu_machine: GpuMachine, source: SyntheticVideo, rotated_video: SyntheticVideo, tmp_path: Path
) -> None:
    gpu_machine(nvenc=NO_ENGINE)
    (tmp_path / "list.csv").write_text(f"path\n{source.path}\n{rotated_video.path}\n")
    dataset = prepared(tmp_path / "list.csv", tmp_path / "dataset")
    assert [numbers(video) for video in dataset] == [list(range(100)), list(range(40))]
    assert [each["scaling"] for each in pipelines(tmp_path / "dataset")] == ["scale_cuda", "software"]
    assert pipelines(tmp_path / "dataset")[1]["why"].endswith("scaling: rotated")


def test_pictures_of_another_size_than_planned_are_not_scaled(tmp_path: Path) -> None:
    """Those that a stream crops at the left come out of NVDEC wider than out of a decoder on the CPU."""
    chain = software_filters(",".join(scaled_on_gpu((320, 240), (160, 120), downloads=True)))

    def status(width: int) -> int:
        argv = [find_ffmpeg().path, "-v", "quiet", "-f", "lavfi", "-i", f"testsrc2=size={width}x240"]
        return subprocess.run([*argv, "-frames:v", "1", "-vf", chain, "-f", "null", "-"], check=False).returncode

    assert status(320) == 0
    assert status(336) != 0


# GPUs that fail


@pytest.mark.parametrize(("refuse", "why"), [(NO_SESSION, "refused a session"), (NO_MEMORY, "out of memory")])
def test_a_session_that_is_refused_is_asked_for_again(
    refuse: str, why: str, gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    gpu = gpu_machine(refuse=refuse, refusals=2)
    (video,) = prepared(source.path, tmp_path / "dataset")
    assert numbers(video) == list(range(100))
    assert pipelines(tmp_path / "dataset")[0]["encoder"] == "h264_nvenc"
    assert [bool(run["said"]) for run in gpu.runs()] == [True, True, False]


def assert_left_to_the_cpu(source: SyntheticVideo, dataset: Path, why: str) -> None:
    (video,) = prepared(source.path, dataset)
    assert numbers(video) == list(range(100))
    (recorded,) = pipelines(dataset)
    assert (recorded["decoding"], recorded["encoder"]) == ("software", "libx264")
    assert recorded["why"] == f"the GPU failed: {why}"


@pytest.mark.parametrize(
    ("refuse", "why", "attempts"),
    [
        (NO_SESSION, "NVENC refused a session, as too many were open", 3),
        (NO_MEMORY, "the GPU was out of memory", 3),
        (LOST_DECODER, LOST_DECODER, 1),
    ],
)
def test_a_gpu_that_keeps_failing_leaves_the_source_to_the_cpu(
    refuse: str, why: str, attempts: int, gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    gpu = gpu_machine(refuse=refuse, refusals=9)
    assert_left_to_the_cpu(source, tmp_path / "dataset", why)
    assert [run["on_gpu"] for run in gpu.runs()] == [True] * attempts + [False]


@pytest.mark.parametrize(
    ("lost", "why", "attempts"),
    [
        ({"refuse": ILLEGAL_ADDRESS}, ILLEGAL_ADDRESS, 1),
        ({"refuse": BITS_LOST}, BITS_LOST, 1),
        ({"refuse": LAUNCH_FAILED}, LAUNCH_FAILED, 1),
        ({"refuse": GPU_GONE}, "no GPU was at hand", 1),
        ({"refuse": NO_MEMORY}, "the GPU was out of memory", 3),
        ({"refuse": "it crashes", "signal": signal.SIGSEGV}, "ffmpeg stalled or was killed", 3),
    ],
    ids=["address", "bits", "launch", "gone", "memory", "crash"],
)
def test_a_gpu_that_is_lost_within_a_source_leaves_it_to_the_cpu(
    lost: dict[str, Any], why: str, attempts: int, gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    """What it had made until then is of no use: the CPU begins at the first frame, and nothing twice is in the file."""
    gpu = gpu_machine(refusals=9, refuse_after=40, **lost)
    assert_left_to_the_cpu(source, tmp_path / "dataset", why)
    assert [run["on_gpu"] for run in gpu.runs()] == [True] * attempts + [False]
    dataset = DiskStorage(tmp_path / "dataset")
    assert list(verify(dataset, open_current(dataset)[1])) == []


def test_a_decoder_that_leaves_out_a_frame_is_noticed(
    gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    """ffmpeg's report of the frames that it shows is compared with the plan, as on the CPU."""
    gpu_machine(faults=SKIPS)
    (video,) = prepared(source.path, tmp_path / "dataset")
    assert numbers(video) == list(range(100))
    assert pipelines(tmp_path / "dataset")[0]["why"] == "the GPU failed: it showed other frames than planned"


def test_gops_that_are_not_as_planned_are_noticed(
    gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    """The same checks as for x264 decide whether the output of NVENC is taken."""
    gpu_machine(forced_keyframes=False)
    (video,) = prepared(source.path, tmp_path / "dataset")
    assert numbers(video) == list(range(100))
    (recorded,) = pipelines(tmp_path / "dataset")
    assert recorded["encoder"] == "libx264"
    # Where prep stops reading, ffmpeg may repeat its last frame, which its report tells as well.
    assert recorded["why"] in {
        "the GPU failed: its GOPs were not as planned", "the GPU failed: it showed other frames than planned",
    }  # fmt: skip


def test_a_gpu_that_hangs_leaves_the_source_to_the_cpu(
    gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    gpu_machine(session_seconds=60.0)
    (video,) = prepared(source.path, tmp_path / "dataset", max_stall=0.5)
    assert numbers(video) == list(range(100))
    assert pipelines(tmp_path / "dataset")[0]["why"] == "the GPU failed: ffmpeg stalled or was killed"


def test_a_chip_without_b_frames_makes_a_dataset_without(
    gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    gpu_machine(most_b_frames=0)
    (video,) = prepared(source.path, tmp_path / "dataset")
    assert numbers(video) == list(range(100))
    manifest = current_manifest(tmp_path / "dataset")
    assert pipelines(tmp_path / "dataset")[0]["encoder"] == "h264_nvenc"
    assert all(list(frames) == sorted(frames) for frames in (manifest.pattern(0).frames, manifest.pattern(1).frames))


def test_a_source_that_is_no_video_is_its_own_fault(gpu_machine: GpuMachine, tmp_path: Path) -> None:
    gpu_machine()
    (tmp_path / "bad.mp4").write_bytes(b"not a video" * 1000)
    report = prepare_without_warning(str(tmp_path / "bad.mp4"), tmp_path / "dataset", runner="inline")
    assert len(report.failures) == 1


def av1_with_late_grain(source: Path) -> Path:
    """Two seconds of AV1. The pictures of the first one are black, and have no film grain."""
    argv = [find_ffmpeg().path, "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x240:rate=30", "-frames:v", "60"]
    argv += ["-vf", "noise=alls=20:allf=t,drawbox=color=black:t=fill:enable='lt(n,30)'", "-pix_fmt", "yuv420p"]
    argv += ["-c:v", "libsvtav1", "-preset", "10", "-svtav1-params", "film-grain=20", str(source)]
    subprocess.run(argv, check=True, capture_output=True)
    return source


GRAINY = "the GPU failed: its pictures have film grain"


def test_av1_whose_film_grain_begins_late_is_decoded_on_the_cpu(gpu_machine: GpuMachine, tmp_path: Path) -> None:
    source, gpu = av1_with_late_grain(tmp_path / "late.mp4"), gpu_machine(nvenc=NO_ENGINE)
    (found,) = prepared(source, tmp_path / "gpu")
    assert "-hwaccel" in gpu.runs()[0]["argv"]
    assert pipelines(tmp_path / "gpu")[0]["why"].startswith(GRAINY)
    (expected,) = prepared(source, tmp_path / "cpu", streams_per_gpu=0)
    assert torch.equal(found[:], expected[:])


def test_a_run_with_nvdec_ends_soon_after_film_grain_begins(gpu_machine: GpuMachine, tmp_path: Path) -> None:
    """This one would go on, and fail for another reason."""
    gpu_machine(nvenc=NO_ENGINE, refusals=1, refuse="the film was too long", refuse_after=48)
    prepared(av1_with_late_grain(tmp_path / "late.mp4"), tmp_path / "dataset")
    assert pipelines(tmp_path / "dataset")[0]["why"].startswith(GRAINY)


# Which ffmpeg


def test_where_nvenc_of_one_ffmpeg_refuses_the_driver_another_is_used(
    gpu_ffmpegs: GpuMachine, monkeypatch: pytest.MonkeyPatch, source: SyntheticVideo, tmp_path: Path
) -> None:
    old, new = gpu_ffmpegs(nvenc=OLD_DRIVER), gpu_ffmpegs()
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(Path(old.path).parent), prepend=":")
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", new.path)
    find_ffmpeg.cache_clear()
    try:
        assert find_ffmpeg().path == old.path
        assert choose_ffmpeg(Profile()).path == new.path
        assert (
            choose_ffmpeg(Profile(), use_gpu=False).path == choose_ffmpeg(Profile(encoder="libx264")).path == old.path
        )
        (video,) = prepared(source.path, tmp_path / "dataset")
        assert numbers(video) == list(range(100))
        assert pipelines(tmp_path / "dataset")[0]["encoder"] == "h264_nvenc"
    finally:
        find_ffmpeg.cache_clear()


def test_where_no_ffmpeg_has_nvenc_x264_does_the_work_and_doctor_says_which_driver_would_do(
    gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    gpu_machine(nvenc=OLD_DRIVER)
    (video,) = prepared(source.path, tmp_path / "dataset")
    assert numbers(video) == list(range(100))
    (recorded,) = pipelines(tmp_path / "dataset")
    assert (recorded["decoding"], recorded["encoder"]) == ("nvdec", "libx264")
    assert "driver 610.00 or newer" in recorded["why"]
    (advice,) = diagnose().advice
    assert "driver 610.00 or newer" in advice


def test_doctor_tries_the_steps_and_says_what_an_ordinary_source_gets(gpu_machine: GpuMachine) -> None:
    gpu_machine(most_b_frames=0)
    diagnosis = diagnose()
    assert diagnosis.choices["h264"].startswith("h264_nvenc: decoding on the GPU, scaling on the GPU; without B-frames")
    assert {trial.name: trial.works for trial in diagnosis.trials}["scale_cuda to hevc_nvenc"]
    assert [report.codec for report in diagnosis.capabilities] == ["h264", "hevc", "av1"]
    # The report of a check has what ffmpeg said; to print it here as well would make this several times as long.
    assert "Max B-frames" in str(diagnosis.capabilities[0].to_json())
    assert "Max B-frames" not in json.dumps(diagnosis.to_json())


def test_without_streams_for_gpus_none_is_touched(
    gpu_machine: GpuMachine, source: SyntheticVideo, tmp_path: Path
) -> None:
    gpu = gpu_machine()
    prepared(source.path, tmp_path / "dataset", streams_per_gpu=0)
    assert '"on_gpu": true' not in gpu.log.read_text()
    assert pipelines(tmp_path / "dataset")[0]["why"] == "no GPU was at hand"
