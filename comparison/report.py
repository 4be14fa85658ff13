"""The report of `shortgop bench` as a table, as JSON and as a chart."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table

from ..wording import counted
from .chart import Bar, Group, write_chart
from .estimates import CONFIDENCE
from .measure import OURS, Report, Row
from .timing import Figures


def report_json(report: Report) -> dict[str, Any]:
    """The report as plain JSON values."""

    def row(row: Row) -> dict[str, Any]:
        figures = row.figures
        return {
            "reader": row.reader,
            "files": row.files,
            "requests": figures.requests,
            "frames_per_second": row.frames_per_second,
            "milliseconds": vars(figures.milliseconds),
            "times_as_long": vars(figures.ratio),
            "times_as_long_in_total": vars(figures.total_ratio),
        }

    return {
        "dataset": report.dataset,
        "videos": report.videos,
        "threads": report.threads,
        "seconds": report.seconds,
        "machine": vars(report.machine),
        "results": [
            {"access": str(result.access), **vars(result.access), "readers": [row(each) for each in result.rows]}
            for result in report.results
        ],
        "missing": report.missing,
        "left_out": report.left_out,
    }


def write_report_chart(report: Report, path: Path, *, overwrite: bool = False, sources: Iterable[str] = ()) -> None:
    """A bar for each reader, in milliseconds for a request, as `write_chart` writes them."""

    def bar(row: Row) -> Bar:
        milliseconds, ours = row.figures.milliseconds, row.reader == OURS
        text = f"{milliseconds.value:.1f} ms" + ("" if ours else f", {row.figures.ratio.value:.1f} x")
        return Bar(f"{row.reader}, {row.files}", milliseconds, text, ours)

    groups = [Group(str(result.access), tuple(map(bar, result.rows))) for result in report.results]
    machine = report.machine
    note = f"{machine.cpu}, {machine.cores} cores, {report.threads} threads; {machine.date}"
    missing = f"; {len(report.missing)} could not be measured" if report.missing else ""
    title = "Time to read, shorter is better"
    write_chart(groups, path, title=title, note=note + missing, overwrite=overwrite, sources=sources)


def report_table(report: Report) -> Table:
    """A row for each reader, the access patterns one below the other."""
    table = Table("", "reader", "reads", "requests", "ms", "frames/s", "times as long", "in total")
    for result in report.results:
        for place, row in enumerate(result.rows):
            figures = row.figures
            cells = [row.reader, row.files, str(figures.requests), str(figures.milliseconds)]
            cells += [f"{row.frames_per_second:.0f}", *(("", "") if place == 0 else _compared(figures))]
            table.add_row("" if place else str(result.access), *cells, end_section=place == len(result.rows) - 1)
    return table


def _compared(figures: Figures) -> tuple[str, str]:
    return str(figures.ratio), str(figures.total_ratio)


def report_lines(report: Report) -> list[str]:
    """The lines below the table: how it was measured, and what was not measured, with the reason."""
    machine = report.machine
    where = f"{machine.cpu}, {machine.cores} cores, load {machine.load:.1f}"
    return [
        f"{counted(report.videos, 'video')}, {counted(report.threads, 'thread')}; {where}",
        "ms: median of a request; times as long: median over the same requests; in total: all of them together.",
        f"In brackets the intervals of {CONFIDENCE:.0%} confidence, from a bootstrap.",
        *(f"not measured: {name}: {reason}" for name, reason in report.missing.items()),
        *(f"left out: {name}: {reason}" for name, reason in report.left_out.items()),
    ]
