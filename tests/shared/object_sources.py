"""Sources for stores: made, looked at, prepared without Ray, and read back."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import shortgop
from shortgop.jobs.named_options import prepare_without_warning
from shortgop.jobs.sources.look import look_at
from shortgop.jobs.units_of_work.unit_results import UnitResult
from shortgop.jobs.units_of_work.units import Item, Unit
from shortgop.jobs.working.work import run_unit
from shortgop.prep.options import DEFAULT_POLICY, Options
from shortgop.prep.profile import Profile
from shortgop.storage.locate import storage_at
from source_arguments import find_sources
from synthetic import constant_rate_pts, make_video, read_number

RATE = Fraction(30)


def make(path: Path, first_number: int = 0, num_frames: int = 40, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    timebase = {".ts": Fraction(1, 90000), ".mkv": Fraction(1, 1000)}.get(path.suffix, 1 / RATE)
    pts = constant_rate_pts(RATE, num_frames, timebase)
    return make_video(path, pts=pts, timebase=timebase, first_number=first_number, **options).path


def prepare(sources: Any, out: Path, **options: Any) -> shortgop.Report:
    return prepare_without_warning(sources, out, runner="inline", **options)


def numbers(dataset: Path) -> dict[str, list[int]]:
    return {video.id: [read_number(frame) for frame in video] for video in shortgop.open(dataset)}


def look(url: str) -> list[Item]:
    """The sources as a job sees them before it encodes anything."""
    looked = look_at(find_sources([url]), Options(Profile(), DEFAULT_POLICY))
    return [each.item for each in looked]


def run(items: list[Item], out: Path) -> UnitResult:
    return run_unit(
        storage_at(out), Unit("0" * 16, tuple(items)), Options(Profile(), DEFAULT_POLICY), lambda _progress: None
    )
