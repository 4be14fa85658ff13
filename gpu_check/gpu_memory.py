"""Whether memory grows: of the GPU, and of this process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from check_record import OutOfTime, Record

from shortgop.wording import counted

# Allocators keep some of what they were given back.
_ALLOWED_MB = 64.0
# Fewer moments say nothing.
_FEWEST_LOOKS = 4


class Growth:
    """Memory at several moments of a check. The first may include what is allocated once."""

    def __init__(self, record: Record) -> None:
        self._measure_until = record.measure_until
        self._looks: list[tuple[float, float]] = []
        self._rounds, self._lacked_time = 0, False

    def rounds(self, count: int) -> Iterator[int]:
        """Numbers from 0 on: so many, or as many as the time of the check allows."""
        for number in range(count):
            if time.perf_counter() > self._measure_until:
                self._lacked_time = True
                return
            self._rounds += 1
            yield number

    def look(self) -> None:
        """Note how much is used now."""
        free, total = torch.cuda.mem_get_info()
        self._looks.append(((total - free) / 1e6, resident_megabytes()))

    def megabytes(self) -> list[list[int]]:
        """At each moment, rounded: of the GPU, for all processes together, and of this process."""
        return [[round(gpu), round(process)] for gpu, process in self._looks]

    def check(self) -> None:
        """RuntimeError where memory grew, see `grows`, or where its rounds ended before there were enough looks at it.
        OutOfTime where they ended for the time of the check."""
        for number, what in enumerate(("the GPU", "the process")):
            values = tuple(look[number] for look in self._looks)
            if grows(values):
                raise RuntimeError(f"memory of {what} grows: {', '.join(f'{value:.0f}' for value in values)} MB")
        if len(self._looks) < _FEWEST_LOOKS:
            few = f"{counted(len(self._looks), 'look')} at the memory, too few to see it grow"
            if self._lacked_time:
                raise OutOfTime(f"there was time for {few}")
            raise RuntimeError(f"the check ended in round {self._rounds}, after {few}")


def grows(megabytes: tuple[float, ...]) -> bool:
    """Whether the second half of these values needs more than the first. The first value does not count."""
    values = megabytes[1:]
    half = len(values) // 2
    return half > 0 and max(values[half:]) > max(values[:half]) + _ALLOWED_MB


def resident_megabytes() -> float:
    """Memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
