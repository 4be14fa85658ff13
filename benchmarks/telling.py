"""The dozen rows of docs/benchmarks.md: the most important of the cases that `run.py` measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import floor
import scenarios
from results import OURS, Case, Goal, Row, markdown_row

# The last row of a case, whatever it is called there.
_LAST = ("", "")


class Telling(NamedTuple):
    """A row of the page: the group and name of a case, a reader with its files, and how the row names both."""

    what: str
    against: str
    group: str
    case: str
    reader: tuple[str, str]


_CLIP, _FRAME = "16 frames, stride 4", "a random frame"
_AT_256, _FROM_720 = scenarios.clips_group(256, 256), scenarios.clips_group(720, 256)
_SOURCES, _SEGMENTS = ("torchcodec", scenarios.SOURCES), ("torchcodec", scenarios.EXPORTED)
_OPENCV = ("opencv-seek", scenarios.SOURCES)
_ON_SOURCES, _ON_SEGMENTS = "TorchCodec on the sources", "TorchCodec on the same segments as MP4"

TELLING = (
    Telling(f"{_CLIP}, of 256p", _ON_SOURCES, _AT_256, "stride 4", _SOURCES),
    Telling(f"{_CLIP}, of 256p", _ON_SEGMENTS, _AT_256, "stride 4", _SEGMENTS),
    Telling(f"{_FRAME}, of 256p", _ON_SOURCES, _AT_256, "single frame", _SOURCES),
    Telling(f"{_FRAME}, of 256p", _ON_SEGMENTS, _AT_256, "single frame", _SEGMENTS),
    Telling(f"{_CLIP}, of 720p kept at 256", _ON_SOURCES, _FROM_720, "stride 4", _SOURCES),
    Telling(f"{_FRAME}, of 720p kept at 256", _ON_SOURCES, _FROM_720, "single frame", _SOURCES),
    Telling("a batch of 128 random frames, of 256p", _ON_SOURCES, "128 random frames", "a batch", _SOURCES),
    Telling("16 frames one second apart, of 720p60", _ON_SOURCES, scenarios.LONG_AT_720, "60 s", _SOURCES),
    Telling("16 frames one second apart, of 720p60", "OpenCV on the sources", scenarios.LONG_AT_720, "60 s", _OPENCV),
    Telling("16 frames one second apart, of 720p60 kept at 256", OURS, scenarios.BY_LENGTH, "anywhere", _LAST),
    Telling("a new process to its first batch", OURS, "A new process", "open and first batch", _LAST),
    Telling(f"{_CLIP}, of 256p", OURS, floor.group_of("256p"), _CLIP, (OURS, scenarios.DATASET)),
)


def telling_table(cases: Sequence[Case]) -> str:
    """The rows that were measured: the first reader of a case in milliseconds, the other as a multiple of it."""
    lines = [markdown_row(["what is read", "by", "takes", "by", "takes"]), markdown_row(["---"] * 5)]
    for telling in TELLING:
        for case in cases:
            row, first = _row(case, telling), case.rows[0]
            if row is not None:
                # Where shortgop is compared with itself, its files say what differs.
                files = ("", "") if row.reader != first.reader else (f", {first.files}", f", {row.files}")
                by = [f"{first.reader}{files[0]}", f"{telling.against}{files[1]}"]
                lines.append(markdown_row([telling.what, by[0], f"{first.milliseconds} ms", by[1], f"{row.ratio} x"]))
    return "\n".join(lines)


def _row(case: Case, telling: Telling) -> Row | None:
    if not case.group.startswith(telling.group) or not case.name.startswith(telling.case):
        return None
    if telling.reader == _LAST:
        return case.rows[-1]
    return next((row for row in case.rows if (row.reader, row.files) == telling.reader), None)


def goals_in_words(goals: Sequence[Goal]) -> str:
    """How many goals were reached, and a list of those that were not."""
    missed = [
        f"- {goal.text}: {goal.measured} x, where {'at most ' if goal.at_most else ''}{goal.target:g} x was the goal"
        for goal in goals
        if not goal.reached
    ]
    reached = f"{len(goals) - len(missed)} of {len(goals)} goals are reached"
    return "\n".join([f"{reached}; not reached are", "", *missed]) if missed else f"{reached}."
