"""Cases of NVENC on the driver in software that take long: `make sweep` runs them, by `test_soft_gpu.py`."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import gpu_prep
import pytest

import shortgop
from shortgop.jobs.prepare import Where, prepare
from shortgop.prep.profile import Profile, Size
from shortgop.storage.disk import DiskStorage
from soft_nvenc import ENCODERS, SIZE, asked_of_nvenc, figures_of
from soft_prep import RATE, Reports, numbers_of, pipelines_of, reported, video
from synthetic import constant_rate_pts


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reports]:
    with reported(tmp_path / "reports", monkeypatch) as counted:
        yield counted


def test_sections_by_a_named_nvenc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_of_nvenc(tmp_path / "asked", monkeypatch)
    options = {"qp": "10", "preset": "ultrafast"}
    source = video(tmp_path / "long.mp4", size=(320, 256), pts=constant_rate_pts(RATE, 200), gop=16, options=options)
    profile = Profile(size=Size(short_side=SIZE), segment_seconds=Fraction(1, 2), encoder="h264_nvenc")
    prepare([str(source)], DiskStorage(tmp_path / "gpu"), profile, where=Where("inline"), section_seconds=0.01)
    assert len(asked()) > 1
    assert all(session["types"].startswith("KBBBPBB") for session in asked())
    (found,) = shortgop.open(tmp_path / "gpu")
    assert numbers_of(found) == list(range(200))
    assert {each["encoder"] for each in pipelines_of(tmp_path / "gpu")} == {"h264_nvenc"}


@pytest.mark.parametrize("codec", ENCODERS)
def test_prep_pipelines_passes(codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of `make gpu-check`: each pipeline by itself."""
    monkeypatch.setattr(gpu_prep, "FRAMES", 12)
    monkeypatch.setattr(gpu_prep, "CODECS", (codec,))
    figures = figures_of(gpu_prep.pipelines, tmp_path, monkeypatch)
    nvenc = ENCODERS[codec][0]
    assert figures[f"{codec}: nvdec, scale_cuda, {nvenc}, without a download"] == "right; right"
    assert figures[f"{codec}: software, software, {nvenc}"] == "right; right"
