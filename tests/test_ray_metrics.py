"""What a job shows of itself in Ray: metrics at a node's Prometheus endpoint, and the names of its tasks."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from fractions import Fraction
from pathlib import Path

import pytest

from ray_heads import BIN, free_ports, ray_head
from shortgop.jobs.ray_runner import task_name
from shortgop.jobs.sources import Source
from shortgop.jobs.steps import Cut, Join, Look, OneSection, Step, Whole
from shortgop.jobs.units import Item, Unit
from synthetic import constant_rate_pts, make_video

_PATIENCE_SECONDS = 60


def test_a_job_counts_its_frames_bytes_units_and_failures(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    make_video(
        sources / "a.mp4", pts=constant_rate_pts(Fraction(30), 60), timebase=Fraction(1, 30), size=(320, 256)
    )  # fmt: skip
    (sources / "broken.mp4").write_text("not a video")
    (port,) = free_ports(1)
    with ray_head(f"--metrics-export-port={port}", token=False) as head:
        subprocess.run(
            [BIN / "shortgop", "prep", sources, "--out", tmp_path / "dataset", "--address", head.address],
            env=dict(head.environment), check=False, capture_output=True, text=True,
        )  # fmt: skip
        found = scraped(port, "ray_shortgop_failed_sources_total")
    assert sum(found["ray_shortgop_frames_total"]) == 60
    assert sum(found["ray_shortgop_failed_sources_total"]) == 1
    assert sum(found["ray_shortgop_units_total"]) >= 1
    assert sum(found["ray_shortgop_bytes_in_total"]) == sum(file.stat().st_size for file in sources.iterdir())
    assert sum(found["ray_shortgop_bytes_out_total"]) == sum(
        file.stat().st_size for file in (tmp_path / "dataset" / "shards").iterdir()
    )
    assert sum(found["ray_shortgop_step_seconds_total"]) > 0


def scraped(port: int, wanted: str) -> dict[str, list[float]]:
    """The values of all metrics at the endpoint, as soon as the wanted one is there: Ray exports every few seconds."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        found: dict[str, list[float]] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found.setdefault(name.partition("{")[0], []).append(float(value))
        if wanted in found:
            return found
        assert time.monotonic() < end, json.dumps(sorted(name for name in found if "shortgop" in name))
        time.sleep(0.5)


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
