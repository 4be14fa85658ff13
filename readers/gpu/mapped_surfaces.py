"""A decoder's own surfaces, from when they are mapped until their conversions have read them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol


class Event(Protocol):
    """A mark in a stream, behind the work that was launched before it."""

    def synchronize(self) -> object:
        """Wait until that work has ended."""
        ...


class MappedSurfaces:
    """The mapped surfaces of a decoder, at most `most`, by their addresses.

    A surface is unmapped only after an event behind its conversion has passed. The decoder may write an unmapped
    surface at once, on no stream that we know. For one thread at a time.
    """

    def __init__(self, unmap: Callable[[int], None], *, most: int) -> None:
        self._unmap, self._most = unmap, most
        self._unread: list[int] = []
        self._being_read: deque[tuple[Event, list[int]]] = deque()

    def make_room(self) -> None:
        """See that one more can be mapped: wait for the oldest conversions where all are in use."""
        while len(self._unread) + sum(len(addresses) for _, addresses in self._being_read) >= self._most:
            self._unmap_oldest()

    def add(self, address: int) -> None:
        """A surface was mapped."""
        self._unread.append(address)

    def read_before(self, event: Event) -> None:
        """The conversions of all surfaces so far lie before this event."""
        if self._unread:
            self._being_read.append((event, self._unread))
            self._unread = []

    def unmap_all(self) -> None:
        """Unmap what has an event once that has passed, and at once what has none: nothing reads that."""
        while self._being_read:
            self._unmap_oldest()
        while self._unread:
            self._unmap(self._unread.pop())

    def _unmap_oldest(self) -> None:
        event, addresses = self._being_read.popleft()
        event.synchronize()
        for address in addresses:
            self._unmap(address)
