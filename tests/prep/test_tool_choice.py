"""Which ffmpeg prep takes where one lacks an encoder, and which presets an encoder does not get."""

from __future__ import annotations

import sys
from pathlib import Path

import imageio_ffmpeg
import pytest

import shortgop
from datasets import make_dataset
from shortgop.errors import ToolError
from shortgop.prep.probing.pyav_version import check_pyav
from shortgop.prep.profile import Profile, changed_profile
from shortgop.prep.running.ffmpeg import ENVIRONMENT_VARIABLE, Ffmpeg, find_ffmpeg
from shortgop.prep.running.gpu_errors import NO_ENCODER
from shortgop.prep.running.processes import Finished
from shortgop.prep.tools import capability_trials, tool_choice
from shortgop.prep.tools.capabilities import SCALING, Capabilities, Trial, nvdec
from shortgop.prep.tools.capability_trials import try_encoder
from shortgop.prep.tools.doctor import diagnose
from shortgop.prep.tools.tool_choice import check_tools, choose_ffmpeg
from synthetic import SyntheticVideo, read_number

AV1 = changed_profile(None, {"codec": "av1"})
# FFmpeg as a distribution may build it: what it lists and takes has no libsvtav1.
WITHOUT_SVT = """#!{python}
import subprocess, sys
argv = [{ffmpeg!r}, *sys.argv[1:]]
if "libsvtav1" in argv:
    sys.exit("Unrecognized option 'svtav1-params'.")
if "-encoders" in argv:
    listed = subprocess.run(argv, capture_output=True, text=True).stdout
    print("\\n".join(line for line in listed.splitlines() if "libsvtav1" not in line))
    sys.exit()
sys.exit(subprocess.run(argv).returncode)
"""


@pytest.fixture
def without_svt(tmp_path: Path) -> Path:
    path = tmp_path / "distribution" / "ffmpeg"
    path.parent.mkdir()
    path.write_text(WITHOUT_SVT.format(python=sys.executable, ffmpeg=imageio_ffmpeg.get_ffmpeg_exe()))
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _looks_again() -> object:
    find_ffmpeg.cache_clear()
    yield
    find_ffmpeg.cache_clear()


def test_an_ffmpeg_that_has_the_encoder_is_taken_where_the_first_one_lacks_it(
    without_svt: Path, monkeypatch: pytest.MonkeyPatch, constant_video: SyntheticVideo, tmp_path: Path
) -> None:
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(without_svt.parent), prepend=":")
    assert choose_ffmpeg(Profile()).path == str(without_svt)
    assert choose_ffmpeg(AV1).path == choose_ffmpeg(AV1, use_gpu=False).path == imageio_ffmpeg.get_ffmpeg_exe()
    make_dataset([constant_video.path], tmp_path / "dataset", codec="av1", preset="12")
    (video,) = shortgop.open(tmp_path / "dataset")
    assert read_number(video[30]) == 30


def test_at_a_gpu_an_ffmpeg_that_encodes_comes_before_one_that_only_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an H100 with an ffmpeg of a distribution that uses its NVDEC, and has no libsvtav1."""
    decodes, encodes = (Ffmpeg(path, "9.0", "PATH") for path in ("/decodes", "/encodes"))
    trials = {
        "/decodes": (Trial(nvdec("h264"), works=True, detail="runs"), Trial(SCALING, works=True, detail="runs")),
        "/encodes": (Trial("libsvtav1", works=True, detail="runs"),),
    }
    no_nvenc = Trial("av1_nvenc", works=False, detail=NO_ENCODER)

    def found(path: str, profile: Profile) -> Capabilities:
        return Capabilities(path, "9.0", profile.codec, None, profile.b_frames, (no_nvenc, *trials[path]))

    monkeypatch.setattr(tool_choice, "find_ffmpeg", lambda _encoder: encodes)
    monkeypatch.setattr(tool_choice, "usable_ffmpegs", lambda: iter((decodes, encodes)))
    monkeypatch.setattr(tool_choice, "capabilities_of", found)
    assert choose_ffmpeg(AV1) == encodes
    trials["/decodes"] += trials["/encodes"]
    assert choose_ffmpeg(AV1) == decodes


def test_where_no_ffmpeg_has_it_the_other_codecs_are_encoded_and_the_reason_is_said(
    without_svt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(without_svt))
    said = (
        r"libsvtav1 \(this ffmpeg has no encoder libsvtav1\) runs with .*; run `pip install -U imageio-ffmpeg`, or set"
    )
    with pytest.raises(ToolError, match=said):
        check_tools(AV1)
    found = diagnose()
    assert found.choices["h264"].startswith("libx264: ")
    assert found.choices["av1"].startswith("none: ")


@pytest.mark.parametrize("installed", ["15.1.0", "17.1.0", "19.0.2"])
def test_another_release_of_pyav_is_refused_before_anything_is_read(installed: str) -> None:
    """It reads some files otherwise: `make versions` compares what reads datasets, not what prepares them."""
    with pytest.raises(ToolError, match=rf"PyAV is {installed} here, and prep needs PyAV 18: pip install 'av>=18,<19'"):
        check_pyav(installed)
    check_pyav("18.2.0")
    check_pyav()


def test_presets_of_svt_av1_are_numbers_and_those_of_nvenc_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """ffmpeg takes any number for NVENC, for another preset than SVT-AV1 has by it."""
    with pytest.raises(ToolError, match=r"presets are 0 \(slowest\) to 13, and medium is none of them"):
        check_tools(changed_profile(AV1, {"preset": "medium"}))
    monkeypatch.setattr(capability_trials, "run_trial", lambda *_, **__: Finished(0, b"", b""))
    monkeypatch.setattr(capability_trials, "_known", {})
    refused = try_encoder("/ffmpeg with a GPU", "av1_nvenc", "6", 1)
    assert (refused.works, refused.detail) == (
        False,
        "its presets are p1, p2, p3, p4, p5, p6, p7, slow, medium, fast, and 6 is none of them",
    )
    assert try_encoder("/ffmpeg with a GPU", "av1_nvenc", "p6", 1).works
