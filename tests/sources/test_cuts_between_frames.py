"""Stretches that start or end between two frames, or in the middle between them: each frame is shown once all the
same, also where times were rounded to milliseconds."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import shortgop
from synthetic import constant_rate_pts, make_video, read_number

MS = Fraction(1, 1000)
STARTS = ("0", "1.25", "1.75", "2.05", "2.5", "3.0417", "4.1")


@pytest.mark.first_case_short
@pytest.mark.parametrize("name", ["v.mkv", "v.mp4", "copied.mp4"])
@pytest.mark.parametrize("rate", [Fraction(30), Fraction(25), Fraction(24000, 1001)])
def test_each_frame_of_a_stretch_is_shown_once(name: str, rate: Fraction, tmp_path: Path) -> None:
    timebase = {"v.mkv": MS, "v.mp4": 1 / rate, "copied.mp4": MS / 90}[name]
    pts = constant_rate_pts(rate, 240, timebase)
    if name == "copied.mp4":
        # From Matroska: a frame was shown twice, and the one before it never.
        pts = tuple(90 * time for time in constant_rate_pts(rate, 240, MS))
    make_video(tmp_path / name, pts=pts, timebase=timebase, gop=20)
    rows = [f"{number},{name},{start},{float(Fraction(start) + 2)}" for number, start in enumerate(STARTS)]
    (tmp_path / "list.csv").write_text("\n".join(["id,path,start,end", *rows, ""]))
    report = shortgop.prepare(tmp_path / "list.csv", tmp_path / "cuts", cuts="start,end", runner="inline")
    assert report.failures == ()
    dataset = shortgop.open(tmp_path / "cuts")
    for number, start in enumerate(STARTS):
        shown = [read_number(frame) for frame in dataset[str(number)]]
        assert shown == list(range(shown[0], shown[0] + len(shown)))
        # The frame that is nearest to the start, or one of the two that are.
        assert abs(shown[0] - Fraction(start) * rate) <= Fraction(52, 100)
        assert abs(len(shown) - 2 * rate) <= 1
    changes = [video.changes for video in dataset]
    assert {(each.dropped, each.repeated) for each in changes} == {(0, 0)}


def test_a_stretch_that_begins_in_a_pause_is_as_long_as_asked_for(tmp_path: Path) -> None:
    """It began up to an interval early, at the frame before the pause, and was longer by as much."""
    rate = Fraction(30)
    times = [tick for tick in range(120) if tick % 5 != 4]
    every = constant_rate_pts(rate, 120, MS)
    make_video(tmp_path / "v.mkv", pts=[every[tick] for tick in times], timebase=MS, gop=20)
    (tmp_path / "list.csv").write_text("id,path,start,end\none,v.mkv,0.13,1.13\n")
    report = shortgop.prepare(tmp_path / "list.csv", tmp_path / "cuts", cuts="start,end", runner="inline")
    assert report.failures == ()
    # Each tick shows the last frame up to half an interval later, from 3.9 intervals on.
    expected = [sum(time <= 4 + tick for time in times) - 1 for tick in range(30)]
    assert [read_number(frame) for frame in shortgop.open(tmp_path / "cuts")["one"]] == expected
