"""At which I pictures of H.264 a decoder may start, by the reference lists of the frames behind them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from field_pictures import BitWriter
from shortgop.prep.kept_frames.judged import Seen, with_unmarked_entries
from shortgop.prep.kept_frames.scanned import ScannedPacket
from shortgop.prep.kept_frames.unmarked_entries import unmarked_entries
from shortgop.prep.probing.headers.h264_references import CodedFrame, ReferenceList
from shortgop.prep.probing.headers.h264_sps import parse_sps

I = CodedFrame(0, is_reference=True, slices=((),))  # noqa: E741  # what H.264 calls it


def p(
    frame_num: int, references: int, *first: int | None, is_reference: bool = True, forgotten: tuple[int, ...] = ()
) -> CodedFrame:
    """A P frame with so many references, which puts these first."""
    return CodedFrame(frame_num, is_reference, ((ReferenceList(references, first),),), forgotten)


def b(frame_num: int, before: int, behind: int, *, is_reference: bool = False) -> CodedFrame:
    return CodedFrame(frame_num, is_reference, ((ReferenceList(before), ReferenceList(behind)),))


def entries(frames: Sequence[CodedFrame | None], order: Sequence[int] | None = None, marked: int = -1) -> list[int]:
    """The entries that nothing marks, of frames that are shown in this order."""
    places = {number: place for place, number in enumerate(order or range(len(frames)))}
    return sorted(unmarked_entries(frames, [number == marked for number in range(len(frames))], places))


def test_frames_that_refer_to_those_from_the_i_picture_on_begin_there() -> None:
    assert entries([I, p(1, 1), p(2, 2), p(3, 2)]) == [0]


def test_a_list_that_is_longer_than_what_follows_the_i_picture_reaches_before_it() -> None:
    assert entries([I, p(1, 2), p(2, 2), p(3, 2)]) == []
    assert entries([I, p(1, 1), p(2, 3), p(3, 3)]) == []


def test_frames_to_which_no_other_refers_are_in_no_list() -> None:
    assert entries([I, p(1, 1, is_reference=False), p(1, 2)]) == []


def test_what_is_behind_the_next_entry_says_nothing() -> None:
    assert entries([I, p(1, 1), I, p(1, 4)], marked=2) == [0]
    assert entries([I, p(1, 1), I, p(1, 4)]) == []


def test_frames_that_a_slice_puts_first_are_known_by_their_frame_num() -> None:
    assert entries([I, p(1, 1), p(2, 1, 0), p(3, 3, 2, 2, 0)]) == [0]
    # Frame 9 is before the I picture; a long-term reference may be.
    assert entries([I, p(1, 1, 9)]) == []
    assert entries([I, p(1, 1, None)]) == []


def test_a_frame_that_is_put_first_twice_leaves_room_for_no_more_others() -> None:
    assert entries([I, p(1, 1), p(2, 3, 1, 1)]) == [0]
    assert entries([I, p(1, 1), p(2, 4, 1, 1)]) == []


def test_b_frames_refer_to_those_that_are_shown_before_and_behind_them() -> None:
    assert entries([I, p(1, 1), b(2, 1, 1), b(2, 1, 1)], [0, 2, 3, 1]) == [0]
    # Of those shown before it only the I picture is there: the second one is before that.
    assert entries([I, p(1, 1), b(2, 2, 1)], [0, 2, 1]) == []
    assert entries([I, p(1, 1), b(2, 1, 2)], [0, 2, 1]) == [0]


def test_b_frames_behind_all_of_their_references_may_have_them_in_another_order() -> None:
    """The first two of the second list change places then, so that the second one is the first."""
    assert entries([I, b(1, 1, 1)]) == []
    assert entries([I, p(1, 1), b(2, 1, 1)]) == [0]


def test_frames_that_lead_it_may_refer_to_anything_but_later_ones_must_not_refer_to_them() -> None:
    leading = b(1, 4, 1, is_reference=True)
    assert entries([I, leading, p(2, 1)], [1, 0, 2]) == []
    assert entries([I, leading, p(2, 1, 0)], [1, 0, 2]) == [0]


def test_frames_that_lead_the_next_entry_may_refer_back_to_the_one_before_it() -> None:
    assert entries([I, p(1, 1), I, b(1, 2, 1), p(1, 9)], [0, 1, 3, 2, 4], marked=2) == [0]
    assert entries([I, p(1, 1), I, b(1, 3, 1), p(1, 9)], [0, 1, 3, 2, 4], marked=2) == []


def test_frames_whose_headers_are_not_known_may_refer_to_anything() -> None:
    assert entries([I, None, p(2, 1)]) == []


def test_frames_behind_one_that_does_not_decode_are_lost_anyhow() -> None:
    places = {0: 0, 1: 1, 3: 2}
    assert unmarked_entries([I, p(1, 1), None, p(3, 4)], [False] * 4, places) == {0}


def test_each_of_many_i_pictures_is_an_entry() -> None:
    assert entries([I, I, p(1, 1), I, p(1, 3), I, p(1, 1)]) == [0, 1, 5]


def test_a_frame_from_before_it_that_is_shown_behind_it_may_be_referred_to() -> None:
    frames = [p(1, 1), I, p(1, 1), b(2, 1, 1)]
    assert entries(frames, [0, 1, 3, 2]) == [1]
    assert entries(frames, [1, 3, 0, 2]) == []


def test_a_frame_that_is_forgotten_leaves_room_for_one_from_before_the_i_picture() -> None:
    assert entries([I, p(1, 1), p(2, 2)]) == [0]
    assert entries([I, p(1, 1, forgotten=(0,)), p(2, 2)]) == []
    assert entries([I, p(1, 1, forgotten=(0,)), p(2, 1)]) == [0]


def test_that_frames_before_the_i_picture_are_forgotten_is_harmless() -> None:
    assert entries([I, p(1, 1, forgotten=(14, 15)), p(2, 2)]) == [0]


def test_a_frame_that_a_decoder_may_leave_out_must_make_it_forget_none_behind_the_i_picture() -> None:
    for forgotten, found in (((1,), []), ((15,), [0])):
        leading = CodedFrame(3, is_reference=False, slices=((ReferenceList(1),),), forgotten=forgotten)
        assert entries([I, p(1, 1), p(2, 1), leading, p(3, 2)], [3, 0, 1, 2, 4]) == found


def test_many_i_pictures_before_a_frame_that_is_not_known_take_no_long_time() -> None:
    frames, count = [I] * 20_000, 20_000
    begin = time.perf_counter()
    assert entries([*frames, None]) == []
    # It is shown before the next entry, behind which it is.
    assert entries([*frames, I, None], [*range(count), count + 1, count], marked=count) == []
    assert time.perf_counter() - begin < 20


def test_i_pictures_before_the_next_entry_reach_no_frame_behind_it_that_is_not_known() -> None:
    assert entries([I, p(1, 1), I, p(1, 1), None], marked=2) == [0]
    assert entries([I, p(1, 1), I, p(1, 1), None]) == []


def found_with_edits(frames: Sequence[CodedFrame], pts: Sequence[int], hidden: set[int]) -> list[int]:
    """The entries of frames with these pts, some of which edits hide."""
    packets = [
        ScannedPacket(pts=time, dts=number, is_hidden=number in hidden, is_entry=False)
        for number, time in enumerate(pts)
    ]
    shown = sorted(set(range(len(pts))) - hidden, key=lambda number: pts[number])
    seen = Seen(packets=packets, shown=shown, frames=list(frames))
    with_unmarked_entries(seen)
    return [number for number, packet in enumerate(seen.packets) if packet.is_entry]


def test_a_frame_that_an_edit_hides_at_the_end_is_one_to_which_others_refer() -> None:
    frames = [I, p(1, 1), b(2, 2, 1)]
    assert found_with_edits(frames, [0, 2, 1], set()) == []
    assert found_with_edits(frames, [0, 2, 1], {1}) == []
    assert found_with_edits([I, p(1, 1), b(2, 1, 2)], [0, 2, 1], {1}) == [0]


def test_where_several_edits_hide_frames_between_others_no_i_picture_is_an_entry() -> None:
    frames = [p(1, 1), I, p(1, 1), p(2, 1)]
    assert found_with_edits(frames, [-1, 0, 1, 2], {0}) == [1]
    assert found_with_edits(frames, [-1, 0, 1, 2], {0, 2}) == []


@pytest.mark.parametrize("chroma", [1, 3])
def test_parameters_are_read_behind_scaling_lists(chroma: int) -> None:
    """14496-10, 7.3.2.1.1.1: the lists of each size may be left out, or state one difference for each entry."""
    high, level, number = 100 if chroma == 1 else 244, 30, 3
    writer = BitWriter().put(high, 8).put(0, 8).put(level, 8).golomb(number, chroma)
    if chroma == 3:
        writer.put(0, 1)  # separate_colour_plane_flag
    writer.golomb(0, 0).put(0, 1).put(1, 1)  # depths, and that lists follow
    for size in [16] * 6 + [64] * (6 if chroma == 3 else 2):
        writer.put(1, 1).golomb(*[0] * size)
    # frame_num of 6 bits, orders of 8 bits, two references, no gaps, 96x64 of frames, no crop, no VUI, the stop bit.
    writer.golomb(2, 0, 4, 2).put(0, 1).golomb(5, 3).put(0b11001, 5)
    found = parse_sps(b"\x67" + writer.aligned())
    assert (found.number, found.frame_num_bits, found.order_bits, found.has_chroma) == (number, 6, 8, True)
