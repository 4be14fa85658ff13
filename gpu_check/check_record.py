"""What a check writes while it runs."""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from check_report import Result

_T = TypeVar("_T")
# What a check writes and tidies up after its last figure.
_END_SECONDS = 5.0


class Skipped(Exception):  # noqa: N818  # it is no error
    """Raised by a check that cannot run on this machine, with the reason."""


class OutOfTime(Skipped):
    """Raised at its end by a check that had no time for all that it was to find, with what is lacking. All else was
    found, and nothing was wrong."""


class FailedOutOfTimeError(RuntimeError):
    """Raised at its end by a check that had no time for all that it was to find, and found something wrong."""


def write_line(report: Path, line: dict[str, Any]) -> None:
    """Add a line to a report."""
    with report.open("a") as file:
        file.write(json.dumps(line, default=str) + "\n")


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
        write_line(self._report, line)


def in_time(record: Record, measurements: Iterable[tuple[str, _T]]) -> Iterator[tuple[str, _T]]:
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


def measure_each(record: Record, measurements: Mapping[str, Callable[[], Mapping[str, float]]]) -> None:
    """Record the figures of each measurement, in time as by `in_time`, and go on where one fails: the others
    may tell where to look. RuntimeError, OutOfTime or FailedOutOfTimeError at the end."""
    errors, no_time = list[str](), ""
    try:
        for name, measure in in_time(record, measurements.items()):
            try:
                for figure, value in measure().items():
                    record.figure(f"{name}, {figure}", value)
            except Exception as error:
                if isinstance(error, Skipped) and not errors:
                    raise
                traceback.print_exc()
                errors.append(f"{name}: {type(error).__name__}: {error}")
    except OutOfTime as error:
        if not errors:
            raise
        no_time = str(error)
    if errors:
        raise (FailedOutOfTimeError if no_time else RuntimeError)("; ".join(filter(None, [*errors, no_time])))
