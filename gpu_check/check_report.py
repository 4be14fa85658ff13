"""What checks find: the lines that a check writes, and the outcomes that are made of them. Pure functions."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Result = Literal["passed", "failed", "skipped"]
RESULTS: tuple[Result, ...] = ("passed", "failed", "skipped")
# A check that may run for less than this part of its limit is not started: it would be cut off in the middle.
FEWEST_PART = 0.5
# How long to wait for a process after SIGKILL: a process inside the driver may take a while to end.
GRACE_SECONDS = 10.0

_LOG_LINES, _LOG_CHARACTERS = 20, 4000
_ROW_CHARACTERS, _DETAIL_CHARACTERS = 200, 400


@dataclass(frozen=True)
class Check:
    """A function that runs in a process of its own.

    `question` is what it answers. `function` is "module:function"; it takes a `Record`. It is killed after `seconds`.
    One that `needs_nvdec` is not started where NVDEC cannot be used. `ways` names the code that it runs through, and
    `explains` the check whose failure it throws light on; see `check_order`.
    """

    name: str
    question: str
    function: str
    seconds: float
    needs_nvdec: bool = False
    ways: tuple[str, ...] = ()
    explains: str = ""


@dataclass(frozen=True)
class Ended:
    """How the process of a check ended.

    `returncode` is negative for a signal, and None for a process that did not even end when it was killed. `killed`
    says why it was killed, if it was, and `time_was_up` that it had run for as long as it might. `report` and `log` are
    what it wrote, complete or not.
    """

    returncode: int | None
    seconds: float
    killed: str = ""
    time_was_up: bool = False
    report: bytes = b""
    log: bytes = b""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check. `log` has the last lines that it printed. `lacked_time` says that it was not run, or not
    to its end, because the time for all checks was over, and `hung` that it did not end within its own time. Until
    `began_after_seconds` its process imported; None where that did not end."""

    name: str
    question: str
    result: Result
    why: str
    seconds: float
    figures: dict[str, Any] = field(default_factory=dict)
    log: tuple[str, ...] = ()
    lacked_time: bool = False
    hung: bool = False
    began_after_seconds: float | None = None


@dataclass(frozen=True)
class Report:
    """What a check wrote. `result` is None when it did not come to its end. `lacked_time` says that it had no time to
    find all. `began_after_seconds` is None when its process did not come to an end of its imports."""

    figures: dict[str, Any]
    result: Result | None
    why: str
    lacked_time: bool = False
    began_after_seconds: float | None = None

    @property
    def is_cut_off_in_imports(self) -> bool:
        """Whether its process ended while it still imported."""
        return self.result is None and self.began_after_seconds is None


