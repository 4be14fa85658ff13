"""What libav's libraries log while something is tried: their errors alone say little."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import av


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """A list that gets the warnings and errors of this thread. At other times nothing is logged, as PyAV has it: with
    several threads it has led to deadlocks."""
    texts: list[str] = []
    av.logging.set_level(av.logging.WARNING)
    try:
        with av.logging.Capture() as log:
            try:
                yield texts
            finally:
                texts += [f"{library}: {text.strip()}" for _, library, text in log]
    finally:
        av.logging.set_level(None)
