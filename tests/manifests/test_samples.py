"""Where samples lie: the quick way says what the thorough one says, and never more."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encodes import encode
from mp4_writer import Writer
from shortgop.errors import CorruptDataError
from shortgop.manifests.mp4 import _usual_bounds, parse_fragment, sample_bounds

SAMPLES = st.lists(
    st.tuples(st.integers(1, 300), st.integers(0, 1000), st.integers(-500, 1000)), min_size=1, max_size=20
)


def thorough_bounds(data: bytes) -> list[int]:
    fragment = parse_fragment(data)
    return [*fragment.offsets.tolist(), int(fragment.offsets[-1] + fragment.sizes[-1])]


@given(SAMPLES, *[st.booleans()] * 5)
def test_any_fragment(
    samples: list[tuple[int, int, int]],
    data_offset: bool,
    first_flags: bool,
    sample_flags: bool,
    large: bool,
    durations: bool,
) -> None:
    writer = Writer(
        samples,
        data_offset=data_offset,
        first_flags=first_flags,
        sample_flags=sample_flags,
        large=large,
        default_duration=None if durations else 5,
    )
    data = writer.write()
    assert sample_bounds(data) == thorough_bounds(data)
    assert sample_bounds(memoryview(data)) == thorough_bounds(data)


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_what_ffmpeg_writes_takes_the_quick_way(codec: str) -> None:
    for fragment in encode(codec)[1]:
        assert _usual_bounds(fragment) == thorough_bounds(fragment)


def test_damage_is_seen_by_both_or_by_neither() -> None:
    fragment = encode()[1][0]
    end_of_moof = fragment.index(b"mdat") + 4
    rng = random.Random(0)
    for _ in range(3000):
        data = bytearray(fragment)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(end_of_moof)] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        try:
            expected = thorough_bounds(bytes(data))
        except CorruptDataError:
            try:
                found = sample_bounds(bytes(data))
            except CorruptDataError:
                continue
            # Times are none of its business; where samples lie is.
            assert found == thorough_bounds(fragment)
        else:
            assert sample_bounds(bytes(data)) == expected
