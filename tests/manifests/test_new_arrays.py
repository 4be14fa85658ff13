"""Blocks of an array that several threads fill."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from shortgop.manifests.shared_memory.new_arrays import in_threads

BLOCKS = [(start, start + 10) for start in range(0, 1000, 10)]


@pytest.mark.parametrize("blocks", [[], BLOCKS[:1], BLOCKS])
def test_each_block_is_filled_once(blocks: list[tuple[int, int]]) -> None:
    filled: list[tuple[int, int]] = []
    in_threads(lambda start, stop: filled.append((start, stop)), blocks)
    assert sorted(filled) == blocks


def test_the_first_error_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    others = threading.Event()
    filled: list[int] = []

    def fill(start: int, _stop: int) -> None:
        if start == 0:
            others.set()
            raise OSError("no room")
        # The other thread has one block until then.
        others.wait()
        filled.append(start)

    with pytest.raises(OSError, match="no room"):
        in_threads(fill, BLOCKS)
    assert len(filled) < len(BLOCKS) - 1


class InterruptionError(Exception):
    """What a handler of a signal raises, as Python's own raises KeyboardInterrupt."""


def test_an_interruption_does_not_wait_for_the_blocks_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    filled: list[int] = []

    def interrupt(*_: object) -> None:
        raise InterruptionError

    def fill(start: int, _stop: int) -> None:
        # All threads have been started, and are waited for.
        if start == 100:
            os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.02)
        filled.append(start)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(InterruptionError):
            in_threads(fill, BLOCKS)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(filled) < len(BLOCKS) // 2
