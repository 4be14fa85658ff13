"""What `shortgop bench` measured, as a table, as JSON and as a chart."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table

from .chart import Bar, Group, write_chart
from .measure import OURS, Report, Row


def report_json(report: Report) -> dict[str, Any]:
    """The report as plain JSON values."""

    def row(row: Row) -> dict[str, Any]:
        figures = row.figures
        return {
            "reader": row.reader,
            "files": row.files,
            "frames_per_second": row.frames_per_second,
            "milliseconds": vars(figures.milliseconds),
            "times_as_long": vars(figures.ratio),
        }

    return {
        "dataset": report.dataset,
        "videos": report.videos,
        "threads": report.threads,
        "rounds": report.rounds,
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
        text = f"{milliseconds.median:.1f} ms" + ("" if ours else f", {row.figures.ratio.median:.1f} x")
        return Bar(f"{row.reader}, {row.files}", milliseconds, text, ours)

    groups = [Group(str(result.access), tuple(map(bar, result.rows))) for result in report.results]
    machine = report.machine
    note = f"{machine.cpu}, {machine.cores} cores, {report.threads} threads; {machine.date}"
    missing = f"; {len(report.missing)} could not be measured" if report.missing else ""
    title = "Time to read, shorter is better"
    write_chart(groups, path, title=title, note=note + missing, overwrite=overwrite, sources=sources)


def report_table(report: Report) -> Table:
    """A row for each reader, the access patterns one below the other."""
    table = Table("", "reader", "reads", "ms", "frames/s", "times as long")
    for result in report.results:
        for place, row in enumerate(result.rows):
            compared = "" if place == 0 else str(row.figures.ratio)
            cells = (row.reader, row.files, str(row.figures.milliseconds), f"{row.frames_per_second:.0f}", compared)
            table.add_row("" if place else str(result.access), *cells, end_section=place == len(result.rows) - 1)
    return table


def report_lines(report: Report) -> list[str]:
    """What stands below the table: how it was measured, and what was not, with the reason."""
    machine = report.machine
    how = f"{report.videos} videos, {report.threads} threads; medians of {report.rounds} rounds (extremes)"
    return [
        f"{how}; {machine.cpu}, {machine.cores} cores, load {machine.load:.1f}",
        *(f"not measured: {name}: {reason}" for name, reason in report.missing.items()),
        *(f"left out: {name}: {reason}" for name, reason in report.left_out.items()),
    ]
