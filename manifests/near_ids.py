"""Ids that look like one that a dataset does not have, for messages."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np

from .ragged import Ragged

_SHOWN = 3
# So many are compared in a quarter of a second. Of more ids only neighbours of the wanted one are.
_MAX_COMPARED = 4096
# A shorter text is in many ids.
_MIN_PART = 3


def near_ids(ids: Ragged, wanted: str) -> list[str]:
    """The wanted text in another form of Unicode, if that is an id. Otherwise up to three ids: first those below the
    folder of this name, then those that hold the text; if there is neither, those that differ little from it. Of many
    ids only the neighbours of what is in such a folder are compared: they begin like it."""
    if same := [each for each in _other_forms(wanted) if ids.find(each) is not None]:
        return same
    folder = f"{wanted.rstrip('/')}/" if wanted else ""
    start, stop = 0, len(ids)
    if stop > _MAX_COMPARED:
        place = bisect_left(range(stop), folder.encode(errors="surrogatepass"), key=ids.bytes)
        start = max(0, place - _MAX_COMPARED // 2)
        stop = min(stop, start + _MAX_COMPARED)
    candidates = ids.take(np.arange(start, stop)).texts()
    below = [each for each in candidates if folder and each.startswith(folder)]
    holding = [each for each in candidates if wanted in each] if len(wanted) >= _MIN_PART else []
    return list(dict.fromkeys([*below, *holding]))[:_SHOWN] or get_close_matches(wanted, candidates, _SHOWN)


def did_you_mean(wanted: str, near: Sequence[str]) -> str:
    """What a message says behind an id that the dataset does not have, of ids that are near it."""
    forms = _other_forms(wanted)
    # In print the two look the same.
    shown = [f"{each!r}, which is {each!a} and not {wanted!a}" if each in forms else repr(each) for each in near]
    return f". Did you mean {' or '.join(shown)}?" if near else ""


def _other_forms(text: str) -> list[str]:
    """The same letters in other forms of Unicode: macOS takes letters and their accents apart in names of files."""
    if text.isascii():
        return []
    return [other for form in ("NFC", "NFD") if (other := unicodedata.normalize(form, text)) != text]
