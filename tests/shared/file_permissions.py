"""Modes of files that count, whoever runs the tests."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

# Linux's `linux/capability.h`: root reads and writes in spite of a file's mode, as long as these two are effective.
_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


@contextmanager
def modes_count() -> Iterator[None]:
    """Within it the modes of files count for root, too: in this thread, and in those that it starts meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    if libc.capget(ctypes.byref(header), sets):
        raise OSError(ctypes.get_errno(), "capget")
    before = sets[0].effective
    sets[0].effective = before & ~(1 << _CAP_DAC_OVERRIDE | 1 << _CAP_DAC_READ_SEARCH)
    _set(libc, header, sets)
    try:
        yield
    finally:
        sets[0].effective = before
        _set(libc, header, sets)


def _set(libc: ctypes.CDLL, header: _Header, sets: ctypes.Array[_Sets]) -> None:
    if libc.capset(ctypes.byref(header), sets):
        raise OSError(ctypes.get_errno(), "capset")
