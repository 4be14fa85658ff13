"""The encode profile: what people type, what is kept, what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop import FormatVersionError, UsageError
from shortgop.prep.profile import (
    ENCODERS,
    PROFILES,
    Profile,
    Size,
    named_profile,
    parse_fps,
    parse_size,
    profile_from_json,
)  # fmt: skip

even = st.integers(1, 8192).map(lambda side: 2 * side)
sizes = st.one_of(
    st.just(Size()),
    st.builds(lambda side: Size(short_side=side), even),
    st.builds(lambda width, height: Size(exact=(width, height)), even, even),
)
profiles = st.builds(
    lambda encoder, **options: Profile(encoder=encoder, codec=ENCODERS[encoder], **options),
    encoder=st.sampled_from(sorted(ENCODERS)),
    fps=st.none() | st.fractions(min_value=Fraction(1, 100), max_value=1000, max_denominator=999),
    size=sizes,
    gop_frames=st.integers(1, 1000),
    b_frames=st.integers(0, 16),
    crf=st.integers(0, 51),
    preset=st.none() | st.sampled_from(["medium", "veryfast", "p4"]),
    fastdecode=st.booleans(),
    segment_seconds=st.fractions(min_value=Fraction(1, 10), max_value=100, max_denominator=100),
    shard_bytes=st.integers(1_000_000, 10**12),
)


@given(profiles)
def test_it_comes_back_from_json_as_it_was(profile: Profile) -> None:
    assert profile_from_json(profile.to_json()) == profile


@given(profiles, profiles)
def test_keys_are_equal_just_when_profiles_are(one: Profile, other: Profile) -> None:
    assert (one.key() == other.key()) == (one == other)


@pytest.mark.parametrize(
    ("text", "fps"),
    [
        ("source", None), ("30", Fraction(30)), ("29.97", Fraction(30000, 1001)), ("23.976", Fraction(24000, 1001)),
        ("30000/1001", Fraction(30000, 1001)), ("12.5", Fraction(25, 2)),
    ],
)  # fmt: skip
def test_rates(text: str, fps: Fraction | None) -> None:
    assert parse_fps(text) == fps


@pytest.mark.parametrize(
    ("text", "size"),
    [("source", Size()), ("256", Size(short_side=256)), ("640x360", Size(exact=(640, 360)))],
)
def test_sizes(text: str, size: Size) -> None:
    assert parse_size(text) == size
    assert str(size) == text


@pytest.mark.parametrize("text", ["", "fast", "1/0", "30fps"])
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--fps"):
        parse_fps(text)


@pytest.mark.parametrize("text", ["", "0", "255", "640x", "640x361", "-2", "99999", "1e3"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--gop", {"gop_frames": 0}), ("--b-frames", {"b_frames": -1}), ("--codec", {"codec": "av1"}),
        ("--encoder", {"encoder": "x264"}), ("--encoder", {"encoder": "libx265"}), ("--crf", {"crf": 52}),
        ("--segment-seconds", {"segment_seconds": Fraction(0)}), ("--shard-mb", {"shard_bytes": 1}),
        ("--fps", {"fps": Fraction(-1)}), ("--fps", {"fps": Fraction(10_000)}), ("--preset", {"preset": "-y"}),
        ("--fastdecode", {"fastdecode": "yes"}),
    ],
)  # fmt: skip
def test_values_that_make_no_sense_name_their_option(option: str, values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=option):
        Profile(**values)


def test_a_profile_of_another_version_says_so() -> None:
    with pytest.raises(FormatVersionError, match="another version"):
        profile_from_json({"gop": 16})


def test_a_dataset_from_before_fastdecode_goes_on_as_one_without() -> None:
    values = Profile().to_json()
    del values["fastdecode"]
    assert profile_from_json(values) == Profile()
    assert "fastdecode" not in Profile().key()


def test_the_first_named_profile_is_the_default_and_all_of_them_are_valid_and_different() -> None:
    made = [Profile(**named_profile(name)) for name in PROFILES]
    assert made[0] == Profile()
    assert len({profile.key() for profile in made}) == len(made) == 3


def test_a_profile_that_nobody_named_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="--profile is 'tiny'; it takes balanced, fast, small"):
        named_profile("tiny")
