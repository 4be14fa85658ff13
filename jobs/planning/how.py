"""The settings of a job other than its sources and its dataset."""

from __future__ import annotations

from dataclasses import dataclass

from ...prep.options import Options
from ..progress.tally import Tally
from ..sources.changed import Changed
from ..sources.failing import MaxFailures
from ..units_of_work.where import Where
from ..units_of_work.windows import WINDOW_SOURCES


@dataclass(frozen=True)
class How:
    """The settings, and what adds up the job's progress. `prepare` says what they mean."""

    options: Options
    where: Where
    keep_seconds: float
    changed: Changed
    tally: Tally
    include_dropped: bool = False
    max_failures: MaxFailures | None = None
    retry_failed: bool = False
    window_sources: int = WINDOW_SOURCES
