"""What a GOP must look like: what x264 and x265 write when asked rightly, and what is refused."""

from fractions import Fraction

import pytest

from encodes import FRAME_TICKS, RATE, encode
from mp4_writer import Writer
from shortgop.errors import CorruptDataError
from shortgop.manifests.gop_check import check_gop, frame_ticks
from shortgop.manifests.mp4 import Fragment, parse_fragment, parse_init
from shortgop.manifests.records import Pattern

GOP = 8


def check(init: bytes, fragment: bytes, number: int, **changes: int) -> tuple[Fragment, Pattern]:
    """Check GOP `number` of a stream with GOPs of 8 frames; `changes` are expectations that differ."""
    parsed = parse_init(init)
    expected = {
        "num_frames": GOP,
        "decode_ticks": number * GOP * FRAME_TICKS,
        "media_time_ticks": parsed.media_time_ticks,
        "frame_ticks": FRAME_TICKS,
    }
    return check_gop(
        fragment,
        config=parsed.config,
        **{**expected, **changes},
    )


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_three_of_four_frames_are_referred_to_by_no_other(codec: str) -> None:
    """Decode order I P b b b P b b: the last P comes early, as nothing follows it in its GOP."""
    init, fragments = encode(codec, frames=24, gop=GOP, b_frames=3)
    assert len(fragments) == 3
    for number, fragment in enumerate(fragments):
        _, pattern = check(init, fragment, number)
        assert pattern == Pattern(
            frames=(0, 4, 1, 2, 3, 7, 5, 6),
            referenced=(True, True, False, False, False, True, False, False),
        )


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_the_last_gop_may_be_shorter(codec: str) -> None:
    init, fragments = encode(codec, frames=20, gop=GOP)
    _, pattern = check(init, fragments[2], 2, num_frames=4)
    assert pattern.frames == (0, 3, 1, 2)


def test_without_b_frames_decode_order_is_presentation_order() -> None:
    init, fragments = encode("h264", b_frames=0)
    _, pattern = check(init, fragments[1], 1)
    assert pattern.frames == tuple(range(GOP))
    assert all(pattern.referenced[:-1])


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_every_gop_is_an_idr_of_its_own_when_gops_have_one_frame(codec: str) -> None:
    init, fragments = encode(codec, frames=3, gop=1, b_frames=0)
    for number, fragment in enumerate(fragments):
        _, pattern = check(init, fragment, 0, num_frames=1, decode_ticks=number * FRAME_TICKS)
        assert pattern == Pattern((0,), (True,))


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_an_open_gop_is_refused(codec: str) -> None:
    """Its first B-frames come before its keyframe, and refer to the GOP before."""
    init, fragments = encode(codec, frames=32, gop=GOP, open_gop=True)
    found = parse_fragment(fragments[1])
    with pytest.raises(CorruptDataError, match="not closed|does not start with an IDR"):
        check(init, fragments[1], 1, num_frames=len(found), decode_ticks=found.decode_ticks)


def test_a_keyframe_too_many_is_refused() -> None:
    """ffmpeg then starts a fragment of its own, so it comes out as a wrong number of frames."""
    init, fragments = encode("h264", forced="expr:eq(mod(n,8),0)+eq(n,3)")
    with pytest.raises(CorruptDataError, match="the GOP has 3 frames, not 8 as planned"):
        check(init, fragments[0], 0)


def test_an_idr_inside_a_gop_is_refused() -> None:
    """ffmpeg starts a fragment at each keyframe, so this takes two GOPs of one frame, put together by hand."""
    init, fragments = encode("h264", frames=3, gop=1, b_frames=0)
    frames = [fragment[int(parse_fragment(fragment).offsets[0]) :] for fragment in fragments]
    both = Writer([(len(frame), FRAME_TICKS, 0) for frame in frames], payload=b"".join(frames)).write()
    with pytest.raises(CorruptDataError, match="an IDR after its first sample"):
        check(init, both, 0, num_frames=3)


def test_a_missing_keyframe_is_refused() -> None:
    init, fragments = encode("h264", gop=16, forced="expr:eq(mod(n,16),0)")
    with pytest.raises(CorruptDataError, match="the GOP has 16 frames, not 8 as planned"):
        check(init, fragments[0], 0)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_frames": 7}, "the GOP has 8 frames, not 7 as planned"),
        ({"decode_ticks": 0}, "starts at tick 8000, not 0"),
        ({"frame_ticks": 999}, "do not last 999 ticks each"),
        ({"media_time_ticks": 0}, "not those of the GOP's own frames"),
        ({"media_time_ticks": 1}, "not those of the GOP's own frames"),
    ],
)
def test_a_gop_that_is_not_as_planned_is_refused(changes: dict[str, int], complaint: str) -> None:
    init, fragments = encode("h264")
    with pytest.raises(CorruptDataError, match=complaint):
        check(init, fragments[1], 1, **changes)


def test_a_gop_that_starts_with_anything_but_an_idr_is_refused() -> None:
    """A picture's NAL header says what it is: 0x65 an IDR slice, 0x41 another slice that is referred to."""
    init, fragments = encode("h264")
    fragment, _ = check(init, fragments[1], 1)
    data = bytearray(fragments[1])
    start, stop = int(fragment.offsets[0]), int(fragment.offsets[0] + fragment.sizes[0])
    data[data.index(0x65, start + 4, stop)] = 0x41
    with pytest.raises(CorruptDataError, match="does not start with an IDR"):
        check(init, bytes(data), 1)


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_nal_units_fill_their_access_unit(codec: str) -> None:
    init, fragments = encode(codec)
    fragment, _ = check(init, fragments[0], 0)
    data = bytearray(fragments[0])
    data[int(fragment.offsets[3]) + 3] += 1
    with pytest.raises(CorruptDataError, match="does not fit its access unit"):
        check(init, bytes(data), 0)


def test_a_frame_lasts_a_whole_number_of_ticks() -> None:
    init = parse_init(encode()[0])
    assert frame_ticks(init.timescale, Fraction(RATE)) == FRAME_TICKS
    with pytest.raises(CorruptDataError, match="does not last a whole number of ticks of 1/90001 s"):
        frame_ticks(90001, Fraction(30000, 1001))
