"""Which frames of a damaged source can be trusted: the rule, on packets that a test makes up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop import DamagedSourceError
from shortgop.prep.kept_frames.complaints import FORGETS_ANOTHER, first_complaint
from shortgop.prep.kept_frames.damage import Damage, assess
from shortgop.prep.kept_frames.salvage import check_salvage, salvaged_runs
from shortgop.prep.kept_frames.scanned import Scan, ScannedPacket
from shortgop.prep.options import SourcePolicy
from shortgop.prep.probing.holes import after_holes, frames_behind_hole


def stream(text: str) -> Scan:
    """A scan of packets in decode order, shown in that order: I begins anew, P does not, x is damaged, i a damaged
    keyframe, . is missing from the file."""
    packets = [
        ScannedPacket(
            pts=place, dts=place, is_entry=kind in "Ii", promised_entry=kind in "Ii",
            complaint="noise" if kind in "xi" else "", break_before="lost" if text[place - 1 : place] == "." else "",
        )
        for place, kind in enumerate(text)
        if kind != "."
    ]  # fmt: skip
    return scan_of(packets)


def scan_of(packets: Sequence[ScannedPacket], shown: Sequence[int] | None = None) -> Scan:
    order = list(range(len(packets))) if shown is None else list(shown)
    return Scan(tuple(packets), tuple(order), fed=tuple(order))


def damage_of(scan: Scan) -> Damage:
    damage = assess(scan, max_hole_units=10**6)
    assert damage is not None
    return damage


def sound(scan: Scan) -> list[int]:
    found: list[int] = damage_of(scan).sound_pts.tolist()
    return found


def test_a_stream_without_complaints_is_not_damaged() -> None:
    assert assess(stream("IPPPIPPP"), max_hole_units=10**6) is None


def test_nothing_counts_from_a_damaged_frame_to_the_next_keyframe() -> None:
    # The frame before the damaged one may only be found wrong when that one begins.
    assert sound(stream("IPPPxPPIPP")) == [0, 1, 2, 7, 8, 9]


def test_a_missing_frame_counts_as_a_damaged_one() -> None:
    assert sound(stream("IPPP.PPIPP")) == [0, 1, 2, 7, 8, 9]
    assert damage_of(stream("IPPP.PPIPP")).due_pts.tolist() == list(range(10))


def test_a_damaged_keyframe_loses_its_whole_gop() -> None:
    assert sound(stream("IPPiPPIPP")) == [0, 1, 6, 7, 8]


def test_what_is_shown_before_a_keyframe_but_coded_behind_it_is_lost_with_what_it_leans_on() -> None:
    packets = list(stream("IPxPIPPP").packets)
    # An open GOP: the keyframe is shown at 6, two frames before it are coded behind it.
    for place, pts in {4: 6, 5: 4, 6: 5, 7: 7}.items():
        packets[place] = replace(packets[place], pts=pts)
    assert sound(scan_of(packets, shown=[0, 1, 2, 3, 5, 6, 4, 7])) == [0, 6, 7]


def test_frames_with_the_same_time_are_not_trusted_beside_damage() -> None:
    packets = list(stream("IPPPxPIPP").packets)
    packets[7] = replace(packets[7], pts=6)
    assert not damage_of(scan_of(packets)).has_times


def test_what_is_missing_without_a_word_is_lost_too_where_frames_are_evenly_spaced() -> None:
    packets = [packet for packet in stream("I" * 12 + "xxPP" + "I" * 20).packets if packet.pts not in (5, 6)]
    assert {5, 6} <= set(damage_of(scan_of(packets)).due_pts.tolist())


@pytest.mark.parametrize("text", ["PPPIPPP", "xxPIPPP", "Px.PIPPP"])
def test_a_stream_that_begins_in_mid_gop_is_only_cut(text: str) -> None:
    damage = damage_of(stream(text))
    assert damage.is_only_cut
    assert damage.sound_pts[0] == text.index("I")


def test_a_first_keyframe_that_is_damaged_is_more_than_a_cut() -> None:
    assert not damage_of(stream("iPPIPP")).is_only_cut


def test_damage_behind_a_first_keyframe_that_is_whole_is_more_than_a_cut() -> None:
    assert not damage_of(stream("IxPPIPP")).is_only_cut


def test_a_packet_without_a_picture_is_more_than_a_cut() -> None:
    """Frames before the first keyframe lack others, but have headers of their own."""
    packets = list(stream("xPPIPP").packets)
    assert damage_of(scan_of(packets)).is_only_cut
    assert not damage_of(scan_of([replace(packets[0], lacks_picture=True), *packets[1:]])).is_only_cut


def test_an_incomplete_last_packet_is_only_cut_and_takes_the_frame_before_with_it() -> None:
    packets = list(stream("IPPPPx").packets)
    packets[-1] = replace(packets[-1], is_incomplete=True)
    damage = damage_of(scan_of(packets))
    assert damage.is_only_cut
    assert damage.sound_pts.tolist() == [0, 1, 2, 3]


def test_noise_in_the_last_packet_is_no_cut() -> None:
    assert not damage_of(stream("IPPPPx")).is_only_cut


def test_damage_in_the_middle_is_refused_with_the_option_that_takes_it() -> None:
    damage = damage_of(stream("IPPPxPPIPP"))
    with pytest.raises(DamagedSourceError, match=r"4 of its 10 frames .* at 0.300 s \(noise\); --salvage prepares"):
        check_salvage("x.ts", damage, Fraction(1, 10), SourcePolicy())
    check_salvage("x.ts", damage, Fraction(1, 10), SourcePolicy(salvage=True))


def test_a_source_of_which_nothing_is_left_is_refused_without_a_promise() -> None:
    with pytest.raises(DamagedSourceError, match="not one frame") as caught:
        check_salvage("x.ts", damage_of(stream("xPPx")), Fraction(1, 10), SourcePolicy(salvage=True))
    assert "--salvage" not in str(caught.value)


@given(st.text("IPPPPPxi.", min_size=1, max_size=60).filter(lambda text: text.strip(".")))
def test_no_frame_is_trusted_that_leans_on_a_lost_one(text: str) -> None:
    damage = assess(stream(text), max_hole_units=10**6)
    if damage is None:
        assert not set(text) & set("xi.") or "." in text
        return
    trusted = damage.sound_pts.tolist()
    for pts in trusted:
        entry = text.rindex("I", 0, pts + 1)
        assert not set(text[entry : pts + 1]) & set("xi.")
    due = damage.due_pts.tolist()
    assert set(trusted) <= set(due)
    assert due == sorted(set(due))
    assert not trusted or (due[0], due[-1]) == (trusted[0], trusted[-1])


@given(st.lists(st.booleans(), max_size=40))
def test_salvaged_runs_are_the_frames_that_differ(differs: list[bool]) -> None:
    due = np.arange(len(differs))
    runs = salvaged_runs(np.where(differs, -1, due), due)
    marked = [frame for first, stop in runs for frame in range(first, stop)]
    assert marked == [frame for frame, each in enumerate(differs) if each]
    assert all(stop < following for (_, stop), (following, _) in zip(runs, runs[1:], strict=False))


def test_a_stream_that_ends_before_its_b_frames_ends_before_the_frame_behind_them() -> None:
    # Decoded: 0, 3, 1, 2, 6, and the B-frames 4 and 5 are cut off.
    assert frames_behind_hole([0, 3, 1, 2, 6], 3, is_cut=False) == 1
    assert frames_behind_hole([0, 3, 1, 2, 6, 4, 5], 5, is_cut=False) == 0
    assert frames_behind_hole([0, 3, 1, 2, 6, 4], 4, is_cut=False) == 1


def test_a_pause_in_a_stream_of_uneven_frames_is_no_hole() -> None:
    times = [0, 1, 2, 9, 10, 11, 12, 13, 22]
    assert frames_behind_hole(times, 12, is_cut=False) == 0
    assert frames_behind_hole(times, 12, is_cut=True) == 1


def test_a_pause_before_the_last_frame_of_a_variable_rate_is_no_hole() -> None:
    """The last frame of a whole recording was left out where no other pause was as long."""
    times = [0, 33, 80, 109, 150, 170, 200, 244, 280, 500]
    assert frames_behind_hole(times, 280, is_cut=False) == 0
    assert frames_behind_hole(times, 280, is_cut=True) == 1


def forgetting(scan: Scan, *numbers: int) -> Scan:
    """The scan, in which these packets tell the decoder to forget a frame that it does not have."""
    return replace(
        scan,
        packets=tuple(
            replace(packet, complaint=FORGETS_ANOTHER) if number in numbers else packet
            for number, packet in enumerate(scan.packets)
        ),
    )


def test_where_decoding_starts_anew_frames_before_may_be_forgotten() -> None:
    assert assess(forgetting(stream("IPPPIPPP"), 1), max_hole_units=10**6) is None
    # And behind damage.
    assert sound(forgetting(stream("IPxPIPPPIPPP"), 5)) == [0, *range(4, 12)]


def test_elsewhere_a_frame_to_forget_that_is_not_there_was_lost() -> None:
    assert sound(forgetting(stream("IPPPIPPPIPPP"), 6)) == [*range(5), *range(8, 12)]
    # Behind a loss in the same GOP.
    assert sound(forgetting(stream("IPx.PIPPP"), 4)) == [0, *range(5, 9)]


def test_a_worse_complaint_is_not_hidden_behind_it() -> None:
    assert first_complaint([f"[h264 @ 0x1] {FORGETS_ANOTHER}.", "[h264 @ 0x1] error while decoding MB 3 4"]) == (
        "error while decoding MB 3 4"
    )
    assert first_complaint(["", f"[h264 @ 0x1] {FORGETS_ANOTHER}"]) == FORGETS_ANOTHER


def test_a_frame_that_a_damaged_file_lacks_without_a_word_takes_those_along_that_may_refer_to_it() -> None:
    """In codecs whose frames are not numbered. Frame 13 is gone; nothing but its time tells."""
    text = "IPPPxPPPIPPPPPPPIPPP"
    numbered = stream(text)
    silent = replace(numbered, packets=tuple(each for each in numbered.packets if each.pts != 13))
    silent = replace(silent, shown=tuple(range(19)), fed=tuple(range(19)))
    assert sound(silent) == [0, 1, 2, *range(8, 13), *range(14, 20)]
    assert sound(replace(silent, numbers_frames=False)) == [0, 1, 2, *range(8, 13), *range(16, 20)]
    assert damage_of(replace(silent, numbers_frames=False)).due_pts.tolist() == list(range(20))


def test_of_reordered_frames_a_hole_takes_along_all_up_to_the_next_entry() -> None:
    """Frames 13 and 14 were decoded after 15 and refer to it. 15 is gone."""
    order = [0, 3, 1, 2, 6, 4, 5, 7, 10, 8, 9, 12, 11, 13, 14, 17, 16, 18, 21, 19, 20]
    packets = [ScannedPacket(pts, at, is_entry=pts in (0, 7, 18)) for at, pts in enumerate(order)]
    packets[1] = replace(packets[1], complaint="noise")
    shown = sorted(range(len(order)), key=order.__getitem__)
    scan = replace(scan_of(packets, shown), numbers_frames=False)
    assert sound(scan) == [7, *range(18, 22)]
    assert sound(replace(scan, numbers_frames=True)) == [*range(7, 15), 16, 17, *range(18, 22)]


def test_a_hole_that_the_cut_end_of_a_file_made_takes_nothing_along() -> None:
    """The frames in it would have come after 6, which lies behind it."""
    order = [0, 3, 1, 2, 6, 4]
    assert after_holes(order, [number == 0 for number in range(len(order))], max_hole_units=1000) == set()
    # Elsewhere frames behind it are there.
    assert after_holes([*order, 9, 7, 8], [number == 0 for number in range(9)], max_hole_units=1000) == set(range(1, 9))


@pytest.mark.parametrize("times", [[0, 1, 3, 9, 11, 12, 19, 30, 31], [0, 1, 2, 3, 4, 5, 6, 7, 10**9]])
def test_where_frames_are_not_evenly_spaced_or_a_gap_is_long_nothing_is_lost_in_it(times: list[int]) -> None:
    entries = [number == 0 for number in range(len(times))]
    assert after_holes(times, entries, max_hole_units=1000) == set()


def test_what_ffmpeg_says_of_sound_streams_is_no_complaint() -> None:
    assert not first_complaint(["[h264 @ 0x55] co located POCs unavailable", "", "  "])
    assert first_complaint(["[h264 @ 0x55] [x] error while decoding MB 3 4"]) == "error while decoding MB 3 4"


def test_a_hole_of_hours_beside_damage_is_a_gap_and_no_frames_are_made_up_for_it() -> None:
    text = "IPPPIxPPIPPP"
    packets = [
        replace(packet, pts=number + (10**12 if number >= 8 else 0), dts=number)
        for number, packet in enumerate(stream(text).packets)
    ]
    damage = assess(scan_of(packets), max_hole_units=1000)
    assert damage is not None
    assert damage.due_pts.tolist() == [*range(8), *range(10**12 + 8, 10**12 + 12)]
