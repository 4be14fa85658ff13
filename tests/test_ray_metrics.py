"""What a job shows of itself in Ray: the names of its tasks. `test_cluster.py` looks at its metrics."""

from __future__ import annotations

import pytest

from shortgop.jobs.ray_runner import task_name
from shortgop.jobs.sources import Source
from shortgop.jobs.steps import Cut, Join, Look, OneSection, Step, Whole
from shortgop.jobs.units import Item, Unit


def unit(*names: str) -> Unit:
    return Unit("u", tuple(Item(Source(name, f"/c/{name}", f"c/{name}", "{}"), 1, 1) for name in names))


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (Whole(unit("a.mp4")), "encode c/a.mp4"),
        (Whole(unit("a.mp4", "b.mp4", "c.mp4")), "encode c/a.mp4 and 2 more"),
        (Look(unit("a.mp4")), "look at c/a.mp4"),
        (OneSection(unit("a.mp4"), Cut("k", 4, 0, 0), 1, None), "section 2/4 of c/a.mp4"),  # type: ignore[arg-type]
        (Join(unit("a.mp4"), Cut("k", 4, 0, 0)), "join c/a.mp4"),
    ],
)
def test_tasks_are_named_by_their_source_and_what_they_do(step: Step, name: str) -> None:
    assert task_name(step) == name
