"""Finds the frames of H.264 at which a decoder may start although nothing says so, as a pure function.

Many streams have I pictures that are neither IDR nor have a recovery point: DASH segments, recordings, files cut out of
others. Whether frames behind such a picture refer to frames before it, their reference lists say (14496-10, 8.2.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..probing.headers.h264_references import CodedFrame, ReferenceList

# Decoders hold no more frames for others to refer to (14496-10, A.3.1).
_MOST_HELD = 16


@dataclass(frozen=True, slots=True)
class _Reference:
    """A frame behind an I picture that later ones may refer to. `place`: in the decoder's output. `is_clean`: it is not
    shown before the I picture."""

    frame_num: int
    place: int
    is_clean: bool


def unmarked_entries(
    frames: Sequence[CodedFrame | None], is_marked: Sequence[bool], places: Mapping[int, int]
) -> frozenset[int]:
    """The numbers of the I pictures without a mark behind which every frame up to the next entry, that is not shown
    before them, refers to no frame before them. All are in decode order.

    `is_marked`: those that are marked as entries. `places`: where each frame comes in the decoder's output. Frames that
    do not come end what is looked at: they are lost, and others up to the next entry with them.
    """
    is_entry, found = list(is_marked), set[int]()
    # Whether I pictures reach a frame that is not known, without an entry between. None of them is one then.
    reaches_unknown = False
    for number in range(len(frames) - 1, -1, -1):
        frame = frames[number]
        if is_entry[number] or number not in places:
            reaches_unknown = False
        elif frame is not None and frame.is_intra and not reaches_unknown:
            begins = _begins(number, frames, is_entry, places)
            reaches_unknown = begins is None
            if begins:
                is_entry[number] = True
                found.add(number)
    return frozenset(found)


def _begins(
    entry: int, frames: Sequence[CodedFrame | None], is_entry: Sequence[bool], places: Mapping[int, int]
) -> bool | None:
    """Whether no frame from this entry on refers to one before it, up to the next entry and the frames that lead it.
    None where one of them is not known."""
    if any(places.get(number, 0) > places[entry] for number in range(max(0, entry - _MOST_HELD), entry)):
        return False
    held: list[_Reference] = []
    next_place = None
    for number in range(entry, len(frames)):
        frame, place = frames[number], places.get(number)
        if place is None or (next_place is not None and place > next_place):
            return True
        if frame is None:
            return None
        is_clean = place >= places[entry]
        if is_clean and not all(_are_held(lists, held, place) for lists in frame.slices):
            return False
        if is_entry[number] and number > entry:
            next_place = place
        left = [each for each in held if each.frame_num not in frame.forgotten]
        # A decoder that starts at the entry may leave out frames that are shown before it.
        if not is_clean and len(left) < len(held):
            return False
        held = left
        if frame.is_reference:
            held = [*held[1 - _MOST_HELD :], _Reference(frame.frame_num, place, is_clean)]
    return True


def _are_held(lists: tuple[ReferenceList, ...], held: Sequence[_Reference], place: int) -> bool:
    """Whether all references of a slice are clean frames in `held`. What the decoder has beside these comes behind
    them, or behind those that are shown earlier."""
    if len(lists) == 1:
        return _has_all(lists[0], held[::-1], held)
    before = sorted((each for each in held if each.place < place), key=lambda each: -each.place)
    behind = sorted((each for each in held if each.place > place), key=lambda each: each.place)
    for number, each in enumerate(lists):
        order = before if number == 0 else [*behind, *before]
        # Where no reference is shown later, the first two of the second list change places.
        if number == 1 and not behind and len(before) < 2:
            return False
        if not _has_all(each, order, held):
            return False
    return True


def _has_all(wanted: ReferenceList, order: Sequence[_Reference], held: Sequence[_Reference]) -> bool:
    """Whether a list has only clean frames, if these are its first ones without a change."""
    newest = {each.frame_num: each for each in held}
    first = [newest.get(each) if each is not None else None for each in wanted.first]
    left = [each for each in order if each not in first]
    found = [*first, *left][: wanted.count]
    return len(found) == wanted.count and all(each is not None and each.is_clean for each in found)
