"""MPEG-4 whose container calls frames keyframes that refer to others: no decoder starts at them."""

from __future__ import annotations

from pathlib import Path

import av
import pytest

import shortgop
from cut_sources import RATE, cut, numbers, write_list
from datasets import make_dataset
from shortgop.prep.probing.probe import probe
from synthetic import constant_rate_pts, make_video


def without_list_of_keyframes(path: Path, b_frames: int) -> bytes:
    """An MP4 of MPEG-4 that does not say which of its frames are keyframes, so that each counts as one."""
    pts = constant_rate_pts(RATE, 400)
    video = make_video(path, pts=pts, timebase=1 / RATE, codec="mpeg4", gop=50, b_frames=b_frames)
    return video.path.read_bytes().replace(b"stss", b"free")


@pytest.mark.parametrize("b_frames", [0, 2])
def test_no_stretch_begins_at_a_frame_that_refers_to_others(b_frames: int, tmp_path: Path) -> None:
    """FFmpeg decoded it, and those behind it, with grey in place of what was missing."""
    (tmp_path / "x.mp4").write_bytes(without_list_of_keyframes(tmp_path / "v.mp4", b_frames))
    assert len(probe(str(tmp_path / "x.mp4")).entries) == 0
    # Nor does the index alone say where a stretch may begin.
    assert len(probe(str(tmp_path / "x.mp4"), by_index=True).entries) == 0
    cuts = write_list(tmp_path, "x.mp4,10.8,11.2", "x.mp4,12.5,13")
    assert cut(cuts, tmp_path / "dataset").failures == ()
    assert [numbers(video) for video in shortgop.open(tmp_path / "dataset")] == [[*range(324, 336)], [*range(375, 390)]]


def test_a_stream_that_begins_with_such_a_frame_starts_at_the_next_keyframe(tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_bytes(without_list_of_keyframes(tmp_path / "v.mp4", 0))
    with av.open(tmp_path / "x.mp4") as container, av.open(tmp_path / "cut.mp4", "w") as out:
        stream = out.add_stream_from_template(container.streams.video[0])
        for packet in list(container.demux(video=0))[20:-1]:
            assert packet.is_keyframe
            packet.stream = stream
            out.mux(packet)
    assert make_dataset([tmp_path / "cut.mp4"], tmp_path / "dataset").failures == ()
    assert numbers(shortgop.open(tmp_path / "dataset")[0]) == [*range(50, 400)]
