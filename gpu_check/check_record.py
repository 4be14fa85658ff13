"""What a check writes while it runs."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from check_report import Result

T = TypeVar("T")
# What a check writes and tidies up after its last figure.
_END_SECONDS = 5.0


class Skipped(Exception):  # noqa: N818  # it is no error
    """Raised by a check that cannot run on this machine, with the reason."""


class OutOfTime(Skipped):
    """Raised at its end by a check that had no time for all that it was to find, with what is lacking. All else was
    found, and nothing was wrong."""


class FailedOutOfTimeError(RuntimeError):
    """Raised at its end by a check that had no time for all that it was to find, and found something wrong."""


class Record:
    """The report of a check. Each line is in the file at once, so that a crash does not lose what was found before."""

    def __init__(self, report: Path, samples: Path, seconds: float = math.inf) -> None:
        self._report = report
        self.deadline = time.perf_counter() + seconds
        """When the check is killed, by time.perf_counter()."""
        self.measure_until = self.deadline - _END_SECONDS
        """When it has to begin nothing new any more."""
        self.samples = samples
        """The folder of the sample datasets; see gpu_samples.py."""

    def begin(self, seconds: float) -> None:
        """Write that the check begins, so long after it was asked for: until then its process imported."""
        self._write({"began_after_seconds": round(seconds, 2)})

    def figure(self, name: str, value: Any) -> None:
        """Add a figure or a finding: anything that JSON has."""
        self._write({"figure": name, "value": value})

    def end(self, result: Result, why: str, *, lacked_time: bool = False) -> None:
        """Write the result of the check."""
        self._write({"result": result, "why": why, "lacked_time": lacked_time})

    def _write(self, line: dict[str, Any]) -> None:
        with self._report.open("a") as file:
            file.write(json.dumps(line, default=str) + "\n")


def in_time(record: Record, measurements: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
    """These named measurements, each while there is time for one that takes as long as the longest so far: those that
    take longest have to come first. OutOfTime at the end, with the names of those that were left out."""
    longest, lacking = 0.0, list[str]()
    for name, measurement in measurements:
        started = time.perf_counter()
        if started + longest > record.measure_until:
            lacking.append(name)
        else:
            yield name, measurement
            longest = max(longest, time.perf_counter() - started)
    if lacking:
        raise OutOfTime(f"there was no time to measure {'; '.join(lacking)}")
