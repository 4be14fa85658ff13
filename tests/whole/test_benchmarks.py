"""Benchmarks of this repository: tables, goals, pages, and the study of encodings."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import robots
from cold_open import repeated
from encoded import Encoding, Quality, crf_for_bytes
from encoding_study import BASE, GRID, PARTS, Outcome, grid, parts, plan, table_of
from encoding_study import write_chart as write_study_chart
from ffmpeg_between import changed
from floor import ACCESSES
from hypothesis import assume, given
from hypothesis import strategies as st
from results import (
    ALL_PAGE,
    PAGE,
    RESULTS,
    Case,
    Goal,
    Row,
    between_markers,
    described,
    goals_table,
    read_cases,
    read_run,
    tables,
    write_json,
)
from run import goals_of
from scenarios import BY_LENGTH, DATASET, EXPORTED, LONG_AT_256, LONG_AT_720, SOURCES, clips_group
from telling import TELLING, goals_in_words, telling_table

from example_manifests import video
from shortgop.comparison.estimates import Estimate
from shortgop.comparison.machine import this_machine


def test_tables_show_shortgop_in_milliseconds_and_the_others_as_ratios() -> None:
    one, four = Estimate(1.0, 1.0, 1.0), Estimate(4.0, 3.0, 7.0)
    ours = Row("shortgop", "dataset", 9, Estimate(2.0, 1.0, 3.0), one, one)
    other = Row("pyav", "sources", 9, Estimate(8.0, 7.0, 9.0), four, four)
    cases = [
        Case(1, "Clips", "stride 1", (ours, other), taken="one day"),
        Case(1, "Clips", "stride 4", (ours,), {"decord": "ImportError: no"}, "another day"),
    ]
    assert tables(cases).splitlines() == [
        "**1. Clips** (one day, another day)",
        "",
        "|  | reads | stride 1 | stride 4 |",
        "| --- | --- | --- | --- |",
        "| shortgop | dataset | **2.0 (1.00-3.0) ms** | **2.0 (1.00-3.0) ms** |",
        "| pyav | sources | 4.0 (3.0-7.0) x |  |",
        "",
        "Not measured: decord: ImportError: no",
    ]


def test_what_was_measured_is_read_again_where_the_machine_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("results.RESULTS", tmp_path)
    machine = this_machine()
    row = Row("shortgop", "dataset", 9, Estimate(2, 1, 3), Estimate(1, 1, 1), Estimate(1, 1, 1))
    cases = [Case(3, "a group", "a case", (row,), {"x": "y"}, "then")]
    assert read_cases("here", machine, quick=True) == []
    write_json("here", machine, True, {"cases": cases})
    assert read_cases("here", replace(machine, load=7.0, date="tomorrow"), quick=True) == cases
    for other, quick in ((machine, False), (replace(machine, cores=machine.cores + 1), True)):
        with pytest.raises(SystemExit, match="is of another run"):
            read_cases("here", other, quick)


def test_the_page_shows_a_dozen_rows_where_all_was_measured() -> None:
    """The cases that are kept have all of them; other rows and cases are left out."""
    others = ("-encodings", "-loaders", "-prep", "-robots")
    (path,) = (file for file in RESULTS.glob("*.json") if not any(each in file.stem for each in others))
    machine, quick, cases = read_run(path)
    lines = telling_table(cases).splitlines()
    assert len(lines) == 2 + len(TELLING) == 2 + 12
    for line, telling in zip(lines[2:], TELLING, strict=True):
        assert line.startswith(f"| {telling.what} |")
    assert telling_table([]).splitlines() == lines[:2]
    pages = {PAGE: [described(machine, quick), *lines], ALL_PAGE: tables(cases).splitlines()}
    for page, expected in pages.items():
        assert set(expected) <= set(page.read_text().splitlines()), f"benchmarks/run.py --pages {path} writes {page}"


def test_the_page_shows_what_was_measured_beside_lerobot() -> None:
    (path,) = RESULTS.glob("*-robots.json")
    lines = robots.page(json.loads(path.read_text())).splitlines()
    assert set(lines) <= set(ALL_PAGE.read_text().splitlines()), (
        f"benchmarks/robots.py --pages {path} writes {ALL_PAGE}"
    )


def test_goals_in_words_name_those_that_were_missed() -> None:
    goals = [Goal("a", 4, Estimate(4.0, 3.0, 5.0)), Goal("b", 1.05, Estimate(1.1, 1.0, 1.2), at_most=True)]
    missed = "- b: 1.10 (1.00-1.20) x, where at most 1.05 x was the goal"
    assert goals_in_words(goals).splitlines() == ["1 of 2 goals are reached; not reached are", "", missed]
    assert goals_in_words(goals[:1]) == "1 of 1 goals are reached."


def test_goals_are_reached_from_the_target_on() -> None:
    goals = [Goal("a", 4, Estimate(4.0, 3.0, 5.0)), Goal("b", 1.05, Estimate(1.1, 1.0, 1.2), at_most=True)]
    assert [goal.reached for goal in goals] == [True, False]
    assert goals_table(goals).splitlines()[2:] == [
        "| a | 4 x | 4.0 (3.0-5.0) x | reached |",
        "| b | at most 1.05 x | 1.10 (1.00-1.20) x | not reached |",
    ]


def test_no_goal_goes_missing_where_all_was_measured() -> None:
    peers = [(reader, files) for reader in ("torchcodec", "opencv-seek") for files in (SOURCES, EXPORTED)]
    nine = Estimate(9, 9, 9)
    rows = tuple(Row(*key, 9, nine, nine, nine) for key in [("shortgop", DATASET), *peers])
    cases = [
        *(Case(1, clips_group(256, 256), name, rows) for name in ("stride 4", "single frame")),
        *(Case(3, group, "60 s", rows) for group in (LONG_AT_256, LONG_AT_720)),
        *(Case(3, BY_LENGTH, name, rows) for name in ("anywhere", "the same")),
        *(Case(7, "against the floor", name, rows) for name in ACCESSES),
    ]
    goals = goals_of(cases)
    assert len(goals) == 4 + 4 + 2 + 3
    assert len({goal.text for goal in goals}) == len(goals)
    assert goals_of([]) == []


def test_only_what_is_between_the_markers_changes() -> None:
    page = "before <!-- x: begin -->old<!-- x: end --> after"
    assert between_markers(page, "x", "new") == "before <!-- x: begin -->\n\nnew\n\n<!-- x: end --> after"
    with pytest.raises(ValueError, match="no markers"):
        between_markers(page, "y", "new")


def test_a_manifest_repeated_has_its_rows_once_for_each_video() -> None:
    many = repeated(video("a"), 3)
    assert many.ids == ["00000000.mp4", "00000001.mp4", "00000002.mp4"]
    assert many.gops.offset.tolist() == video("a").gops.offset.tolist() * 3
    assert many.videos.source.texts() == ["/videos/a"] * 3
    assert many.shards.name.texts() == ["unit-0.shard"]


def test_encodings_that_make_no_sense_are_left_out() -> None:
    assert len(grid([1, 2, 4], ["h264"], [0, 3], [False, True])) == 2 + 2 + 4
    in_av1 = [Encoding("av1", gop, between, True) for gop, between in ((1, 0), (16, 0), (16, 1))]
    assert grid([1, 16], ["av1"], [0, 3], [True]) == in_av1


def test_fastdecode_is_taken_apart() -> None:
    assert [str(each) for each in parts()[:2]] == ["h264, GOP 16, 3 B", "h264, GOP 16, 3 B, no-deblock=1"]
    assert parts()[5].x264 == "no-cabac=1:weightp=0:weightb=0"
    everything = {each for table in plan(full=True, codecs=["h264", "hevc", "av1"]).tables.values() for each in table}
    assert len({each.key for each in everything}) == len(everything), "each has files of its own"


def test_the_study_is_shown_as_tables_and_a_chart(tmp_path: Path) -> None:
    one, half = Estimate(10.0, 9.0, 11.0), Estimate(0.5, 0.45, 0.55)

    def outcome(table: str, encoding: Encoding, size: int, *, equal: bool = False) -> Outcome:
        return Outcome(table, encoding, size, equal, Quality(42.0, 93.5), one, one, half, half, one, one)

    fast = Encoding(fastdecode=True)
    outcomes = [
        outcome(PARTS, BASE, 1000),
        outcome(PARTS, replace(fast, crf=23.7), 1001, equal=True),
        outcome(PARTS, fast, 1090),
        *(outcome(GRID, each, size) for each, size in ((BASE, 1000), (Encoding(gop=32), 900))),
    ]
    lines = [line for name in (PARTS, GRID) for line in table_of(outcomes, name).splitlines()]
    rows = [[cell.strip() for cell in line.split("|")[1:6]] for line in lines if line.startswith("| h264")]
    assert rows[:3] == [
        ["h264, GOP 16, 3 B", "1.00", "42.00", "93.5", "**10 (9.0-11) ms**"],
        ["h264, GOP 16, 3 B, fastdecode", "1.09", "42.00", "93.5", "0.50 (0.45-0.55) x"],
        ["h264, GOP 16, 3 B, fastdecode, CRF 23.7", "1.00", "42.00", "93.5", "0.50 (0.45-0.55) x"],
    ]
    write_study_chart(outcomes, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 1000


@given(st.floats(1e4, 1e9), st.floats(0.05, 0.3), st.floats(5, 45), st.lists(st.floats(1, 50), min_size=2, max_size=5))
def test_a_crf_of_equal_bytes_is_found_by_interpolation(
    bytes_at_0: float, fall: float, wanted: float, tried: list[float]
) -> None:
    def size(crf: float) -> int:
        return round(bytes_at_0 * 1e6 * math.exp(-fall * crf))

    tried = sorted({round(crf) for crf in tried})
    assume(len(tried) > 1)
    found = crf_for_bytes({crf: size(crf) for crf in tried}, size(wanted))
    assert found == pytest.approx(wanted, abs=0.1)


def test_without_a_second_point_the_crf_goes_the_right_way() -> None:
    assert crf_for_bytes({23.0: 1250}, 1000) > 23
    assert crf_for_bytes({23.0: 1000}, 1000) == 23
    assert 0 <= crf_for_bytes({23.0: 10}, 10**9) <= 51


def test_what_stands_between_prep_and_ffmpeg_changes_x264_alone() -> None:
    argv = ["-crf", "23", "-x264-params", "open-gop=0", "pipe:1"]
    assert changed(argv, "", "") == argv
    assert changed(argv, "weightp=0", "23.4") == ["-crf", "23.4", "-x264-params", "open-gop=0:weightp=0", "pipe:1"]
