"""`make gpu-check`: runs the checks of checks.py on the GPU of this machine, and ends within eight minutes.

Writes gpu-<name>.json after every check, into the folder of --results or else benchmarks/results. The exit status is 0
when all passed, 1 when one failed, and 3 when none failed and one was skipped. With SHORTGOP_REQUIRE_GPU=1 a skipped
check has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from check_order import following
from check_process import Processes
from check_report import (
    Check,
    Outcome,
    again,
    details,
    document,
    exit_status,
    limit_seconds,
    not_started,
    outcome_of,
    results_name,
    table,
    where_a_gpu_is_required,
)
from checkout import commit
from checks import CHECKS, ENVIRONMENT, NEED_NO_WHEELS, NVDEC

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SAMPLES = ROOT / "gpu_wheels" / "samples"
TOTAL_SECONDS = 470.0
REQUIRE_GPU = "SHORTGOP_REQUIRE_GPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [check.name for check in CHECKS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="CHECK", help=f"of {', '.join(names)}")
    parser.add_argument("--seconds", type=float, default=TOTAL_SECONDS, help="for all checks together")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where the JSON goes")
    parser.add_argument("--samples", type=Path, default=SAMPLES, metavar="FOLDER", help="of `make gpu-wheels`")
    parser.add_argument("--lacking", default="", help="why only the checks run that need no wheels: start.py says it")
    options = parser.parse_args()
    # The environment names the file of results.
    checks = [check for check in CHECKS if not options.only or check.name in {ENVIRONMENT, *options.only}]
    if options.lacking:
        print(f"gpu-check: {options.lacking}")
        checks = [check for check in checks if check.name in NEED_NO_WHEELS]
    require_gpu = os.environ.get(REQUIRE_GPU, "") not in {"", "0"}
    with tempfile.TemporaryDirectory(prefix="gpu-check-samples-", ignore_cleanup_errors=True) as made:
        samples = options.samples if options.samples.is_dir() else Path(made)
        outcomes, path = run_all(
            checks, samples, options.results, total_seconds=options.seconds, require_gpu=require_gpu, note=print
        )
    # The table comes last: where only the end of what is printed is kept, that is what it has.
    print(f"\n{details(outcomes)}\n\n{table(outcomes)}\n\n{f'written to {path}' if path else 'not written'}")
    if option := again(outcomes):
        print(f"there was no time for all; this runs the others: {option}")
    if options.lacking:
        sys.exit(f"gpu-check: all other checks need the wheels: {options.lacking}")
    if path is None or path.parent != options.results:
        sys.exit(f"gpu-check: the results could not be written into {options.results}")
    sys.exit(exit_status(outcomes))


def run_all(
    checks: Sequence[Check],
    samples: Path,
    results: Path,
    *,
    total_seconds: float,
    require_gpu: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> tuple[list[Outcome], Path | None]:
    """Run checks, and write what came of them into `results` after each. They run in this order, unless one fails or
    hangs: see `check_order`.

    Returns the outcomes, and the file. Where it cannot be written into `results`, it is in a temporary folder; None
    where that fails too. A check for which no time is left is skipped. If the check of the environment was skipped,
    there is no GPU, and all other checks are skipped too; if that of NVDEC's capabilities was, those that need NVDEC
    are.
    """
    started = time.monotonic()
    head: dict[str, Any] = {"started": datetime.now(UTC).isoformat(timespec="seconds"), **_commit()}
    outcomes: list[Outcome] = []
    content: dict[str, Any] = {}
    written: Path | None = None
    no_gpu = no_nvdec = ""
    path = results / f"{results_name('unknown')}.json"
    waiting = list(checks)
    with Processes() as processes:
        while waiting:
            check = waiting.pop(0)
            left = total_seconds - (time.monotonic() - started)
            limit = limit_seconds(check, left)
            if lacking := no_gpu or (check.needs_nvdec and no_nvdec):
                outcome = not_started(check, lacking)
            elif limit is None:
                outcome = not_started(check, f"only {max(0, left):.0f} s were left", lacked_time=True)
            else:
                note(f"{time.monotonic() - started:5.0f} s  {check.name}: {check.question}")
                ended, limit = processes.run(check, samples, left, waiting)
                outcome = outcome_of(check, ended, limit)
                if processes.not_ahead and "not_ahead" not in head:
                    head["not_ahead"] = processes.not_ahead
                    note(f"{time.monotonic() - started:5.0f} s  {processes.not_ahead}")
                note(f"{time.monotonic() - started:5.0f} s  {outcome.result}{': ' if outcome.why else ''}{outcome.why}")
            if check.name == ENVIRONMENT:
                path = _renamed(path, results / f"{results_name(outcome.figures.get('gpu'))}.json")
                # Without a GPU all others would be skipped too, one by one.
                no_gpu = outcome.why if outcome.result == "skipped" else ""
                head |= {name: outcome.figures.get(name) for name in ("gpu", "driver", "libraries")}
            if check.name == NVDEC and outcome.result == "skipped" and not outcome.lacked_time:
                no_nvdec = f"{NVDEC} was skipped: {outcome.why}"
            outcomes.append(where_a_gpu_is_required(outcome) if require_gpu else outcome)
            waiting = following(check, outcome, waiting)
            seconds = round(time.monotonic() - started, 1)
            content = document({**head, "seconds": seconds}, outcomes, waiting)
            # The checks go on where it cannot be written: what is printed at the end has the results in short.
            written = _written(path, content, note)
    if outcomes and written is None:
        with suppress(OSError):
            written = _written(Path(tempfile.mkdtemp(prefix="gpu-check-results-"), path.name), content, note)
    return outcomes, written


def _commit() -> dict[str, Any]:
    """The commit of the checkout, or that of the wheels where the checkout came without its history."""
    if known := commit(ROOT):
        return {"commit": known}
    carried = ROOT / "gpu_wheels" / "commit"
    return {"commit": None, "commit_of_wheels": carried.read_text().strip() if carried.exists() else None}


def _renamed(path: Path, name: Path) -> Path:
    # Where the folder cannot be written, all results go elsewhere in the end.
    with suppress(OSError):
        if path.exists():
            path.replace(name)
    return name


def _written(path: Path, content: dict[str, Any], note: Callable[[str], None]) -> Path | None:
    """The path, where that is written now."""
    new = path.with_suffix(".json.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(content, indent=1) + "\n")
        new.replace(path)
    except OSError as error:
        note(f"the results cannot be written ({error}); --results FOLDER writes them elsewhere")
        return None
    return path


if __name__ == "__main__":
    main()
