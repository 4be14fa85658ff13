"""Decoders read nothing beyond the memory of a GOP, which libavcodec is given as it is."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
from dataclasses import replace

import pytest

from bare_gops import asking, gops, pictures_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

_PROT_NONE = 0


def before_a_hole(data: bytes) -> memoryview:
    """A copy behind which there is no memory: whoever reads the next byte ends with SIGSEGV."""
    num_bytes = -(-len(data) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, num_bytes + mmap.PAGESIZE)
    hole = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + num_bytes
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(hole), ctypes.c_size_t(mmap.PAGESIZE), _PROT_NONE) == 0
    copy = memoryview(memory)[num_bytes - len(data) : num_bytes]
    copy[:] = data
    return copy


def _decode(codec: str) -> None:
    for gop in gops(codec):
        for frames in (range(len(gop.pattern)), [0], [len(gop.pattern) - 1], [len(gop.pattern) - 2]):
            request = asking(replace(gop, data=before_a_hole(bytes(gop.data))), frames)
            assert sorted(pictures_of(request)) == sorted(frames)


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_decoders_read_nothing_behind_a_gop(codec: str) -> None:
    """They read ahead, up to 64 bytes, and PyAV hands them our own memory."""
    gops(codec)
    child = multiprocessing.get_context("fork").Process(target=_decode, args=(codec,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
