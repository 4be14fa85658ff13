"""A bounded pool of open decoders that all threads of a process share: one for each GOP that is being decoded."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from ...manifests.records import CodecConfig

Opened = TypeVar("Opened")


class DecoderPool(Generic[Opened]):
    """Open decoders by codec configuration. Opening one takes tens of milliseconds on a GPU; a GOP takes a few.

    A decoder is used by one thread at a time. Those that nobody uses wait for the next GOP of their configuration, at
    most `max_idle` of them, whose pictures have at most `max_idle_pixels` together; the ones used longest ago go first.
    """

    def __init__(self, open_one: Callable[[CodecConfig], Opened], *, max_idle: int, max_idle_pixels: int) -> None:
        self._open_one = open_one
        self._max_idle, self._max_idle_pixels = max_idle, max_idle_pixels
        self._lock = threading.Lock()
        # By a number that grows, so the first one was used longest ago.
        self._idle: OrderedDict[int, tuple[CodecConfig, Opened]] = OrderedDict()
        self._of_config: dict[CodecConfig, list[int]] = {}
        self._next_number = 0

    @contextlib.contextmanager
    def taken(self, config: CodecConfig) -> Iterator[tuple[Opened, bool]]:
        """A decoder for this thread alone, and whether it was open already. After an error it is not used again."""
        known = self._take(config)
        decoder = self._open_one(config) if known is None else known
        yield decoder, known is not None
        # Not after an error: packets and pictures of the GOP may be left in it.
        self._put(config, decoder)

    def _take(self, config: CodecConfig) -> Opened | None:
        with self._lock:
            numbers = self._of_config.get(config)
            # The last one: its memory is the most likely to be in the caches.
            return self._remove(numbers[-1])[1] if numbers else None

    def _put(self, config: CodecConfig, decoder: Opened) -> None:
        dropped = []
        with self._lock:
            self._idle[self._next_number] = config, decoder
            self._of_config.setdefault(config, []).append(self._next_number)
            self._next_number += 1
            while len(self._idle) > self._max_idle or (
                len(self._idle) > 1 and self._idle_pixels() > self._max_idle_pixels
            ):
                dropped.append(self._remove(next(iter(self._idle))))
        # Closed outside the lock: the driver takes milliseconds for it.
        dropped.clear()

    def _idle_pixels(self) -> int:
        return sum(config.width * config.height for config, _ in self._idle.values())

    def _remove(self, number: int) -> tuple[CodecConfig, Opened]:
        config, decoder = self._idle.pop(number)
        numbers = self._of_config[config]
        numbers.remove(number)
        if not numbers:
            del self._of_config[config]
        return config, decoder
