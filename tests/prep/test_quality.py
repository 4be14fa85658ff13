"""Quality of clips beside their sources: figures that numpy finds too, and none where pictures would be others."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import shortgop
from datasets import current_manifest, make_dataset
from odd_pictures import h264_packets, timed
from shortgop.errors import SourceError
from shortgop.manifests.dataset_files.root_file import read_root
from shortgop.prep.picture_quality import Quality, quality_of
from shortgop.prep.profile import parse_size, profile_from_json
from shortgop.reporting.dataset_report import read_page
from shortgop.reporting.page_html import page_html
from shortgop.reporting.page_plan import Clip, Strip, median_quality
from shortgop.storage.disk import DiskStorage
from synthetic import SyntheticVideo, constant_rate_pts, make_video

RATE = Fraction(30)
FRAMES = [3, 18, 33, 48]
SOFTWARE = {"decoding": "software", "scaling": "software", "encoder": "libx264"}


def make_source(path: Path, *, x264: str = "", **others: Any) -> Path:
    """Three seconds in long GOPs, of a better quality than any dataset here."""
    options = {"crf": "5"} | ({"x264-params": x264} if x264 else {})
    pts = constant_rate_pts(RATE, 90)
    make_video(path, pts=pts, timebase=1 / RATE, gop=50, options=options, size=(192, 128), **others)
    return path


def planes_of_source(path: Path) -> Any:
    """The samples of these frames as they are decoded, as `quality_of` takes them."""
    with av.open(str(path)) as container:
        pictures = [frame.to_ndarray(format="yuv420p") for frame in container.decode(video=0)]
    return np.stack([pictures[number] for number in FRAMES])


def quality_in(dataset: Path, source: Path, **others: Any) -> Quality:
    """The quality of these frames of a dataset's only video."""
    video = shortgop.open(dataset, color="yuv420")[0]
    planes = video.get_frames_at(FRAMES).data.numpy()[:, 0]
    profile = profile_from_json(dict(read_root(DiskStorage(dataset)).profile))
    given: dict[str, Any] = {
        "pipeline": current_manifest(dataset).pipeline(0),
        "source_pts": video.source_pts(FRAMES).numpy(),
    } | others
    return quality_of(str(source), profile, given["pipeline"], given["source_pts"], planes)


def test_psnr_is_that_of_the_decoded_frames(tmp_path: Path) -> None:
    """The dataset keeps the size, so its frames can be compared with the source's as they are."""
    source = make_source(tmp_path / "a.mp4")
    make_dataset([source], tmp_path / "dataset", crf=35)
    stored = shortgop.open(tmp_path / "dataset", color="yuv420")[0].get_frames_at(FRAMES).data.numpy()[:, 0]
    luma = np.s_[:, :128]
    error = np.square(stored[luma].astype(float) - planes_of_source(source)[luma]).mean()
    found = quality_in(tmp_path / "dataset", source)
    assert found.psnr_db == pytest.approx(10 * math.log10(255**2 / error), abs=0.02)
    assert found.frames == 4
    assert 0.5 < found.ssim < 1


def test_the_source_itself_is_infinitely_good(tmp_path: Path) -> None:
    source = make_source(tmp_path / "a.mp4")
    make_dataset([source], tmp_path / "dataset")
    profile = profile_from_json(dict(read_root(DiskStorage(tmp_path / "dataset")).profile))
    pts = shortgop.open(tmp_path / "dataset")[0].source_pts(FRAMES).numpy()
    found = quality_of(str(source), profile, SOFTWARE, pts, planes_of_source(source))
    assert found == Quality(math.inf, 1.0, 4)


def test_other_frames_than_those_shown_are_far_worse(tmp_path: Path) -> None:
    source = make_source(tmp_path / "a.mp4")
    make_dataset([source], tmp_path / "dataset")
    pts = shortgop.open(tmp_path / "dataset")[0].source_pts([number + 1 for number in FRAMES]).numpy()
    found, other = (quality_in(tmp_path / "dataset", source, **more) for more in ({}, {"source_pts": pts}))
    assert found.psnr_db > other.psnr_db + 5


