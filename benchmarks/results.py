"""Results of measurements: kept as JSON, shown as Markdown tables and as a chart."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shortgop.comparison.chart import Bar, Group, write_chart
from shortgop.comparison.estimates import CONFIDENCE, Estimate
from shortgop.comparison.machine import Machine
from shortgop.comparison.timing import Figures

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
ALL_PAGE = ROOT / "docs" / "benchmarks-all.md"
OURS = "shortgop"
STATISTICS = f"medians over requests, bootstrap intervals of {CONFIDENCE:.0%}"
# The tables have all readers; a chart of all would be too tall to look at.
_CHARTED = ("torchcodec", "opencv", "decord")
_NOT_CHARTED = ("stride 1", "stride 8", "300 s")


@dataclass(frozen=True)
class Row:
    """One reader on one kind of files: what `comparison.timing.Figures` says, against the first row of the case."""

    reader: str
    files: str
    requests: int
    milliseconds: Estimate
    ratio: Estimate
    total_ratio: Estimate

    @classmethod
    def of(cls, reader: str, files: str, figures: Figures) -> Row:
        return cls(reader, files, figures.requests, figures.milliseconds, figures.ratio, figures.total_ratio)


@dataclass(frozen=True)
class Case:
    """Readers that did the same requests in turn, the one that the others are compared with first.

    `group` is the table it belongs to, `taken` when it was measured and how busy the machine was.
    """

    scenario: int
    group: str
    name: str
    rows: tuple[Row, ...]
    missing: dict[str, str] = field(default_factory=dict)
    taken: str = ""

    def ratio(self, reader: str, files: str) -> Estimate | None:
        """How many times as long as the first row a reader took."""
        return next((row.ratio for row in self.rows if (row.reader, row.files) == (reader, files)), None)


@dataclass(frozen=True)
class Goal:
    """A ratio to be reached, or not to be exceeded, and what was measured."""

    text: str
    target: float
    measured: Estimate
    at_most: bool = False

    @property
    def reached(self) -> bool:
        return self.measured.value <= self.target if self.at_most else self.measured.value >= self.target


def taken_on(machine: Machine) -> str:
    """When, and how busy it was: what `Case.taken` says."""
    return f"{machine.date}, load {machine.load:.1f}"


def machine_name(machine: Machine) -> str:
    """Fit for a file name."""
    words = re.findall(r"[a-z0-9]+", machine.cpu.lower())
    return "-".join([*words[:4], str(machine.cores), "cores"])


def write_json(name: str, machine: Machine, quick: bool, content: dict[str, Sequence[Any]]) -> Path:
    """`content` names lists of dataclasses."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    lists = {key: [asdict(each) for each in values] for key, values in content.items()}
    head = {"statistics": STATISTICS, "machine": asdict(machine), "quick": quick}
    path.write_text(json.dumps({**head, **lists}, indent=1, default=str) + "\n")
    return path


def read_cases(name: str, machine: Machine, quick: bool) -> list[Case]:
    """The cases that `write_json` wrote under this name; ends the program where they are not of a run like this one."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    same = ("cpu", "cores", "system", "python", "versions")
    wanted = (STATISTICS, quick, *(asdict(machine)[key] for key in same))
    if (found.get("statistics"), found["quick"], *(found["machine"][key] for key in same)) != wanted:
        run = f"{'quick' if found['quick'] else 'full'}, {found['machine']['date']}"
        sys.exit(f"bench: {path} is of another run ({run}): measure all, or --dry")
    return _cases(found)


def read_run(path: Path) -> tuple[Machine, bool, list[Case]]:
    """What `write_json` wrote: the machine, whether the run was the quick one, and the cases."""
    found = json.loads(path.read_text())
    return Machine(**found["machine"]), found["quick"], _cases(found)


def _cases(found: dict[str, Any]) -> list[Case]:
    return [
        Case(
            case["scenario"],
            case["group"],
            case["name"],
            tuple(
                Row(
                    row["reader"],
                    row["files"],
                    row["requests"],
                    *(Estimate(**row[name]) for name in ("milliseconds", "ratio", "total_ratio")),
                )
                for row in case["rows"]
            ),
            case["missing"],
            case["taken"],
        )
        for case in found["cases"]
    ]


def tables(cases: Sequence[Case]) -> str:
    """A table for each group: a row for each reader, a column for each case; the first in ms, the others in ratios."""
    texts = []
    for group in dict.fromkeys((case.scenario, case.group) for case in cases):
        members = [case for case in cases if (case.scenario, case.group) == group]
        readers = dict.fromkeys((row.reader, row.files) for case in members for row in case.rows)
        lines = [f"**{group[0]}. {group[1]}** ({', '.join(dict.fromkeys(case.taken for case in members))})", ""]
        lines.append(markdown_row(["", "reads", *(case.name for case in members)]))
        lines.append(markdown_row(["---"] * (2 + len(members))))
        for reader, files in readers:
            cells = [_cell(case, reader, files) for case in members]
            lines.append(markdown_row([reader, files, *cells]))
        lines += _missing(members)
        texts.append("\n".join(lines))
    return "\n\n".join(texts)


def _cell(case: Case, reader: str, files: str) -> str:
    for place, row in enumerate(case.rows):
        if (row.reader, row.files) == (reader, files):
            return f"**{row.milliseconds} ms**" if place == 0 else f"{row.ratio} x"
    return ""


def _missing(cases: Sequence[Case]) -> list[str]:
    reasons = {f"{name}: {why}" for case in cases for name, why in case.missing.items()}
    return ["", *(f"Not measured: {reason}" for reason in sorted(reasons))] if reasons else []


def goals_table(goals: Sequence[Goal]) -> str:
    """Goals and what was measured."""
    lines = [markdown_row(["goal", "target", "measured", ""]), markdown_row(["---"] * 4)]
    lines += [
        markdown_row(
            [
                goal.text,
                f"{'at most ' if goal.at_most else ''}{goal.target:g} x",
                f"{goal.measured} x",
                "reached" if goal.reached else "not reached",
            ]
        )
        for goal in goals
    ]
    return "\n".join(lines)


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def between_markers(page: str, name: str, text: str) -> str:
    """The page with `text` between its markers of this name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"the page has no markers {begin} and {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def write_page(page: Path, name: str, text: str) -> None:
    page.write_text(between_markers(page.read_text(), name, text))


def described(machine: Machine, quick: bool) -> str:
    """One line that says where the figures come from."""
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    run = "quick" if quick else "full"
    return f"{machine.cpu}, {machine.cores} cores, {run} run; Python {machine.python}, {versions}."


def write_cases_chart(cases: Sequence[Case], machine: Machine, path: Path) -> None:
    """A group of bars for each case that has peers: shortgop and its best-known peers."""
    groups = []
    for case in cases:
        bars = [
            Bar(
                f"{row.reader}, {row.files}",
                row.milliseconds,
                f"{row.milliseconds.value:.1f} ms" + ("" if row.reader == OURS else f", {row.ratio.value:.1f} x"),
                row.reader == OURS,
            )
            for row in case.rows
            if row.reader == OURS or row.reader in _CHARTED
        ]
        if len({row.reader for row in case.rows} & set(_CHARTED)) > 1 and not case.name.startswith(_NOT_CHARTED):
            groups.append(Group(f"{case.scenario}. {case.group}: {case.name}", tuple(bars)))
    note = f"{machine.cpu}, {machine.cores} cores, one thread each; {machine.date}"
    write_chart(groups, path, title="Time for a request, shorter is better", note=note, overwrite=True)
