"""Where a long video is cut, in which order its sections are encoded, and how they become one video again."""

from __future__ import annotations

import dataclasses
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_manifests import video
from shortgop.errors import CorruptDataError
from shortgop.jobs.finding.source import Source
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.steps import Cut, Join, Look, OneSection, Refused, SectionDone, Sections, Step, Whole
from shortgop.jobs.units_of_work.unit_results import UnitResult
from shortgop.jobs.units_of_work.units import Item, Unit, long_apart, plan_units
from shortgop.manifests.dataset_files.sections import joined_sections
from shortgop.manifests.tables import Manifest
from shortgop.prep.profile import Size
from shortgop.prep.section_plan import (
    NO_ENTRY,
    SECTION_SECONDS,
    expected_pixels,
    expected_seconds,
    lead_frames,
    section_starts,
)

SEGMENT = 300


def starts(frames: int, gop: int, sections: int) -> list[int]:
    pts = np.arange(frames) * 1000
    leads = lead_frames(pts[::SEGMENT], pts, pts[::gop], 0)
    return section_starts(leads.tolist(), frames, sections)


def test_a_film_of_three_hours_is_cut_about_evenly_each_minute_of_work() -> None:
    frames = 3 * 3600 * 30
    seconds = expected_seconds(frames, 1920 * 1080, frames, expected_pixels(1920, 1080, Size(256)))
    sections = round(seconds / SECTION_SECONDS)
    assert 15 < sections < 40
    found = starts(frames, 250, sections)
    assert len(found) == sections
    lengths = np.diff([*found, frames // SEGMENT])
    assert lengths.max() <= 1.1 * lengths.min()


@given(st.integers(1, 40_000), st.integers(1, 5000), st.integers(0, 30))
def test_a_section_decodes_at_most_a_tenth_more_than_its_frames(frames: int, gop: int, sections: int) -> None:
    found = starts(frames, gop, sections)
    assert found[0] == 0
    assert found == sorted(set(found))
    assert all(start * SEGMENT < frames for start in found)
    for start in found[1:]:
        assert start * SEGMENT % gop <= frames / sections / 10


def test_a_cut_is_not_moved_far_for_a_few_frames() -> None:
    """A job of one film ends with its longest section."""
    leads = [0, *[40] * 99]
    leads[48] = 35
    assert section_starts(leads, 30_000, 2) == [0, 50]
    # A segment has 300 frames.
    leads[49] = 0
    assert section_starts(leads, 30_000, 2) == [0, 50]
    leads[50] = 400
    assert section_starts(leads, 30_000, 2) == [0, 49]


def test_without_a_frame_to_start_at_there_is_no_cut() -> None:
    assert starts(9000, 9000, 5) == [0]
    pts = np.arange(100)
    assert lead_frames(pts[::10], pts, np.zeros(0, dtype=np.int64), 0).tolist() == [NO_ENTRY] * 10
    # An interlaced source needs two frames before the first one.
    assert lead_frames(pts[[0, 40, 41, 42, 79]], pts, pts[::40], 2).tolist() == [NO_ENTRY, 40, 41, 2, 39]


def test_the_size_of_frames_is_about_that_of_the_profile() -> None:
    assert expected_pixels(1920, 1080, Size()) == 1920 * 1080
    assert expected_pixels(1920, 1080, Size(short_side=540)) == 960 * 540
    assert expected_pixels(320, 240, Size(short_side=540)) == 320 * 240
    assert expected_pixels(1920, 1080, Size(exact=(224, 224))) == 224 * 224
    assert expected_pixels(0, 0, Size(short_side=256)) == 0


def item(name: str) -> Item:
    return Item(Source(name, f"/corpus/{name}", name, "{}"), 1, 1000)


NAMES = [f"{number:02}" for number in range(30)]


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1000)), st.sets(st.sampled_from(NAMES)))
def test_long_files_have_units_of_their_own_whatever_is_done_already(seconds: dict[str, float], done: set[str]) -> None:
    def units(there: set[str]) -> list[Unit]:
        known = dict.fromkeys(there, 1)
        planned = plan_units([item(name) for name in NAMES], profile_key="p", done=known, shard_bytes=10**9)
        return long_apart(planned, "p", seconds, long_seconds=120)

    undisturbed = units(set())
    long = [unit for unit in undisturbed if unit.is_long]
    assert {unit.items[0].source.id for unit in long} == {name for name, each in seconds.items() if each >= 120}
    assert undisturbed[: len(long)] == long
    assert sorted(each.source.id for unit in undisturbed for each in unit.items) == NAMES
    # An interrupted job plans the units that it had not finished.
    finished = [unit for unit in undisturbed if {each.source.id for each in unit.items} <= done]
    left = units({each.source.id for unit in finished for each in unit.items})
    assert left == [unit for unit in undisturbed if unit not in finished]


