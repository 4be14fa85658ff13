"""Sections of long sources that a GPU decodes are those of the CPU, by the ffmpeg of `cuda_ffmpeg.py`."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shortgop
from cuda_ffmpeg import LOST_DECODER, NO_DRIVER, NO_ENGINE, SKIPS, GpuMachine
from datasets import rows_of
from long_sources import FRAMES, assert_undisturbed, make_sources, run_in_sections
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.profile import Profile, Size
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, find_ffmpeg
from shortgop.storage.disk import DiskStorage
from sweep import sample
from synthetic import constant_rate_pts, make_video, read_number

pytestmark = pytest.mark.long

RATE = Fraction(30)


@pytest.fixture(scope="module")
def long_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a video that is encoded in four sections."""
    return make_sources(tmp_path_factory.mktemp("long")) / "long.mp4"


@pytest.fixture(scope="module")
def on_cpu(long_source: Path, gpu_ffmpegs: GpuMachine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the dataset of the long source that a machine without a GPU makes."""
    dataset = tmp_path_factory.mktemp("on_cpu") / "dataset"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT_VARIABLE, gpu_ffmpegs(nvdec=NO_DRIVER, nvenc=NO_DRIVER).path)
        find_ffmpeg.cache_clear()
        run_in_sections(long_source, dataset)
    find_ffmpeg.cache_clear()
    return dataset


@pytest.mark.parametrize(
    "has",
    # An encoder on the GPU is of no account. What fails for another reason is done again in the same way.
    sample(
        [{}, {"faults": SKIPS}],
        more=[
            {"nvenc": NO_ENGINE}, {"refuse": LOST_DECODER, "refusals": 1000}, {"nvdec": "Cannot load libnvcuvid.so.1"},
        ],
    ),
    ids=sample(["L4", "leaves-out-a-frame"], more=["H100", "fails", "no-nvcuvid"]),
)  # fmt: skip
def test_sections_that_a_gpu_decodes_are_those_of_the_cpu_byte_for_byte(
    has: dict[str, Any], long_source: Path, on_cpu: Path, gpu_machine: GpuMachine, tmp_path: Path
) -> None:
    """Machines with and without a GPU encode sections of the same video: no seam may be seen."""
    gpu = gpu_machine(**has)
    run_in_sections(long_source, tmp_path / "gpu")
    runs = gpu.runs()
    assert any(run["on_gpu"] for run in runs) == ("nvdec" not in has)
    assert all("libx264" in run["argv"] and "scale_cuda" not in " ".join(run["argv"]) for run in runs)
    assert_undisturbed(tmp_path / "gpu", on_cpu)
    (video,) = shortgop.open(tmp_path / "gpu")
    assert [read_number(frame) for frame in video[:]] == list(range(FRAMES))


def test_a_section_whose_decoder_need_not_agree_with_others_is_decoded_on_the_cpu(
    gpu_machine: GpuMachine, tmp_path: Path
) -> None:
    """MPEG-2 leaves the inverse transform to the decoder."""
    path = tmp_path / "long.mkv"
    make_video(
        path, pts=constant_rate_pts(RATE, FRAMES), timebase=1 / RATE, size=(320, 256), gop=30, codec="mpeg2video"
    )  # fmt: skip
    gpu = gpu_machine()
    run_in_sections(path, tmp_path / "dataset")
    assert len(gpu.runs()) > 1
    assert not any(run["on_gpu"] for run in gpu.runs())


@pytest.mark.parametrize(
    "of_source",
    [{"size": (326, 186)}, {"rotation": 90}, {"color_range": 2, "colorspace": 5}],
    ids=["odd-size", "rotated", "full-range"],
)
def test_what_filters_make_of_pictures_from_a_gpu_is_what_they_make_of_others(
    of_source: dict[str, Any], gpu_machine: GpuMachine, tmp_path: Path
) -> None:
    """NVDEC gives NV12, and decoders on the CPU planes."""
    path = tmp_path / "long.mp4"
    options = {"size": (320, 256), "options": {"qp": "10", "preset": "ultrafast"}, **of_source}
    make_video(path, pts=constant_rate_pts(RATE, 200), timebase=1 / RATE, gop=30, **options)
    profile = Profile(size=Size(short_side=98), segment_seconds=Fraction(1, 2))
    for name, has in (("gpu", {}), ("cpu", {"nvdec": NO_DRIVER, "nvenc": NO_DRIVER})):
        gpu = gpu_machine(**has)
        prepare([str(path)], DiskStorage(tmp_path / name), profile, where=Where("inline"), section_seconds=0.01)
        assert len(gpu.runs()) > 1
        assert all(run["on_gpu"] for run in gpu.runs()) == (name == "gpu")
    assert rows_of(tmp_path / "gpu") == rows_of(tmp_path / "cpu")