def parse_report(data: bytes) -> Report:
    """Read the lines of a report: JSON objects, one when it begins, {"figure": name, "value": ...}, and last one with
    the result.

    Other lines are left out: a check that crashed may have written half a line, or anything else.
    """
    figures: dict[str, Any] = {}
    result: Result | None = None
    why, lacked_time, began = "", False, None
    for text in data.decode(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not isinstance(line, dict):
            continue
        if isinstance(line.get("figure"), str) and "value" in line:
            figures[line["figure"]] = line["value"]
        elif line.get("result") in {"passed", "failed", "skipped"}:
            result, why = line["result"], str(line.get("why", ""))
            lacked_time = bool(line.get("lacked_time"))
        elif isinstance(line.get("began_after_seconds"), float):
            began = line["began_after_seconds"]
    return Report(figures, result, why, lacked_time, began)


def outcome_of(check: Check, ended: Ended, limit_seconds: float | None = None) -> Outcome:
    """The outcome of a check that was run. `limit_seconds` is how long it might run: where that is less than its own
    limit, that it did not end says nothing of what it checks."""
    report = parse_report(ended.report)
    result, why = _verdict(report, ended)
    shortened = limit_seconds is not None and limit_seconds < check.seconds
    lacked_time = shortened and ended.time_was_up and report.result != "failed"
    if lacked_time and limit_seconds is not None:
        result, why = "skipped", f"time was up after {limit_seconds:.0f} s{_still_there(ended)}"
    seconds, log = round(ended.seconds, 2), last_lines(ended.log)
    hung = ended.time_was_up and not lacked_time
    # With its whole limit it would find no more at another time.
    lacked_time |= shortened and report.lacked_time and result == report.result
    return Outcome(
        *(check.name, check.question, result, why, seconds, report.figures, log, lacked_time, hung),
        began_after_seconds=report.began_after_seconds,
    )


def not_started(check: Check, why: str, *, lacked_time: bool = False) -> Outcome:
    """The outcome of a check that was not run."""
    return Outcome(check.name, check.question, "skipped", why, 0, lacked_time=lacked_time)


def where_a_gpu_is_required(outcome: Outcome) -> Outcome:
    """The same outcome, but a skipped check has failed."""
    if outcome.result != "skipped":
        return outcome
    return replace(outcome, result="failed", why=f"skipped, and SHORTGOP_REQUIRE_GPU is set: {outcome.why}")


def _verdict(report: Report, ended: Ended) -> tuple[Result, str]:
    if report.result == "failed":
        return "failed", report.why
    if ended.returncode == 0 and report.result is not None and not ended.killed:
        return report.result, report.why
    importing = ", while it still imported" if report.is_cut_off_in_imports else ""
    if ended.killed:
        end = f"it was killed: {ended.killed}{importing}{_still_there(ended)}"
    elif ended.returncode is not None and ended.returncode < 0:
        end = f"its process was ended by {signal_name(-ended.returncode)}{importing}"
    elif ended.returncode:
        end = f"its process ended with status {ended.returncode}{importing}"
    else:
        end = f"its process ended without a result{importing}"
    return "failed", f"it {report.result}, and then {end}" if report.result is not None else end


def _still_there(ended: Ended) -> str:
    return ", and its process has still not ended" if ended.returncode is None else ""


def signal_name(number: int) -> str:
    """Such as SIGSEGV."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_lines(log: bytes) -> tuple[str, ...]:
    """The last lines of what a process printed, without control characters, and those of importlib: where imports
    crash or hang, most would be."""
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", log.decode(errors="replace")).replace("\r", "\n")
    text = re.sub(r'(?m)^.*"<frozen importlib.*\n?', "", text)
    text = re.sub(r"[^\n\t -~\u00a0-\uffff]", "?", text)[-_LOG_CHARACTERS:]
    return tuple(line for line in text.splitlines() if line.strip())[-_LOG_LINES:]


def limit_seconds(check: Check, left_seconds: float) -> float | None:
    """How long a check may run when so much time is left for all; None when that is too little to start it."""
    limit = min(check.seconds, left_seconds - GRACE_SECONDS)
    return limit if limit >= FEWEST_PART * check.seconds else None


def exit_status(outcomes: Sequence[Outcome]) -> int:
    """0 when all passed, 1 when one failed, 3 when none failed and one was skipped."""
    results = {outcome.result for outcome in outcomes}
    if "failed" in results or not outcomes:
        return 1
    return 3 if "skipped" in results else 0


def results_name(gpu: str | None) -> str:
    """The name of the file of results, without its suffix; None where there is no GPU."""
    words = re.findall(r"[a-z0-9]+", (gpu or "none").lower())
    return "-".join(["gpu", *words[:8]])


def document(head: Mapping[str, Any], outcomes: Sequence[Outcome], waiting: Sequence[Check]) -> dict[str, Any]:
    """What the file of results has. `waiting` are the checks that were not run yet."""
    results = [outcome.result for outcome in outcomes]
    counts: dict[str, int] = {result: results.count(result) for result in RESULTS}
    return {
        **head,
        **counts,
        "not_run_yet": [check.name for check in waiting],
        "checks": [asdict(outcome) for outcome in outcomes],
    }


def table(outcomes: Sequence[Outcome]) -> str:
    """A table for people: a row for each check, its figures below it."""
    width = max((len(outcome.name) for outcome in outcomes), default=0)
    lines = []
    for outcome in outcomes:
        why = f"  {_one_line(outcome.why)}" if outcome.why else ""
        lines.append(f"{outcome.result:8}{outcome.name:{width}}{outcome.seconds:7.1f} s{why}")
        lines += [
            f"{'':8}{name}: {_one_line(value)}"
            for name, value in outcome.figures.items()
            if not isinstance(value, dict | list)
        ]
    counts = [
        f"{sum(each.result == result for each in outcomes)} {result}" for result in ("passed", "failed", "skipped")
    ]
    return "\n".join([*lines, ", ".join(counts)])


def details(outcomes: Sequence[Outcome]) -> str:
    """What the table has no room for: lists and other figures of several values, and what failed checks printed last.
    Each is cut: the file of results has all of it, and may stay behind on the machine."""
    lines = []
    for outcome in outcomes:
        for name, value in outcome.figures.items():
            if isinstance(value, dict | list):
                text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
                lines.append(f"{outcome.name}: {_one_line(name)}: {_one_line(text, _DETAIL_CHARACTERS)}")
        if outcome.result == "failed" and outcome.log:
            end = " | ".join(outcome.log)[-_DETAIL_CHARACTERS:]
            lines.append(f"{outcome.name}: printed last: {_one_line(end, _DETAIL_CHARACTERS)}")
    return "\n".join(lines)


def again(outcomes: Sequence[Outcome]) -> str:
    """The option that runs those checks for which there was no time; empty where there was time for all."""
    names = [outcome.name for outcome in outcomes if outcome.lacked_time]
    return " ".join(["--only", *names]) if names else ""


def _one_line(value: Any, characters: int = _ROW_CHARACTERS) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= characters else f"{text[:characters]}..."
