"""Which clips are read together, and where they go: pure functions of the batches that are due."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..sampling.slices import PlannedBatch


@dataclass(frozen=True)
class ReadUnit:
    """Clips that a worker reads in one plan. `places[i]` is where clip i goes: the number of a batch, counted from the
    first of the run, and the row in it."""

    draws: tuple[int, ...]
    places: tuple[tuple[int, int], ...]


def runs(batches: Iterable[PlannedBatch]) -> Iterator[list[PlannedBatch]]:
    """Batches that are planned together: those of a shuffle window, otherwise each alone."""
    run: list[PlannedBatch] = []
    for batch in batches:
        run.append(batch)
        if batch.ends_window:
            yield run
            run = []
    if run:
        yield run


def units_of(batches: Sequence[Sequence[int]], num_clips: int, unit_clips: int, chunk: int = 1) -> list[ReadUnit]:
    """The units for batches with these draws, so that clips that share GOPs are in one unit where possible.

    Clips are sorted by their number, `draw % num_clips`, since neighbours overlap or follow each other. Units have
    `unit_clips` clips; one is longer, up to `chunk`, rather than separating neighbours. A batch is ready when all of
    its units are, so those that an early batch waits for come first.
    """
    placed = [
        (draw % num_clips, draw, batch, row) for batch, draws in enumerate(batches) for row, draw in enumerate(draws)
    ]
    placed.sort()
    units: list[list[tuple[int, int, int, int]]] = []
    for clip in placed:
        last = units[-1] if units else None
        full = last is None or len(last) >= unit_clips
        neighbours = last is not None and clip[0] - last[-1][0] <= 1
        if last is None or (full and not (neighbours and len(last) < chunk)):
            units.append([clip])
        else:
            last.append(clip)
    units.sort(key=lambda unit: min(batch for _, _, batch, _ in unit))
    return [
        ReadUnit(tuple(draw for _, draw, _, _ in unit), tuple((batch, row) for _, _, batch, row in unit))
        for unit in units
    ]


def clips_per_unit(batch_size: int, workers: int, batches_ahead: int) -> int:
    """How many clips a worker reads together: as many as possible, up to a batch, since they share GOPs and the cost of
    a plan; but so few that the batches that are read ahead make two units for each worker."""
    return max(1, min(batch_size, batch_size * batches_ahead // (2 * max(1, workers))))
