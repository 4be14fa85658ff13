"""Which frames belong to a stretch of a source, and how many of its frames are decoded for several stretches."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop.errors import SourceError
from shortgop.manifests.ragged import Array
from shortgop.prep.options import DEFAULT_POLICY
from shortgop.prep.probing.source_video import SourceVideo
from shortgop.prep.timing.grid import FrameGrid, TickRule, plan_grid
from shortgop.prep.timing.pieces import SKIPPED_FRAMES, Piece, Run, keyframe_expression, runs_of
from shortgop.prep.timing.source_times import Rhythm, plan_stretch
from shortgop.prep.timing.stretch import Stretch, part_of, plain_seconds, reaches_end

MS = Fraction(1, 1000)
# 25 frames/s, the first one 3 s into the file, 10 s long.
PTS = np.arange(3000, 13000, 40)


def frames(start: str, end: str | None = None, pts: Array = PTS) -> range:
    part = part_of("v.mp4", stretch(start, end), pts, int(pts[-1]) + 40, MS, Fraction(1, 25))
    return range(part.first, part.stop)


def stretch(start: str, end: str | None = None) -> Stretch:
    return Stretch(Fraction(start), None if end is None else Fraction(end), "line 7 of 'list.csv'")


def test_times_count_from_the_first_frame_and_the_end_does_not_belong_to_it() -> None:
    assert frames("0", "1") == range(25)
    assert frames("1", "2") == range(25, 50)
    assert frames("9.96") == range(249, 250)
    assert frames("0") == range(250)


def test_times_that_were_rounded_find_the_frames_that_were_meant() -> None:
    ntsc = np.rint(np.arange(300) * 1001 / 30).astype(np.int64)
    for first, stop in [(1, 2), (100, 101), (17, 290)]:
        start, end = (f"{frame * 1001 / 30000:.4f}" for frame in (first, stop))
        part = part_of("v.mp4", stretch(start, end), ntsc, 10010, MS, Fraction(1001, 30000))
        assert (part.first, part.stop) == (first, stop)


@given(st.integers(1, 1000))
def test_a_stretch_reaches_the_end_if_the_last_frame_is_its_own(end_ms: int) -> None:
    """A list may name the time of a frame, rounded, as the end: that frame belongs to the next stretch."""
    pts = np.arange(0, 800, 40)
    part = part_of("v.mp4", stretch("0", f"{end_ms}/1000"), pts, 800, MS, Fraction(1, 25))
    assert reaches_end(stretch("0", f"{end_ms}/1000"), pts, MS) == (part.stop == len(pts))


def test_the_first_frame_is_the_one_that_a_tick_at_the_start_shows() -> None:
    assert frames("0.059", "0.2")[0] == 1
    assert frames("0.060", "0.2")[0] == 2
    slides = np.array([0, 10_000, 20_000])
    assert frames("5", "15", slides) == range(2)
    assert frames("12", "13", slides) == range(1, 2)


def test_frames_that_would_make_a_video_of_another_length_are_told_with_the_rate_that_helps() -> None:
    """As in files of milliseconds in which joined episodes do not lie on one clock."""
    pts = np.rint(np.arange(108) * 1000 / 30).astype(np.int64)
    source = SourceVideo(
        path="v.mp4", stream_index=0, codec="h264", width=96, height=64, sample_aspect_ratio=Fraction(1), rotation=0,
        primaries=2, transfer=2, matrix=2, timebase=MS, pts=pts, end_pts=3600, rate_hints=(),
    )  # fmt: skip
    episode = Stretch(Fraction(0), Fraction(108, 30), "episode 0", num_frames=108)
    own = Rhythm(Fraction("30.304"), Fraction(33, 1000))
    with pytest.raises(
        SourceError, match=r"108 frames in the stretch 0-3.6 at 30.303 .*, which make a video of 109.* give --fps 30$"
    ):
        plan_stretch(source, episode, own, (), DEFAULT_POLICY)
    given_rate = replace(own, fps=Fraction(30), is_given=True)
    assert plan_stretch(source, episode, given_rate, (), DEFAULT_POLICY).source_pts.tolist() == pts.tolist()


@given(st.lists(st.fractions(0, 10, max_denominator=5000), min_size=2, max_size=6, unique=True))
def test_stretches_that_meet_share_no_frame_and_leave_none_out(times: list[Fraction]) -> None:
    edges = [Fraction(0), *sorted(times), Fraction(10)]
    shown: list[int] = []
    for start, end in zip(edges, edges[1:], strict=False):
        if end - start >= Fraction(1, 25):
            shown += frames(str(start), str(end))
        elif end > start:
            # A stretch that is shorter than a frame has one, which may also be its neighbour's.
            assert len(frames(str(start), str(end))) == 1
            shown += [frame for frame in frames(str(start), str(end)) if frame not in shown[-1:]]
    assert sorted(set(shown)) == list(range(250))


@pytest.mark.parametrize(
    ("start", "end", "what"), [("10", None, "starts"), ("20", "30", "starts"), ("9", "10.6", "ends")]
)
def test_a_stretch_past_the_end_names_the_line_and_how_long_the_file_is(start: str, end: str | None, what: str) -> None:
    with pytest.raises(SourceError, match=rf"line 7 of 'list.csv'.* {what} after the end of v.mp4, .* 10\.000 s; "):
        frames(start, end)


def test_an_end_up_to_half_a_second_past_the_last_frame_is_the_end_of_the_file() -> None:
    assert frames("9", "10.5") == range(225, 250)


def test_an_empty_stretch_is_none() -> None:
    for start, end in [("1", "1"), ("2", "1"), ("-1", "1")]:
        with pytest.raises(ValueError, match="empty"):
            stretch(start, end)


def test_the_name_of_a_stretch_says_its_times_exactly() -> None:
    assert [plain_seconds(Fraction(text)) for text in ("12.5", "10", "0.033", "1/3", "0")] == [
        "12.5", "10", "0.033", "1/3", "0",
    ]  # fmt: skip
    assert str(stretch("12.5")) == "12.5-"


def pieces_of(stretches: list[tuple[int, int]], pts: Array) -> list[Piece]:
    """One piece for each (first frame, number of frames)."""
    found = []
    for number, (first, count) in enumerate(stretches):
        shown = pts[first : first + count]
        rule = TickRule.of(shown, MS, Fraction(25), Fraction(1, 25))
        found.append(Piece(number, plan_grid(shown, int(shown[-1]) + 40, rule)))
    return found


def decoded(run: Run, pts: Array) -> range:
    """The frames that a run decodes."""
    last = int(np.searchsorted(pts, run.pieces[-1].last_pts))
    if run.seek is None:
        return range(last + 1)
    return range(int(np.searchsorted(pts, int(run.seek.seconds / MS))), last + 1)


@given(
    st.lists(st.tuples(st.integers(0, 1990), st.integers(1, 400)), min_size=1, max_size=12),
    st.integers(1, 2500),
    st.integers(0, 2),
)
def test_every_stretch_is_in_a_run_that_reads_from_an_entry_before_it(
    stretches: list[tuple[int, int]], gop: int, lead_frames: int
) -> None:
    pts = np.arange(2000) * 40
    entries = pts[::gop]
    runs = runs_of(pieces_of(stretches, pts), pts, entries, MS, lead_frames)
    assert sorted(piece.number for run in runs for piece in run.pieces) == list(range(len(stretches)))
    for run in runs:
        edges = [edge for piece in run.pieces for edge in (piece.first_pts, piece.last_pts)]
        assert edges == sorted(edges)
        first = int(np.searchsorted(pts, run.pieces[0].first_pts))
        start = decoded(run, pts)[0]
        assert pts[start] in entries
        assert run.seek is None or (start + lead_frames <= first and first - start in run.seek.frames_before)


@given(st.lists(st.integers(1, 300), min_size=2, max_size=12), st.integers(1, 2500), st.booleans())
def test_stretches_that_do_not_overlap_decode_no_frame_twice(lengths: list[int], gop: int, skips: bool) -> None:
    pts = np.arange(sum(lengths)) * 40
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    stretches = list(zip(starts, lengths, strict=True))[:: 2 if skips else 1]
    runs = runs_of(pieces_of(stretches, pts), pts, pts[::gop], MS, 0)
    shown = [frame for run in runs for frame in decoded(run, pts)]
    assert len(shown) == len(set(shown))


def test_what_lies_between_two_stretches_is_skipped_where_an_entry_allows_it() -> None:
    pts = np.arange(100_000) * 40
    stretches = [(0, 250), (50_000, 250), (99_000, 250)]
    runs = runs_of(pieces_of(stretches, pts), pts, pts[::250], MS, 0)
    assert sum(len(decoded(run, pts)) for run in runs) == 750
    (one,) = runs_of(pieces_of(stretches, pts), pts, pts[:1], MS, 0)
    assert len(decoded(one, pts)) == 99_250
    near = [(0, 10), (20 + SKIPPED_FRAMES // 2, 10)]
    assert len(runs_of(pieces_of(near, pts), pts, pts[::10], MS, 0)) == 1


def test_stretches_that_overlap_are_decoded_in_as_many_runs_as_overlap() -> None:
    pts = np.arange(1000) * 40
    stretches = [(first, 100) for first in range(0, 900, 50)]
    runs = runs_of(pieces_of(stretches, pts), pts, pts[:1], MS, 0)
    assert len(runs) == 2


def test_each_piece_starts_with_a_gop_of_its_own() -> None:
    assert keyframe_expression([40], 16) == "expr:eq(mod(n,16),0)"
    assert keyframe_expression([10, 40, 5], 16) == "expr:eq(mod(n-((gte(n,10)*10+gte(n,50)*40)),16),0)"


def test_grids_of_pieces_are_those_of_the_same_frames_alone() -> None:
    (piece,) = pieces_of([(100, 50)], PTS)
    assert isinstance(piece.grid, FrameGrid)
    assert piece.grid.source_pts.tolist() == PTS[100:150].tolist()
