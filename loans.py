"""Tells when arrays are gone whose memory is to be used again."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Array = npt.NDArray[np.generic]


class _Loan(weakref.ref[Array]):
    __slots__ = ("lent",)
    lent: Any


class Loans(Generic[T]):
    """What is lent, each until an array is gone. Whoever shares the array's memory has to hold the array.

    Arrays may go in any thread at any time, even in one that holds a lock. What notes it is a function of C: it takes
    no lock, and no signal handler runs within it. An error that a handler raises within a finalizer, such as that of
    Ctrl-C, would be printed, and the program would go on.
    """

    def __init__(self) -> None:
        self._open: dict[int, _Loan] = {}
        self._ended: deque[weakref.ref[Array]] = deque()

    def lend(self, array: Array, lent: T) -> None:
        """Note that this is lent until the array is gone."""
        loan = _Loan(array, self._ended.append)
        loan.lent = lent
        self._open[id(loan)] = loan

    def take_back(self) -> list[T]:
        """What came back since the last call, in this order."""
        back: list[T] = []
        while self._ended:
            back.append(self._open.pop(id(self._ended.popleft())).lent)
        return back
