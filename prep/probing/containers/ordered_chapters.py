"""Chapters of a Matroska file that players show in an order of their own. FFmpeg shows the file as it lies."""

from __future__ import annotations

from itertools import pairwise

from .matroska_elements import elements, number_in, top_element

# RFC 9559 (Matroska), 5.1.7.
_CHAPTERS, _EDITION, _IS_DEFAULT, _IS_ORDERED = 0x1043A770, 0x45B9, 0x45DB, 0x45DD
_CHAPTER, _START, _END, _IS_ENABLED, _OTHER_FILE = 0xB6, 0x91, 0x92, 0x4598, 0x6E67
_Element = list[tuple[int, bytes]]
# Chapters that are this close follow each other: nanoseconds, less than half a frame.
_NEAR = 4_000_000


def has_other_order(path: str) -> bool:
    """Whether players show other parts of a Matroska file than all of it from its beginning on, or another file among
    them."""
    editions = [list(elements(body)) for kind, body in elements(top_element(path, _CHAPTERS)) if kind == _EDITION]
    shown = next((each for each in editions if number_in(each, _IS_DEFAULT)), editions[0] if editions else [])
    if not number_in(shown, _IS_ORDERED):
        return False
    chapters = [list(elements(body)) for kind, body in shown if kind == _CHAPTER]
    chapters = [each for each in chapters if number_in(each, _IS_ENABLED, default=1)]
    return any(_OTHER_FILE in dict(each) for each in chapters) or not _are_in_order(chapters)


def _are_in_order(chapters: list[_Element]) -> bool:
    """Whether chapters begin with the file, and each follows the one before. What is behind the last one is not looked
    for: mostly it is nothing."""
    starts = [number_in(each, _START) for each in chapters]
    ends = [number_in(each, _END) for each in chapters]
    if not chapters:
        return True
    joints = pairwise([0, *(time for chapter in zip(starts, ends, strict=True) for time in chapter)])
    return all(abs(start - end) <= _NEAR for end, start in list(joints)[::2])
