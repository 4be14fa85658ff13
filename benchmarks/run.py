"""`make bench`: all scenarios but 6, into benchmarks/results, docs/benchmarks.md and docs/benchmarks-all.md."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import cold_open
import floor
import scenarios
import torch
from results import (
    ALL_PAGE,
    OURS,
    PAGE,
    RESULTS,
    Case,
    Goal,
    described,
    goals_table,
    machine_name,
    read_cases,
    read_run,
    tables,
    taken_on,
    write_cases_chart,
    write_json,
    write_page,
)
from rich.console import Console
from telling import goals_in_words, telling_table

from shortgop.comparison.machine import Machine, this_machine

VIDEO_COUNTS = (10, 10_000, 1_000_000)
PROCESSES = 10
# No goal depends on scenario 4.
NOT_QUICK = {4}
console = Console(highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases, each for a shorter time: ten minutes in all")
    parser.add_argument(
        "--only", type=int, nargs="+", choices=(1, 2, 3, 4, 5, 7, 8), help="the others stay as they are"
    )
    parser.add_argument("--dry", action="store_true", help="leave the pages and the results alone")
    parser.add_argument("--pages", type=Path, metavar="JSON", help="measure nothing: write the pages of these results")
    options = parser.parse_args()
    if options.pages:
        write_pages(*read_run(options.pages))
        return
    torch.set_num_threads(1)
    started, machine = time.monotonic(), this_machine()

    def note(text: str) -> None:
        console.print(f"{time.monotonic() - started:6.0f} s  {text}", markup=False)

    sizes = scenarios.QUICK if options.quick else scenarios.FULL
    works: dict[int, Callable[[], list[Case]]] = {
        1: lambda: scenarios.clips(sizes, note),
        2: lambda: scenarios.frames(sizes, note),
        3: lambda: scenarios.long_videos(sizes, note),
        4: lambda: scenarios.near_and_far(sizes, note),
        5: lambda: cold_open.first_batch(VIDEO_COUNTS[: 3 if sizes.full else 2], PROCESSES, note),
        7: lambda: floor.against_the_floor(sizes.videos, sizes.seconds, sizes.seconds_per_case / 2, note),
        8: lambda: scenarios.other_profile(sizes, note),
    }
    numbers = options.only or [number for number in works if sizes.full or number not in NOT_QUICK]
    cases = read_cases(machine_name(machine), machine, options.quick) if options.only and not options.dry else []
    for number in numbers:
        taken = taken_on(this_machine())
        found = [replace(case, taken=taken) for case in works[number]()]
        cases = sorted([case for case in cases if case.scenario != number] + found, key=lambda case: case.scenario)
        console.print(tables(found), markup=False, soft_wrap=True)
        if not options.dry:
            # After each scenario: what took long is not lost with what comes behind it.
            save(machine, cases, quick=options.quick)
    console.print(goals_table(goals_of(cases)), markup=False, soft_wrap=True)
    note("done")


def save(machine: Machine, cases: Sequence[Case], *, quick: bool) -> None:
    """Into benchmarks/results and the pages."""
    name = machine_name(machine)
    write_json(name, machine, quick, {"goals": goals_of(cases), "cases": cases})
    write_cases_chart(cases, machine, RESULTS / f"{name}.png")
    write_pages(machine, quick, cases)


def write_pages(machine: Machine, quick: bool, cases: Sequence[Case]) -> None:
    """A dozen rows into docs/benchmarks.md, and all of them into docs/benchmarks-all.md."""
    head, goals = described(machine, quick), goals_of(cases)
    words, table = ([goals_in_words(goals)], [goals_table(goals)]) if goals else ([], [])
    write_page(PAGE, "results", "\n\n".join([head, telling_table(cases), *words]))
    write_page(ALL_PAGE, "results", "\n\n".join([head, *table, tables(cases)]))


def goals_of(cases: Sequence[Case]) -> list[Goal]:
    """The goals, as far as they were measured."""
    at_256, long_group, same_size = scenarios.clips_group(256, 256), scenarios.LONG_AT_256, scenarios.LONG_AT_720
    wanted = [
        ("16 frames, stride 4, 256p: TorchCodec on our segments", at_256, "stride 4", "torchcodec", 2, True),
        ("16 frames, stride 4, 256p: TorchCodec on the sources", at_256, "stride 4", "torchcodec", 4, False),
        ("a random frame, 256p: TorchCodec on our segments", at_256, "single frame", "torchcodec", 3, True),
        ("a random frame, 256p: TorchCodec on the sources", at_256, "single frame", "torchcodec", 12, False),
        ("720p60 at 256, one second apart: TorchCodec on the sources", long_group, "60 s", "torchcodec", 8, False),
        ("720p60 at 720, one second apart: TorchCodec on the sources", same_size, "60 s", "torchcodec", 8, False),
        ("720p60 at 720, one second apart: OpenCV on the sources", same_size, "60 s", "opencv-seek", 20, False),
        ("720p60 at 256, one second apart: OpenCV on the sources", long_group, "60 s", "opencv-seek", 20, False),
    ]
    goals = []
    for text, group, name, reader, target, segments in wanted:
        files = scenarios.EXPORTED if segments else scenarios.SOURCES
        found = [case.ratio(reader, files) for case in cases if (case.group, case.name) == (group, name)]
        goals += [Goal(text, target, ratio) for ratio in found if ratio is not None]
    for case in cases:
        if case.scenario == 3 and case.group == scenarios.BY_LENGTH:
            last = case.rows[-1]
            text = f"{OURS}: clips of 720p60, {case.name}, of {last.files} against {case.rows[0].files}"
            goals.append(Goal(text, 1.05, last.ratio, at_most=True))
        if case.scenario == 7 and case.name in floor.ACCESSES:
            ratio = case.ratio(OURS, scenarios.DATASET)
            most = 1.25 if floor.ACCESSES[case.name].frames == 1 else 1.10
            goals += [Goal(f"{case.group}: {case.name}", most, ratio, at_most=True)] if ratio else []
    return goals


if __name__ == "__main__":
    main()
