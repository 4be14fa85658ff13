"""Streams that are recorded by the clock: packets have the times at which they arrive."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from datasets import make_dataset
from odd_pictures import h264_packets, timed
from synthetic import read_number

MS = Fraction(1, 1000)
FRAMES, INTERVAL = 150, 40


@pytest.mark.parametrize("begin", [[0, 0, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3], [*[0] * 12, 40, 40, 41, 41]])
def test_b_frames_of_a_burst_may_have_the_same_time(begin: list[int], tmp_path: Path) -> None:
    """`ffmpeg -use_wallclock_as_timestamps 1 -i STREAM -c copy x.mkv` gives packets the times at which they arrive, in
    the order of decoding. All but one of those that came within a millisecond were left out."""
    template, numbers = tmp_path / "p.ts", range(FRAMES)
    packets = h264_packets(template, numbers, "-bf", "2", "-g", "25")
    assert [number for number, _ in packets] != list(numbers)
    times = [*begin, *range(begin[-1] + 7, begin[-1] + 7 + (FRAMES - len(begin)) * INTERVAL, INTERVAL)]
    source = timed(
        template, tmp_path / "x.mkv", ((time, time, data) for time, (_, data) in zip(times, packets, strict=True)), MS
    )
    assert make_dataset([source], tmp_path / "dataset").failures == ()
    (video,) = shortgop.open(tmp_path / "dataset")
    assert [read_number(frame) for frame in video] == list(numbers)
    assert video.metadata.fps == 25
    assert "frames arrived in bursts: evenly spaced" in video.changes.given_up
    (tmp_path / "list.jsonl").write_text(json.dumps({"path": "x.mkv", "start": 1, "end": 2}))
    assert shortgop.prepare(tmp_path / "list.jsonl", tmp_path / "cut", cuts="start,end", runner="inline").failures == ()
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "cut")[0]] == list(range(25, 50))
