"""Pictures with left and right exchanged."""

from __future__ import annotations

import numpy as np

from ...manifests.ragged import Array

_WORD_BYTES = 8


def flipped(picture: Array) -> Array:
    """A picture of bytes, (channels, height, width), with the last column first; it shares no memory with `picture`, or
    is a view of it.

    Where every channel lies in a plane of its own, without gaps, all bytes are reversed as words of 8, the words in
    memory and the bytes in each word: numpy takes a fifth of the time for that, against single bytes.
    """
    if not picture.flags.c_contiguous:
        return picture[:, :, ::-1]
    flat = picture.reshape(-1)
    whole = len(flat) - len(flat) % _WORD_BYTES
    turned = np.empty(len(flat), dtype=np.uint8)
    rest = len(flat) - whole
    turned[:rest] = flat[whole:][::-1]
    words = flat[:whole].view(np.uint64)[::-1].byteswap()
    turned[rest:] = words.view(np.uint8)
    # Every byte is where it was, counted from the end: channels and lines are turned back.
    channels, height, width = picture.shape
    turned_back: Array = turned.reshape(channels, height, width)[::-1, ::-1]
    return turned_back