@pytest.mark.first_case_short
@pytest.mark.parametrize(
    ("options", "profile"),
    [
        ({"rotation": 90}, {}),
        ({"sample_aspect_ratio": Fraction(4, 3)}, {"size": parse_size("64")}),
        ({"pix_fmt": "yuv422p"}, {"size": parse_size("96x96")}),
        ({"color_trc": 16, "color_primaries": 9, "colorspace": 9, "pix_fmt": "yuv420p10le"}, {}),
        ({}, {"fps": Fraction(60)}),
        ({"codec": "libx265"}, {"size": parse_size("64"), "codec": "hevc"}),
    ],
    ids=["rotated", "wide pixels", "4:2:2", "HDR", "every frame twice", "HEVC"],
)
def test_what_prep_did_to_the_pictures_is_done_again(
    tmp_path: Path, options: dict[str, Any], profile: dict[str, Any]
) -> None:
    source = make_source(tmp_path / "a.mp4", **options)
    assert make_dataset([source], tmp_path / "dataset", crf=12, **profile).failures == ()
    found = quality_in(tmp_path / "dataset", source)
    assert found.psnr_db > 35
    assert found.ssim > 0.97
    # Every second one of the frames at twice the rate shows another source frame.
    assert found.frames == 4


def test_what_cannot_be_repeated_is_not_measured(tmp_path: Path) -> None:
    source = make_source(tmp_path / "a.mp4")
    make_dataset([source], tmp_path / "dataset")
    with pytest.raises(SourceError, match="a GPU decoded or scaled the source"):
        quality_in(tmp_path / "dataset", source, pipeline=SOFTWARE | {"scaling": "scale_cuda"})
    with pytest.raises(SourceError, match="not recorded what decoded and scaled"):
        quality_in(tmp_path / "dataset", source, pipeline={})
    with pytest.raises(SourceError, match="no frames at these times"):
        quality_in(tmp_path / "dataset", source, source_pts=np.array([1, 2, 3, 4]) * 10**6)
    with pytest.raises(SourceError, match="two fields"):
        quality_in(tmp_path / "dataset", make_source(tmp_path / "b.mp4", x264="interlaced=1"))


def test_a_source_whose_frames_have_the_times_of_decoding_is_not_measured(tmp_path: Path) -> None:
    """FFmpeg would select other frames by these times."""
    packets = enumerate(h264_packets(tmp_path / "v.ts", range(60), "-bf", "2", "-b_strategy", "0"))
    source = timed(tmp_path / "v.ts", tmp_path / "a.mp4", [(place, place, data) for place, (_, data) in packets])
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    with pytest.raises(SourceError, match="do not state the times of its frames"):
        quality_in(tmp_path / "dataset", source)


@pytest.mark.long
def test_a_report_says_that_fewer_bytes_show_less(tmp_path: Path) -> None:
    sources = [make_source(tmp_path / f"{number}.mp4", first_number=100 * number) for number in range(3)]
    found = []
    for crf in (18, 40):
        make_dataset(sources, tmp_path / f"{crf}", crf=crf)
        page = read_page(str(tmp_path / f"{crf}"), clips=3, seed=1)
        measured = median_quality(page.clips)
        assert measured is not None
        assert (measured[0], measured[1].frames) == (3, 12)
        assert f"PSNR {measured[1].psnr_db:.1f} dB, SSIM {measured[1].ssim:.4f}, the median of 3 clips, 12 frames" in (
            page_html(page)
        )
        found.append(measured[1])
    assert found[0].psnr_db > found[1].psnr_db + 3
    assert found[0].ssim > found[1].ssim


def test_a_source_that_is_gone_or_another_one_has_no_quality(tmp_path: Path, variable_video: SyntheticVideo) -> None:
    sources = [make_source(tmp_path / f"{name}.mp4") for name in ("gone", "other", "same")]
    make_dataset(sources, tmp_path / "dataset")
    sources[0].unlink()
    make_source(sources[1], first_number=7)
    page = read_page(str(tmp_path / "dataset"), clips=3, seed=0)
    quality = {clip.video: clip.quality for clip in page.clips}
    assert quality["gone.mp4"] == ""
    assert quality["other.mp4"] == "the file has changed since, or the video is a stretch of it"
    assert isinstance(quality["same.mp4"], Quality)
    text = page_html(page)
    assert "the median of the 1 clip that could be measured, 4 frames in all" in text
    assert text.count("Not measured: ") == 1


def test_the_median_is_over_clips_that_were_measured() -> None:
    found: list[Quality | str] = [Quality(40.0, 0.9, 4), "no", Quality(30.0, 0.8, 2), "", Quality(math.inf, 1.0, 4)]
    clips = [Clip("a.mp4", "", Strip(), Strip(), quality) for quality in found]
    assert median_quality(clips) == (3, Quality(40.0, 0.9, 10))
    assert median_quality(clips[1:2]) is None