class Worker:
    """Takes steps in some order and says what became of them."""

    def __init__(self, random: Random, *, refuses: bool) -> None:
        self.random, self.refuses = random, refuses
        self.encoded: list[tuple[str, int]] = []

    def outcome(self, step: Step) -> object:
        unit = step.unit
        if isinstance(step, Look):
            if self.random.random() < 0.2:
                return result(unit)
            count = self.random.randint(2, 6)
            return Sections(Cut("key", count, 0, 0), (None,) * count)  # type: ignore[arg-type]
        if isinstance(step, OneSection):
            if self.refuses and self.random.random() < 0.2:
                return Refused()
            self.encoded.append((unit.id, step.number))
            return SectionDone()
        if isinstance(step, Join):
            assert [number for name, number in sorted(self.encoded) if name == unit.id] == list(
                range(step.cut.sections)
            )
            return Refused() if self.refuses and self.random.random() < 0.2 else result(unit)
        return result(unit)


def result(unit: Unit) -> UnitResult:
    return UnitResult(unit.id, len(unit.items), 0, 0, ())


@given(st.lists(st.booleans(), max_size=12), st.integers(1, 8), st.booleans(), st.randoms(use_true_random=False))
def test_each_unit_has_one_result_and_is_joined_when_all_its_sections_are_there(
    long: list[bool], at_a_time: int, refuses: bool, random: Random
) -> None:
    units = [Unit(f"u{number}", (item(NAMES[number]),), is_long=is_long) for number, is_long in enumerate(long)]
    order, worker = Order(units), Worker(random, refuses=refuses)
    running: list[Step] = []
    results: list[str] = []
    whole: list[str] = []
    while order or running:
        while order and len(running) < at_a_time:
            running.append(order.next())
        step = running.pop(random.randrange(len(running)))
        whole += [step.unit.id] if isinstance(step, Whole) else []
        found = order.done(step, worker.outcome(step))  # type: ignore[arg-type]
        results += [found.unit] if found else []
    assert sorted(results) == sorted(unit.id for unit in units)
    assert len(whole) == len(set(whole))


def test_a_unit_is_given_up_once_and_its_other_sections_are_left_out() -> None:
    unit = Unit("u", (item("a"),), is_long=True)
    order = Order([unit, Unit("v", (item("b"),))])
    assert order.done(order.next(), Sections(Cut("key", 4, 0, 0), (None,) * 4)) is None  # type: ignore[arg-type]
    one, other, third = order.next(), order.next(), order.next()
    assert order.give_up(one)
    assert not order.give_up(other)
    assert order.done(third, SectionDone()) is None
    assert order.next().unit.id == "v"
    assert not order


def section(number: int, frames: int, codec: str = "h264") -> Manifest:
    return video("long.mp4", shard=f"u_{number}-0.shard", frames=frames, codec=codec)


def test_the_sections_of_a_video_become_its_rows() -> None:
    # Segments have 8 frames.
    sections = [section(0, 16), section(1, 8), section(2, 11)]
    rows = joined_sections(sections, dropped=3, repeated=4)
    assert rows.ids == ["long.mp4"]
    assert (rows.videos.num_frames.tolist(), len(rows.gops), len(rows.segments)) == ([35], 9, 5)
    assert (rows.videos.dropped.tolist(), rows.videos.repeated.tolist()) == ([3], [4])
    assert [rows.shards.name.text(shard) for shard in rows.segments.shard.tolist()] == [
        "u_0-0.shard", "u_0-0.shard", "u_1-0.shard", "u_2-0.shard", "u_2-0.shard",
    ]  # fmt: skip
    assert (len(rows.configs), len(rows.shards), len(rows.patterns)) == (1, 3, 2)
    timelines = [each.timeline.pts for each in sections if each.timeline is not None]
    assert rows.timeline is not None
    assert rows.timeline.pts.tolist() == np.concatenate(timelines).tolist()


def test_sections_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="ends within a segment"):
        joined_sections([section(0, 12), section(1, 8)], dropped=0, repeated=0)
    with pytest.raises(CorruptDataError, match="encoders that differ"):
        joined_sections([section(0, 16), section(1, 8, "hevc")], dropped=0, repeated=0)
    other = section(1, 8)
    segments = dataclasses.replace(other.segments, init_crc32=other.segments.init_crc32 + 1)
    with pytest.raises(CorruptDataError, match="headers that differ"):
        joined_sections([section(0, 16), dataclasses.replace(other, segments=segments)], dropped=0, repeated=0)
