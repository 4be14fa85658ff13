"""Which clips a loader's workers read together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shortgop.training.loader.read_units import ReadUnit, clips_per_unit, runs, units_of
from shortgop.training.sampling.slices import PlannedBatch

BATCHES = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=9), min_size=1, max_size=4)


def sizes(units: list[ReadUnit]) -> list[int]:
    return [len(unit.draws) for unit in units]


@given(BATCHES, st.integers(1, 20), st.integers(1, 5), st.integers(1, 6))
def test_every_clip_is_in_one_unit_and_goes_to_its_place(
    batches: list[list[int]], num_clips: int, unit_clips: int, chunk: int
) -> None:
    units = units_of(batches, num_clips, unit_clips, chunk)
    placed = {place: draw for unit in units for draw, place in zip(unit.draws, unit.places, strict=True)}
    assert placed == {(batch, row): draw for batch, draws in enumerate(batches) for row, draw in enumerate(draws)}
    assert sum(sizes(units)) == len(placed)
    assert all(len(unit.draws) <= max(unit_clips, chunk) for unit in units)
    # What the first batch waits for comes first.
    firsts = [min(batch for batch, _ in unit.places) for unit in units]
    assert firsts == sorted(firsts)


def test_neighbours_of_a_chunk_stay_together_wherever_the_window_put_them() -> None:
    """Chunks of 4 from 20, 40 and 60 on, shuffled over three batches: each is read once, by one worker."""
    batches = [[41, 20, 62, 43], [60, 22, 40, 21], [23, 61, 42, 63]]
    units = units_of(batches, 100, unit_clips=2, chunk=4)
    assert sorted(unit.draws for unit in units) == [(20, 21, 22, 23), (40, 41, 42, 43), (60, 61, 62, 63)]
    # Without a chunk, halves of them.
    assert sizes(units_of(batches, 100, unit_clips=2)) == [2] * 6


def test_draws_of_a_later_epoch_are_neighbours_as_well() -> None:
    (unit,) = units_of([[205, 104, 206]], 100, unit_clips=3)
    assert unit.draws == (104, 205, 206)


def test_batches_of_a_window_are_planned_together() -> None:
    ends = [False, True, True, False]
    planned = [PlannedBatch([number], None, ends_window) for number, ends_window in enumerate(ends)]
    assert [[batch.draws[0] for batch in run] for run in runs(planned)] == [[0, 1], [2], [3]]


def test_units_are_as_large_as_they_can_be_while_no_worker_is_without_one() -> None:
    assert clips_per_unit(32, 2, batches_ahead=4) == 32
    assert clips_per_unit(32, 8, batches_ahead=4) == 8
    assert clips_per_unit(3, 16, batches_ahead=1) == 1
    assert clips_per_unit(32, 0, batches_ahead=1) == 16
