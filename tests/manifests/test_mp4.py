"""The parser of MP4 boxes: what a writer wrote, what ffmpeg wrote, and what is left of either after an accident."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encodes import TIMESCALE, encode
from mp4_writer import Writer, box
from shortgop.errors import CorruptDataError
from shortgop.manifests.gop_check import check_gop
from shortgop.manifests.mp4 import boxes, parse_fragment, parse_init, restamp_fragment
from shortgop.manifests.unit_kinds import access_unit_kinds

CODECS = ["h264", "hevc", "av1"]


@st.composite
def writers(draw: st.DrawFn) -> Writer:
    signed, tfdt_version = draw(st.booleans()), draw(st.sampled_from([0, 1]))
    default_size = draw(st.none() | st.integers(1, 50))
    default_duration = draw(st.none() | st.integers(0, 2**32 - 1))
    sample = st.tuples(
        st.integers(1, 50) if default_size is None else st.just(default_size),
        st.integers(0, 2**32 - 1) if default_duration is None else st.just(default_duration),
        st.integers(-(2**31), 2**31 - 1) if signed else st.integers(0, 2**32 - 1),
    )
    return Writer(
        samples=draw(st.lists(sample, min_size=1, max_size=20)),
        sequence_number=draw(st.integers(0, 2**32 - 1)),
        decode_ticks=draw(st.integers(0, 2**62 if tfdt_version else 2**32 - 1)),
        tfdt_version=tfdt_version,
        default_size=default_size,
        default_duration=default_duration,
        data_offset=draw(st.booleans()),
        first_flags=draw(st.booleans()),
        sample_flags=draw(st.booleans()),
        signed=signed,
        large=draw(st.booleans()),
        tfhd_extra=draw(st.dictionaries(st.sampled_from([0x2, 0x20]), st.integers(0, 2**32 - 1))),
    )


@given(writers())
@settings(deadline=None)
def test_a_fragment_is_read_as_it_was_written(writer: Writer) -> None:
    data = writer.write()
    fragment = parse_fragment(data)
    assert fragment.sequence_number == writer.sequence_number
    assert fragment.decode_ticks == writer.decode_ticks
    assert list(zip(fragment.sizes, fragment.duration_ticks, fragment.composition_ticks, strict=True)) == writer.samples
    for number, (offset, size) in enumerate(zip(fragment.offsets.tolist(), fragment.sizes.tolist(), strict=True)):
        assert set(data[offset : offset + size]) == {number}


@given(writers(), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_restamping_changes_two_numbers_and_nothing_else(writer: Writer, number: int, ticks: int) -> None:
    data = writer.write()
    restamped = restamp_fragment(data, number, ticks)
    assert parse_fragment(restamped).sequence_number == number
    assert parse_fragment(restamped).decode_ticks == ticks
    assert restamp_fragment(restamped, writer.sequence_number, writer.decode_ticks) == data


@pytest.mark.parametrize(
    ("writer", "complaint"),
    [
        (Writer([]), "0 samples in 0 bytes"),
        (Writer([(0, 1, 0)] * 3), "3 samples in 0 bytes"),
        (Writer([(5, 1, 0)], default_size=6), "do not fill its mdat"),
        (Writer([(5, 1, 0)], tfhd_flags=0), "do not count from the moof"),
        (Writer([(5, 1, 0)], tfhd_flags=0x20001), "do not count from the moof"),
        (Writer([(5, 1, 0)], decode_ticks=2**63), "starts at tick 9223372036854775808"),
    ],
)
def test_what_the_format_does_not_allow_is_refused(writer: Writer, complaint: str) -> None:
    with pytest.raises(CorruptDataError, match=complaint):
        parse_fragment(writer.write())


def test_a_fragment_is_one_moof_and_one_mdat() -> None:
    fragment = Writer([(5, 1, 0)]).write()
    for data in (b"", fragment + fragment, fragment[: next(boxes(fragment)).stop], box(b"free") + fragment):
        with pytest.raises(CorruptDataError, match="one moof and one mdat"):
            parse_fragment(data)


def test_a_run_that_claims_billions_of_samples_takes_no_memory() -> None:
    claim = Writer([(5, 1, 0)], default_size=5, default_duration=1).write()
    at = claim.index(b"trun") + 4
    flags_and_count = struct.pack(">II", 0x1, 2**32 - 1)
    trun_without_columns = struct.pack(">I4s", 20, b"trun") + flags_and_count + claim[at + 8 : at + 12]
    with pytest.raises(CorruptDataError):
        parse_fragment(claim[: at - 8] + trun_without_columns + claim[at + 16 :])


@pytest.mark.parametrize("codec", CODECS)
def test_ffmpegs_init_is_read(codec: str) -> None:
    tags = "setparams=range=tv:colorspace=bt709:color_primaries=bt709:color_trc=bt709"
    init = parse_init(encode(codec, more=("-vf", tags))[0])
    assert (init.codec, init.width, init.height, init.timescale) == (codec, 96, 64, TIMESCALE)
    assert (init.primaries, init.transfer, init.matrix, init.full_range) == (1, 1, 1, False)
    # One frame: so far do B-frames move everything back.
    assert init.media_time_ticks == (0 if codec == "av1" else 1000)
    # A marker of 1, and the version 1, in av1C.
    assert init.extradata[0] == (0x81 if codec == "av1" else 1)


def test_an_init_without_colours_and_b_frames() -> None:
    init = parse_init(encode("h264", b_frames=0)[0])
    assert (init.primaries, init.transfer, init.matrix, init.full_range) == (2, 2, 2, False)
    assert init.media_time_ticks == 0


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_ffmpegs_fragments_are_read(codec: str) -> None:
    _, fragments = encode(codec, frames=20, gop=8)
    parsed = [parse_fragment(fragment) for fragment in fragments]
    assert [len(fragment) for fragment in parsed] == [8, 8, 4]
    assert [fragment.sequence_number for fragment in parsed] == [1, 2, 3]
    assert [fragment.decode_ticks for fragment in parsed] == [0, 8000, 16000]
    assert sorted(parsed[1].pts_ticks.tolist()) == [1000 * frame for frame in range(9, 17)]


@pytest.mark.parametrize(
    ("number", "ticks", "complaint"), [(2**32, 0, "4294967296 does not fit"), (1, -1, "-1 does not fit")]
)
def test_numbers_that_have_no_room_are_refused(number: int, ticks: int, complaint: str) -> None:
    with pytest.raises(CorruptDataError, match=complaint):
        restamp_fragment(encode()[1][0], number, ticks)


# Accidents


def accidents(data: bytes, headers: int) -> st.SearchStrategy[bytes]:
    """`data` cut short, or with some bytes overwritten, most of them among the first `headers`."""
    position = st.integers(0, headers - 1) | st.integers(0, len(data) - 1)

    def overwrite(changes: list[tuple[int, int]]) -> bytes:
        damaged = bytearray(data)
        for at, value in changes:
            damaged[at] = value
        return bytes(damaged)

    cut = st.integers(0, len(data)).map(lambda stop: data[:stop])
    return cut | st.lists(st.tuples(position, st.integers(0, 255)), min_size=1, max_size=4).map(overwrite)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_fragment_gives_a_corrupt_data_error_or_a_valid_table(data: st.DataObject) -> None:
    fragment = encode()[1][1]
    damaged = data.draw(accidents(fragment, headers=next(boxes(fragment)).stop + 8))
    try:
        parsed = parse_fragment(damaged)
    except CorruptDataError:
        return
    assert parsed.offsets[0] + parsed.sizes.sum() == len(damaged)
    assert len(parsed.pts_ticks) == len(parsed)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_init_gives_a_corrupt_data_error_or_a_valid_init(data: st.DataObject) -> None:
    init_bytes = encode()[0]
    try:
        init = parse_init(data.draw(accidents(init_bytes, headers=len(init_bytes))))
    except CorruptDataError:
        return
    assert init.timescale
    assert init.width
    assert init.height


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_nothing_else_is_raised_for_a_damaged_gop(data: st.DataObject) -> None:
    _, fragments = encode(data.draw(st.sampled_from(CODECS)))
    damaged = data.draw(accidents(fragments[1], headers=260))
    for codec in CODECS:
        try:
            restamp_fragment(damaged, 1, 0)
            check_gop(
                damaged,
                config=parse_init(encode(codec)[0]).config,
                num_frames=8,
                decode_ticks=8000,
                media_time_ticks=1000,
                frame_ticks=1000,
            )
        except CorruptDataError:
            continue


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_nothing_else_is_raised_for_noise(data: bytes) -> None:
    for parse in (
        parse_init,
        parse_fragment,
        lambda noise: restamp_fragment(noise, 1, 0),
        lambda noise: access_unit_kinds("h264", b"\0\0\0\0\3")(noise, 0, len(noise)),
    ):
        with pytest.raises(CorruptDataError):
            parse(data)
