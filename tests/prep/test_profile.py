"""The encode profile: what people type, what is kept, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortgop import FormatVersionError, UsageError
from shortgop.prep.profile import (
    DEINTERLACE,
    ENCODERS,
    FITS,
    PROFILES,
    Profile,
    Size,
    changed_profile,
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
    fit=st.sampled_from(FITS),
    upscale=st.booleans(),
    deinterlace=st.sampled_from(DEINTERLACE),
    gop_frames=st.integers(1, 1000),
    # What every codec takes.
    b_frames=st.integers(0, 1),
    crf=st.integers(1, 51),
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
        ("--gop", {"gop_frames": 0}), ("--b-frames", {"b_frames": -1}), ("--codec", {"codec": "vp9"}),
        ("--encoder", {"encoder": "x264"}), ("--encoder", {"encoder": "libx265"}), ("--crf", {"crf": 52}),
        ("--segment-seconds", {"segment_seconds": Fraction(0)}), ("--shard-mb", {"shard_bytes": 1}),
        ("--fps", {"fps": Fraction(-1)}), ("--fps", {"fps": Fraction(10_000)}), ("--preset", {"preset": "-y"}),
        ("--fastdecode", {"fastdecode": "yes"}), ("--fit", {"fit": "fill"}), ("--upscale", {"upscale": 1}),
        ("--deinterlace", {"deinterlace": "yes"}),
    ],
)  # fmt: skip
def test_values_that_make_no_sense_name_their_option(option: str, values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=option):
        Profile(**values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"b_frames": 2}, "--b-frames is 2; it takes from 0 to 1 with --codec av1"),
        ({"crf": 0}, r"--crf is 0; it takes from 1 \(best\) to 63 \(smallest\) with --codec av1"),
    ],
)
def test_what_only_other_codecs_take_is_refused_with_the_codec(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        changed_profile(None, {"codec": "av1", **values})


def test_a_codec_brings_what_its_options_mean_with_it() -> None:
    """23 of 51 is an ordinary quality of H.264, and 35 of 63 one of AV1."""
    av1 = changed_profile(None, {"codec": "av1"})
    assert (av1.crf, av1.b_frames) == (35, 1)
    assert changed_profile(av1, {"codec": "h264"}) == Profile()
    assert changed_profile(av1, {"gop_frames": 8, "crf": 40}) == replace(av1, gop_frames=8, crf=40)
    assert changed_profile(Profile(crf=20), {"codec": "hevc"}).crf == 20
    assert changed_profile(Profile(crf=20), {"codec": "av1"}).crf == 35
    assert changed_profile(Profile(crf=20), {"codec": "av1", "crf": 50}).crf == 50


def test_a_profile_of_another_version_says_so() -> None:
    with pytest.raises(FormatVersionError, match="another version"):
        profile_from_json({"gop": 16})


BEFORE = (
    '{"b_frames": 3, "codec": "h264", "crf": 23, "encoder": "auto", "fps": "source", "gop_frames": 16, '
    '"preset": null, "segment_seconds": "10", "shard_bytes": 256000000, "size": "320x240"}'
)
"""The profile and key of a dataset from before there were --fastdecode, --fit, --upscale and --deinterlace."""


def test_a_dataset_from_before_an_option_goes_on_as_it_was_made() -> None:
    profile = profile_from_json(json.loads(BEFORE))
    done_then: dict[str, Any] = {"fastdecode": False, "fit": "stretch", "upscale": True, "deinterlace": "never"}
    assert profile == Profile(size=Size(exact=(320, 240)), **done_then)
    # Units are named after the key: with another one everything would be prepared again.
    assert profile.key() == BEFORE
    now: dict[str, Any] = {"fastdecode": True, "fit": "within", "upscale": False, "deinterlace": "auto"}
    for name, value in now.items():
        assert name in json.loads(replace(profile, **{name: value}).key())


def test_the_root_in_the_format_page_is_the_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
    root = json.loads(page.partition("```json")[2].partition("```")[0])
    assert root["attributes"]["shortgop"]["profile"] == Profile().to_json()


def test_the_first_named_profile_is_the_default_and_all_of_them_are_valid_and_different() -> None:
    made = [Profile(**named_profile(name)) for name in PROFILES]
    assert made[0] == Profile()
    assert len({profile.key() for profile in made}) == len(made) == 3


@pytest.mark.parametrize("name", PROFILES)
def test_a_named_profile_has_what_another_codec_brings(name: str) -> None:
    """None of them names a quality, so that a dataset keeps the one that it was given."""
    others = {option: value for option, value in PROFILES[name].items() if option not in {"codec", "b_frames"}}
    av1 = changed_profile(None, named_profile(name, "av1"))
    assert av1 == Profile(codec="av1", crf=35, b_frames=1, **others)
    assert changed_profile(replace(av1, crf=50), named_profile(name, "av1")).crf == 50
    assert named_profile(name, "hevc") == PROFILES[name] | {"codec": "hevc"}


def test_a_profile_that_nobody_named_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="--profile is 'tiny'; it takes fast, balanced, small"):
        named_profile("tiny")
