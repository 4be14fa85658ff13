"""The job and the reader on real footage, where SHORTGOP_SAMPLE_VIDEOS names a folder of it."""

from __future__ import annotations

import os
from pathlib import Path

import av
import numpy as np
import pytest

import shortgop
from datasets import make_dataset
from shortgop.jobs.prepare import Report
from source_arguments import find_sources

_FOLDER = os.environ.get("SHORTGOP_SAMPLE_VIDEOS", "")
# Encodes at crf 23 of this footage have 36 dB and more; a neighbouring frame of the moving ones has below 30.
_MIN_PSNR_DB = 32

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not _FOLDER, reason="SHORTGOP_SAMPLE_VIDEOS names no folder"),
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    dataset = tmp_path_factory.mktemp("samples") / "dataset"
    return dataset, make_dataset([Path(_FOLDER)], dataset, preset="veryfast")


def test_every_video_there_is_prepared(prepared: tuple[Path, Report]) -> None:
    dataset, report = prepared
    assert report.failures == ()
    assert list(shortgop.open(dataset).ids) == [source.id for source in find_sources([_FOLDER])]


def test_frames_are_those_of_the_source(prepared: tuple[Path, Report]) -> None:
    for video in shortgop.open(prepared[0], dimension_order="NHWC"):
        indices = np.linspace(0, len(video) - 1, 5).astype(int)
        wanted = dict(zip(video.source_pts(indices).tolist(), video.get_frames_at(indices).data.numpy(), strict=True))
        with av.open(str(Path(_FOLDER) / video.id)) as container:
            stream = container.streams.best("video")
            assert stream is not None
            for frame in container.decode(stream):
                if isinstance(frame, av.VideoFrame) and frame.pts in wanted:
                    picture = wanted.pop(frame.pts)
                    # By way of 8 bits, since swscale places the chroma of 10 bits differently.
                    height, width, _ = picture.shape
                    eight_bits = frame.reformat(width, height, format="yuv420p", dst_color_range="MPEG")
                    source = eight_bits.to_ndarray(format="rgb24")
                    error = np.square(source.astype(float) - picture).mean()
                    assert error < 255**2 / 10 ** (_MIN_PSNR_DB / 10), (video.id, frame.pts)
        assert not wanted, video.id


def test_every_frame_decodes(prepared: tuple[Path, Report]) -> None:
    for video in shortgop.open(prepared[0]):
        for start in range(0, len(video), 64):
            stop = min(start + 64, len(video))
            assert len(video.get_frames_in_range(start, stop)) == stop - start
