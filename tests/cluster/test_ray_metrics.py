"""What a job shows of itself in Ray: the names of its tasks, and what its workers count. `test_cluster_machines.py`
reads that from a node."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from long_sources import FRAMES, PROFILE, SECTION_SECONDS, make_sources
from shortgop.jobs.cluster import ray_metrics
from shortgop.jobs.cluster.ray_metrics import StepMetrics
from shortgop.jobs.cluster.ray_runner import task_name
from shortgop.jobs.finding.identity import identity_of
from shortgop.jobs.finding.source import Source
from shortgop.jobs.units_of_work.order import Order
from shortgop.jobs.units_of_work.steps import Cut, Join, Look, OneSection, Outcome, Step, Whole
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.jobs.working.step_work import run_step
from shortgop.manifests.dataset_files.root_file import create
from shortgop.prep.options import Options
from shortgop.storage.disk import DiskStorage
from source_arguments import find_sources

pytestmark = pytest.mark.long


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
        # Ray takes no name that is not UTF-8.
        (Whole(unit(os.fsdecode(b"caf\xe9\n.mp4"))), r"encode c/caf\udce9\n.mp4"),
    ],
)
def test_tasks_are_named_by_their_source_and_what_they_do(step: Step, name: str) -> None:
    assert task_name(step) == name


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What this process counts, by the name of the metric."""
    found: Counter[str] = Counter()

    class Metric:
        def __init__(self, name: str) -> None:
            self._name = name

        def inc(self, value: float, _tags: dict[str, str]) -> None:
            found[self._name] += value  # type: ignore[assignment]

    names = [each.name for each in fields(ray_metrics._Counters)]
    metrics: Any = ray_metrics._Counters(*map(Metric, names))  # type: ignore[arg-type]
    monkeypatch.setattr(ray_metrics, "_counters", lambda: metrics)
    return found


def unit_of(*files: Path, is_long: bool = False) -> Unit:
    sources = find_sources(list(map(str, files)))
    return Unit("0123456789abcdef", tuple(Item(each, *identity_of(each.path)) for each in sources), is_long)


@pytest.fixture
def dataset(tmp_path: Path) -> DiskStorage:
    dataset = DiskStorage(tmp_path / "dataset")
    create(dataset, PROFILE.to_json())
    return dataset


def run(dataset: DiskStorage, step: Step) -> Outcome:
    """As a worker does it."""
    metrics = StepMetrics("a machine")
    outcome = run_step(dataset, step, Options(PROFILE, section_seconds=SECTION_SECONDS), metrics.on_progress)
    metrics.done(step, outcome, 1.0)
    return outcome


def bytes_of_shards(dataset: DiskStorage) -> int:
    return sum(file.stat().st_size for file in (Path(dataset.url) / "shards").iterdir())


def test_a_unit_that_another_attempt_has_committed_is_counted_once(
    dataset: DiskStorage, counts: Counter[str], tmp_path: Path
) -> None:
    short, broken = make_sources(tmp_path) / "short.mp4", tmp_path / "broken.mp4"
    broken.write_text("not a video")
    step = Whole(unit_of(short, broken))
    run(dataset, step)
    once = Counter(
        frames=60, bytes_in=short.stat().st_size + broken.stat().st_size, bytes_out=bytes_of_shards(dataset), units=1,
        failed=1,
    )  # fmt: skip
    assert counts == once + Counter(seconds=1)
    run(dataset, step)
    assert counts == once + Counter(seconds=2)


def test_a_section_that_is_there_already_is_not_counted_again(
    dataset: DiskStorage, counts: Counter[str], tmp_path: Path
) -> None:
    """A job that was killed goes on, and a step that was slow was attempted twice."""
    long = make_sources(tmp_path) / "long.mp4"
    order = Order([unit_of(long, is_long=True)])
    results = []
    while order:
        step = order.next()
        run(dataset, step)
        before = Counter(counts)
        outcome = run(dataset, step)
        assert counts == before + Counter(seconds=1)
        results.append(order.done(step, outcome))
    assert results[-1] is not None
    assert len(results) > 4
    counted = Counter(frames=FRAMES, bytes_in=long.stat().st_size, bytes_out=bytes_of_shards(dataset), units=1)
    assert counts == counted + Counter(seconds=2 * len(results))
