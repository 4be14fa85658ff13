"""What libav's libraries log while something is tried: their errors alone say little."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

import av

# Of what is logged in full, which lines are kept, how many from each end, and how much of each.
_KEPT = re.compile("cuda|cuvid|nvdec|hwaccel|failed|error|supported|min_|max_", re.IGNORECASE)
_MOST_LINES, _MOST_CHARACTERS = 100, 300


@contextlib.contextmanager
def logged(level: int = av.logging.WARNING) -> Iterator[list[str]]:
    """A list that gets what this thread logs, its warnings and errors or more. At other times nothing is logged, as
    PyAV has it: with several threads it has led to deadlocks."""
    texts: list[str] = []
    av.logging.set_level(level)
    try:
        with av.logging.Capture() as log:
            try:
                yield texts
            finally:
                texts += [f"{library}: {text.strip()}" for _, library, text in log]
    finally:
        av.logging.set_level(None)


def logged_in_full(attempt: Callable[[], object]) -> list[str]:
    """What libav's libraries log of CUDA in this attempt, which may fail, with their messages for developers: each
    library and function of the driver that they load, each call that they make, and what fails with which error."""
    with logged(av.logging.TRACE) as texts, contextlib.suppress(Exception):
        attempt()
    kept = [text[:_MOST_CHARACTERS] for text in texts if _KEPT.search(text)]
    return [*kept[:_MOST_LINES], *kept[_MOST_LINES:][-_MOST_LINES:]]
