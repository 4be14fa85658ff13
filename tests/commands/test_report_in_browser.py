"""The page of `shortgop report` in a real browser: it asks nobody for anything, fits any window, and has each frame of
a clip below that of its source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from browser import REQUIRE_BROWSER, Seen, browser_or_skip, look_at
from report_footage import make_footage
from shortgop.manifests.dataset_files.root_file import create
from shortgop.reporting.dataset_report import write_report
from shortgop.storage.disk import DiskStorage

WIDTHS = (400, 1400)
CLIP, SOURCE, STORED = ".clip", ".clip .strip:nth-of-type(1)", ".clip .strip:nth-of-type(2)"
CHARTS = {label: f".plot svg[aria-label^='{label} over']" for label in ("frames/s", "GOPs")}
BARS = {label: f"{chart} .value" for label, chart in CHARTS.items()}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Load three pages into a browser: the report, that of an empty dataset, and one that does everything wrong."""
    browser = browser_or_skip()
    folder = tmp_path_factory.mktemp("pages")
    create(DiskStorage(folder / "empty"), {"gop_frames": 4})
    write_report(folder / "full.html", str(make_footage(tmp_path_factory.mktemp("report"))))
    write_report(folder / "empty.html", str(folder / "empty"))
    (folder / "wrong.html").write_text(
        "<!doctype html><p style='width:2000px'>wide<img src='data:image/png;base64,AAAA'>"
        "<script>console.error('no')</script><link rel=stylesheet href='http://127.0.0.1:47923/other.css'>"
    )
    names = ("full", "empty", "wrong")
    boxes_of = [CLIP, *(f"{strip}{part}" for strip in (SOURCE, STORED) for part in ("", " img"))]
    boxes_of += [*CHARTS.values(), *BARS.values()]
    found = look_at(*browser, [folder / f"{name}.html" for name in names], WIDTHS, boxes_of)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("name", ["full", "empty"])
def test_a_browser_shows_the_page_without_asking_anyone_at_any_width(seen: dict[str, Seen], name: str) -> None:
    page = seen[name]
    assert page.requests == []
    assert page.console == []
    assert page.too_wide == {width: [] for width in WIDTHS}
    assert page.scroll_widths.keys() == set(WIDTHS)
    assert all(scrolled <= width for width, scrolled in page.scroll_widths.items())


def test_a_browser_shows_all_pictures_and_names_as_text(seen: dict[str, Seen]) -> None:
    page = seen["full"]
    assert page.images == [True] * (2 * 3 * 8), "three clips, four frames and four of the source, at two widths"
    assert "The job finished: 2 of 5 sources failed" in page.text
    assert "<script>alert(1)</script>" in page.text
    assert re.search(r"Quality: PSNR \d\d\.\d dB, SSIM 0\.\d{4}, the median of 3 clips, 12 frames in all", page.text)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_shows_each_frame_of_a_clip_right_below_that_of_its_source(seen: dict[str, Seen], width: int) -> None:
    boxes = seen["full"].boxes[width]
    clips, sources, stored = boxes[CLIP], boxes[SOURCE], boxes[STORED]
    assert len(clips) == len(sources) == len(stored) == 3
    for clip, above, below in zip(clips, sources, stored, strict=True):
        assert above.is_inside(clip)
        assert below.is_inside(clip)
        assert 0 <= below.top - above.bottom < 16, "nothing lies between the two"
    of_sources, of_stored = boxes[f"{SOURCE} img"], boxes[f"{STORED} img"]
    assert len(of_sources) == len(of_stored) == 3 * 4
    for number, (source, frame) in enumerate(zip(of_sources, of_stored, strict=True)):
        assert source.is_inside(sources[number // 4])
        assert frame.is_inside(stored[number // 4])
        assert frame.left == pytest.approx(source.left, abs=1)
        assert (frame.width, frame.height) == pytest.approx((source.width, source.height), abs=1)
        assert min(frame.width, frame.height) > 40
        # Between them is the caption of the clip.
        assert 0 < frame.top - source.bottom < 60


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("label", CHARTS)
def test_a_browser_draws_the_bars_of_charts(seen: dict[str, Seen], label: str, width: int) -> None:
    (chart,), bars = seen["full"].boxes[width][CHARTS[label]], seen["full"].boxes[width][BARS[label]]
    assert all(bar.is_inside(chart) for bar in bars)
    # The scale ends above the highest bar, and not far above it.
    assert chart.height > 100
    assert max(bar.height for bar in bars) > chart.height / 4
    assert sum(bar.width for bar in bars) > 0.9 * chart.width


def test_what_a_page_does_wrong_is_seen(seen: dict[str, Seen]) -> None:
    page = seen["wrong"]
    assert set(page.requests) == {"http://127.0.0.1:47923/other.css"}
    assert any("no" in each for each in page.console)
    assert page.images == [False, False]
    assert page.too_wide[400]
    assert page.scroll_widths[400] >= 2000


def test_a_browser_that_is_missing_fails_the_tests_where_it_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for value, outcome in (("", pytest.skip), ("0", pytest.skip), ("1", pytest.fail)):
        monkeypatch.setenv(REQUIRE_BROWSER, value)
        with pytest.raises(outcome.Exception, match="no Chromium, Chrome or Firefox on the PATH"):
            browser_or_skip()
    program = tmp_path / "firefox"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert browser_or_skip() == ("firefox", str(program))
