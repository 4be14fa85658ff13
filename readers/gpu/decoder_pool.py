"""A bounded pool of open decoders that all threads of a process share: one for each GOP that is being decoded."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from ...manifests.records import CodecConfig

Opened = TypeVar("Opened")


def same(config: CodecConfig) -> Hashable:
    """The kind of a configuration where a decoder is good for one only."""
    return config


class DecoderPool(Generic[Opened]):
    """Open decoders by the kind of codec configurations that they decode. Opening one takes tens of milliseconds on a
    GPU; a GOP takes a few.

    A decoder is used by one thread at a time. Idle decoders wait for the next GOP of their kind: at most `max_idle` of
    them, whose pictures have at most `max_idle_pixels` together, and more than that only if more were in use at once.
    The ones used longest ago are closed first.
    """

    def __init__(
        self,
        open_one: Callable[[CodecConfig], Opened],
        *,
        max_idle: int,
        max_idle_pixels: int,
        kind: Callable[[CodecConfig], Hashable] = same,
    ) -> None:
        self._open_one, self._kind = open_one, kind
        self._max_idle, self._max_idle_pixels = max_idle, max_idle_pixels
        self._lock = threading.Lock()
        # By a number that grows, so the first one was used longest ago.
        self._idle: OrderedDict[int, tuple[CodecConfig, Opened]] = OrderedDict()
        self._of_kind: dict[Hashable, list[int]] = {}
        self._next_number = 0
        # Between two requests the decoders of all threads are idle at once, and the next request needs them all again.
        self._in_use = self._in_use_pixels = 0

    @contextlib.contextmanager
    def taken(self, config: CodecConfig) -> Iterator[tuple[Opened, bool]]:
        """A decoder for this thread alone, and whether it was open already. After an error it is not used again."""
        known = self._take(config)
        try:
            decoder = self._open_one(config) if known is None else known
            yield decoder, known is not None
        except BaseException:
            with self._lock:
                self._count_use(config, -1)
            raise
        # Not after an error: packets and pictures of the GOP may be left in it.
        self._put(config, decoder)

    def shrink(self) -> None:
        """Close what is idle, as the device has no room for it. From now on no more pixels are kept than are in use at
        once."""
        with self._lock:
            dropped = [self._remove(number) for number in list(self._idle)]
            self._max_idle_pixels = self._in_use_pixels
        dropped.clear()

    def _take(self, config: CodecConfig) -> Opened | None:
        with self._lock:
            self._count_use(config, 1)
            self._max_idle = max(self._max_idle, self._in_use)
            self._max_idle_pixels = max(self._max_idle_pixels, self._in_use_pixels)
            numbers = self._of_kind.get(self._kind(config))
            if not numbers:
                return None
            # One that decoded this configuration last needs no reconfiguring. Of equal ones the last: its memory is the
            # most likely to be in the caches.
            ready = (number for number in reversed(numbers) if self._idle[number][0] == config)
            return self._remove(next(ready, numbers[-1]))[1]

    def _put(self, config: CodecConfig, decoder: Opened) -> None:
        dropped = []
        with self._lock:
            self._count_use(config, -1)
            self._idle[self._next_number] = config, decoder
            self._of_kind.setdefault(self._kind(config), []).append(self._next_number)
            self._next_number += 1
            while len(self._idle) > self._max_idle or (
                len(self._idle) > 1 and self._idle_pixels() > self._max_idle_pixels
            ):
                dropped.append(self._remove(next(iter(self._idle))))
        # Closed outside the lock: the driver takes milliseconds for it.
        dropped.clear()

    def _count_use(self, config: CodecConfig, change: int) -> None:
        self._in_use += change
        self._in_use_pixels += change * _pixels(config)

    def _idle_pixels(self) -> int:
        return sum(_pixels(config) for config, _ in self._idle.values())

    def _remove(self, number: int) -> tuple[CodecConfig, Opened]:
        config, decoder = self._idle.pop(number)
        kind = self._kind(config)
        numbers = self._of_kind[kind]
        numbers.remove(number)
        if not numbers:
            del self._of_kind[kind]
        return config, decoder


def _pixels(config: CodecConfig) -> int:
    return config.width * config.height
